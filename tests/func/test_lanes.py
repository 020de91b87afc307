"""Which connection and which replica a call waits for: bulk beside small calls, replicas that refuse, replicas that come back."""
import threading
import time

import frames
import penstock
from test_known_calls import kserve
from test_relay import ECHO, INFER, Scripted, echo_model, start_gateway

BULK = 1 << 20  # a tensor
REFUSED_STREAM, UNAVAILABLE, DEADLINE_EXCEEDED = 7, 14, 4


class Stalls(frames.Replica):
    """Reads nothing for a while from a connection on which a long message begins."""

    def __init__(self):
        super().__init__()
        self.stalled = threading.Event()

    def on_data(self, stream, data):
        if len(stream.body) > 100_000 and not self.stalled.is_set():
            self.stalled.set()
            time.sleep(3)

    def on_request(self, stream):
        stream.respond(b"ok")


def test_small_calls_do_not_wait_behind_bulk(programs, scripted, tmp_path):
    replica = scripted(Stalls())
    gateway = start_gateway(programs, tmp_path, {"m": {"protocol": "kserve", "versions": {"1": {"endpoints": [replica.address]}}}})
    bulk, small = frames.Client(gateway.grpc), frames.Client(gateway.grpc)
    small.wait(small.request(INFER, kserve("m")))
    message = b"\x0a\x01m\x3a" + bytes([0x80 | BULK & 127, 0x80 | BULK >> 7 & 127, BULK >> 14]) + bytes(BULK)
    upload = bulk.open(INFER)
    sender = threading.Thread(target=bulk.upload, args=(upload, frames.grpc_message(message), True))
    sender.start()
    assert replica.stalled.wait(10)
    began, slowest = time.monotonic(), 0
    while time.monotonic() < began + 1.5:
        at = time.monotonic()
        assert small.wait(small.request(INFER, kserve("m"))).status == 0
        slowest = max(slowest, time.monotonic() - at)
    assert slowest < 1, f"{slowest:.2f} s beside a stalled upload"
    sender.join()
    bulk.wait(upload)
    assert upload.status == 0
    streams = [(s.conn, len(s.body) > 100_000) for s in replica.requests]
    assert len({id(c) for c, big in streams if big}) == len({id(c) for c, big in streams if not big}) == 1
    assert len({id(c) for c, _ in streams}) == 2


def test_a_model_that_answers_in_bulk_moves_to_its_own_connection(programs, scripted, tmp_path):
    replica = Scripted(lambda s: s.respond(bytes(300_000) if s.path == ECHO else b"ok"))
    replica = scripted(replica)
    gateway = start_gateway(programs, tmp_path, {
        "big": {"protocol": "grpc", "services": ["test.Echo"], "endpoints": [replica.address]},
        "small": {"protocol": "grpc", "services": ["test.Small"], "endpoints": [replica.address]}})
    client = frames.Client(gateway.grpc, settings={4: 1 << 20})
    for _ in range(30):
        assert client.wait(client.request(ECHO, b"x")).status == 0
    assert client.wait(client.request("/test.Small/Call", b"x")).status == 0
    conns = [id(s.conn) for s in replica.requests]
    assert conns[0] == conns[-1] and conns[-2] != conns[0] and len(set(conns)) == 2


def refusing(times):
    def answer(stream):
        if len(replica.requests) <= times:
            stream.send_reset(REFUSED_STREAM)
        else:
            stream.respond(b"ok")

    replica = Scripted(answer)
    return replica


def test_a_replica_that_refuses_for_a_while_is_waited_for(programs, scripted, tmp_path):
    replica = scripted(refusing(7))  # 7 refusals take 25 + 50 + 100 + 200 + 3 x 400 ms
    gateway = start_gateway(programs, tmp_path, echo_model([replica], deadline_ms=0))
    client = frames.Client(gateway.grpc)
    call = client.wait(client.request(ECHO, b"x", ("grpc-timeout", "20S")))
    assert call.status == 0 and call.messages == [b"ok"] and len(replica.requests) == 8


def test_but_no_longer_than_its_deadline_and_its_budget_allow(programs, scripted, tmp_path):
    replica = scripted(refusing(10**6))
    gateway = start_gateway(programs, tmp_path, echo_model([replica], deadline_ms=0))
    client = frames.Client(gateway.grpc)
    began = time.monotonic()
    call = client.wait(client.request(ECHO, b"x", ("grpc-timeout", "600m")))
    assert call.status in (UNAVAILABLE, DEADLINE_EXCEEDED) and "REFUSED_STREAM" in call.message
    assert len(replica.requests) == 5 and time.monotonic() - began < 2  # at 0, 25, 75, 175 and 375 ms
    calls = [client.request(ECHO, b"x", ("grpc-timeout", "30S")) for _ in range(40)]
    client.wait(*calls, timeout=40)
    assert {c.status for c in calls} == {UNAVAILABLE}
    assert len(replica.requests) <= 5 + 40 * 12 + 100  # the free tries of each, and the budget of all


def test_a_replica_that_was_down_at_the_start_is_used_soon_after_it_is_up(programs, scripted):
    late, other = Scripted(lambda s: s.respond(b"late")), scripted(Scripted(lambda s: s.respond(b"other")))
    late.port = penstock.free_port()
    gateway = penstock.relay(programs, [f"127.0.0.1:{late.port}", other.address])
    client = frames.Client(gateway.grpc)
    began = time.monotonic()
    while time.monotonic() < began + 6:  # back-offs grow meanwhile
        assert client.wait(client.request(ECHO, b"x")).messages == [b"other"]
        time.sleep(0.02)
    scripted(late)
    began = time.monotonic()
    while not late.executions:
        assert client.wait(client.request(ECHO, b"x")).status == 0
        assert time.monotonic() < began + 2.5, "not used 2.5 s after it listened"
        time.sleep(0.02)
