"""penstock-model by itself, seen by stock clients: right answers, clear errors, readiness, drain, scripted faults."""
import gzip
import json
import signal
import struct
import threading
import time

import fashion
import frames
import grpc
import numpy as np
import penstock
import pytest
from hyperframe.frame import SettingsFrame
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as kserve

KSERVE = "/inference.GRPCInferenceService/"
HEALTH = "/grpc.health.v1.Health/"
ECHO = "/penstock.test.Echo/"
BANDS = {"fashion-1": (0.82, 0.85), "fashion-2": (0.855, 0.875), "fashion-3": (0.87, 0.89), "fashion-bad": (0, 0.03)}

pytestmark = pytest.mark.skipif(not fashion.DATA.exists(), reason=f"{fashion.DATA} is not there (dataset-fashion-mnist)")


@pytest.fixture(scope="module")
def server(module_programs):
    """Versions 1 and 2 of "digits" in one process."""
    return module_programs.start("penstock-model", "--name", "digits", "--listen", "127.0.0.1:0", "--replica", "r-7",
                                 "--weights", "1=" + penstock.weights_file("fashion-1"),
                                 "--weights", "2=" + penstock.weights_file("fashion-2"))


def infer_request(images, version="", typed=False, shape=None, name="image", datatype="FP32", model="digits", outputs=()):
    r = kserve.ModelInferRequest(model_name=model, model_version=version, id="q-1")
    t = r.inputs.add(name=name, datatype=datatype, shape=shape or images.shape)
    if typed:
        t.contents.fp32_contents.extend(images.ravel().tolist())
    else:
        r.raw_input_contents.append(images.tobytes())
    for o in outputs:
        r.outputs.add(name=o)
    return r


def infer(address, *args, **kw):
    answer = penstock.call(address, KSERVE + "ModelInfer", infer_request(*args, **kw).SerializeToString())
    return answer, kserve.ModelInferResponse.FromString(answer.messages[0]) if answer.messages else None


@pytest.mark.parametrize("weights", BANDS)
def test_accuracy_on_the_test_images(programs, weights):
    """All 10,000 test images through the generator: the accuracy lies in the version's band and is what the file says."""
    server = penstock.model_server(programs, weights=weights)
    run = programs.run("penstock-load", "--to", server.grpc, "--model", "digits", "--check-accuracy", "--calls", 1000, "--batch", 10,
                       "--concurrency", 4, "--json")
    report = json.loads(run.stdout)
    low, high = BANDS[weights]
    assert run.returncode == 0 and report["ok"] == 1000 and report["failed"] == 0
    assert report["versions"]["1"]["images"] == 10000
    assert low <= report["accuracy"] <= high
    assert f"test_accuracy={report['accuracy']:.4f}" in programs.run("penstock-train", "--evaluate", penstock.weights_file(weights)).stdout


@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
@pytest.mark.parametrize("version", ["1", "2"])
def test_answers_are_those_of_the_weights(server, typed, version):
    """Probabilities and labels against numpy on the weights file, for one batch; the answer has the request's form."""
    images, _ = fashion.test_set(50)
    want = fashion.predict(fashion.read_weights(penstock.weights_file(f"fashion-{version}")), images)
    answer, got = infer(server.grpc, images.reshape(50, 28, 28), version, typed)
    assert (answer.code, got.model_name, got.model_version, got.id) == ("OK", "digits", version, "q-1")
    assert answer.header("penstock-replica") == ["r-7"]
    assert [(o.name, o.datatype, list(o.shape)) for o in got.outputs] == [("probs", "FP32", [50, 10]), ("label", "INT64", [50])]
    if typed:
        probs, labels = np.array(got.outputs[0].contents.fp32_contents), np.array(got.outputs[1].contents.int64_contents)
        assert not got.raw_output_contents
    else:
        probs, labels = np.frombuffer(got.raw_output_contents[0], "<f4"), np.frombuffer(got.raw_output_contents[1], "<i8")
    assert np.abs(probs.reshape(50, 10) - want).max() < 1e-4
    assert (labels == want.argmax(1)).all()


def test_only_the_outputs_that_are_asked_for_and_the_highest_version_by_default(server):
    images, _ = fashion.test_set(1)
    _, got = infer(server.grpc, images, outputs=["label"])
    assert got.model_version == "2" and [o.name for o in got.outputs] == ["label"] and len(got.raw_output_contents) == 1


def zeros(*shape):
    return np.zeros(shape, np.float32)


WRONG = {
    "unknown model": (dict(images=zeros(1, 784), model="ads"), "NOT_FOUND", ['unknown model "ads"', '"digits"']),
    "unknown version": (dict(images=zeros(1, 784), version="9"), "NOT_FOUND", ['version "9"', "2"]),
    "label as version": (dict(images=zeros(1, 784), version="stable"), "NOT_FOUND", ['"stable"']),
    "input name": (dict(images=zeros(1, 784), name="img"), "INVALID_ARGUMENT", ['"img"', '"image"']),
    "datatype": (dict(images=zeros(1, 784), datatype="INT8"), "INVALID_ARGUMENT", ['"INT8"', '"FP32"']),
    "columns": (dict(images=zeros(2, 783)), "INVALID_ARGUMENT", ["[2, 783]", "[N, 784]"]),
    "rank": (dict(images=zeros(784)), "INVALID_ARGUMENT", ["[784]", "[N, 28, 28]"]),
    "square": (dict(images=zeros(1, 28, 27)), "INVALID_ARGUMENT", ["[1, 28, 27]"]),
    "no image": (dict(images=zeros(0, 784)), "INVALID_ARGUMENT", ["[0, 784]", "1 to"]),
    "negative": (dict(images=zeros(1, 784), shape=[-1, 784]), "INVALID_ARGUMENT", ["[-1, 784]"]),
    "huge": (dict(images=zeros(1, 784), shape=[2 ** 60, 784]), "INVALID_ARGUMENT", ["65536"]),
    "raw size": (dict(images=zeros(1, 784), shape=[2, 784]), "INVALID_ARGUMENT", ["3136 bytes", "6272 bytes"]),
    "typed size": (dict(images=zeros(1, 784), shape=[2, 784], typed=True), "INVALID_ARGUMENT", ["784 fp32_contents", "1568"]),
    "output name": (dict(images=zeros(1, 784), outputs=["logits"]), "INVALID_ARGUMENT", ['"logits"', '"probs"', '"label"']),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests_get_a_clear_error(server, case):
    request, code, words = WRONG[case]
    answer, _ = infer(server.grpc, **request)
    assert answer.code == code
    assert all(w in answer.details for w in words), answer.details
    assert infer(server.grpc, zeros(1, 784))[0].code == "OK"  # and the server goes on


def test_other_wrong_requests(server):
    two = infer_request(zeros(1, 784))
    two.inputs.add(name="more", datatype="FP32", shape=[1])
    both = infer_request(zeros(1, 784), typed=True)
    both.raw_input_contents.append(zeros(1, 784).tobytes())
    for body, word in ((two.SerializeToString(), "2 given"), (both.SerializeToString(), "one of them only"), (b"\xff\xff", "ModelInferRequest"),
                       (b"\x2a\x00" * 200000, "ModelInferRequest")):  # 200,000 empty tensors: more structs than the request may ask for
        answer = penstock.call(server.grpc, KSERVE + "ModelInfer", body)
        assert answer.code == "INVALID_ARGUMENT" and word in answer.details
    assert penstock.call(server.grpc, KSERVE + "ModelInfer", b"", b"").code == "INTERNAL"  # two messages on a unary call
    assert penstock.call(server.grpc, KSERVE + "ModelInfer").code == "INTERNAL"  # none
    assert penstock.call(server.grpc, KSERVE + "Nope", b"").code == "UNIMPLEMENTED"


def test_metadata_readiness_statistics_and_index(server):
    def ask(method, request, answer):
        a = penstock.call(server.grpc, KSERVE + method, request.SerializeToString())
        return a.code, answer.FromString(a.messages[0]) if a.messages else None

    assert ask("ServerLive", kserve.ServerLiveRequest(), kserve.ServerLiveResponse)[1].live
    assert ask("ServerReady", kserve.ServerReadyRequest(), kserve.ServerReadyResponse)[1].ready
    about = ask("ServerMetadata", kserve.ServerMetadataRequest(), kserve.ServerMetadataResponse)[1]
    assert about.name == "penstock-model" and "replica=r-7" in about.extensions
    assert ask("ModelReady", kserve.ModelReadyRequest(name="digits", version="2"), kserve.ModelReadyResponse)[1].ready
    assert ask("ModelReady", kserve.ModelReadyRequest(name="ads"), kserve.ModelReadyResponse)[0] == "NOT_FOUND"
    meta = ask("ModelMetadata", kserve.ModelMetadataRequest(name="digits"), kserve.ModelMetadataResponse)[1]
    assert list(meta.versions) == ["1", "2"] and [list(t.shape) for t in (*meta.inputs, *meta.outputs)] == [[-1, 784], [-1, 10], [-1]]
    index = ask("RepositoryIndex", kserve.RepositoryIndexRequest(), kserve.RepositoryIndexResponse)[1]
    assert [(m.name, m.version, m.state) for m in index.models] == [("digits", "1", "READY"), ("digits", "2", "READY")]
    stats = kserve.ModelStatisticsRequest(name="digits", version="1")
    before = ask("ModelStatistics", stats, kserve.ModelStatisticsResponse)[1].model_stats[0]
    infer(server.grpc, zeros(3, 784), "1")
    after = ask("ModelStatistics", stats, kserve.ModelStatisticsResponse)[1].model_stats[0]
    assert after.inference_count - before.inference_count == 3
    assert after.inference_stats.success.count - before.inference_stats.success.count == 1


def test_stream_infer_keeps_order_and_reports_errors_in_the_stream(server):
    images, _ = fashion.test_set(1)
    requests = [infer_request(images, v) for v in ("1", "9", "2")]
    for i, r in enumerate(requests):
        r.id = f"s-{i}"
    answer = penstock.call(server.grpc, KSERVE + "ModelStreamInfer", *(r.SerializeToString() for r in requests))
    got = [kserve.ModelStreamInferResponse.FromString(m) for m in answer.messages]
    assert answer.code == "OK" and [g.infer_response.id for g in got] == ["s-0", "s-1", "s-2"]
    assert [bool(g.error_message) for g in got] == [False, True, False] and 'version "9"' in got[1].error_message
    answer = penstock.call(server.grpc, KSERVE + "ModelStreamInfer", *(r.SerializeToString() for r in requests),
                           metadata=[("triton_grpc_error", "true")])
    assert answer.code == "NOT_FOUND" and len(answer.messages) == 1


def tf_predict(images, spec):
    """A PredictRequest by hand: ModelSpec, then inputs["image"] as a TensorProto with tensor_content."""
    def field(number, body):
        n, size = len(body), b""
        while n > 127:
            n, size = n >> 7, size + bytes([n & 127 | 128])
        return bytes([number << 3 | 2]) + size + bytes([n]) + body

    dims = b"".join(field(2, b"\x08" + bytes([d & 127 | 128, d >> 7])) for d in images.shape)
    tensor = b"\x08\x01" + field(2, dims) + field(4, images.tobytes())
    return field(1, spec) + field(2, field(1, b"image") + field(2, tensor))


def test_tensorflow_predict(server):
    images, _ = fashion.test_set(4)
    want = fashion.predict(fashion.read_weights(penstock.weights_file("fashion-1")), images)
    answer = penstock.call(server.grpc, "/tensorflow.serving.PredictionService/Predict", tf_predict(images, b"\x0a\x06digits\x12\x02\x08\x01"))
    assert answer.code == "OK" and b"\x0a\x06digits" in answer.messages[0] and b"\x12\x02\x08\x01" in answer.messages[0]
    at = answer.messages[0].index(b"\x2a\xa0\x01") + 3  # float_val of 40 values, packed
    assert np.abs(np.frombuffer(answer.messages[0], "<f4", 40, at).reshape(4, 10) - want).max() < 1e-4
    for spec in (b"\x0a\x03ads", b"\x0a\x06digits\x12\x02\x08\x09", b"\x0a\x06digits\x22\x06stable"):
        answer = penstock.call(server.grpc, "/tensorflow.serving.PredictionService/Predict", tf_predict(images, spec))
        assert answer.code == "NOT_FOUND" and answer.details.startswith("Servable not found for request")


def test_compressed_requests(server):
    images, _ = fashion.test_set(1)
    r = infer_request(images, "1").SerializeToString()
    for how in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        assert penstock.call(server.grpc, KSERVE + "ModelInfer", r, compression=how).code == "OK"
    client = frames.Client(server.grpc)
    bomb = gzip.compress(b"\0" * (65 << 20))  # unpacks to more than the message limit of 64 MiB
    stream = client.open(KSERVE + "ModelInfer", ("grpc-encoding", "gzip"))
    client.send(stream, frames.grpc_message(bomb, compressed=1), end_stream=True)
    client.wait(stream)
    assert stream.status == 8
    client.close()


def test_echo(server):
    assert penstock.call(server.grpc, ECHO + "Unary", b"a").messages == [b"a"]
    assert penstock.call(server.grpc, ECHO + "ClientStream", b"a", b"", b"bc").messages == [b"abc"]
    assert penstock.call(server.grpc, ECHO + "Bidi", b"a", b"b").messages == [b"a", b"b"]
    many = penstock.call(server.grpc, ECHO + "ServerStream", b"x" * 1000, metadata=[("echo-count", "5000")])  # more than fits the windows
    assert many.code == "OK" and many.messages == [b"x" * 1000] * 5000
    big = bytes(range(256)) * (1 << 17)  # 32 MiB
    assert penstock.call(server.grpc, ECHO + "Unary", big).messages == [big]


def health_check(address, service):
    answer = penstock.call(address, HEALTH + "Check", health_pb2.HealthCheckRequest(service=service).SerializeToString())
    return answer.code if answer.code != "OK" else health_pb2.HealthCheckResponse.FromString(answer.messages[0]).status


def test_health_while_loading_serving_and_draining(programs):
    """Not ready for 1 s: NOT_SERVING and UNAVAILABLE; then SERVING; SIGTERM: NOT_SERVING told to watchers, running calls end."""
    server = penstock.model_server(programs, "--start-delay-ms", 1000, "--service-ms", 500, ready=False)
    server.wait_line("^listening")
    assert [health_check(server.grpc, s) for s in ("", "model:digits", "model:digits/1", "model:digits/2", "ads")] == [2, 2, 2, "NOT_FOUND", "NOT_FOUND"]
    answer, _ = infer(server.grpc, zeros(1, 784))
    assert answer.code == "UNAVAILABLE" and "loading" in answer.details
    with penstock.channel(server.grpc) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="model:digits"), timeout=30)
        unknown = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="ads"), timeout=30)
        assert next(watch).status == 2 and next(unknown).status == 3
        assert next(watch).status == 1
        server.wait_ready()
        results = []
        call = threading.Thread(target=lambda: results.append(infer(server.grpc, zeros(1, 784))[0].code))
        call.start()
        time.sleep(0.1)  # the call is in service for 500 ms
        server.signal(signal.SIGTERM)
        assert next(watch).status == 2
        with pytest.raises(grpc.RpcError) as end:
            next(watch)
        assert end.value.code() == grpc.StatusCode.UNAVAILABLE
        call.join()
        assert results == ["OK"] and server.wait_exit() == 0


def test_slots_make_a_queue(programs):
    """One slot of 100 ms: four calls at once end about 100 ms apart; a cancelled one that waits takes no slot time."""
    server = penstock.model_server(programs, "--service-ms", 100, "--slots", 1)
    with penstock.channel(server.grpc) as channel:
        unary = channel.unary_unary(KSERVE + "ModelInfer")
        unary(infer_request(zeros(1, 784)).SerializeToString())
        start, ends = time.monotonic(), []
        calls = [unary.future(infer_request(zeros(1, 784)).SerializeToString()) for _ in range(5)]
        for c in calls:
            c.add_done_callback(lambda _: ends.append(time.monotonic() - start))
        calls[4].cancel()
        for c in calls[:4]:
            assert c.result()
        penstock.wait_for(lambda: len(ends) == 5)
        assert sorted(ends)[4] >= 0.39
        start = time.monotonic()
        unary(infer_request(zeros(1, 784)).SerializeToString())
        assert time.monotonic() - start < 0.19


def events_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


FAULTS = {
    "unavailable=1": ["UNAVAILABLE", 0], "unavailable-in-trailers=1": ["UNAVAILABLE", 0], "unavailable-after-data=1": ["UNAVAILABLE", 1],
    "close-after-request=1": ["UNAVAILABLE", 0], "reset-after-request=1": ["INTERNAL", 0],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_what_it_says_and_ends_after_its_number(programs, fault, tmp_path):
    server = penstock.model_server(programs, "--fault", fault, "--replica", "bad", "--events", tmp_path / "events")
    code, n_messages = FAULTS[fault]
    first = penstock.call(server.grpc, ECHO + "Unary", b"x")
    assert (first.code, len(first.messages)) == (code, n_messages)
    assert first.header("penstock-replica") == (["bad"] if fault in ("unavailable-in-trailers=1", "unavailable-after-data=1") else [])
    assert penstock.call(server.grpc, ECHO + "Unary", b"x").code == "OK"
    penstock.wait_for(lambda: sum(e["ev"] == "call_done" for e in events_of(tmp_path / "events")) >= 2)
    starts = [e for e in events_of(tmp_path / "events") if e["ev"] == "call_start"]
    assert len(starts) == 2 and all(e["path"] == ECHO + "Unary" for e in starts)


def test_the_log_has_deadline_and_cancel(programs, tmp_path):
    server = penstock.model_server(programs, "--service-ms", 2000, "--fault", "ignore-deadline", "--events", tmp_path / "events")
    answer = penstock.call(server.grpc, ECHO + "Unary", b"x", timeout=0.3)
    assert answer.code == "DEADLINE_EXCEEDED" and answer.took_s < 1
    penstock.wait_for(lambda: any(e["ev"] == "call_done" for e in events_of(tmp_path / "events")))
    start, *_, done = events_of(tmp_path / "events")
    assert done["cancelled"] is True
    assert 0.1 < int(start["grpc_timeout"][:-1]) * {"m": 1e-3, "u": 1e-6, "n": 1e-9, "S": 1}[start["grpc_timeout"][-1]] <= 0.3


def test_goaway_in_the_middle_refuses_the_upper_half(programs, tmp_path):
    """With 8 calls open: GOAWAY; the four lower ones complete, the four upper ones were not processed, so that a stock
    client sends them once more over a new connection: eight answers, twelve streams, eight that finished."""
    server = penstock.model_server(programs, "--service-ms", 300, "--fault", "goaway-half=8", "--events", tmp_path / "events")
    with penstock.channel(server.grpc) as channel:
        calls = [channel.unary_unary(ECHO + "Unary").future(b"%d" % i) for i in range(8)]
        assert [c.result() for c in calls] == [b"%d" % i for i in range(8)]
    seen = events_of(tmp_path / "events")
    assert sum(e["ev"] == "call_start" for e in seen) == 12 and sum(e["ev"] == "call_finish" for e in seen) == 8
    goaway, = [e for e in seen if e["ev"] == "goaway_half"]
    streams = [e["stream"] for e in seen if e["ev"] == "call_start"][:8]
    assert goaway["open"] == 8 and goaway["last_id"] == streams[3]


def test_a_low_stream_limit_that_is_announced_late(programs):
    """MAX_CONCURRENT_STREAMS 8, said 200 ms after the connect, as a client sees it that has sent nothing yet."""
    server = penstock.model_server(programs, "--max-streams", 8, "--settings-delay-ms", 200)
    start = time.monotonic()
    client = frames.Client(server.grpc)
    settings = client.wait_frame(SettingsFrame).settings
    assert time.monotonic() - start >= 0.2 and settings[SettingsFrame.MAX_CONCURRENT_STREAMS] == 8
    client.close()


def test_an_unknown_model_fault_denies_and_then_is_gone(programs):
    server = penstock.model_server(programs, "--fault", "unknown-model=1")
    answer, _ = infer(server.grpc, zeros(1, 784))
    assert answer.code == "NOT_FOUND" and "unknown model" in answer.details
    assert server.wait_exit() == 0


def test_bad_flags_and_files_name_value_and_rule(programs, tmp_path):
    good = penstock.weights_file("fashion-1")
    (tmp_path / "w").write_bytes(b"not weights")
    for flags, code, words in (
            (["--listen", "127.0.0.1:0"], 64, ["--weights"]),
            (["--listen", "nowhere", "--weights", good], 64, ["nowhere"]),
            (["--listen", "127.0.0.1:0", "--weights", good, "--slots", "-1"], 64, ["--slots -1", "0 to"]),
            (["--listen", "127.0.0.1:0", "--weights", good, "--fault", "sulk"], 64, ["sulk"]),
            (["--listen", "127.0.0.1:0", "--weights", good, "--frobnicate"], 64, ["--frobnicate"]),
            (["--listen", "127.0.0.1:0", "--weights", "1=" + good, "--weights", "1=" + good], 1, ["version 1", "twice"]),
            (["--listen", "127.0.0.1:0", "--weights", good, "--version", "v1"], 1, ['"v1"', "positive"]),
            (["--listen", "127.0.0.1:0", "--weights", tmp_path / "w"], 1, ["not a weights file"]),
            (["--listen", "127.0.0.1:0", "--weights", tmp_path / "none"], 1, ["No such file"])):
        r = programs.run("penstock-model", *flags)
        assert r.returncode == code and all(w in r.stderr for w in words), (flags, r)


def test_versions_accuracy_and_split_through_the_gateway(programs, tmp_path):
    """Three versions behind one name, split 70/20/10 %: 10,000 test images, each version's share within half a percent of what is
    asked, its accuracy in its band; an explicit version and each kind of request get the accuracy of their weights file."""
    replicas = {v: penstock.model_server(programs, "--replica", f"r-{v}", version=v, weights=f"fashion-{v}") for v in "123"}
    gateway = penstock.gateway(programs, tmp_path, {"digits": {
        "protocol": "kserve", "versions": {v: {"endpoints": [r.grpc]} for v, r in replicas.items()},
        "traffic": {"1": 1000, "2": 2000, "3": 7000}}})
    penstock.wait_for(lambda: gateway.http("/readyz")[0] == 200, 20, "the gateway ready")

    def load(*flags):
        run = programs.run("penstock-load", "--to", gateway.grpc, "--model", "digits", "--check-accuracy", "--concurrency", 8, "--json", *flags)
        report = json.loads(run.stdout)
        assert run.returncode == 0 and report["failed"] == 0, run.stdout
        return report

    report = load("--calls", 10000)
    for v, share in (("1", 0.1), ("2", 0.2), ("3", 0.7)):
        low, high = BANDS[f"fashion-{v}"]
        assert abs(report["versions"][v]["share"] - share) < 0.005
        assert low - 0.02 < report["versions"][v]["accuracy"] < high + 0.02  # of a part of the images only
        assert report["replicas"][f"r-{v}"]["calls"] == report["versions"][v]["calls"]
    for flags in ([], ["--typed"], ["--stream"]):
        report = load("--version", "2", "--batch", 10, "--calls", 1000, *flags)
        assert list(report["versions"]) == ["2"] and report["versions"]["2"]["images"] == 10000
        assert f"test_accuracy={report['accuracy']:.4f}" in programs.run("penstock-train", "--evaluate", penstock.weights_file("fashion-2")).stdout
