"""Stock gRPC clients (grpcio, libgrpc++) through `penstock relay` and through a gateway with a catalogue: what they see
must be what they see without us: bytes, metadata, trailers, statuses; and the replica must see the same of them."""
import pathlib
import subprocess
import time

import grpc
import penstock
import pytest
import replicas
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from google.protobuf import descriptor_pb2
from google.rpc import error_details_pb2
from tritonclient.grpc import service_pb2 as kserve
from tritonclient.grpc import service_pb2_grpc as kserve_grpc

KSERVE = "/inference.GRPCInferenceService/"
TF_PREDICT = "/tensorflow.serving.PredictionService/Predict"


@pytest.fixture(scope="module")
def replica():
    s = replicas.Stock()
    yield s
    s.stop()


@pytest.fixture(scope="module", params=["relay", "gateway"])
def through(request, replica, module_programs, tmp_path_factory):
    """A penstock in front of the replica: without files, and with a catalogue."""
    if request.param == "relay":
        return penstock.relay(module_programs, [replica.address])
    version = {"versions": {"1": {"endpoints": [replica.address]}}, "traffic": {"1": 10000}, "limits": {"message_mib": 80}}
    gateway = penstock.gateway(module_programs, tmp_path_factory.mktemp("stock"), {
        "stock": {"protocol": "kserve", **version},
        "tfmodel": {"protocol": "tensorflow", **version},
        "echo": {"protocol": "grpc", "services": ["test.Echo"], **version},
    })
    penstock.wait_for(lambda: gateway.http("/readyz")[0] == 200, 20, "the gateway ready")
    return gateway


def infer_request(raw=True, model="stock", **kw):
    r = kserve.ModelInferRequest(model_name=model, id="r-1", **kw)
    t = r.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    if raw:
        r.raw_input_contents.append(b"\0\0\x80?" * 3)
    else:
        t.contents.fp32_contents.extend([1, 2, 3])
    return r.SerializeToString()


def tf_request(model="tfmodel", version=None):
    """PredictRequest: model_spec (1) with name (1) and version (2, an Int64Value); inputs (2) as opaque bytes."""
    spec = b"\x0a" + bytes([len(model)]) + model.encode() + (b"" if version is None else b"\x12\x02\x08" + bytes([version]))
    return b"\x0a" + bytes([len(spec)]) + spec + b"\x12\x08" + b"\x0a\x01x\x12\x03abc"


CASES = {
    "unary": ("/test.Echo/Unary", [b"hello"]),
    "empty message": ("/test.Echo/Unary", [b""]),
    "no message": ("/test.Echo/Unary", []),
    "stream both ways": ("/test.Echo/Bidi", [bytes([i]) * i for i in range(100)]),
    "client stream": ("/test.Echo/Collect", [b"x" * 1000] * 50),
    "server stream": ("/test.Echo/Many", [b"200 3000"]),
    "rich error": ("/test.Echo/Rich", [b"x"]),
    "unknown method": ("/test.Echo/Missing", [b"x"]),
    "ModelInfer raw": (KSERVE + "ModelInfer", [infer_request()]),
    "ModelInfer typed": (KSERVE + "ModelInfer", [infer_request(raw=False, model_version="1")]),
    "ModelStreamInfer": (KSERVE + "ModelStreamInfer", [infer_request(), infer_request(raw=False), infer_request()]),
    "Predict": (TF_PREDICT, [tf_request()]),
    "Predict of a version": (TF_PREDICT, [tf_request(version=1)]),
}
METADATA = (("x-text", "a value, with = and spaces"), ("x-bytes-bin", bytes(range(256))), ("x-twice", "1"), ("x-twice", "2"))


def pairs(fields):
    """Metadata as what its order may mean: the order of values under one key."""
    return {k: [v for key, v in fields if key == k] for k, _ in fields}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip], ids=["plain", "gzip"])
def test_grpcio_sees_and_shows_the_same(replica, through, case, compression):
    path, messages = CASES[case]
    direct = penstock.call(replica.address, path, *messages, metadata=METADATA, compression=compression)
    seen_direct = replica.calls[-1]
    answer = penstock.call(through.grpc, path, *messages, metadata=METADATA, compression=compression)
    assert (answer.code, answer.details, answer.messages) == (direct.code, direct.details, direct.messages)
    assert pairs(answer.headers) == pairs(direct.headers)
    assert pairs(answer.trailers) == pairs(direct.trailers)
    assert replica.calls[-1] == seen_direct


def test_rich_error_details_arrive_whole(through):
    ch = penstock.channel(through.grpc)
    with pytest.raises(grpc.RpcError) as e:
        ch.unary_unary("/test.Echo/Rich")(b"x", timeout=10)
    status = rpc_status.from_call(e.value)
    ch.close()
    info = error_details_pb2.ErrorInfo()
    assert status.details[1].Unpack(info) and info.reason == "COLD" and info.metadata["k"] == "v"
    assert status == replicas.rich_status()


def test_kserve_stub_asks_for_liveness_and_readiness(through):
    with penstock.channel(through.grpc) as ch:
        stub = kserve_grpc.GRPCInferenceServiceStub(ch)
        assert stub.ServerLive(kserve.ServerLiveRequest(), timeout=10).live
        assert stub.ServerReady(kserve.ServerReadyRequest(), timeout=10).ready
        assert stub.ModelReady(kserve.ModelReadyRequest(name="stock", version="1"), timeout=10).ready


def test_64_mib_there_and_back(through):
    big = bytes(range(256)) * (256 * 1024)
    answer = penstock.call(through.grpc, "/test.Echo/Unary", big, timeout=60)
    assert answer.code == "OK" and answer.messages[0] == big


def test_a_cancel_reaches_the_replica(replica, through):
    before = replica.cancelled
    stream = penstock.Bidi(through.grpc, "/test.Echo/Sleep")
    n = len(replica.calls)
    stream.send(b"20000")
    penstock.wait_for(lambda: len(replica.calls) > n or replica.calls[-1][0].endswith("Sleep"))
    time.sleep(0.05)
    stream.cancel()
    penstock.wait_for(lambda: replica.cancelled == before + 1, 2, "the cancel at the replica")
    stream.channel.close()


def test_the_clients_deadline_ends_the_call_on_both_sides(replica, through):
    before = replica.cancelled
    answer = penstock.call(through.grpc, "/test.Echo/Sleep", b"20000", timeout=0.4)
    assert answer.code == "DEADLINE_EXCEEDED" and 0.3 < answer.took_s < 2
    penstock.wait_for(lambda: replica.cancelled == before + 1, 2, "the end at the replica")


# ---- libgrpc++ ----

CXX = pathlib.Path(penstock.BUILD, "tests/grpcxx_client")
needs_cxx = pytest.mark.skipif(not CXX.exists(), reason="no libgrpc++-dev when the build was set up")


def call_cxx(address, path, messages, *options):
    """penstock.Answer of the C++ client."""
    framed = b"".join(len(m).to_bytes(4, "big") + m for m in messages)
    out = subprocess.run([CXX, address, path, *options], input=framed, capture_output=True, timeout=60, check=True).stdout.decode()
    got = {"header": [], "trailer": [], "message": []}
    for line in out.splitlines():
        what, _, rest = line.partition(" ")
        if what == "status":
            code, _, details = rest.partition(" ")
            return penstock.Answer(code, bytes.fromhex(details).decode(), got["message"], got["header"], got["trailer"])
        if what == "message":
            got["message"].append(bytes.fromhex(rest))
        else:
            key, _, value = rest.partition(" ")
            got[what].append((key, bytes.fromhex(value)))
    raise AssertionError(f"no status line: {out}")


@needs_cxx
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("options", [(), ("-z",)], ids=["plain", "gzip"])
def test_libgrpcxx_sees_the_same(replica, through, case, options):
    path, messages = CASES[case]
    options = (*options, "-m", "x-tag=value", "-t", "20000")
    direct, answer = (call_cxx(a, path, messages, *options) for a in (replica.address, through.grpc))
    assert (answer.code, answer.details, answer.messages) == (direct.code, direct.details, direct.messages)
    assert sorted(answer.headers) == sorted(direct.headers) and sorted(answer.trailers) == sorted(direct.trailers)


@needs_cxx
def test_libgrpcxx_deadline(through):
    assert call_cxx(through.grpc, "/test.Echo/Sleep", [b"20000"], "-t", "300").code == "4"


# ---- what the gateway answers itself ----

@pytest.fixture(scope="module")
def catalogue(replica, module_programs, tmp_path_factory):
    """A gateway with one model that has a replica and one whose replica is not there."""
    nowhere = f"127.0.0.1:{penstock.free_port()}"
    gateway = penstock.gateway(module_programs, tmp_path_factory.mktemp("local"), {
        "stock": {"protocol": "kserve", "versions": {"1": {"endpoints": [replica.address]}}, "traffic": {"1": 10000}},
        "absent": {"protocol": "kserve", "versions": {"1": {"endpoints": [nowhere]}}, "traffic": {"1": 10000}},
    })
    penstock.wait_for(lambda: gateway.http("/readyz")[0] == 200, 20, "the gateway ready")
    return gateway


def test_health_service(catalogue):
    SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    with penstock.channel(catalogue.grpc) as ch:
        stub = health_pb2_grpc.HealthStub(ch)

        def check(service):
            return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status

        assert check("") == SERVING
        assert check("model:stock") == SERVING and check("model:stock/1") == SERVING
        assert check("model:absent") == NOT_SERVING
        with pytest.raises(grpc.RpcError) as e:
            check("model:unheard")
        assert e.value.code() == grpc.StatusCode.NOT_FOUND
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="model:stock"), timeout=10)
        assert next(watch).status == SERVING
        watch.cancel()


def test_reflection_lists_the_services_and_their_files(catalogue):
    with penstock.channel(catalogue.grpc) as ch:
        stub = reflection_pb2_grpc.ServerReflectionStub(ch)
        requests = [reflection_pb2.ServerReflectionRequest(list_services=""),
                    reflection_pb2.ServerReflectionRequest(file_containing_symbol="inference.GRPCInferenceService"),
                    reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.Such")]
        listed, found, missing = list(stub.ServerReflectionInfo(iter(requests), timeout=10))
    names = [s.name for s in listed.list_services_response.service]
    assert "inference.GRPCInferenceService" in names and "grpc.health.v1.Health" in names
    files = [descriptor_pb2.FileDescriptorProto.FromString(f) for f in found.file_descriptor_response.file_descriptor_proto]
    methods = {m.name for f in files for s in f.service for m in s.method}
    assert {"ModelInfer", "ModelStreamInfer", "ServerLive"} <= methods
    assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_control_calls_of_model_servers_are_refused_on_the_data_port(catalogue):
    request = kserve.RepositoryModelLoadRequest(model_name="stock").SerializeToString()
    answer = penstock.call(catalogue.grpc, KSERVE + "RepositoryModelLoad", request)
    assert answer.code == "PERMISSION_DENIED" and answer.details.startswith("penstock: ")


def test_unknown_model_version_and_service_are_named(catalogue):
    for path, message, code, word in [
            (KSERVE + "ModelInfer", infer_request(model="nobody"), "NOT_FOUND", "nobody"),
            (KSERVE + "ModelInfer", infer_request(model_version="77"), "NOT_FOUND", "77"),
            ("/no.Such/Method", b"", "UNIMPLEMENTED", "no.Such")]:
        answer = penstock.call(catalogue.grpc, path, message)
        assert answer.code == code and word in answer.details and answer.details.startswith("penstock: "), answer


def test_a_model_without_a_replica_says_so(catalogue):
    answer = penstock.call(catalogue.grpc, KSERVE + "ModelInfer", infer_request(model="absent"), timeout=10)
    assert answer.code == "UNAVAILABLE" and "absent" in answer.details
