"""A call through the relay, frame by frame: one row a case, with both engines.

REPLICA rows say what the replica does and what the client must get; CLIENT rows what the client does and what must come of
it. Rows named "others 1" to "others 4": other proxies were seen to fail them. Facts 10 to 31: docs/conformance.md; U1 to U19: docs/attacks.md.
"""
import socket
import threading
import time

import frames
import penstock
import pytest
import suites
from hyperframe.frame import (ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame, PingFrame, PriorityFrame,
                              SettingsFrame, WindowUpdateFrame)

OK, CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, NOT_FOUND, EXHAUSTED, INTERNAL, UNAVAILABLE = 0, 1, 2, 4, 5, 8, 13, 14
RESPONSE = [(":status", "200"), ("content-type", "application/grpc")]
PATH = "/test.Echo/"


class Actor(frames.Replica):
    """Plays the row whose name is the method of the call, once its request is whole (`now`: once its headers are there)."""

    settings = {SettingsFrame.MAX_CONCURRENT_STREAMS: 1000, SettingsFrame.INITIAL_WINDOW_SIZE: 1 << 20}

    def on_headers(self, stream):
        row = REPLICA.get(stream.path.removeprefix(PATH))
        if row and row.now:
            row.act(stream)

    def on_request(self, stream):
        row = REPLICA.get(stream.path.removeprefix(PATH))
        if row is None:
            stream.respond(*stream.messages)
        elif not row.now:
            row.act(stream)


class Row:
    def __init__(self, source, act, status, now=False, timeout=None, check=None, message=b"request"):
        self.source, self.act, self.status, self.now, self.timeout, self.check = source, act, status, now, timeout, check
        self.message = message


REPLICA = {}


def replica(source, status, **more):
    """The function below is what the replica does in the row of its name."""
    def add(act):
        REPLICA[act.__name__] = Row(source, act, status, **more)
        return act
    return add


def trailers_are(*wanted):
    """Fields of the trailers, whole and in their order, but the status."""
    return lambda s: [f for f in s.trailers if f[0] != "grpc-status"] == list(wanted)


# ---- blocks, and where the status stands ----

@replica("others 2: HEADERS, no DATA, trailers", NOT_FOUND, check=lambda s: ("x-head", "1") in s.headers + s.trailers)
def headers_and_trailers_without_data(stream):
    stream.send_headers(("x-head", "1"))
    stream.send_trailers(NOT_FOUND, "none")


@replica("others 2: the same with time between", NOT_FOUND, check=lambda s: s.trailers is not None and ("x-head", "1") in s.headers)
def headers_and_late_trailers_without_data(stream):
    stream.send_headers(("x-head", "1"))
    time.sleep(0.1)
    stream.send_trailers(NOT_FOUND, "none")


@replica("others 3: grpc-status in headers and in trailers", EXHAUSTED, check=lambda s: s.messages == [b"one"])
def status_in_headers_and_in_trailers(stream):
    stream.conn.send_headers(stream.id, [*RESPONSE, ("grpc-status", "0")])
    stream.send_message(b"one")
    stream.send_trailers(EXHAUSTED)


@replica("gRPC: trailers-only", NOT_FOUND, check=lambda s: s.trailers is None and s.message == "gone%20away")
def trailers_only(stream):
    stream.respond(status=NOT_FOUND, message="gone%20away")


@replica("gRPC: END_STREAM on an empty DATA frame, no status", UNKNOWN)
def no_status_at_all(stream):
    stream.send_headers()
    stream.conn.send(stream.conn.data_frame(stream.id, b"", end_stream=True))


@replica("fact 11: status in the middle, ce- fields around it", OK,
         check=trailers_are(("ce-id", "1"), ("ce-source", "s"), ("ce-specversion", "0.3"), ("ce-type", "t")))
def cloud_event_trailers(stream):
    stream.send_headers()
    stream.send_message(b"x")
    stream.conn.send_headers(stream.id, [("ce-id", "1"), ("ce-source", "s"), ("grpc-status", "0"), ("ce-specversion", "0.3"), ("ce-type", "t")],
                             end_stream=True)


@replica("gRPC: 1xx blocks are skipped", OK, check=lambda s: s.messages == [b"x"])
def informational_blocks(stream):
    for status in ("100", "103", "103"):
        stream.conn.send_headers(stream.id, [(":status", status)])
    stream.respond(b"x")


@replica("gRPC: unknown grpc- fields, -bin padded and not, equal names in order", OK,
         check=trailers_are(("grpc-server-stats-bin", "AAA"), ("x-bin", "AA=="), ("x-bin", "AA"), ("x", "b"), ("x", "a")))
def odd_metadata(stream):
    stream.send_headers()
    stream.send_trailers(0, None, ("grpc-server-stats-bin", "AAA"), ("x-bin", "AA=="), ("x-bin", "AA"), ("x", "b"), ("x", "a"))


@replica("gRPC: a broken grpc-message passes as it is", NOT_FOUND, check=lambda s: s.message == "100%zz%e2%9")
def broken_message_escapes(stream):
    stream.respond(status=NOT_FOUND, message="100%zz%e2%9")


# ---- frames ----

@replica("gRPC: DATA of one byte", OK, check=lambda s: s.messages == [b"hello"])
def one_byte_frames(stream):
    stream.send_headers()
    for b in frames.grpc_message(b"hello"):
        stream.conn.send(stream.conn.data_frame(stream.id, bytes([b])))
    stream.send_trailers()


@replica("RFC 9113 6.1: padding", OK, check=lambda s: s.messages == [b"padded"])
def padded_data(stream):
    stream.send_headers()
    data = frames.grpc_message(b"padded")
    for part in (data[:3], data[3:]):
        stream.conn.send(DataFrame(stream.id, part, pad_length=255, flags=["PADDED"]))
    stream.conn.send(DataFrame(stream.id, b"", pad_length=7, flags=["PADDED"]))
    stream.send_trailers()


@replica("RFC 9113 6.10: a block in frames of one byte", OK, check=lambda s: ("x-long", "y" * 200) in s.headers)
def continuation_byte_by_byte(stream):
    block = stream.conn.encoder.encode([*RESPONSE, ("x-long", "y" * 200)], huffman=False)
    out = [HeadersFrame(stream.id, block[:1])] + [ContinuationFrame(stream.id, block[i:i + 1]) for i in range(1, len(block))]
    out[-1].flags.add("END_HEADERS")
    stream.conn.send(*out)
    stream.send_message(b"x")
    stream.send_trailers()


@replica("RFC 9113 4.1, 5.5: unknown frames in between", OK, check=lambda s: s.messages == [b"x"])
def unknown_frames(stream):
    unknown = bytes([0, 0, 3, 0xfe, 0xff]) + stream.id.to_bytes(4, "big") + b"abc"
    stream.conn.send(unknown)
    stream.send_headers()
    stream.conn.send(unknown)
    stream.send_message(b"x")
    stream.conn.send(unknown)
    stream.send_trailers()


@replica("fact 21: BDP PINGs and odd WINDOW_UPDATEs in the middle", OK, check=lambda s: s.messages == [b"x" * 50000])
def bdp_pings(stream):
    stream.send_headers()
    data = frames.grpc_message(b"x" * 50000)
    for i in range(0, len(data), 5000):
        stream.conn.send(PingFrame(0, bytes.fromhex("02041010090e0707")), WindowUpdateFrame(stream.id, 3215), WindowUpdateFrame(stream.id, 7),
                         stream.conn.data_frame(stream.id, data[i:i + 5000]))
    stream.send_trailers()


@replica("fact 22: SETTINGS raised in mid-connection", OK, check=lambda s: s.messages == [b"x"])
def settings_in_the_middle(stream):
    stream.send_headers()
    stream.conn.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 8388608, SettingsFrame.MAX_FRAME_SIZE: 8388608,
                                                SettingsFrame.HEADER_TABLE_SIZE: 0, 0xfe03: 1}))
    stream.send_message(b"x")
    stream.send_trailers()


@replica("RFC 9113 5.3.2: PRIORITY is ignored", OK)
def priority(stream):
    stream.conn.send(PriorityFrame(stream.id, depends_on=0, stream_weight=7), PriorityFrame(stream.id + 100, depends_on=stream.id))
    stream.respond(b"x")


# ---- ends ----

@replica("others 1: at the deadline the server only resets", DEADLINE_EXCEEDED, timeout="200m")
def reset_at_the_deadline(stream):
    time.sleep(max(0, 0.195 - (time.monotonic() - stream.at)))
    stream.send_reset(frames.CANCEL)


@replica("others 1: the same after headers and a message", DEADLINE_EXCEEDED, timeout="200m", check=lambda s: s.messages == [b"x"])
def reset_at_the_deadline_behind_data(stream):
    stream.send_headers()
    stream.send_message(b"x")
    time.sleep(max(0, 0.195 - (time.monotonic() - stream.at)))
    stream.send_reset(frames.CANCEL)


@replica("gRPC: CANCEL long before the deadline", CANCELLED, timeout="20S")
def reset_before_the_deadline(stream):
    stream.send_reset(frames.CANCEL)


@replica("gRPC: no answer until the deadline", DEADLINE_EXCEEDED, timeout="150m")
def silence(stream):
    pass


@replica("others 4, fact 16: an early answer and RST_STREAM(NO_ERROR)", NOT_FOUND, now=True)
def early_answer_and_no_error(stream):
    stream.respond(status=NOT_FOUND, message="early")
    stream.send_reset(frames.NO_ERROR)


@replica("others 4: an early answer with messages and RST_STREAM(NO_ERROR)", EXHAUSTED, now=True, check=lambda s: s.messages == [b"x"])
def early_message_and_no_error(stream):
    stream.send_headers()
    stream.send_message(b"x")
    stream.send_trailers(EXHAUSTED)
    stream.send_reset(frames.NO_ERROR)


@replica("others 4: an early answer, then the connection is closed", EXHAUSTED, now=True, check=lambda s: s.messages == [b"x"])
def early_answer_and_close(stream):
    stream.send_headers()
    stream.send_message(b"x")
    stream.send_trailers(EXHAUSTED)
    stream.conn.send(GoAwayFrame(0, last_stream_id=stream.id))
    stream.conn.close()


@replica("others 4: half an answer, then the connection is closed", UNAVAILABLE, check=lambda s: s.messages == [b"x"])
def half_an_answer_and_close(stream):
    stream.send_headers()
    stream.send_message(b"x")
    stream.conn.close()


@replica("RFC 9113 8.1: END_STREAM inside a message, then nothing", UNKNOWN)
def message_cut_by_the_end(stream):
    stream.send_headers()
    stream.conn.send(stream.conn.data_frame(stream.id, frames.grpc_message(b"cut")[:6], end_stream=True))


@replica("gRPC: grpc-status with END_STREAM missing, ended by an empty DATA frame", UNKNOWN)
def status_in_headers_ended_by_data(stream):
    stream.conn.send_headers(stream.id, [*RESPONSE, ("grpc-status", "5")])
    stream.conn.send(stream.conn.data_frame(stream.id, b"", end_stream=True))


@replica("gRPC: trailers without END_STREAM", INTERNAL)
def trailers_without_end(stream):
    stream.send_headers()
    stream.send_message(b"x")
    stream.conn.send_headers(stream.id, [("grpc-status", "0")])


@replica("RFC 9113 8.3: a pseudo field in trailers", INTERNAL)
def pseudo_field_in_trailers(stream):
    stream.send_headers()
    stream.conn.send_headers(stream.id, [("grpc-status", "0"), (":status", "200")], end_stream=True)


@replica("RFC 9113 8.1: DATA before HEADERS", None)
def data_before_headers(stream):
    stream.conn.send(stream.conn.data_frame(stream.id, frames.grpc_message(b"x")))


@replica("fact 29: late frames on a stream that has ended", DEADLINE_EXCEEDED, timeout="100m")
def late_frames(stream):
    time.sleep(0.3)
    stream.send_headers()
    stream.send_message(b"late")
    stream.send_trailers()


@replica("fact 28: an HTML page", UNKNOWN, check=lambda s: "penstock" in s.message)
def html_page(stream):
    stream.conn.send_headers(stream.id, [(":status", "200"), ("content-type", "text/html")])
    stream.conn.send(stream.conn.data_frame(stream.id, b"<html>", end_stream=True))


@replica("fact 28: HTML headers, then nothing", UNKNOWN, check=lambda s: "penstock" in s.message)
def html_that_stalls(stream):
    stream.conn.send_headers(stream.id, [(":status", "200"), ("content-type", "text/html")])


@replica("fact 31: an HTTP error page of a proxy behind us", UNAVAILABLE)
def http_502(stream):
    stream.conn.send_headers(stream.id, [(":status", "502"), ("content-type", "text/html")])
    stream.conn.send(stream.conn.data_frame(stream.id, b"<html>" * 100, end_stream=True))


@replica("RFC 9113 8.1.1: content-length that DATA misses", INTERNAL)
def wrong_content_length(stream):
    stream.conn.send_headers(stream.id, [*RESPONSE, ("content-length", "3")])
    stream.conn.send(stream.conn.data_frame(stream.id, frames.grpc_message(b"more than 3")))
    stream.send_trailers()


@pytest.fixture(scope="module", params=suites.ENGINES)
def relay(request, module_programs):
    """A relay with this engine before one Actor; fresh for the module and engine."""
    actor = Actor().start()
    r = penstock.relay(module_programs, [actor.address], "--engine", request.param)
    r.actor, r.engine = actor, request.param
    yield r
    r.stop()
    actor.stop()
    assert actor.errors == []


@pytest.fixture
def client(relay):
    c = frames.Client(relay.grpc)
    yield c
    c.close()


@pytest.mark.parametrize("name", REPLICA)
def test_what_the_replica_does(relay, client, name):
    row = REPLICA[name]
    more = [("grpc-timeout", row.timeout)] if row.timeout else []
    stream = client.open(PATH + name, *more)
    client.send(stream, frames.grpc_message(row.message), end_stream=not row.now)
    client.wait(stream, timeout=10)
    assert stream.reset in (None, frames.NO_ERROR), f"{row.source}: reset {stream.reset}"
    assert stream.status == row.status if row.status is not None else stream.status in (INTERNAL, UNAVAILABLE), f"{row.source}: {stream.status} {stream.message}"
    assert stream.message is None or len(stream.message) > 0, row.source
    assert row.check is None or row.check(stream), f"{row.source}: {stream.headers} {stream.trailers} {stream.messages}"
    echo = client.request(PATH + "Unary", b"after")  # the connection, and the relay, live on
    assert client.wait(echo).messages == [b"after"]


# ---- what clients do ----

def grpc_core_preface(client):
    """fact 18"""
    client.conn.send(SettingsFrame(0, settings={SettingsFrame.ENABLE_PUSH: 0, SettingsFrame.MAX_CONCURRENT_STREAMS: 0,
                                                SettingsFrame.INITIAL_WINDOW_SIZE: 4194304, SettingsFrame.MAX_FRAME_SIZE: 4194304,
                                                SettingsFrame.MAX_HEADER_LIST_SIZE: 16384, 0xfe03: 1}), WindowUpdateFrame(0, 4128769))
    return client.request(PATH + "Unary", b"x")


def pseudo_fields_in_another_order(client):
    """fact 19"""
    fields = sorted(client.fields(PATH + "Unary"), key=lambda f: (f[0][0] != ":", f[0] == ":method"))
    s = client.open("", fields=fields)
    client.send(s, frames.grpc_message(b"x"), end_stream=True)
    return s


def one_byte_upload(client):
    """gRPC"""
    s = client.open(PATH + "Unary")
    client.send(s, frames.grpc_message(b"x"), size=1)
    client.send(s, b"", end_stream=True)
    return s


def padded_upload(client):
    """RFC 9113 6.1"""
    s = client.open(PATH + "Unary")
    client.conn.send(DataFrame(s.id, frames.grpc_message(b"x"), pad_length=200, flags=["PADDED"]),
                     DataFrame(s.id, b"", pad_length=9, flags=["PADDED", "END_STREAM"]))
    return s


def headers_in_frames_of_one_byte(client):
    """RFC 9113 6.10; a header block that comes byte by byte is no attack"""
    s = frames.ClientStream(client.next_id, client.conn.peer_initial_window)
    client.streams[s.id] = s
    client.next_id += 2
    block = client.conn.encoder.encode(client.fields(PATH + "Unary"), huffman=False)
    out = [HeadersFrame(s.id, block[:1])] + [ContinuationFrame(s.id, block[i:i + 1]) for i in range(1, len(block))]
    out[-1].flags.add("END_HEADERS")
    client.conn.send(*out)
    client.send(s, frames.grpc_message(b"x"), end_stream=True)
    return s


def half_close_by_trailers(client):
    """RFC 9113 8.1"""
    s = client.open(PATH + "Unary")
    client.send(s, frames.grpc_message(b"x"))
    client.conn.send_headers(s.id, [("x-trailer", "1")], end_stream=True)
    return s


def window_shrunk_below_zero(client):
    """RFC 9113 6.9.2"""
    client.conn.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 0}))
    s = client.request(PATH + "Unary", b"x")
    client.wait_frame(HeadersFrame)
    client.conn.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 65535}))
    return s


def header_table_size_zero(client):
    """RFC 7541 4.2: the peer's table shrinks to nothing, and grows again"""
    client.conn.send(SettingsFrame(0, settings={SettingsFrame.HEADER_TABLE_SIZE: 0}))
    client.wait(client.request(PATH + "Unary", b"y"))
    client.conn.send(SettingsFrame(0, settings={SettingsFrame.HEADER_TABLE_SIZE: 4096}))
    return client.request(PATH + "Unary", b"x")


def goaway_and_go_on(client):
    """RFC 9113 6.8: a client may say GOAWAY while its calls run"""
    s = client.open(PATH + "Unary")
    client.conn.send(GoAwayFrame(0, last_stream_id=0, error_code=0))
    client.send(s, frames.grpc_message(b"x"), end_stream=True)
    return s


def cancels_around_it(client):
    """attacks: calls that are cancelled at once do not harm the one that is not"""
    for code in (frames.CANCEL, frames.NO_ERROR, frames.REFUSED_STREAM, 0xdead):
        client.cancel(client.open(PATH + "silence"), code)
    s = client.request(PATH + "Unary", b"x")
    client.cancel(client.request(PATH + "silence", b"y"))
    return s


CLIENT = [grpc_core_preface, pseudo_fields_in_another_order, one_byte_upload, padded_upload, headers_in_frames_of_one_byte,
          half_close_by_trailers, window_shrunk_below_zero, header_table_size_zero, goaway_and_go_on, cancels_around_it]


@pytest.mark.parametrize("act", CLIENT, ids=lambda act: act.__name__)
def test_what_the_client_does(relay, client, act):
    stream = act(client)
    client.wait(stream, timeout=10)
    assert stream.status == 0 and stream.messages == [b"x"], f"{act.__doc__}: {stream.status} {stream.message} reset {stream.reset}"


@pytest.mark.parametrize("timeout, least_s", [("2510m", 2), ("1M", 50), ("19997923u", 15), ("1H", 3000), ("00000005S", 4)])
def test_timeouts_of_real_clients_reach_the_replica_a_little_smaller(relay, client, timeout, least_s):
    """fact 20"""
    client.wait(client.request(PATH + "Unary", b"x", ("grpc-timeout", timeout)))
    units = {"H": 3600, "M": 60, "S": 1, "m": 1e-3, "u": 1e-6, "n": 1e-9}
    got = relay.actor.requests[-1].headers["grpc-timeout"]
    assert least_s <= int(got[:-1]) * units[got[-1]] <= int(timeout[:-1]) * units[timeout[-1]], got
    assert len(got) <= 9


@pytest.mark.parametrize("code, status", [(0, INTERNAL), (1, INTERNAL), (2, INTERNAL), (3, INTERNAL), (4, INTERNAL), (5, UNKNOWN), (6, INTERNAL),
                                          (8, CANCELLED), (9, INTERNAL), (10, INTERNAL), (11, EXHAUSTED), (12, 7), (13, UNKNOWN)])
@pytest.mark.parametrize("behind_data", [False, True], ids=["at once", "behind data"])
def test_every_reset_code_becomes_its_status(relay, client, code, status, behind_data):
    """The gRPC protocol's table; 5 and 13 are not in it: what grpc-core and grpc-go make of them."""
    def act(stream):
        if behind_data:
            stream.send_headers()
            stream.send_message(b"x")
        stream.send_reset(code)
    name = f"reset{code}{behind_data}"
    REPLICA[name] = Row("", act, status)
    try:
        stream = client.wait(client.request(PATH + name, b"y"))
    finally:
        del REPLICA[name]
    assert (stream.status, stream.reset) == (status, None), stream.message
    assert stream.messages == ([b"x"] if behind_data else [])


@pytest.mark.parametrize("status", [*range(1, 17), 17, 99])
@pytest.mark.parametrize("only", [True, False], ids=["trailers-only", "behind data"])
def test_every_status_passes(relay, client, status, only):
    """But one that gRPC does not have: that is UNKNOWN."""
    name = f"status{status}{only}"
    REPLICA[name] = Row("", lambda s: s.respond(*([] if only else [b"x"]), status=status, message="why"), status)
    try:
        stream = client.wait(client.request(PATH + name, b"y"))
    finally:
        del REPLICA[name]
    assert (stream.status, stream.message) == (status if status < 17 else UNKNOWN, "why")


# ---- what a replica's connection does ----

class Aging(frames.Replica):
    """fact 24: after some calls GOAWAY(2^31-1) and PING, after the ACK GOAWAY with the last id, as max-connection-age does."""

    def on_request(self, stream):
        if len(self.executions) % 20 == 0 and not hasattr(stream.conn, "aged"):  # once: an id may not rise again
            stream.conn.aged = True
            stream.conn.send(GoAwayFrame(0, last_stream_id=2**31 - 1), PingFrame(0, b"age-ping"))
            stream.conn.send(GoAwayFrame(0, last_stream_id=max(stream.conn.streams)))
        stream.respond(*stream.messages)


class Calm(frames.Replica):
    """fact 23: too_many_pings, and the connection is closed."""

    def on_request(self, stream):
        if len(self.executions) == 3:
            stream.conn.send(GoAwayFrame(0, last_stream_id=stream.id - 2, error_code=frames.ENHANCE_YOUR_CALM, additional_data=b"too_many_pings"))
            stream.conn.close()
        else:
            stream.respond(*stream.messages)


class OneAtATime(frames.Replica):
    """MAX_CONCURRENT_STREAMS 1: more would be an error of ours."""

    settings = {SettingsFrame.MAX_CONCURRENT_STREAMS: 1}

    def on_headers(self, stream):
        if sum(not s.ended for s in stream.conn.streams.values() if not s.is_probe) > 1:
            self.errors.append(f"stream {stream.id} is one too many")

    def on_request(self, stream):
        stream.respond(*stream.messages)


class OpensLate(frames.Replica):
    """MAX_CONCURRENT_STREAMS 0 at first; 10 a moment later."""

    settings = {SettingsFrame.MAX_CONCURRENT_STREAMS: 0}

    def on_connect(self, conn):
        threading.Timer(0.3, self.open, [conn]).start()

    @staticmethod
    def open(conn):
        try:
            conn.send(SettingsFrame(0, settings={SettingsFrame.MAX_CONCURRENT_STREAMS: 10}))
        except OSError:
            pass  # the relay is done with this one


class LateSettings(frames.Replica):
    """Its first SETTINGS come after half a second: nobody may take that for death."""

    settings_delay_s = 0.5


class ShrinkingWindow(frames.Replica):
    """RFC 9113 6.9.2: the window of a running upload goes below zero, and comes back a little at a time."""

    settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 65535}

    def on_headers(self, stream):
        if hasattr(stream.conn, "shrunk"):  # it begins with 100 bytes
            stream.conn.send(WindowUpdateFrame(stream.id, 400000))

    def on_data(self, stream, data):
        if len(stream.body) >= 40000 and not hasattr(stream.conn, "shrunk"):
            stream.conn.shrunk = stream
            stream.conn.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 100}))
        if getattr(stream.conn, "shrunk", None) is stream:
            stream.conn.send(WindowUpdateFrame(stream.id, 70000))


class BigFrames(frames.Replica):
    """fact 22: DATA up to the frame size that the relay announces, and no more."""

    def on_request(self, stream):
        limit = stream.conn.peer_settings.get(SettingsFrame.MAX_FRAME_SIZE, 16384)
        data = frames.grpc_message(stream.messages[0])
        stream.send_headers()
        stream.conn.send(*(stream.conn.data_frame(stream.id, data[i:i + limit]) for i in range(0, len(data), limit)))
        stream.send_trailers()


@pytest.mark.parametrize("engine", suites.ENGINES)
@pytest.mark.parametrize("kind, calls, size", [(Aging, 45, 100), (OneAtATime, 30, 100), (OpensLate, 5, 100), (LateSettings, 5, 100),
                                               (ShrinkingWindow, 3, 300000), (BigFrames, 3, 60000)],
                         ids=lambda v: v.__name__ if isinstance(v, type) else "")
def test_no_call_is_lost(programs, scripted, engine, kind, calls, size):
    actor = scripted(kind())
    relay = penstock.relay(programs, [actor.address], "--engine", engine, "--probe", "off")
    client = frames.Client(relay.grpc)
    payload = bytes(range(256)) * (size // 256 + 1)
    streams = []
    for i in range(calls):
        s = client.open(PATH + "Unary")
        client.upload(s, frames.grpc_message(payload), end_stream=True)
        streams.append(s)
    client.wait(*streams)
    assert [(s.status, s.reset, s.message) for s in streams] == [(0, None, None)] * calls
    assert all(s.messages == [payload] for s in streams)
    assert actor.errors == []
    client.close()


@pytest.mark.parametrize("engine", suites.ENGINES)
def test_too_many_pings_costs_no_call_that_was_not_begun(programs, scripted, engine):
    """fact 23: ids above the last of the GOAWAY were not processed, so they go again, on a new connection."""
    actor = scripted(Calm())
    relay = penstock.relay(programs, [actor.address], "--engine", engine, "--probe", "off")
    client = frames.Client(relay.grpc)
    for _ in range(6):
        assert client.wait(client.request(PATH + "Unary", b"x")).messages == [b"x"]
    penstock.wait_for(lambda: len(actor.connections) >= 2, 5, "a new connection")
    client.close()


@pytest.mark.parametrize("engine", suites.ENGINES)
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b""],
                         ids=["HTTP/1", "ssh", "closes at once"])
def test_a_server_that_speaks_something_else_is_named(programs, engine, answer):
    """gRPC: an upstream that speaks HTTP/1; the client gets a status and a sentence, never a page."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.sendall(answer)
            sock.close()

    threading.Thread(target=serve, daemon=True).start()
    relay = penstock.relay(programs, ["127.0.0.1:%d" % listener.getsockname()[1]], "--engine", engine, "--probe", "off")
    client = frames.Client(relay.grpc)
    stream = client.wait(client.request(PATH + "Unary", b"x", ("grpc-timeout", "10S")))
    assert stream.status == UNAVAILABLE and stream.message.startswith("penstock: "), (stream.status, stream.message)
    client.close()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.mark.parametrize("engine", suites.ENGINES)
def test_what_was_sent_on_may_come_again(programs, scripted, engine):
    """Two gateways in a row: the second gets the very fields that it sends, call after call. What it keeps of them must go again
    (its end is watched for leaks)."""
    actor = scripted(frames.Replica())
    relay = penstock.relay(programs, [actor.address], "--engine", engine, "--probe", "off")
    client = frames.Client(relay.grpc)
    client.wait(client.request(PATH + "Unary", b"x"))
    for _ in range(5):
        fields = actor.requests[-1].fields
        stream = client.open("", fields=fields)
        client.send(stream, frames.grpc_message(b"x"), end_stream=True)
        assert client.wait(stream).messages == [b"x"]
        assert actor.requests[-1].fields == fields
    client.close()
