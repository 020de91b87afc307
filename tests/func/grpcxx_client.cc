// tests/func/grpcxx_client.cc - the stock C++ client (libgrpc++), one call a run, for
// test_stock_clients.py.
//
// usage: grpcxx_client ADDRESS PATH [-t TIMEOUT_MS] [-z] [-m KEY=VALUE]... < MESSAGES
//
// MESSAGES: each a 4-byte big-endian length and its bytes; all are sent, then half-closed, while
// answers are read. -z: compressed with gzip. Prints what the client saw, bytes in hex:
//     header KEY HEX / message HEX / trailer KEY HEX / status CODE DETAILS-IN-HEX
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

static std::string hex(const char *data, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    std::string out;
    for (size_t i = 0; i < n; i++) {
        out += digits[(unsigned char)data[i] >> 4];
        out += digits[(unsigned char)data[i] & 15];
    }
    return out;
}

static std::vector<std::string> read_messages(std::istream &in)
{
    std::vector<std::string> out;
    unsigned char head[4];
    while (in.read((char *)head, 4)) {
        std::string body((size_t)head[0] << 24 | head[1] << 16 | head[2] << 8 | head[3], '\0');
        in.read(&body[0], (std::streamsize)body.size());
        out.push_back(body);
    }
    return out;
}

static void print_pairs(const char *what,
                        const std::multimap<grpc::string_ref, grpc::string_ref> &pairs)
{
    for (const auto &p : pairs)
        std::cout << what << ' ' << std::string(p.first.data(), p.first.size()) << ' '
                  << hex(p.second.data(), p.second.size()) << '\n';
}

static void print_message(const grpc::ByteBuffer &buffer)
{
    std::vector<grpc::Slice> slices;
    buffer.Dump(&slices);
    std::cout << "message ";
    for (const auto &s : slices)
        std::cout << hex((const char *)s.begin(), s.size());
    std::cout << '\n';
}

// Waits for the next event; the call is driven in lock step, so it is always the one asked for.
static bool next_ok(grpc::CompletionQueue *queue)
{
    void *tag;
    bool ok = false;
    return queue->Next(&tag, &ok) && ok;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::cerr << "usage: grpcxx_client ADDRESS PATH [-t MS] [-z] [-m KEY=VALUE]...\n";
        return 64;
    }
    grpc::ClientContext context;
    for (int i = 3; i < argc; i++) {
        const std::string option = argv[i];
        if (option == "-t") {
            context.set_deadline(std::chrono::system_clock::now() +
                                 std::chrono::milliseconds(std::stoi(argv[++i])));
        } else if (option == "-z") {
            context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
        } else if (option == "-m") {
            const std::string pair = argv[++i];
            const size_t at = pair.find('=');
            context.AddMetadata(pair.substr(0, at), pair.substr(at + 1));
        }
    }
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    grpc::GenericStub stub(
        grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments));
    grpc::CompletionQueue queue;
    auto call = stub.PrepareCall(&context, argv[2], &queue);

    call->StartCall(nullptr);
    bool going = next_ok(&queue);
    for (const std::string &m : read_messages(std::cin)) {
        if (!going)
            break;
        grpc::Slice slice(m);
        call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
        going = next_ok(&queue);
    }
    if (going) {
        call->WritesDone(nullptr);
        next_ok(&queue);
    }
    std::vector<grpc::ByteBuffer> answers;
    for (;;) {
        grpc::ByteBuffer answer;
        call->Read(&answer, nullptr);
        if (!next_ok(&queue))
            break;
        answers.push_back(answer);
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    next_ok(&queue);

    print_pairs("header", context.GetServerInitialMetadata());
    for (const auto &a : answers)
        print_message(a);
    print_pairs("trailer", context.GetServerTrailingMetadata());
    std::cout << "status " << status.error_code() << ' '
              << hex(status.error_message().data(), status.error_message().size()) << '\n';
    return 0;
}
