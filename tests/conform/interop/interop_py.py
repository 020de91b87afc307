#!/usr/bin/env python3
"""The gRPC project's interoperability cases (grpc/doc/interop-test-descriptions.md) with grpcio: client and server.

usage: interop_py.py server -listen ADDR [-cert FILE -key FILE]            prints `listening grpc ADDR`, then `ready`
       interop_py.py client -address ADDR -cases A,B,... [-ca FILE] [-soak N] [-threads N]
                                                                           prints a line a case: `ok CASE` or `bad CASE WHY`
"""
import argparse
import concurrent.futures
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTO = "/usr/share/grpc-proto"
SERVICE = "/grpc.testing.TestService/"
UP, DOWN = (27182, 8, 1828, 45904), (31415, 9, 2653, 58979)
ECHO, ECHO_BIN = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]


def load_messages():
    """Classes of grpc/testing/*.proto by name."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "set"
        subprocess.run(["protoc", "-I", PROTO, "--include_imports", "-o", out, "grpc/testing/test.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for f in files:
        pool.Add(f)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName("grpc.testing." + name)) for name in (
        "Empty", "SimpleRequest", "SimpleResponse", "StreamingInputCallRequest", "StreamingInputCallResponse", "StreamingOutputCallRequest",
        "StreamingOutputCallResponse")}


M = load_messages()
KINDS = {  # method: (request streams, response streams, request, response)
    "EmptyCall": (False, False, "Empty", "Empty"),
    "UnaryCall": (False, False, "SimpleRequest", "SimpleResponse"),
    "StreamingInputCall": (True, False, "StreamingInputCallRequest", "StreamingInputCallResponse"),
    "StreamingOutputCall": (False, True, "StreamingOutputCallRequest", "StreamingOutputCallResponse"),
    "FullDuplexCall": (True, True, "StreamingOutputCallRequest", "StreamingOutputCallResponse"),
    "UnimplementedCall": (False, False, "Empty", "Empty"),
}


# ---- server ----

class Server:
    def echo_metadata(self, context):
        got = dict(context.invocation_metadata())
        if ECHO in got:
            context.send_initial_metadata(((ECHO, got[ECHO]),))
        if ECHO_BIN in got:
            context.set_trailing_metadata(((ECHO_BIN, got[ECHO_BIN]),))

    def end_as_asked(self, request, context):
        if request.HasField("response_status"):
            context.set_code(next(c for c in grpc.StatusCode if c.value[0] == request.response_status.code))
            context.set_details(request.response_status.message)
            return True
        return False

    def EmptyCall(self, request, context):
        self.echo_metadata(context)
        return M["Empty"]()

    def UnaryCall(self, request, context):
        self.echo_metadata(context)
        self.end_as_asked(request, context)
        return M["SimpleResponse"](payload={"body": bytes(request.response_size)})

    def StreamingInputCall(self, requests, context):
        self.echo_metadata(context)
        return M["StreamingInputCallResponse"](aggregated_payload_size=sum(len(r.payload.body) for r in requests))

    def StreamingOutputCall(self, request, context):
        for p in request.response_parameters:
            time.sleep(p.interval_us / 1e6)
            yield M["StreamingOutputCallResponse"](payload={"body": bytes(p.size)})

    def FullDuplexCall(self, requests, context):
        self.echo_metadata(context)
        for r in requests:
            if self.end_as_asked(r, context):
                return
            yield from self.StreamingOutputCall(r, context)


def serve(args):
    implementation = Server()
    kinds = {(False, False): grpc.unary_unary_rpc_method_handler, (True, False): grpc.stream_unary_rpc_method_handler,
             (False, True): grpc.unary_stream_rpc_method_handler, (True, True): grpc.stream_stream_rpc_method_handler}
    handlers = {name: kinds[up, down](getattr(implementation, name), M[request].FromString, M[response].SerializeToString)
                for name, (up, down, request, response) in KINDS.items() if hasattr(implementation, name)}
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(32), options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.testing.TestService", handlers),))
    host, _ = args.listen.rsplit(":", 1)
    if args.cert:
        pair = (pathlib.Path(args.key).read_bytes(), pathlib.Path(args.cert).read_bytes())
        port = server.add_secure_port(args.listen, grpc.ssl_server_credentials([pair]))
    else:
        port = server.add_insecure_port(args.listen)
    server.start()
    print(f"listening grpc {host}:{port}\nready", flush=True)
    server.wait_for_termination()


# ---- client ----

def method(channel, name, service=SERVICE):
    up, down, request, response = KINDS[name]
    make = {(False, False): channel.unary_unary, (True, False): channel.stream_unary, (False, True): channel.unary_stream,
            (True, True): channel.stream_stream}[up, down]
    return make(service + name, M[request].SerializeToString, M[response].FromString)


def large():
    return M["SimpleRequest"](response_size=314159, payload={"body": bytes(271828)})


def ask(down, up=None):
    return M["StreamingOutputCallRequest"](response_parameters=[{"size": n} for n in down], payload={"body": bytes(up or 0)})


def code_of(call):
    try:
        result = call()
        for _ in result if hasattr(result, "__next__") else ():
            pass
        return (result.code() if hasattr(result, "code") else grpc.StatusCode.OK), "", result
    except grpc.RpcError as e:
        return e.code(), e.details(), e


def must(got, want):
    assert got == want, f"{got!r}, not {want!r}"


class Cases:
    def __init__(self, channel, soak, threads):
        self.channel, self.soak, self.threads = channel, soak, threads

    def empty_unary(self):
        must(method(self.channel, "EmptyCall")(M["Empty"](), timeout=20), M["Empty"]())

    def large_unary(self):
        must(len(method(self.channel, "UnaryCall")(large(), timeout=20).payload.body), 314159)

    def client_streaming(self):
        requests = (M["StreamingInputCallRequest"](payload={"body": bytes(n)}) for n in UP)
        must(method(self.channel, "StreamingInputCall")(requests, timeout=20).aggregated_payload_size, sum(UP))

    def server_streaming(self):
        must([len(r.payload.body) for r in method(self.channel, "StreamingOutputCall")(ask(DOWN), timeout=20)], list(DOWN))

    def ping_pong(self):
        arrived = threading.Semaphore(1)

        def requests():
            for up, down in zip(UP, DOWN):
                arrived.acquire()
                yield ask([down], up)

        got = []
        for r in method(self.channel, "FullDuplexCall")(requests(), timeout=20):
            got.append(len(r.payload.body))
            arrived.release()
        must(got, list(DOWN))

    def empty_stream(self):
        must(list(method(self.channel, "FullDuplexCall")(iter(()), timeout=20)), [])

    def timeout_on_sleeping_server(self):
        hold = threading.Event()

        def requests():
            yield ask([], 27182)
            hold.wait(10)

        must(code_of(lambda: method(self.channel, "FullDuplexCall")(requests(), timeout=0.001))[0], grpc.StatusCode.DEADLINE_EXCEEDED)
        hold.set()

    def cancel_after_begin(self):
        hold = threading.Event()

        def requests():
            hold.wait(10)
            yield from ()

        call = method(self.channel, "StreamingInputCall").future(requests(), timeout=20)
        call.cancel()
        must(call.code(), grpc.StatusCode.CANCELLED)
        hold.set()

    def cancel_after_first_response(self):
        hold = threading.Event()

        def requests():
            yield ask([31415], 27182)
            hold.wait(10)

        call = method(self.channel, "FullDuplexCall")(requests(), timeout=20)
        must(len(next(call).payload.body), 31415)
        call.cancel()
        must(code_of(lambda: call)[0], grpc.StatusCode.CANCELLED)
        hold.set()

    def status_code_and_message(self, message="test status message", both=True):
        status = {"code": 2, "message": message}
        unary = M["SimpleRequest"](response_status=status)
        must(code_of(lambda: method(self.channel, "UnaryCall")(unary, timeout=20))[:2], (grpc.StatusCode.UNKNOWN, message))
        if both:
            duplex = M["StreamingOutputCallRequest"](response_status=status)
            must(code_of(lambda: method(self.channel, "FullDuplexCall")(iter([duplex]), timeout=20))[:2], (grpc.StatusCode.UNKNOWN, message))

    def special_status_message(self):
        self.status_code_and_message(SPECIAL, both=False)

    def custom_metadata(self):
        metadata = ((ECHO, "test_initial_metadata_value"), (ECHO_BIN, b"\xab\xab\xab"))
        unary = method(self.channel, "UnaryCall")
        _, call = unary.with_call(large(), metadata=metadata, timeout=20)
        duplex = method(self.channel, "FullDuplexCall")(iter([ask([314159], 271828)]), metadata=metadata, timeout=20)
        must([len(r.payload.body) for r in duplex], [314159])
        for c in (call, duplex):
            must(dict(c.initial_metadata()).get(ECHO), "test_initial_metadata_value")
            must(dict(c.trailing_metadata()).get(ECHO_BIN), b"\xab\xab\xab")

    def unimplemented_method(self):
        must(code_of(lambda: method(self.channel, "UnimplementedCall")(M["Empty"](), timeout=20))[0], grpc.StatusCode.UNIMPLEMENTED)

    def unimplemented_service(self):
        call = method(self.channel, "UnimplementedCall", "/grpc.testing.UnimplementedService/")
        must(code_of(lambda: call(M["Empty"](), timeout=20))[0], grpc.StatusCode.UNIMPLEMENTED)

    def rpc_soak(self):
        with concurrent.futures.ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(lambda _: self.large_unary(), range(self.soak)))


def run(args):
    if args.ca:
        credentials = grpc.ssl_channel_credentials(pathlib.Path(args.ca).read_bytes())
        channel = grpc.secure_channel(args.address, credentials, [*OPTIONS, ("grpc.ssl_target_name_override", "localhost")])
    else:
        channel = grpc.insecure_channel(args.address, OPTIONS)
    cases, bad = Cases(channel, args.soak, args.threads), 0
    for name in args.cases.split(","):
        try:
            getattr(cases, name)()
            print("ok", name, flush=True)
        except Exception as e:
            bad += 1
            print("bad", name, repr(e)[:500].replace("\n", " "), flush=True)
    channel.close()
    sys.exit(bad > 0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("role", choices=["server", "client"])
    for name in ("listen", "cert", "key", "address", "cases", "ca"):
        p.add_argument("-" + name)
    p.add_argument("-soak", type=int, default=200)
    p.add_argument("-threads", type=int, default=4)
    args = p.parse_args()
    serve(args) if args.role == "server" else run(args)


if __name__ == "__main__":
    main()
