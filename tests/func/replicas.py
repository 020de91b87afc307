"""Replicas made of stock parts: a grpcio server that speaks a plain echo service, KServe v2 and tensorflow.serving.

What it answers depends on nothing but the request, so that an answer through the gateway can be compared with the
direct one, byte by byte.
"""
import concurrent.futures
import threading
import time

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from tritonclient.grpc import service_pb2 as kserve

ECHO_HEADERS = (("x-from-replica", "yes"), ("x-bin-bin", b"\x00\xff\x01"), ("x-twice", "1"), ("x-twice", "2"))
ECHO_TRAILERS = (("x-trailer", "a b c"), ("x-trailer-bin", b"\x01\x02\x00"))


def rich_status():
    """A google.rpc.Status with two kinds of details, as services that use the richer error model send."""
    status = status_pb2.Status(code=code_pb2.FAILED_PRECONDITION, message="not yet: 100% \u00e4\u2603")
    for detail in (error_details_pb2.RetryInfo(), error_details_pb2.ErrorInfo(reason="COLD", domain="test", metadata={"k": "v"})):
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


class Stock(grpc.GenericRpcHandler):
    """A grpcio server on a free port; calls: (path, metadata dict) of each call that came."""

    def __init__(self, name="stock", options=(), threads=16, port=0, ready=True, credentials=None):
        self.name = name
        self.calls = []
        self.lock = threading.Lock()
        self.cancelled = 0
        self.ready = ready
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(threads),
                                  options=[*options, ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                                           ("grpc.so_reuseport", 0)])  # the first of a name counts
        self.server.add_generic_rpc_handlers((self,))
        where = f"127.0.0.1:{port}"
        self.port = self.server.add_secure_port(where, credentials) if credentials else self.server.add_insecure_port(where)
        self.address = f"127.0.0.1:{self.port}"
        self.server.start()

    def stop(self, grace=None):
        self.server.stop(grace).wait()

    def service(self, details):
        handler = {
            "/test.Echo/Unary": self.echo, "/test.Echo/Stream": self.echo, "/test.Echo/Bidi": self.echo,
            "/test.Echo/Rich": self.rich, "/test.Echo/Sleep": self.sleep, "/test.Echo/Many": self.many,
            "/test.Echo/Collect": self.collect,
            "/inference.GRPCInferenceService/ModelInfer": self.infer,
            "/inference.GRPCInferenceService/ModelStreamInfer": self.stream_infer,
            "/inference.GRPCInferenceService/ModelReady": self.model_ready,
            "/inference.GRPCInferenceService/ServerLive": lambda r, c: self.once(r, kserve.ServerLiveResponse(live=True)),
            "/inference.GRPCInferenceService/ServerReady": lambda r, c: self.once(r, kserve.ServerReadyResponse(ready=self.ready)),
            "/tensorflow.serving.PredictionService/Predict": self.predict,
        }.get(details.method)
        if handler is None:
            return None  # UNIMPLEMENTED
        if details.method.rsplit("/", 1)[1] not in ("ServerLive", "ServerReady", "ModelReady"):  # probes, too
            with self.lock:
                self.calls.append((details.method, dict(details.invocation_metadata)))
        return grpc.stream_stream_rpc_method_handler(handler)

    def echo(self, requests, context):
        context.send_initial_metadata(ECHO_HEADERS)
        context.set_trailing_metadata(ECHO_TRAILERS)
        yield from requests

    def rich(self, requests, context):
        list(requests)
        status = rich_status()
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()), *ECHO_TRAILERS))
        context.set_code(grpc.StatusCode.FAILED_PRECONDITION)
        context.set_details(status.message)
        return
        yield

    def sleep(self, requests, context):
        """Sleeps the milliseconds that the request says; stops at once when cancelled."""
        ms = int(next(requests))
        gone = threading.Event()
        context.add_callback(gone.set)
        if gone.wait(ms / 1000):
            with self.lock:
                self.cancelled += 1
            return
        yield b"slept"

    def many(self, requests, context):
        """N messages of B bytes, `N B [gap in ms]`."""
        n, size, *gap = (int(x) for x in next(requests).split())
        for i in range(n):
            yield i.to_bytes(4, "big") + b"x" * (size - 4)
            if gap:
                time.sleep(gap[0] / 1000)

    def collect(self, requests, context):
        sizes = [len(r) for r in requests]
        yield f"{len(sizes)} {sum(sizes)}".encode()

    @staticmethod
    def once(requests, answer):
        next(requests, None)
        yield answer.SerializeToString()

    def answer_to(self, request):
        answer = kserve.ModelInferResponse(model_name=request.model_name, model_version=request.model_version or "1", id=request.id)
        answer.raw_output_contents.extend(request.raw_input_contents)
        for tensor in request.inputs:
            out = answer.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            out.contents.CopyFrom(tensor.contents)
        return answer

    def infer(self, requests, context):
        context.set_trailing_metadata((("x-replica", self.name),))
        yield self.answer_to(kserve.ModelInferRequest.FromString(next(requests))).SerializeToString()

    def stream_infer(self, requests, context):
        for r in requests:
            answer = kserve.ModelStreamInferResponse(infer_response=self.answer_to(kserve.ModelInferRequest.FromString(r)))
            yield answer.SerializeToString()

    def model_ready(self, requests, context):
        r = kserve.ModelReadyRequest.FromString(next(requests))
        yield kserve.ModelReadyResponse(ready=self.ready and r.name != "").SerializeToString()

    def predict(self, requests, context):
        """The request's bytes come back behind field 15, so that nothing of it can be lost unseen."""
        r = next(requests)
        n, length = len(r), b""
        while n > 127:
            length, n = length + bytes([n & 127 | 128]), n >> 7
        yield b"\x7a" + length + bytes([n]) + r
