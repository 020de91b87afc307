"""Deadline races (others 1): the replica, the gateway and the client each have a clock; whichever is first, the client
sees DEADLINE_EXCEEDED, and a CANCEL that has nothing to do with a deadline stays one."""
import heapq
import itertools
import threading
import time

import frames
import penstock
import pytest
from hyperframe.frame import PingFrame

ENGINES = ["native", "session"]
CANCELLED, DEADLINE_EXCEEDED = 1, 4
TIMEOUT_S = 0.4
PHASES = ["nothing", "headers", "a message", "half a message"]
# When the replica resets, against the deadline. A real server's clock runs a little before or behind ours; 20 ms early
# is the most that is taken for the deadline (gateway/reply.c).
AROUND = [-0.015, -0.008, -0.003, 0.0, 0.003, 0.01, 0.05]


class Clock:
    """Calls back at given times, from one thread, however many wait."""

    def __init__(self):
        self.heap, self.n = [], itertools.count()
        self.changed = threading.Condition()
        threading.Thread(target=self.run, daemon=True).start()

    def at(self, when, act):
        with self.changed:
            heapq.heappush(self.heap, (when, next(self.n), act))
            self.changed.notify()

    def run(self):
        while True:
            with self.changed:
                while not self.heap or self.heap[0][0] > time.monotonic():
                    self.changed.wait(self.heap[0][0] - time.monotonic() if self.heap else None)
                act = heapq.heappop(self.heap)[2]
            try:
                act()
            except OSError:
                pass


class Races(frames.Replica):
    """x-phase: how far it comes; x-at: seconds after the request's headers when it resets; x-code: with what."""

    def __init__(self):
        super().__init__()
        self.clock = Clock()

    def on_request(self, stream):
        phase = stream.headers["x-phase"]
        if phase != "nothing":
            stream.send_headers()
        if phase == "a message":
            stream.send_message(b"m")
        elif phase == "half a message":
            stream.conn.send(stream.conn.data_frame(stream.id, frames.grpc_message(b"message")[:8]))
        if "x-at" in stream.headers:
            self.clock.at(stream.at + float(stream.headers["x-at"]), lambda: stream.send_reset(int(stream.headers["x-code"])))


@pytest.fixture(params=ENGINES)
def race(request, programs, scripted):
    """(gateway, replica, a raw client)"""
    replica = scripted(Races())
    gateway = penstock.relay(programs, [replica.address], "--engine", request.param, "--probe", "off")
    client = frames.Client(gateway.grpc)
    yield gateway, replica, client
    client.close()


def ask(client, phase, timeout=f"{int(TIMEOUT_S * 1000)}m", **how):
    more = [("x-phase", phase)] + [(f"x-{k}", str(v)) for k, v in how.items()]
    return client.request("/test.Echo/Unary", b"x", *([("grpc-timeout", timeout)] if timeout else []), *more)


def settle(gateway, client):
    client.conn.send(PingFrame(0, b"all came"))
    client.wait_frame(PingFrame, opaque_data=b"all came")
    assert client.goaway is None
    penstock.wait_for(lambda: sum(gateway.counter(f"penstock_{c}") for c in ("streams_started_total", "streams_open")) == len(client.streams), 10, "every call's end")


def check_end(call, status, phase):
    assert (call.status, call.reset) == (status, None), f"{phase}: {call.shape} {call.message}"
    assert call.shape in (("H$",) if phase == "nothing" else ("H H$", "H$") if phase == "headers" else ("H D H$",)), call.shape
    assert call.messages == ([b"m"] if phase == "a message" else [])


def test_the_replica_resets_around_the_deadline(race):
    """CANCEL as grpc-go sends it, at seven times around the deadline, in four phases, five of each: always 4, counted so."""
    gateway, _, client = race
    calls = [(ask(client, phase, at=TIMEOUT_S + at, code=frames.CANCEL), phase) for phase in PHASES for at in AROUND for _ in range(5)]
    client.wait(*(c for c, _ in calls))
    for call, phase in calls:
        check_end(call, DEADLINE_EXCEEDED, phase)
    settle(gateway, client)
    assert gateway.counter("penstock_ended_deadline_total") == len(calls)
    assert gateway.counter("penstock_calls_total", code="DEADLINE_EXCEEDED") == len(calls)


@pytest.mark.parametrize("code", [0, 1, 2, 7, 8, 11])
def test_the_deadline_is_ours_when_the_replica_is_late(race, code):
    """Whatever it sends behind the deadline, REFUSED_STREAM too, is no news."""
    gateway, replica, client = race
    calls = [(ask(client, phase, "150m", at=0.25, code=code), phase) for phase in PHASES]
    client.wait(*(c for c, _ in calls))
    for call, phase in calls:
        check_end(call, DEADLINE_EXCEEDED, phase)
    penstock.wait_for(lambda: [s.reset for s in replica.executions] == [frames.CANCEL] * len(calls), 5, "CANCEL at the replica")
    settle(gateway, client)
    assert gateway.counter("penstock_attempts_started_total") == len(calls)  # none was tried again


def test_refused_at_the_deadline_is_not_passed_on(race):
    """REFUSED_STREAM just before the deadline: it is tried again while there is time, and then the time is over."""
    gateway, _, client = race
    calls = [ask(client, "nothing", "150m", at=at, code=frames.REFUSED_STREAM) for at in (0.1, 0.13, 0.145, 0.15)]
    client.wait(*calls)
    assert [(c.status, c.reset) for c in calls] == [(DEADLINE_EXCEEDED, None)] * 4, [c.message for c in calls]
    settle(gateway, client)


@pytest.mark.parametrize("timeout", [None, "20S"])
def test_cancel_far_from_a_deadline_stays_cancelled(race, timeout):
    gateway, _, client = race
    calls = [(ask(client, phase, timeout, at=0.05, code=frames.CANCEL), phase) for phase in PHASES]
    client.wait(*(c for c, _ in calls))
    for call, phase in calls:
        check_end(call, CANCELLED, phase)
    settle(gateway, client)
    assert gateway.counter("penstock_calls_total", code="CANCELLED") == len(calls)


def test_the_client_gives_up_in_the_same_moment(race):
    """Its RST_STREAM(CANCEL), our timer and the replica's CANCEL meet: each call ends once, under one cause."""
    gateway, replica, client = race
    clock, calls = Clock(), []
    for phase in PHASES:
        for at in (*AROUND, None):
            began = time.monotonic()
            call = ask(client, phase, **({} if at is None else {"at": TIMEOUT_S + at, "code": frames.CANCEL}))
            clock.at(began + TIMEOUT_S + (at or 0) / 2, lambda c=call: client.cancel(c))
            calls.append(call)
    time.sleep(TIMEOUT_S + 0.1)
    for call in calls:
        while not call.ended and call.id in client.streams:
            try:
                client.conn.sock.settimeout(0.05)
                client.step()
            except TimeoutError:
                break
    settle(gateway, client)
    assert all(c.reset is None and c.status in (DEADLINE_EXCEEDED, None) for c in calls)
    ended = {cause: gateway.counter(f"penstock_ended_{cause}_total") for cause in ("deadline", "by_client", "upstream_lost", "relayed")}
    assert ended["deadline"] + ended["by_client"] == len(calls) and ended["upstream_lost"] == ended["relayed"] == 0, ended
    assert all(s.reset in (frames.CANCEL, None) for s in replica.executions)


def test_grpcio_on_both_sides(programs, stock):
    """A real server with a handler that outlives the deadline, 200 calls: through the gateway as without it."""
    server = stock(threads=64)
    gateway = penstock.relay(programs, [server.address], "--probe", "off")
    with penstock.channel(gateway.grpc) as channel:
        futures = [channel.unary_unary("/test.Echo/Sleep")
                   .future(b"2000", timeout=0.1 + i % 10 * 0.01) for i in range(200)]
        assert {f.code().name for f in futures} == {"DEADLINE_EXCEEDED"}
    client = frames.Client(gateway.grpc)
    calls = [client.request("/test.Echo/Sleep", b"2000", ("grpc-timeout", f"{50 + i}m")) for i in range(50)]
    client.wait(*calls)
    assert {(c.status, c.reset) for c in calls} == {(DEADLINE_EXCEEDED, None)}
    client.close()
