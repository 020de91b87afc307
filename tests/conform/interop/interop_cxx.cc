// The gRPC project's interoperability cases with libgrpc++, client and server; usage and output as
// of interop_py.py.
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "grpc/testing/test.grpc.pb.h"

using namespace grpc::testing;
using Args = std::map<std::string, std::string>;

static const std::vector<int> up = {27182, 8, 1828, 45904}, down = {31415, 9, 2653, 58979};
static const char *const echo = "x-grpc-test-echo-initial";
static const char *const echo_bin = "x-grpc-test-echo-trailing-bin";
static const char *const special =
    "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n";

static std::string file(const std::string &path)
{
    std::stringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
}

static void set_size(Payload *p, int n)
{
    p->set_body(std::string((size_t)n, '\0'));
}

// ---- server ----

class Server final : public TestService::Service
{
    static void echo_metadata(grpc::ServerContext *c)
    {
        for (const auto &m : c->client_metadata()) {
            const std::string value(m.second.data(), m.second.size());
            if (m.first == echo)
                c->AddInitialMetadata(echo, value);
            if (m.first == echo_bin)
                c->AddTrailingMetadata(echo_bin, value);
        }
    }

    static grpc::Status status_of(const EchoStatus &s)
    {
        return grpc::Status((grpc::StatusCode)s.code(), s.message());
    }

    template <class Writer> static void send(Writer *w, const StreamingOutputCallRequest &r)
    {
        for (const auto &p : r.response_parameters()) {
            std::this_thread::sleep_for(std::chrono::microseconds(p.interval_us()));
            StreamingOutputCallResponse out;
            set_size(out.mutable_payload(), p.size());
            w->Write(out);
        }
    }

    grpc::Status EmptyCall(grpc::ServerContext *c, const Empty *, Empty *) override
    {
        echo_metadata(c);
        return grpc::Status::OK;
    }

    grpc::Status UnaryCall(grpc::ServerContext *c, const SimpleRequest *r,
                           SimpleResponse *out) override
    {
        echo_metadata(c);
        if (r->has_response_status())
            return status_of(r->response_status());
        set_size(out->mutable_payload(), r->response_size());
        return grpc::Status::OK;
    }

    grpc::Status StreamingInputCall(grpc::ServerContext *c,
                                    grpc::ServerReader<StreamingInputCallRequest> *in,
                                    StreamingInputCallResponse *out) override
    {
        StreamingInputCallRequest r;
        int n = 0;
        echo_metadata(c);
        while (in->Read(&r))
            n += (int)r.payload().body().size();
        out->set_aggregated_payload_size(n);
        return grpc::Status::OK;
    }

    grpc::Status StreamingOutputCall(grpc::ServerContext *, const StreamingOutputCallRequest *r,
                                     grpc::ServerWriter<StreamingOutputCallResponse> *w) override
    {
        send(w, *r);
        return grpc::Status::OK;
    }

    grpc::Status FullDuplexCall(grpc::ServerContext *c,
                                grpc::ServerReaderWriter<StreamingOutputCallResponse,
                                                         StreamingOutputCallRequest> *s) override
    {
        StreamingOutputCallRequest r;
        echo_metadata(c);
        while (s->Read(&r)) {
            if (r.has_response_status())
                return status_of(r.response_status());
            send(s, r);
        }
        return grpc::Status::OK;
    }
};

static int serve(Args &args)
{
    Server service;
    grpc::ServerBuilder builder;
    int port = 0;
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (!args["cert"].empty()) {
        grpc::SslServerCredentialsOptions options;
        options.pem_key_cert_pairs.push_back({file(args["key"]), file(args["cert"])});
        credentials = grpc::SslServerCredentials(options);
    }
    builder.AddListeningPort(args["listen"], credentials, &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    if (!server)
        return 1;
    std::cout << "listening grpc " << args["listen"].substr(0, args["listen"].rfind(':')) << ':'
              << port << "\nready" << std::endl;
    server->Wait();
    return 0;
}

// ---- client ----

template <class A, class B> static void must(const A &got, const B &want)
{
    if (!(got == want)) {
        std::stringstream text;
        text << got << ", not " << want;
        throw std::runtime_error(text.str());
    }
}

static void must_be_ok(const grpc::Status &s)
{
    if (!s.ok())
        throw std::runtime_error("status " + std::to_string(s.error_code()) + " " +
                                 s.error_message());
}

struct Context : grpc::ClientContext {
    explicit Context(int ms = 20000)
    {
        set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(ms));
    }
};

static SimpleRequest large()
{
    SimpleRequest r;
    r.set_response_size(314159);
    set_size(r.mutable_payload(), 271828);
    return r;
}

static StreamingOutputCallRequest ask(const std::vector<int> &sizes, int payload = 0)
{
    StreamingOutputCallRequest r;
    for (int n : sizes)
        r.add_response_parameters()->set_size(n);
    set_size(r.mutable_payload(), payload);
    return r;
}

struct Client {
    std::shared_ptr<grpc::Channel> channel;
    int soak, threads;
    std::unique_ptr<TestService::Stub> stub = TestService::NewStub(channel);

    void empty_unary()
    {
        Context c;
        Empty in, out;
        must_be_ok(stub->EmptyCall(&c, in, &out));
    }

    void large_unary()
    {
        Context c;
        SimpleResponse out;
        must_be_ok(stub->UnaryCall(&c, large(), &out));
        must(out.payload().body().size(), 314159u);
    }

    void client_streaming()
    {
        Context c;
        StreamingInputCallResponse out;
        auto s = stub->StreamingInputCall(&c, &out);
        for (int n : up) {
            StreamingInputCallRequest r;
            set_size(r.mutable_payload(), n);
            must(s->Write(r), true);
        }
        s->WritesDone();
        must_be_ok(s->Finish());
        must(out.aggregated_payload_size(), 74922);
    }

    void server_streaming()
    {
        Context c;
        StreamingOutputCallResponse r;
        size_t i = 0;
        auto s = stub->StreamingOutputCall(&c, ask(down));
        while (s->Read(&r))
            must((int)r.payload().body().size(), down.at(i++));
        must(i, down.size());
        must_be_ok(s->Finish());
    }

    void ping_pong()
    {
        Context c;
        StreamingOutputCallResponse r;
        auto s = stub->FullDuplexCall(&c);
        for (size_t i = 0; i < up.size(); i++) {
            must(s->Write(ask({down[i]}, up[i])), true);
            must(s->Read(&r), true);
            must((int)r.payload().body().size(), down[i]);
        }
        s->WritesDone();
        must(s->Read(&r), false);
        must_be_ok(s->Finish());
    }

    void empty_stream()
    {
        Context c;
        StreamingOutputCallResponse r;
        auto s = stub->FullDuplexCall(&c);
        s->WritesDone();
        must(s->Read(&r), false);
        must_be_ok(s->Finish());
    }

    void timeout_on_sleeping_server()
    {
        Context c(1);
        auto s = stub->FullDuplexCall(&c);
        s->Write(ask({}, 27182));
        must((int)s->Finish().error_code(), (int)grpc::DEADLINE_EXCEEDED);
    }

    void cancel_after_begin()
    {
        Context c;
        StreamingInputCallResponse out;
        auto s = stub->StreamingInputCall(&c, &out);
        c.TryCancel();
        must((int)s->Finish().error_code(), (int)grpc::CANCELLED);
    }

    void cancel_after_first_response()
    {
        Context c;
        StreamingOutputCallResponse r;
        auto s = stub->FullDuplexCall(&c);
        must(s->Write(ask({31415}, 27182)), true);
        must(s->Read(&r), true);
        c.TryCancel();
        must((int)s->Finish().error_code(), (int)grpc::CANCELLED);
    }

    void unary_status(const char *message)
    {
        Context c;
        SimpleRequest r;
        SimpleResponse out;
        r.mutable_response_status()->set_code(2);
        r.mutable_response_status()->set_message(message);
        const grpc::Status s = stub->UnaryCall(&c, r, &out);
        must((int)s.error_code(), 2);
        must(s.error_message(), message);
    }

    void status_code_and_message()
    {
        unary_status("test status message");
        Context c;
        StreamingOutputCallRequest r;
        auto s = stub->FullDuplexCall(&c);
        r.mutable_response_status()->set_code(2);
        r.mutable_response_status()->set_message("test status message");
        s->Write(r);
        s->WritesDone();
        const grpc::Status end = s->Finish();
        must((int)end.error_code(), 2);
        must(end.error_message(), "test status message");
    }

    void special_status_message()
    {
        unary_status(special);
    }

    static void must_echo(const grpc::ClientContext &c)
    {
        const auto initial = c.GetServerInitialMetadata().find(echo);
        const auto trailing = c.GetServerTrailingMetadata().find(echo_bin);
        must(initial != c.GetServerInitialMetadata().end() &&
                 initial->second == "test_initial_metadata_value",
             true);
        must(trailing != c.GetServerTrailingMetadata().end() && trailing->second == "\xab\xab\xab",
             true);
    }

    void custom_metadata()
    {
        Context a, b;
        SimpleResponse out;
        StreamingOutputCallResponse r;
        for (Context *c : {&a, &b}) {
            c->AddMetadata(echo, "test_initial_metadata_value");
            c->AddMetadata(echo_bin, "\xab\xab\xab");
        }
        must_be_ok(stub->UnaryCall(&a, large(), &out));
        must_echo(a);
        auto s = stub->FullDuplexCall(&b);
        s->Write(ask({314159}, 271828));
        s->WritesDone();
        while (s->Read(&r))
            must(r.payload().body().size(), 314159u);
        must_be_ok(s->Finish());
        must_echo(b);
    }

    void unimplemented_method()
    {
        Context c;
        Empty in, out;
        must((int)stub->UnimplementedCall(&c, in, &out).error_code(), (int)grpc::UNIMPLEMENTED);
    }

    void unimplemented_service()
    {
        Context c;
        Empty in, out;
        auto other = UnimplementedService::NewStub(channel);
        must((int)other->UnimplementedCall(&c, in, &out).error_code(), (int)grpc::UNIMPLEMENTED);
    }

    void rpc_soak()
    {
        std::vector<std::thread> pool;
        std::mutex lock;
        std::string wrong;
        for (int t = 0; t < threads; t++)
            pool.emplace_back([&, t] {
                try {
                    for (int i = t; i < soak; i += threads)
                        large_unary();
                } catch (const std::exception &e) {
                    const std::lock_guard<std::mutex> hold(lock);
                    wrong = e.what();
                }
            });
        for (auto &t : pool)
            t.join();
        if (!wrong.empty())
            throw std::runtime_error(wrong);
    }
};

#define CASE(name)                                                                                 \
    {                                                                                              \
#name, &Client::name                                                                       \
    }
static const std::map<std::string, void (Client::*)()> cases = {
    CASE(empty_unary),
    CASE(large_unary),
    CASE(client_streaming),
    CASE(server_streaming),
    CASE(ping_pong),
    CASE(empty_stream),
    CASE(timeout_on_sleeping_server),
    CASE(cancel_after_begin),
    CASE(cancel_after_first_response),
    CASE(status_code_and_message),
    CASE(special_status_message),
    CASE(custom_metadata),
    CASE(unimplemented_method),
    CASE(unimplemented_service),
    CASE(rpc_soak),
};

static int run(Args &args)
{
    grpc::ChannelArguments options;
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    options.SetMaxReceiveMessageSize(-1);
    if (!args["ca"].empty()) {
        grpc::SslCredentialsOptions ssl;
        ssl.pem_root_certs = file(args["ca"]);
        credentials = grpc::SslCredentials(ssl);
        options.SetSslTargetNameOverride("localhost");
    }
    Client client{grpc::CreateCustomChannel(args["address"], credentials, options),
                  args["soak"].empty() ? 200 : std::stoi(args["soak"]),
                  args["threads"].empty() ? 4 : std::stoi(args["threads"])};
    std::stringstream names(args["cases"]);
    int bad = 0;
    for (std::string name; std::getline(names, name, ',');) {
        try {
            (client.*cases.at(name))();
            std::cout << "ok " << name << std::endl;
        } catch (const std::exception &e) {
            bad = 1;
            std::cout << "bad " << name << ' ' << e.what() << std::endl;
        }
    }
    return bad;
}

int main(int argc, char **argv)
{
    Args args;
    for (int i = 2; i + 1 < argc; i += 2)
        args[argv[i] + 1] = argv[i + 1];
    return argc > 1 && argv[1] == std::string("server") ? serve(args) : run(args);
}
