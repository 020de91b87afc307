"""Clients and replicas that mean harm, and what must hold whatever they send: memory, the route, the others' calls."""
import time

import frames
import penstock
import pytest
from hyperframe.frame import GoAwayFrame, SettingsFrame

INFER = "/inference.GRPCInferenceService/ModelInfer"
ECHO = "/test.Echo/Unary"
RESOURCE_EXHAUSTED = frames.RESOURCE_EXHAUSTED


def plain(*replicas, **limits):
    """A catalogue with one plain service on these replicas."""
    return {"echo": {"protocol": "grpc", "services": ["test.Echo"], "endpoints": [r.address for r in replicas], "limits": limits,
                     "versions": {"1": {}}}}


def ready_client(address, **kw):
    """A client that has read the gateway's settings: its windows are the large ones."""
    c = frames.Client(address, **kw)
    c.wait_frame(SettingsFrame)
    return c


# ---- memory ----

BUDGET_MIB, CALLS, BODY = 16, 120, bytes(500_000)  # 60 MB are offered to a budget of 16


class Stalled(frames.Replica):
    """Takes no byte of any request."""
    settings = {SettingsFrame.MAX_CONCURRENT_STREAMS: 1000, SettingsFrame.INITIAL_WINDOW_SIZE: 0}
    on_request = on_probe = staticmethod(lambda stream: None)


class Flood(frames.Replica):
    """Answers at once, and more than the client will read."""

    def on_request(self, stream):
        stream.send_headers()
        stream.send_message(BODY)


def assert_bounded(gateway, before, client):
    """The budget held, the calls beyond it were ended as such, and a new call finds room."""
    penstock.wait_for(lambda: gateway.counter("penstock_ended_over_memory_total") > 0, what="a call ended for its memory")
    assert gateway.rss_mib() - before < 3 * BUDGET_MIB, "the memory budget did not hold"
    assert gateway.events("over_memory")
    client.close()


def test_uploads_that_nobody_takes_are_ended_when_the_memory_is_used_up(programs, scripted, tmp_path):
    replica = scripted(Stalled())
    gateway = penstock.gateway(programs, tmp_path, plain(replica), memory_mib=BUDGET_MIB)
    before = gateway.rss_mib()
    client = ready_client(gateway.grpc)
    calls = [client.open(ECHO) for _ in range(CALLS)]
    for s in calls:
        client.send(s, frames.grpc_message(BODY))
    ended = [s for s in calls[:CALLS // 2] if client.wait(s).ended]
    assert {s.status for s in ended} == {RESOURCE_EXHAUSTED}  # those that waited longest, not the last to come
    assert "memory_mib = 16 MiB" in ended[0].message
    assert_bounded(gateway, before, client)


def test_answers_that_nobody_reads_are_ended_when_the_memory_is_used_up(programs, scripted, tmp_path):
    replica = scripted(Flood())
    gateway = penstock.gateway(programs, tmp_path, plain(replica), memory_mib=BUDGET_MIB)
    before = gateway.rss_mib()
    client = ready_client(gateway.grpc, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 0})
    calls = [client.request(ECHO, b"more") for _ in range(CALLS)]
    ended = [s for s in calls[:CALLS // 2] if client.wait(s).ended]
    assert {s.reset for s in ended} == {frames.ENHANCE_YOUR_CALM}  # gRPC: RESOURCE_EXHAUSTED
    assert_bounded(gateway, before, client)


# ---- the route ----

@pytest.mark.parametrize("length", [2**32 - 1, 2**32 - 3])
def test_a_length_at_the_end_of_its_range_does_not_wrap_when_the_version_is_added(programs, scripted, tmp_path, length):
    """The replica would read a short message, and what follows as another that was never routed."""
    replica = scripted(frames.Replica())
    models = {"two": {"protocol": "kserve", "endpoints": [replica.address], "limits": {"message_mib": 0},
                      "versions": {"1": {}, "2": {}}, "traffic": {"1": 5000, "2": 5000}}}
    gateway = penstock.gateway(programs, tmp_path, models)
    client = ready_client(gateway.grpc)
    call = client.open(INFER)
    client.send(call, b"\0" + length.to_bytes(4, "big") + b"\x0a\x03two\x3a\x60" + bytes(96))
    client.wait(call)
    assert call.status == RESOURCE_EXHAUSTED and str(length) in call.message
    assert not replica.requests


# ---- replicas ----

def test_a_replica_that_sends_everybody_away_is_not_dialled_in_a_loop(programs, scripted):
    class Leaving(frames.Replica):
        def on_connect(self, conn):
            conn.send(SettingsFrame(0), GoAwayFrame(0, last_stream_id=0, error_code=0))

    leaving, good = scripted(Leaving()), scripted(frames.Replica())
    gateway = penstock.relay(programs, [leaving.address, good.address])
    for _ in range(20):
        assert penstock.call(gateway.grpc, ECHO, b"x", timeout=10).code == "OK"
    begun, connections = time.monotonic(), len(leaving.connections)
    penstock.wait_for(lambda: time.monotonic() - begun > 1)
    assert len(leaving.connections) - connections < 60  # the probes; it was hundreds
