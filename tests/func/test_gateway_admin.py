"""`penstock gateway` as its operator sees it: admin pages, probing, version split, reload, the end."""
import pathlib
import signal

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as kserve

import penstock

INFER = "/inference.GRPCInferenceService/ModelInfer"


def of(version_endpoints, traffic=None, **model):
    """A KServe model with these versions: {version: [addresses]}."""
    versions = {v: {"endpoints": addresses} for v, addresses in version_endpoints.items()}
    return {"protocol": "kserve", "versions": versions, **({"traffic": traffic} if traffic else {}), **model}


def endpoints(gateway, model="m"):
    """{address: endpoint object} of a model on the status page."""
    found = [m for m in gateway.json("/v1/status")["models"] if m["model"] == model]
    return {e["address"]: e for v in found[0]["versions"] for e in v["endpoints"]}


def infer(address, model="m", version="", id=""):
    return penstock.call(address, INFER, kserve.ModelInferRequest(model_name=model, model_version=version, id=id).SerializeToString())


def test_pages_say_what_serves(programs, stock, tmp_path):
    a = stock()
    gateway = penstock.gateway(programs, tmp_path, {"m": of({"1": [a.address]}, labels={"stable": "1"})})
    penstock.wait_for(lambda: gateway.http("/readyz") == (200, "ready\n"), 10)
    assert gateway.http("/healthz") == (200, "ok\n")
    assert infer(gateway.grpc).code == "OK"
    penstock.wait_for(lambda: gateway.counter("penstock_calls_total", model="m", version="1", code="OK") == 1, 5)
    status = gateway.json("/v1/status")
    assert (status["verb"], status["generation"], status["ready"], status["draining"]) == ("gateway", 1, True, False)
    model = status["models"][0]
    assert (model["model"], model["protocol"], model["policy"], model["labels"]) == ("m", "kserve", "p2c", {"stable": "1"})
    version = model["versions"][0]
    assert (version["version"], version["weight"], version["started"], version["codes"]) == ("1", 10000, 1, {"OK": 1})
    assert version["endpoints"][0]["state"] == "ready" and version["endpoints"][0]["started"] == 1
    assert status["workers"][0]["epoch"] == status["epoch"]
    assert gateway.http("/v1/nothing")[0] == 404
    assert gateway.http("/v1/status", body=b"{}", method="POST")[0] == 405


def test_a_replica_is_out_while_it_says_not_ready(programs, stock, tmp_path):
    a, b = stock(), stock(ready=False)
    gateway = penstock.gateway(programs, tmp_path, {"m": of({"1": [a.address, b.address]})})
    assert [endpoints(gateway)[x.address]["state"] for x in (a, b)] == ["ready", "unhealthy"]
    for _ in range(20):
        assert infer(gateway.grpc).code == "OK"
    assert (len(a.calls), len(b.calls)) == (20, 0)
    with penstock.channel(gateway.grpc) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="model:m"), timeout=30)
        assert next(watch).status == 1
        a.ready = False
        assert next(watch).status == 2
        assert gateway.http("/readyz")[0] == 503
        b.ready = True
        assert next(watch).status == 1
        watch.cancel()
    a.calls.clear()
    for _ in range(20):
        assert infer(gateway.grpc).code == "OK"
    assert (len(a.calls), len(b.calls)) == (0, 20)


def test_a_dead_replica_is_noticed_and_missed_by_nobody(programs, stock, tmp_path):
    a, b = stock(), stock()
    gateway = penstock.gateway(programs, tmp_path, {"m": of({"1": [a.address, b.address]})})
    b.stop()
    for _ in range(50):
        assert infer(gateway.grpc).code == "OK"
    penstock.wait_for(lambda: endpoints(gateway)[b.address]["state"] == "unhealthy", 10)
    gateway.wait_event("endpoint_unhealthy", address=b.address)


def test_the_split_is_exact(programs, stock, tmp_path):
    a, b, c = stock(), stock(), stock()
    gateway = penstock.gateway(programs, tmp_path, {
        "m": of({"1": [a.address], "2": [b.address], "3": [c.address]}, traffic={"1": 9000, "2": 1000}, labels={"canary": "2"})})
    with penstock.channel(gateway.grpc) as channel:
        for i in range(500):
            assert infer(channel, id=str(i)).code == "OK"
        assert (len(a.calls), len(b.calls), len(c.calls)) == (450, 50, 0)
        assert infer(channel, version="3").code == "OK"  # weight 0, yet there for those who ask
        assert infer(channel, version="canary").code == "OK"
        assert (len(b.calls), len(c.calls)) == (51, 1)


def test_reload_is_all_or_nothing_and_no_stream_notices(programs, stock, tmp_path):
    a, b = stock(), stock()
    echo = {"protocol": "grpc", "services": ["test.Echo"], "endpoints": [a.address]}
    gateway = penstock.gateway(programs, tmp_path, {"echo": echo})
    tree = tmp_path / "config"
    stream = penstock.Bidi(gateway.grpc, "/test.Echo/Bidi")
    stream.send(b"before")
    assert stream.receive() == b"before"

    penstock.write_models(tree, {"echo": {**echo, "endpoints": [b.address]}, "m": of({"1": [b.address]})})
    gateway.signal(signal.SIGHUP)
    gateway.wait_event("reload", generation=2)
    penstock.wait_for(lambda: infer(gateway.grpc).code == "OK", 10)
    calls = len(a.calls)
    assert penstock.call(gateway.grpc, "/test.Echo/Unary", b"x").messages == [b"x"]
    assert len(a.calls) == calls and b.calls[-1][0] == "/test.Echo/Unary"

    (pathlib.Path(tree) / "models" / "m.json").write_text('{"model": "m", "versionz": {}}')
    gateway.signal(signal.SIGHUP)
    gateway.wait_event("reload_refused", generation=2)
    penstock.wait_for(lambda: any("models/m.json#/versionz: unknown key; nearest: versions" in line for line in gateway.log), 5)
    assert gateway.json("/v1/status")["generation"] == 2 and infer(gateway.grpc).code == "OK"

    stream.send(b"after")  # still at the replica that no config names any more
    assert stream.receive() == b"after"
    assert stream.end() == ([], "OK")


def test_sigterm_lets_running_calls_end(programs, stock, tmp_path):
    a = stock()
    gateway = penstock.gateway(programs, tmp_path, {"echo": {"protocol": "grpc", "services": ["test.Echo"], "endpoints": [a.address]}})
    stream = penstock.Bidi(gateway.grpc, "/test.Echo/Bidi")
    stream.send(b"1")
    assert stream.receive() == b"1"
    gateway.signal(signal.SIGTERM)
    gateway.wait_event("drain")
    penstock.wait_for(lambda: gateway.http("/readyz") == (503, "draining\n"), 5)
    stream.send(b"2")
    assert stream.receive() == b"2"
    assert stream.end() == ([], "OK")
    assert gateway.wait_exit(10) == 0


def test_a_second_sigterm_does_not_wait(programs, stock, tmp_path):
    a = stock()
    gateway = penstock.gateway(programs, tmp_path, {"echo": {"protocol": "grpc", "services": ["test.Echo"], "endpoints": [a.address]}})
    stream = penstock.Bidi(gateway.grpc, "/test.Echo/Bidi")
    stream.send(b"1")
    assert stream.receive() == b"1"
    gateway.signal(signal.SIGTERM)
    gateway.wait_event("drain")
    gateway.signal(signal.SIGTERM)
    assert gateway.wait_exit(10) == 0
    assert stream.end()[1] == "UNAVAILABLE"


@pytest.mark.parametrize("flags, status, text", [
    ([], 64, "no models folder"),
    (["--models", "/nonexistent"], 78, "can't read the folder"),
    (["--models", "TREE", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:99999"], 1, "99999"),
    (["--models", "TREE", "--lissten", "x"], 64, "nearest: --listen"),
])
def test_what_cannot_start_says_why(programs, stock, tmp_path, flags, status, text):
    tree = penstock.write_models(tmp_path / "config", {"m": of({"1": [stock().address]})})
    r = programs.run("penstock", "gateway", *[str(tree) if f == "TREE" else f for f in flags])
    assert (r.returncode, text in r.stderr) == (status, True), r.stderr


@pytest.mark.parametrize("verb", ["replicas", "nodes", "history", "why", "jobs list", "rollback m", "traffic m 1=10000"])
def test_verbs_for_a_controller_say_that_there_is_none(programs, stock, tmp_path, verb):
    gateway = penstock.gateway(programs, tmp_path, {"m": of({"1": [stock().address]})})
    r = programs.run("penstock", *verb.split(), "--admin", gateway.admin)
    assert r.returncode == 1
    assert r.stderr.startswith(f"penstock: the process at {gateway.admin} has no /v1/")
    assert r.stderr.endswith(": only `penstock up` has a controller\n")


def test_status_names_the_replicas_that_are_not_ready(programs, stock, tmp_path):
    there, gone = stock().address, f"127.0.0.1:{penstock.free_port()}"
    gateway = penstock.gateway(programs, tmp_path, {"m": of({"1": [there, gone]})})
    penstock.wait_for(lambda: endpoints(gateway)[there]["state"] == "ready" and endpoints(gateway)[gone]["state"] == "unhealthy", 10)
    r = programs.run("penstock", "status", "--admin", gateway.admin)
    assert r.stdout.splitlines()[3:] == [f"m/1: {gone} is unhealthy"], r.stdout
    assert r.stdout.splitlines()[2].split()[-2:] == ["-", "-"]  # no call, no latency


def test_versions_with_a_command_are_warned_of(programs, stock, tmp_path):
    gateway = penstock.gateway(programs, tmp_path, {"m": {"versions": {"1": {"command": ["serve"]}}}})
    gateway.wait_event("no_endpoints", model="m", version="1")


def test_a_health_check_of_an_unknown_name_says_what_names_there_are(programs, stock, tmp_path):
    gateway = penstock.gateway(programs, tmp_path, {"m": of({"1": [stock().address]})})
    answer = penstock.call(gateway.grpc, "/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest(service="model:x").SerializeToString())
    assert (answer.code, answer.details) == ("NOT_FOUND", 'penstock: no health of "model:x": neither a service nor model:NAME[/VERSION]')
