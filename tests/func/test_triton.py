"""Two real Triton servers behind the gateway, driven by Triton's own Python client.

Every test compares what comes through the gateway with what comes from Triton itself, or with the networks computed
here.
"""
import queue
import threading
import time

import fashion
import numpy as np
import penstock
import pytest
import tritonclient.grpc as tc
import triton
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.skipif(triton.why_not() is not None, reason=str(triton.why_not()))

VERSIONS = {v: {} for v in "123"}
SINGLE = {"protocol": "kserve", "dialect": "triton"}  # no versions: the servers choose


@pytest.fixture(scope="module")
def group(module_programs, tmp_path_factory):
    """Two Tritons and a gateway that knows their four models."""
    folder = tmp_path_factory.mktemp("triton")
    repository = triton.make_repository(folder)
    servers = [triton.start(module_programs, folder, repository) for _ in range(2)]
    endpoints = [s.address for s in servers]
    models = {
        "fmnist": {"protocol": "kserve", "dialect": "triton", "endpoints": endpoints, "versions": VERSIONS,
                   "labels": {"stable": "2"}, "traffic": {"1": 2500, "3": 7500}, "limits": {"message_mib": 64}},
        **{name: {**SINGLE, "endpoints": endpoints, "limits": {"message_mib": 80}} for name in ("slow", "tokens", "bigid")},
    }
    gateway = penstock.gateway(module_programs, folder, models)
    penstock.wait_for(lambda: gateway.http("/readyz")[0] == 200, 20, "the gateway ready")
    gateway.servers = servers
    return gateway


@pytest.fixture
def client(group):
    with tc.InferenceServerClient(group.grpc) as c:
        yield c


@pytest.fixture
def direct(group):
    with tc.InferenceServerClient(group.servers[0].address) as c:
        yield c


IMAGES = np.random.default_rng(7).random((5, 784), dtype=np.float32)


def tensor(name, array, datatype):
    t = tc.InferInput(name, array.shape, datatype)
    t.set_data_from_numpy(array)
    return t


def infer_images(client, version="", images=IMAGES, **kw):
    return client.infer("fmnist", [tensor("image", images, "FP32")], model_version=version, **kw)


@pytest.mark.parametrize("version", "123")
def test_a_version_asked_for_by_number_is_the_one_that_answers(client, version):
    result = infer_images(client, version)
    want = fashion.predict(fashion.read_weights(penstock.weights_file(f"fashion-{version}")), IMAGES)
    assert result.get_response().model_version == version
    np.testing.assert_allclose(result.as_numpy("probs"), want, atol=1e-5)


def test_calls_without_a_version_are_split_as_the_config_says(client):
    """Both versions lie on the same servers: the gateway has to write its choice into the message."""
    seen = [infer_images(client).get_response().model_version for _ in range(40)]
    assert sorted(set(seen)) == ["1", "3"]
    assert seen.count("1") == 10


def test_a_label_becomes_the_number_of_its_version(client):
    assert infer_images(client, "stable").get_response().model_version == "2"


def test_model_ready_and_metadata_come_from_the_servers(client, direct):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("fmnist", "3") and client.is_model_ready("tokens")
    assert client.get_model_metadata("bigid") == direct.get_model_metadata("bigid")


def test_a_decoupled_stream_of_tokens_comes_in_order_and_unbuffered(client):
    n = 40
    got = queue.Queue()
    client.start_stream(lambda result, error: got.put((time.monotonic(), result, error)))
    client.async_stream_infer("tokens", [tensor("n", np.array([n], np.int32), "INT32")])
    times, tokens = [], []
    for _ in range(n):
        at, result, error = got.get(timeout=20)
        assert error is None
        times.append(at)
        tokens.append(result.as_numpy("token")[0].decode())
    client.stop_stream()
    assert tokens == [f"t{i}" for i in range(n)]
    # One every 10 ms from the model: buffered ones would come all at once, at the end.
    assert times[-1] - times[0] > 0.010 * n * 0.8
    assert times[n // 2] - times[0] < (times[-1] - times[0]) * 0.75


def test_an_error_inside_a_stream_stays_inside_it(client, direct):
    def errors(c):
        got = queue.Queue()
        c.start_stream(lambda result, error: got.put((result, error)))
        c.async_stream_infer("tokens", [tensor("n", np.array([1, 2], np.int32), "INT32")])
        result, error = got.get(timeout=20)
        c.async_stream_infer("tokens", [tensor("n", np.array([1], np.int32), "INT32")])
        after, none = got.get(timeout=20)
        c.stop_stream()
        return error.message(), none, after.as_numpy("token").tolist()

    assert errors(client) == errors(direct)


def test_a_cancelled_call_frees_the_replica(group, client):
    """Each replica works on one `slow` call at a time: after the cancel the next one must not wait."""
    done = threading.Event()
    calls = [client.async_infer("slow", [tensor("ms", np.array([5000], np.int32), "INT32")], lambda result, error: done.set())
             for _ in range(2)]
    time.sleep(0.3)  # both are at work
    start = time.monotonic()
    for c in calls:
        c.cancel()
    for _ in range(4):
        client.infer("slow", [tensor("ms", np.array([1], np.int32), "INT32")])
    assert time.monotonic() - start < 2
    assert done.wait(5)


def test_the_clients_timeout_is_a_deadline(client):
    start = time.monotonic()
    with pytest.raises(InferenceServerException) as e:
        client.infer("slow", [tensor("ms", np.array([3000], np.int32), "INT32")], client_timeout=0.3)
    assert e.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    assert 0.25 < time.monotonic() - start < 1.5


def mistakes():
    wide = np.zeros((1, 10), np.float32)
    return {
        "wrong shape": lambda c: c.infer("fmnist", [tensor("image", wide, "FP32")], model_version="1"),
        "wrong name": lambda c: c.infer("fmnist", [tensor("picture", IMAGES, "FP32")], model_version="1"),
        "wrong type": lambda c: c.infer("fmnist", [tensor("image", IMAGES.astype(np.float64), "FP64")], model_version="1"),
        "over the batch": lambda c: c.infer("fmnist", [tensor("image", np.zeros((65, 784), np.float32), "FP32")], model_version="1"),
        "no input": lambda c: c.infer("bigid", []),
    }


@pytest.mark.parametrize("which", mistakes())
def test_errors_of_the_server_come_unchanged(client, direct, which):
    def error(c):
        with pytest.raises(InferenceServerException) as e:
            mistakes()[which](c)
        return e.value.status(), e.value.message()

    assert error(client) == error(direct)


def test_64_mib_there_and_back(client):
    x = np.arange(15 * 1024 * 1024, dtype=np.float32)  # 60 MiB + the message around it
    y = client.infer("bigid", [tensor("x", x, "FP32")]).as_numpy("y")
    assert y.tobytes() == x.tobytes()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_are_answered_alike(client, direct, algorithm):
    def probs(c):
        return infer_images(c, "2", compression_algorithm=algorithm).as_numpy("probs")

    np.testing.assert_array_equal(probs(client), probs(direct))


def test_both_replicas_work_and_a_drained_one_costs_nothing(group, client):
    """SIGTERM to one Triton (which then refuses calls for seconds without a GOAWAY): no call may fail."""
    victim, other = group.servers
    failed, stop, done = [], threading.Event(), [0]

    def work():
        with tc.InferenceServerClient(group.grpc) as c:
            while not stop.is_set():
                try:
                    infer_images(c, "1")
                    done[0] += 1
                except InferenceServerException as e:
                    failed.append(str(e))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    penstock.wait_for(lambda: done[0] > 100, 20)
    victim.signal(15)
    victim.wait_exit(30)
    at_exit = done[0]
    penstock.wait_for(lambda: done[0] > at_exit + 50, 20)
    stop.set()
    for w in workers:
        w.join()
    assert failed == []
