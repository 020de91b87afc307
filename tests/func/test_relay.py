"""One call between an odd client and scripted replicas: what passes, what is made up here, what is tried again."""
import gzip
import random
import time

import frames
import penstock
import pytest
from hyperframe.frame import GoAwayFrame, RstStreamFrame, WindowUpdateFrame

ECHO = "/test.Echo/Unary"
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
MULTI = "/tensorflow.serving.PredictionService/MultiInference"
INVALID_ARGUMENT, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL = 3, 4, 12, 13


def start_gateway(programs, folder, models, **process):
    gateway = penstock.gateway(programs, folder, models, **process)
    penstock.wait_for(lambda: gateway.http("/readyz")[0] == 200, 20, "the gateway ready")
    return gateway


def echo_model(replicas, **limits):
    """A plain service over these replicas."""
    return {"echo": {"protocol": "grpc", "services": ["test.Echo"], "endpoints": [r.address for r in replicas], "limits": limits}}


class Scripted(frames.Replica):
    """Answers each request by the function that it is made with."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def on_request(self, stream):
        self.answer(stream)


def through_relay(programs, scripted, replica):
    gateway = penstock.relay(programs, [scripted(replica).address])
    return gateway, frames.Client(gateway.grpc)


# ---- what passes ----

def test_metadata_passes_in_order_and_hop_fields_do_not(programs, scripted):
    def answer(stream):
        stream.send_headers(("x-r", "1"), ("x-r", "2"), ("keep", "me"))
        stream.send_message(b"ok")
        stream.send_trailers(0, None, ("z-bin", "AAE"), ("a", "1"), ("a", "2"), ("grpc-server-stats-bin", "AA"))

    replica = Scripted(answer)
    _, client = through_relay(programs, scripted, replica)
    sent = [("x-a", "1"), ("b-bin", "AAE="), ("x-a", "2"), ("grpc-trace-bin", "AAAA"), ("grpc-accept-encoding", "identity, gzip")]
    stream = client.wait(client.request(ECHO, b"x", *sent))
    got = replica.executions[0].fields
    assert [f for f in got if f in sent] == sent
    assert got.count(("te", "trailers")) == 1
    assert dict(got)[":path"] == ECHO and dict(got)[":authority"] == "test"
    assert stream.status == 0 and stream.messages == [b"ok"]
    assert [f for f in stream.headers if f[0] in ("x-r", "keep")] == [("x-r", "1"), ("x-r", "2"), ("keep", "me")]
    assert [f for f in stream.trailers if f[0] != "grpc-status"] == [
        ("z-bin", "AAE"), ("a", "1"), ("a", "2"), ("grpc-server-stats-bin", "AA")]


def test_request_trailers_pass(programs, scripted):
    class Sees(frames.Replica):
        def _dispatch(self, conn, frame, *more):
            if getattr(frame, "fields", None) and frame.stream_id in conn.streams:
                self.trailers = frame.fields
            super()._dispatch(conn, frame, *more)

    replica = Sees()
    _, client = through_relay(programs, scripted, replica)
    stream = client.open(ECHO)
    client.send(stream, frames.grpc_message(b"x"))
    client.conn.send_headers(stream.id, [("checksum", "42")], end_stream=True)
    client.wait(stream)
    assert stream.messages == [b"x"], (stream.headers, stream.trailers, replica.errors)
    assert replica.trailers == [("checksum", "42")]


def test_informational_headers_are_skipped(programs, scripted):
    def answer(stream):
        stream.conn.send_headers(stream.id, [(":status", "103"), ("link", "x")])
        stream.respond(b"ok")

    _, client = through_relay(programs, scripted, Scripted(answer))
    stream = client.wait(client.request(ECHO, b"x"))
    assert stream.messages == [b"ok"] and dict(stream.headers)[":status"] == "200"


def test_headers_of_a_slow_answer_do_not_wait_for_it(programs, scripted):
    """A server that says hello and works on: its headers come at once, its data when there is some."""
    class Hello(frames.Replica):
        def on_request(self, stream):
            stream.send_headers(("hello", "1"))
            self.waiting = stream

    replica = Hello()
    _, client = through_relay(programs, scripted, replica)
    stream = client.request(ECHO, b"x")
    while stream.headers is None:
        client.step()
    assert ("hello", "1") in stream.headers and stream.trailers is None
    replica.waiting.send_message(b"late")
    replica.waiting.send_trailers()
    client.wait(stream)
    assert stream.messages == [b"late"] and stream.status == 0


def test_messages_pass_while_the_stream_is_open(programs, scripted):
    class Each(frames.Replica):
        def on_headers(self, stream):
            stream.send_headers()

        def on_data(self, stream, data):
            for message in stream.messages:
                stream.send_message(message)
            stream.body.clear()

        def on_request(self, stream):
            stream.send_trailers()

    _, client = through_relay(programs, scripted, Each())
    stream = client.open("/test.Echo/Bidi")
    for i in range(5):
        client.send(stream, frames.grpc_message(b"%d" % i))
        while len(stream.messages) <= i:
            client.step()
    client.send(stream, b"", end_stream=True)
    client.wait(stream)
    assert stream.messages == [b"0", b"1", b"2", b"3", b"4"] and stream.status == 0


# ---- the answer comes early ----

def test_an_early_answer_is_delivered_and_stops_the_upload(programs, scripted):
    class Early(frames.Replica):
        def on_data(self, stream, data):
            if not stream.ended and not getattr(stream, "answered", False):
                stream.answered = True
                stream.respond(status=frames.RESOURCE_EXHAUSTED, message="enough")

    replica = Early()
    gateway, client = through_relay(programs, scripted, replica)
    stream = client.open(ECHO)
    client.send(stream, frames.grpc_message(bytes(1 << 20))[:20000])
    while stream.headers is None:
        client.step()
    assert stream.status == frames.RESOURCE_EXHAUSTED and stream.message == "enough"
    reset = client.wait_frame(RstStreamFrame)
    assert reset.error_code == frames.NO_ERROR
    penstock.wait_for(lambda: replica.requests[0].reset == frames.CANCEL, 2, "the reset at the replica")
    penstock.wait_for(lambda: gateway.counter("penstock_early_answers_total") == 1, 2)
    # Late DATA of the upload that was told to stop harms nobody.
    client.send(stream, bytes(1000), end_stream=True)
    assert client.wait(client.open(ECHO, end_stream=True)).status is not None


# ---- statuses that are made up here ----

@pytest.mark.parametrize("http, status", [("400", INTERNAL), ("401", 16), ("403", 7), ("404", UNIMPLEMENTED), ("418", 2),
                                          ("429", 14), ("502", 14), ("503", 14)])
@pytest.mark.parametrize("body", [False, True], ids=["headers only", "with a page"])
def test_an_http_error_without_grpc_status_gets_one(programs, scripted, http, status, body):
    def answer(stream):
        stream.conn.send_headers(stream.id, [(":status", http), ("content-type", "text/html")], end_stream=not body)
        if body:
            stream.conn.send(stream.conn.data_frame(stream.id, b"<html>", end_stream=True))

    replica = Scripted(answer)
    _, client = through_relay(programs, scripted, replica)
    stream = client.wait(client.request(ECHO, b"x"))
    assert stream.status == status and dict(stream.headers)[":status"] == "200" and stream.messages == []
    assert replica.address in stream.message and http in stream.message


@pytest.mark.parametrize("how", ["trailers", "data", "headers"])
def test_an_answer_that_ends_without_grpc_status_is_unknown(programs, scripted, how):
    def answer(stream):
        if how == "headers":
            stream.conn.send_headers(stream.id, [(":status", "200"), ("content-type", "application/grpc")], end_stream=True)
            return
        stream.send_headers()
        stream.conn.send(stream.conn.data_frame(stream.id, frames.grpc_message(b"m"), end_stream=how == "data"))
        if how == "trailers":
            stream.conn.send_headers(stream.id, [("x", "y")], end_stream=True)

    _, client = through_relay(programs, scripted, Scripted(answer))
    stream = client.wait(client.request(ECHO, b"x"))
    assert stream.status == 2
    assert stream.messages == ([] if how == "headers" else [b"m"])


@pytest.mark.parametrize("code, status", [(0, INTERNAL), (1, INTERNAL), (2, INTERNAL), (3, INTERNAL), (8, 1), (11, 8), (12, 7)])
def test_a_reset_of_the_replica_becomes_a_status(programs, scripted, code, status):
    replica = Scripted(lambda stream: stream.send_reset(code))
    _, client = through_relay(programs, scripted, replica)
    stream = client.wait(client.request(ECHO, b"x"))
    assert stream.status == status and replica.address in stream.message


def test_a_connection_lost_behind_data_ends_with_trailers(programs, scripted):
    def answer(stream):
        stream.send_headers()
        stream.send_message(b"part")
        time.sleep(0.1)
        stream.conn.reset_tcp()

    replica = Scripted(answer)
    _, client = through_relay(programs, scripted, replica)
    stream = client.wait(client.request(ECHO, b"x"))
    assert stream.messages == [b"part"] and stream.status == frames.UNAVAILABLE and replica.address in stream.message


def test_no_replica_is_said_at_once(programs, scripted):
    gone = scripted(frames.Replica())
    gone.stop()
    gateway = penstock.relay(programs, [gone.address])
    client = frames.Client(gateway.grpc)
    start = time.monotonic()
    stream = client.wait(client.request(ECHO, b"x"))
    assert stream.status == frames.UNAVAILABLE and gone.address in stream.message
    assert time.monotonic() - start < 5


# ---- tried again ----

def two(programs, scripted, folder, bad, **limits):
    """The gateway over a bad replica and a good one; calls until the bad one got one: that call's stream."""
    bad, good = scripted(bad), scripted(frames.Replica())
    gateway = start_gateway(programs, folder, echo_model([bad, good], **limits))
    client = frames.Client(gateway.grpc)
    for _ in range(100):
        stream = client.wait(client.request(ECHO, b"x"))
        if bad.requests:
            return gateway, bad, good, stream
    raise AssertionError("the bad replica never got a call")


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_replica_lost_under_a_call(programs, scripted, tmp_path, idempotent):
    """T6: TCP closed after the whole request was read: idempotent: success at the second attempt, which says so;
    otherwise UNAVAILABLE, and nobody else has executed it."""
    gateway, bad, good, stream = two(programs, scripted, tmp_path, Scripted(lambda s: s.conn.reset_tcp()), idempotent=idempotent)
    if idempotent:
        assert stream.status == 0 and stream.messages == [b"x"]
        assert good.executions[-1].headers["grpc-previous-rpc-attempts"] == "1"
        assert "grpc-previous-rpc-attempts" not in bad.executions[0].headers
        penstock.wait_for(lambda: gateway.counter("penstock_retries_lost_total") == 1, 2)
    else:
        assert stream.status == frames.UNAVAILABLE and bad.address in stream.message
        assert len(bad.executions) == 1
    gateway.wait_event("attempt_failed", replica=bad.address)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("trailers_only", [True, False])
def test_an_answer_of_unavailable(programs, scripted, tmp_path, idempotent, trailers_only):
    """T14: the replica may have executed it, so it is repeated only where that does no harm."""
    def answer(stream):
        if not trailers_only:
            stream.send_headers()
            stream.send_trailers(frames.UNAVAILABLE, "try later")
        else:
            stream.respond(status=frames.UNAVAILABLE, message="try later")

    _, bad, good, stream = two(programs, scripted, tmp_path, Scripted(answer), idempotent=idempotent)
    if idempotent:
        assert stream.status == 0 and len(bad.executions) == 1
    else:
        assert stream.status == frames.UNAVAILABLE and stream.message == "try later"


def test_push_back_is_obeyed(programs, scripted, tmp_path):
    def answer(stream):
        stream.conn.send_headers(stream.id, [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "14"),
                                             ("grpc-retry-pushback-ms", "1000")], end_stream=True)

    _, _, _, stream = two(programs, scripted, tmp_path, Scripted(answer), idempotent=True)
    assert stream.status == frames.UNAVAILABLE and ("grpc-retry-pushback-ms", "1000") in stream.headers


def test_attempts_are_limited(programs, scripted, tmp_path):
    bad = [scripted(Scripted(lambda s: s.conn.reset_tcp())) for _ in range(5)]
    gateway = start_gateway(programs, tmp_path, echo_model(bad, idempotent=True, attempts=3))
    client = frames.Client(gateway.grpc)
    stream = client.wait(client.request(ECHO, b"x"))
    assert stream.status == frames.UNAVAILABLE and "limits.attempts" in stream.message
    assert sum(len(r.executions) for r in bad) == 3


def test_a_request_too_long_to_keep_is_not_repeated(programs, scripted, tmp_path):
    bad = [scripted(Scripted(lambda s: s.conn.reset_tcp())) for _ in range(2)]
    gateway = start_gateway(programs, tmp_path, echo_model(bad, idempotent=True, replay_kib=16))
    client = frames.Client(gateway.grpc)
    stream = client.wait(client.request(ECHO, bytes(40000)))
    assert stream.status == frames.UNAVAILABLE and "limits.replay_kib" in stream.message
    assert sum(len(r.executions) for r in bad) == 1


def test_refused_streams_go_elsewhere_whatever_the_model(programs, scripted, tmp_path):
    _, bad, good, stream = two(programs, scripted, tmp_path, Scripted(lambda s: s.send_reset(frames.REFUSED_STREAM)))
    assert stream.status == 0 and stream.messages == [b"x"]
    assert "grpc-previous-rpc-attempts" not in good.executions[-1].headers  # no attempt: it was never begun


def test_goaway_in_the_middle_of_a_burst(programs, scripted):
    """T5: GOAWAY with half of the open streams above its last id: those are sent elsewhere, each call runs once."""
    class Leaves(frames.Replica):
        left = False

        def on_request(self, stream):
            if self.left:
                stream.respond(*stream.messages)
                return
            open_ = [s for s in stream.conn.streams.values() if s.ended]
            if len(open_) == 20:
                self.left = True
                open_.sort(key=lambda s: s.id)
                stream.conn.send(GoAwayFrame(0, last_stream_id=open_[9].id, error_code=0))
                self.kept = open_[:10]
                for s in self.kept:
                    s.respond(*s.messages)

    leaves = scripted(Leaves())
    gateway = penstock.relay(programs, [leaves.address])
    client = frames.Client(gateway.grpc)
    calls = [client.request(ECHO, b"%d" % i) for i in range(20)]
    client.wait(*calls)
    assert [c.status for c in calls] == [0] * 20
    assert [c.messages for c in calls] == [[b"%d" % i] for i in range(20)]
    again = [s for s in leaves.executions if s.conn is not leaves.kept[0].conn]
    assert len(again) == 10 and not {bytes(s.body) for s in again} & {bytes(s.body) for s in leaves.kept}


def test_cancelled_on_a_connection_that_goes_away_was_never_begun(programs, scripted, tmp_path):
    """What MLServer does at SIGTERM: GOAWAY, and CANCELLED for each call that it had not started."""
    def answer(stream):
        stream.conn.send(GoAwayFrame(0, last_stream_id=2**31 - 1, error_code=0))
        stream.respond(status=frames.CANCELLED)
        stream.send_reset(frames.NO_ERROR)

    gateway, bad, good, stream = two(programs, scripted, tmp_path, Scripted(answer))
    assert stream.status == 0 and stream.messages == [b"x"]
    # Without GOAWAY it is the server's answer.
    other = tmp_path / "other"
    other.mkdir()
    _, _, _, stream = two(programs, scripted, other, Scripted(lambda s: s.respond(status=frames.CANCELLED)))
    assert stream.status == frames.CANCELLED


def test_a_client_that_goes_away_cancels_its_calls(programs, scripted):
    replica = Scripted(lambda stream: None)
    _, client = through_relay(programs, scripted, replica)
    for _ in range(3):
        client.request(ECHO, b"x")
    penstock.wait_for(lambda: len(replica.executions) == 3)
    client.conn.reset_tcp()
    penstock.wait_for(lambda: [s.reset for s in replica.executions] == [frames.CANCEL] * 3, 2, "the resets")


# ---- limits ----

def test_a_request_over_the_cap_is_refused_by_its_prefix(programs, scripted, tmp_path):
    replica = scripted(frames.Replica())
    gateway = start_gateway(programs, tmp_path, echo_model([replica], message_mib=1))
    client = frames.Client(gateway.grpc)
    stream = client.open(ECHO)
    client.send(stream, frames.grpc_message(bytes((1 << 20) + 1))[:5])
    client.wait(stream)
    assert stream.status == frames.RESOURCE_EXHAUSTED
    assert "limits.message_mib = 1 MiB" in stream.message and "1048577" in stream.message


def test_a_response_over_the_cap_is_cut_by_its_prefix(programs, scripted, tmp_path):
    def answer(stream):
        stream.send_headers()
        stream.conn.send(stream.conn.data_frame(stream.id, frames.grpc_message(bytes(5 << 20))[:5]))

    replica = scripted(Scripted(answer))
    gateway = start_gateway(programs, tmp_path, echo_model([replica], message_mib=4))
    client = frames.Client(gateway.grpc)
    stream = client.wait(client.request(ECHO, b"x"))
    assert stream.status == frames.RESOURCE_EXHAUSTED and "limits.message_mib = 4 MiB" in stream.message
    penstock.wait_for(lambda: replica.executions[0].reset == frames.CANCEL, 2, "the reset")


def test_the_models_own_deadline_serves_calls_that_bring_none(programs, scripted, tmp_path):
    replica = scripted(Scripted(lambda stream: None))
    gateway = start_gateway(programs, tmp_path, echo_model([replica], deadline_ms=200))
    client = frames.Client(gateway.grpc)
    start = time.monotonic()
    stream = client.wait(client.request(ECHO, b"x"))
    assert stream.status == DEADLINE_EXCEEDED and 0.19 < time.monotonic() - start < 2
    assert "200 ms" in stream.message and replica.address in stream.message
    assert "grpc-timeout" in replica.executions[0].headers
    penstock.wait_for(lambda: replica.executions[0].reset == frames.CANCEL, 2)


def test_a_full_queue_says_so(programs, scripted, tmp_path):
    replica = scripted(Scripted(lambda stream: None))
    gateway = start_gateway(programs, tmp_path, {"digits": {
        "versions": {"1": {"endpoints": [replica.address], "slots": 1}}, "limits": {"queue_length": 2}}})
    client = frames.Client(gateway.grpc)
    calls = [client.request(INFER, b"\x0a\x06digits") for _ in range(4)]
    client.wait(calls[3])
    assert calls[3].status == frames.RESOURCE_EXHAUSTED and "limits.queue_length = 2" in calls[3].message
    penstock.wait_for(lambda: len(replica.executions) == 1)
    # A slot that comes free is used at once, in order.
    replica.executions[0].respond(b"1")
    penstock.wait_for(lambda: len(replica.executions) == 2)
    replica.executions[1].respond(b"2")
    penstock.wait_for(lambda: len(replica.executions) == 3)
    replica.executions[2].respond(b"3")
    client.wait(*calls[:3])
    assert [c.messages for c in calls[:3]] == [[b"1"], [b"2"], [b"3"]]


def test_held_calls_can_not_fill_the_memory(programs, scripted, tmp_path):
    """40 calls wait for a slot and send 900 KB each; memory_mib is 16: what is over is refused, what waits is kept."""
    replica = scripted(Scripted(lambda stream: None))
    gateway = start_gateway(programs, tmp_path, {"digits": {
        "versions": {"1": {"endpoints": [replica.address], "slots": 1}}, "limits": {"queue_length": 100}}}, memory_mib=16)
    client = frames.Client(gateway.grpc)
    client.request(INFER, b"\x0a\x06digits")
    penstock.wait_for(lambda: len(replica.executions) == 1)
    client.conn.sock.settimeout(0.05)
    with pytest.raises(TimeoutError):  # read the gateway's SETTINGS
        while True:
            client.step()
    message = frames.grpc_message(b"\x0a\x06digits\x3a\x80\x80\x40" + bytes(1 << 20))[:900000]
    calls = []
    for _ in range(40):
        calls.append(client.open(INFER))
        client.send(calls[-1], message)
    penstock.wait_for(lambda: gateway.counter("penstock_ended_over_memory_total") > 10, 10, "refusals")
    over = [c for c in calls if wait_short(client, c)]
    assert 10 <= len(over) <= 30
    for c in over:
        assert c.reset == frames.REFUSED_STREAM or c.status == frames.RESOURCE_EXHAUSTED and "memory_mib = 16 MiB" in c.message
    assert gateway.counter("penstock_streams_queued") == 40 - len(over)


def wait_short(client, stream):
    """Has it ended, after all that has come was read?"""
    try:
        while not stream.ended:
            client.conn.sock.settimeout(0.2)
            client.step()
    except TimeoutError:
        pass
    return stream.ended


def test_a_slow_reader_holds_its_own_stream_only(programs, scripted):
    """The replica's window stays shut while the client does not read, and another call on the connection passes."""
    def answer(stream):
        if stream.messages == [b"much"]:
            stream.send_headers()
            stream.send_message(bytes(stream.window - 5))
        else:
            stream.respond(*stream.messages)

    replica = Scripted(answer)
    _, client = through_relay(programs, scripted, replica)
    client.give_windows = False
    client.conn.send(WindowUpdateFrame(0, 1 << 30))  # the stream's 65,535 are the narrow place
    much = client.request(ECHO, b"much")
    while len(much.body) < 65535:
        client.step()
    stream = client.wait(client.request(ECHO, b"other"))
    assert stream.messages == [b"other"]
    assert len(much.body) == 65535 and replica.executions[0].window == 1 << 20  # the gateway gave nothing back
    client.cancel(much)
    penstock.wait_for(lambda: replica.executions[0].reset == frames.CANCEL, 2, "the reset")


# ---- which version ----

NAME = b"\x0a\x03one"
TENSOR = b"\x3a\x80\x40" + bytes(8192)


@pytest.fixture
def shared(programs, scripted, tmp_path):
    """A model whose servers have all versions: 2 takes all traffic, the label old is 1."""
    replica = scripted(frames.Replica())
    gateway = start_gateway(programs, tmp_path, {
        "one": {"endpoints": [replica.address], "versions": {"1": {}, "2": {}}, "traffic": {"2": 10000}, "labels": {"old": "1"}},
        "wide": {"protocol": "tensorflow", "endpoints": [replica.address], "versions": {"7": {}, "8": {}},
                 "traffic": {"8": 10000}, "labels": {"old": "7"}}})
    return gateway, replica, frames.Client(gateway.grpc)


def last(replica, path):
    """The newest call to path: the prober asks in between."""
    return [s for s in replica.executions if s.path == path][-1]


@pytest.mark.parametrize("size", [1, 7, 16384])
@pytest.mark.parametrize("payload, added", [
    (NAME + TENSOR, b"\x12\x012"),               # the split's choice
    (TENSOR + NAME, b"\x12\x012"),
    (NAME + b"\x12\x03old" + TENSOR, b"\x12\x011"),  # a label becomes a number
    (NAME + b"\x12\x011" + TENSOR, b""),         # a version that is named stays as it is
    (NAME, b"\x12\x012"),
], ids=["split", "name last", "label", "named", "no tensor"])
def test_the_server_is_told_which_version(shared, payload, added, size):
    _, replica, client = shared
    stream = client.open(INFER)
    client.send(stream, frames.grpc_message(payload), end_stream=True, size=size)
    client.wait(stream)
    assert stream.status == 0, stream.message
    assert bytes(last(replica, INFER).body) == frames.grpc_message(payload + added)


def test_every_message_of_a_stream_is_told(shared):
    _, replica, client = shared
    for size in (3, 16384):
        stream = client.open(STREAM_INFER)
        client.send(stream, frames.grpc_message(NAME + b"\x1a\x01a") + frames.grpc_message(NAME + TENSOR) + frames.grpc_message(NAME),
                    end_stream=True, size=size)
        client.wait(stream)
        assert stream.status == 0, stream.message
        assert last(replica, STREAM_INFER).messages == [m + b"\x12\x012" for m in (NAME + b"\x1a\x01a", NAME + TENSOR, NAME)]


def test_tensorflow_is_told_by_a_model_spec(shared):
    _, replica, client = shared
    spec, label = b"\x0a\x06\x0a\x04wide", b"\x0a\x0b\x0a\x04wide\x22\x03old"
    for payload, number in ((spec, 8), (label, 7)):
        stream = client.wait(client.request(PREDICT, payload + b"\x12\x00"))
        assert stream.status == 0, stream.message
        assert last(replica, PREDICT).messages == [payload + b"\x12\x00" + bytes([0x0a, 4, 0x12, 2, 8, number])]
    # Tasks can't be told without adding one: the client has to name the version.
    task = client.wait(client.request(MULTI, b"\x0a\x08" + spec))
    assert task.status == INVALID_ARGUMENT and "number" in task.message


def test_a_compressed_message_is_never_changed(shared):
    _, replica, client = shared

    def call(payload, *more):
        stream = client.open(INFER, ("grpc-encoding", "gzip"), *more)
        client.send(stream, frames.grpc_message(gzip.compress(payload), compressed=1), end_stream=True)
        return client.wait(stream)

    assert call(NAME + b"\x12\x011" + TENSOR).status == 0
    assert gzip.decompress(last(replica, INFER).messages[0]) == NAME + b"\x12\x011" + TENSOR
    refused = call(NAME + TENSOR)
    assert refused.status == UNIMPLEMENTED and "uncompressed" in refused.message
    assert call(b"\x0a\x05three").status == frames.NOT_FOUND
    assert call(b"\xff" * 20).status == INVALID_ARGUMENT
    flagged = client.open(INFER)
    client.send(flagged, frames.grpc_message(NAME, compressed=1), end_stream=True)
    assert client.wait(flagged).status == INTERNAL  # the flag, but no grpc-encoding


# ---- everything at once ----

class Moody(frames.Replica):
    """Does to each call what its seed says."""

    def __init__(self, seed):
        super().__init__()
        self.random = random.Random(seed)

    def on_request(self, stream):
        mood = self.random.randrange(12)
        if mood == 0:
            stream.send_reset(self.random.choice([frames.REFUSED_STREAM, frames.CANCEL, frames.INTERNAL_ERROR]))
        elif mood == 1:
            stream.conn.send(GoAwayFrame(0, last_stream_id=self.random.choice([0, stream.id, 2**31 - 1]), error_code=0))
        elif mood == 2:
            stream.conn.reset_tcp()
        elif mood == 3:
            stream.send_headers()
        elif mood == 4:
            stream.send_headers()
            stream.send_message(bytes(5000))
            stream.send_reset(frames.INTERNAL_ERROR)
        elif mood == 5:
            stream.respond(status=self.random.randrange(17), message="mood")
        elif mood == 6:
            stream.conn.send_headers(stream.id, [(":status", "503")], end_stream=True)
        elif mood == 7:
            pass  # the caller's deadline ends it
        else:
            stream.respond(*stream.messages)

    def on_headers(self, stream):
        if self.random.randrange(15) == 0:
            stream.respond(status=frames.RESOURCE_EXHAUSTED, message="early")


@pytest.mark.parametrize("seed", range(3))
def test_moody_replicas_and_clients_leave_nothing_behind(programs, scripted, tmp_path, seed):
    """Any mixture of faults on both sides: each call ends once, no call is left over, no slot is lost."""
    group = [scripted(Moody(seed * 10 + i)) for i in range(3)]
    gateway = start_gateway(programs, tmp_path, {
        "echo": {"protocol": "grpc", "services": ["test.Echo"], "versions": {"1": {"endpoints": [r.address for r in group], "slots": 8}},
                 "limits": {"idempotent": seed % 2 == 0, "deadline_ms": 300, "replay_kib": 16, "queue_length": 50}}})
    rnd = random.Random(seed)
    opened = 0
    for _ in range(12):
        client = frames.Client(gateway.grpc)
        calls = []
        try:
            for _ in range(25):
                body = frames.grpc_message(bytes(rnd.choice([0, 1, 100, 3000, 30000])))
                s = client.open(ECHO)
                calls.append(s)
                opened += 1
                mood = rnd.randrange(8)
                if mood == 0:
                    client.cancel(s)
                    s.ended = True
                    continue
                cut = rnd.randrange(len(body) + 1)
                client.send(s, body[:cut])
                if mood == 1:
                    client.cancel(s, rnd.choice([frames.CANCEL, frames.NO_ERROR]))
                    s.ended = True
                elif mood > 2:  # 2: it never sends the rest
                    client.send(s, body[cut:], end_stream=True)
            if rnd.randrange(4) > 0:
                client.wait(*calls, timeout=10)
        finally:
            client.conn.reset_tcp()
    penstock.wait_for(lambda: gateway.counter("penstock_streams_open") == 0, 10, "every call's end")
    started = gateway.counter("penstock_streams_started_total")  # less than opened: a reset takes along what was not read
    ended = sum(v for (name, _), v in gateway.metrics().items() if name.startswith("penstock_ended_") and name.endswith("_total"))
    assert 100 < ended == started <= opened
    assert gateway.counter("penstock_streams_queued") == 0
