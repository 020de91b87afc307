"""The other direction: what a client sends and does, and what its replica must get; one row a case, with both engines.

The rule behind most rows is gRPC's PROTOCOL-HTTP2: metadata pass as they are, what belongs to one hop does not; a reset of
the client, whatever its code, is CANCEL at the replica; and nobody else on either connection notices.
"""
import itertools

import frames
import penstock
import pytest
from hyperframe.frame import ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame, PingFrame, RstStreamFrame, WindowUpdateFrame

ENGINES = ["native", "session"]
ECHO = "/test.Echo/Unary"
OK, CANCELLED, DEADLINE_EXCEEDED, EXHAUSTED, INTERNAL, UNIMPLEMENTED = 0, 1, 4, 8, 13, 12


class Mirror(frames.Replica):
    """Echoes; x-do: what else. Keeps request trailers."""

    def __init__(self):
        super().__init__()
        self.trailers = {}

    def _dispatch(self, conn, frame):
        if isinstance(frame, HeadersFrame) and frame.stream_id in conn.streams:
            self.trailers[conn, frame.stream_id] = frame.fields
        super()._dispatch(conn, frame)

    def on_headers(self, stream):
        if stream.headers.get("x-do") == "greet":
            stream.send_headers()
            stream.send_message(b"hello")

    def on_request(self, stream):
        do = stream.headers.get("x-do")
        if do == "hold headers":
            stream.send_headers()
        elif do == "hold half":
            stream.send_headers()
            stream.send_message(b"half")
        elif do not in ("hold", "greet"):
            stream.respond(*stream.messages)


@pytest.fixture(scope="module", params=ENGINES)
def hop(request, module_programs):
    replica = Mirror().start()
    gateway = penstock.relay(module_programs, [replica.address], "--engine", request.param, "--probe", "off")
    gateway.replica = replica
    yield gateway
    gateway.stop()
    replica.stop()
    assert replica.errors == []


@pytest.fixture
def client(hop):
    c = frames.Client(hop.grpc)
    yield c
    assert c.conn.closed or c.wait(c.request(ECHO, b"after")).messages == [b"after"]  # no row hurts its connection
    assert c.goaway is None
    c.close()


def received(hop, tag):
    """The call with this x-tag at the replica."""
    def look():
        return [s for s in hop.replica.requests if s.headers.get("x-tag") == tag]
    return penstock.wait_for(look, 5, f"{tag} at the replica")[-1]


tags = (f"t{i}" for i in itertools.count())


def tag():
    t = next(tags)
    return t, ("x-tag", t)


# ---- metadata ----

KEPT = {
    "equal names in order": [("x", "b"), ("y", "1"), ("x", "a"), ("x", "")],
    "binary, padded and not": [("a-bin", "AAE="), ("a-bin", "AAE"), ("b-bin", ""), ("c-bin", "AA,AQ"), ("d-bin", "no base64 at all %")],
    "reserved names that nobody knows": [("grpc-trace-bin", "AAAA"), ("grpc-tags-bin", "AA"), ("grpc-new", "1")],
    "encodings": [("grpc-accept-encoding", "identity, deflate, gzip"), ("grpc-encoding", "gzip")],
    "who asks": [("user-agent", "grpc-python/1.85.3 grpc-c/53.0.0 (linux; chttp2)")],
    "traces": [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", "a=1,b=2"), ("b3", "0"),
               ("x-request-id", "r-1")],
    "every legal character of a name": [("0123456789abcdefghijklmnopqrstuvwxyz_-.", "x")],
    "every legal character of a value": [("x", "".join(chr(c) for c in range(0x20, 0x7f)).strip())],
    "12 KiB": [(f"x-{i}", "v" * 1000) for i in range(11)],
    "60 fields": [(f"x-{i}", str(i)) for i in range(60)],
    "cookies": [("cookie", "a=1"), ("cookie", "b=2")],
}


@pytest.mark.parametrize("what", KEPT)
def test_metadata_pass_as_they_are(hop, client, what):
    t, mark = tag()
    fields = KEPT[what]
    s = client.wait(client.request(ECHO, b"x", mark, *fields))
    assert s.status == OK, s.message
    got = received(hop, t).fields
    names = {k for k, _ in fields}
    assert [f for f in got if f[0] in names] == fields


def test_what_a_call_is_made_of(hop, client):
    """:method, :path, :authority, content-type as they came; te once; no field of one hop, no promise of a length."""
    t, mark = tag()
    own = client.fields("/a.b.C-d/M_1", mark, ("content-length", "6"), authority="models.example:80")
    s = client.open("", fields=own)
    client.send(s, frames.grpc_message(b"x"), end_stream=True)
    client.wait(s)
    got = received(hop, t).fields
    assert got[:4] and {k for k, _ in got[:4]} == {":method", ":scheme", ":path", ":authority"}
    assert dict(got)[":path"] == "/a.b.C-d/M_1" and dict(got)[":authority"] == "models.example:80" and dict(got)[":method"] == "POST"
    assert [v for k, v in got if k == "te"] == ["trailers"]
    assert "content-length" not in dict(got)


@pytest.mark.parametrize("te", [[], [("te", "trailers")]], ids=["without te", "with te"])
def test_te_is_always_there_once(hop, client, te):
    """a C++ server refuses a call without it."""
    t, mark = tag()
    s = client.open("", fields=[f for f in client.fields(ECHO, mark) if f[0] != "te"] + te)
    client.send(s, frames.grpc_message(b"x"), end_stream=True)
    client.wait(s)
    assert s.status == OK and [v for k, v in received(hop, t).fields if k == "te"] == ["trailers"]


@pytest.mark.parametrize("kind, http", [("application/grpc", None), ("application/grpc+proto", None), ("application/grpc+json", None),
                                        ("application/grpc;charset=utf-8", None), ("application/grpc-web", "415"), ("application/grpcx", "415"),
                                        ("application/json", "415"), ("", "415"), (None, "415")])
def test_content_types(hop, client, kind, http):
    t, mark = tag()
    fields = [f for f in client.fields(ECHO, mark) if f[0] != "content-type"] + ([("content-type", kind)] if kind is not None else [])
    s = client.open("", fields=fields)
    client.send(s, frames.grpc_message(b"x"), end_stream=True)
    client.wait(s)
    if http is None:
        assert s.status == OK and dict(received(hop, t).fields)["content-type"] == kind
    else:
        assert dict(s.headers)[":status"] == http and not [r for r in hop.replica.requests if r.headers.get("x-tag") == t]


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "application/grpc+json", "application/grpc;charset=utf-8"])
@pytest.mark.parametrize("why", ["deadline", "a wrong timeout", "a wrong flag", "a wrong path"])
def test_an_answer_of_ours_has_the_content_type_of_its_request(hop, client, kind, why):
    """Else a client that speaks JSON refuses it: connect-go makes INTERNAL of DEADLINE_EXCEEDED."""
    more = {"deadline": [("x-do", "hold"), ("grpc-timeout", "30m")], "a wrong timeout": [("grpc-timeout", "soon")]}.get(why, [])
    fields = [f for f in client.fields("/nothing" if why == "a wrong path" else ECHO, *more) if f[0] != "content-type"] + [("content-type", kind)]
    s = client.open("", fields=fields)
    client.send(s, bytes([9] if why == "a wrong flag" else []) + frames.grpc_message(b"x"), end_stream=True)
    client.wait(s)
    assert s.shape == "H$" and s.status not in (None, OK) and dict(s.headers)["content-type"] == kind


@pytest.mark.parametrize("timeout, least_us, most_us", [("99999999H", 1e14, 1e18), ("1H", 35e8, 36e8), ("2M", 119e6, 120e6), ("3S", 2e6, 3e6), ("2510m", 1e6, 2510e3),
                                                        ("19997923u", 18e6, 19997923), ("99999999n", 1, 99999)])
def test_the_rest_of_the_time_goes_on(hop, client, timeout, least_us, most_us):
    """Never more than came, at most 8 digits and a unit (PROTOCOL-HTTP2)."""
    t, mark = tag()
    client.wait(client.request(ECHO, b"x", mark, ("grpc-timeout", timeout)))
    got = received(hop, t).headers["grpc-timeout"]
    us = int(got[:-1]) * {"H": 36e8, "M": 6e7, "S": 1e6, "m": 1e3, "u": 1, "n": 1e-3}[got[-1]]
    assert 2 <= len(got) <= 9 and least_us <= us <= most_us, got


@pytest.mark.parametrize("timeout", ["0n", "0S", "00000000m", "1n"])
def test_no_time_at_all_is_over_at_once(hop, client, timeout):
    t, mark = tag()
    s = client.wait(client.request(ECHO, b"x", mark, ("grpc-timeout", timeout)))
    assert (s.status, s.reset) == (DEADLINE_EXCEEDED, None)


def test_request_trailers_pass(hop, client):
    t, mark = tag()
    s = client.open(ECHO, mark)
    client.send(s, frames.grpc_message(b"x"))
    client.conn.send_headers(s.id, [("x-sum", "1"), ("x-sum", "2"), ("y-bin", "AA")], end_stream=True)
    client.wait(s)
    at = received(hop, t)
    assert s.messages == [b"x"] and hop.replica.trailers[at.conn, at.id] == [("x-sum", "1"), ("x-sum", "2"), ("y-bin", "AA")]


@pytest.mark.parametrize("size", [20000, 60000, 100000])
def test_too_many_metadata_cost_one_call(hop, client, size):
    """gRPC: over the limit of a block, that call ends; those beside it, before and behind it do not."""
    beside = client.open(ECHO)
    s = frames.ClientStream(client.next_id, client.conn.peer_initial_window)
    client.streams[s.id], client.next_id = s, client.next_id + 2
    block = client.conn.encoder.encode(client.fields(ECHO, *[(f"x-{i}", "v" * 1000) for i in range(size // 1000)]), huffman=False)
    parts = [block[i:i + 16000] for i in range(0, len(block), 16000)]
    out = [HeadersFrame(s.id, parts[0], flags=["END_STREAM"])] + [ContinuationFrame(s.id, p) for p in parts[1:]]
    out[-1].flags.add("END_HEADERS")
    client.conn.send(*out)
    client.wait(s)
    assert s.reset == frames.ENHANCE_YOUR_CALM or s.status == EXHAUSTED
    client.send(beside, frames.grpc_message(b"x"), end_stream=True)
    assert client.wait(beside).messages == [b"x"]


# ---- bodies ----

@pytest.mark.parametrize("cut", [1, 3, 5, 7, 1000])
def test_messages_pass_however_they_are_cut(hop, client, cut):
    t, mark = tag()
    body = b"".join(frames.grpc_message(bytes([i]) * i * 7) for i in range(12))
    s = client.open(ECHO, mark)
    client.send(s, body, end_stream=True, size=cut)
    client.wait(s)
    assert s.status == OK and bytes(received(hop, t).body) == body == bytes(s.body)


def test_padding_and_empty_frames_are_not_passed_on(hop, client):
    t, mark = tag()
    s = client.open(ECHO, mark)
    for part in (b"", *frames.grpc_message(b"abc")):
        client.conn.send(DataFrame(s.id, bytes([part]) if isinstance(part, int) else part, pad_length=100, flags=["PADDED"]))
    client.conn.send(DataFrame(s.id, b"", pad_length=255, flags=["PADDED", "END_STREAM"]))
    client.wait(s)
    assert bytes(received(hop, t).body) == frames.grpc_message(b"abc") and s.messages == [b"abc"]


@pytest.mark.parametrize("flag", [2, 7, 255])
def test_a_wrong_compressed_flag_is_an_error_of_the_client(hop, client, flag):
    s = client.open(ECHO)
    client.send(s, bytes([flag]) + frames.grpc_message(b"x")[1:], end_stream=True)
    client.wait(s)
    assert s.status == INTERNAL and "flag" in s.message


def test_an_end_without_a_message_passes(hop, client):
    """The server decides what to make of a call without a message."""
    t, mark = tag()
    s = client.wait(client.open(ECHO, mark, end_stream=True))
    assert s.status == OK and received(hop, t).body == b""


def test_half_close_and_answer_are_independent(hop, client):
    """The replica answers before, the client ends later: both halves end by themselves."""
    t, mark = tag()
    s = client.open(ECHO, mark, ("x-do", "greet"))
    while not s.messages:
        client.step()
    client.send(s, frames.grpc_message(b"one"))
    client.send(s, frames.grpc_message(b"two"), end_stream=True)
    at = received(hop, t)
    penstock.wait_for(lambda: at.ended, 5, "the end of the request")
    assert at.messages == [b"one", b"two"] and not s.ended
    at.send_trailers()
    client.wait(s)
    assert s.shape == "H D H$" and s.status == OK


# ---- resets of the client ----

WHERE = {
    "before the message": ("", 0, False, 0),
    "inside the message": ("", 8, False, 0),
    "the request is whole": ("hold", None, True, 0),
    "response headers came": ("hold headers", None, True, 1),
    "half of the answer came": ("hold half", None, True, 2),
    "an answer came, the upload runs": ("greet", 8, False, 2),
}


@pytest.mark.parametrize("where", WHERE)
def test_a_reset_of_the_client_is_cancel_at_the_replica(hop, client, where):
    """Every code of RFC 9113 and three that nobody knows: the replica stops, each call is counted once, as CANCELLED."""
    do, cut, end, frames_first = WHERE[where]
    before = hop.counter("penstock_ended_by_client_total")
    codes = [*range(14), 14, 255, 0xfffffffe]
    calls = []
    for code in codes:
        t, mark = tag()
        s = client.open(ECHO, mark, ("x-do", do))
        body = frames.grpc_message(b"request")[:cut]
        if body or end:
            client.send(s, body, end_stream=end)
        at = received(hop, t)
        while len(s.trace) < frames_first:
            client.step()
        client.conn.send(RstStreamFrame(s.id, code))
        s.ended = True
        calls.append(at)
    penstock.wait_for(lambda: all(at.reset is not None for at in calls), 5, "the resets at the replica")
    assert {at.reset for at in calls} == {frames.CANCEL}
    penstock.wait_for(lambda: hop.counter("penstock_ended_by_client_total") == before + len(codes), 5, "each call counted")


@pytest.mark.parametrize("how", ["FIN", "RST", "GOAWAY and FIN"])
def test_a_client_that_goes_cancels_its_calls(hop, how):
    client = frames.Client(hop.grpc)
    calls = []
    for where in WHERE:
        do, cut, end, _ = WHERE[where]
        t, mark = tag()
        s = client.open(ECHO, mark, ("x-do", do))
        client.send(s, frames.grpc_message(b"request")[:cut or None], end_stream=end)
        calls.append(received(hop, t))
    if how == "GOAWAY and FIN":
        client.conn.send(GoAwayFrame(0, last_stream_id=0))
    (client.conn.reset_tcp if how == "RST" else client.close)()
    penstock.wait_for(lambda: all(at.reset is not None for at in calls), 5, "the resets at the replica")
    assert {at.reset for at in calls} == {frames.CANCEL}


def test_frames_behind_a_reset_hurt_nobody(hop, client):
    """RFC 9113 5.1: what crossed on its way, and a client that goes on regardless."""
    for _ in range(20):
        t, mark = tag()
        s = client.open(ECHO, mark, ("x-do", "hold"))
        client.send(s, frames.grpc_message(b"x"), end_stream=True)
        received(hop, t)
        client.conn.send(RstStreamFrame(s.id, 8), WindowUpdateFrame(s.id, 1000))
        s.ended = True
    client.conn.send(PingFrame(0, b"12345678"))
    client.wait_frame(PingFrame)
