"""Answers and uploads that are longer than a window, when one side ends early, is slow, or dies: what came is delivered,
what is left is stopped, and nobody waits for ever."""
import threading
import time

import frames
import penstock
import pytest
from hyperframe.frame import GoAwayFrame, SettingsFrame, WindowUpdateFrame

ENGINES = ["native", "session"]
OK, EXHAUSTED, UNAVAILABLE, CANCELLED, DEADLINE_EXCEEDED = 0, 8, 14, 1, 4
ECHO = "/test.Echo/Unary"


class Script(frames.Replica):
    """x-do names one of the functions below."""

    settings = {SettingsFrame.MAX_CONCURRENT_STREAMS: 1000, SettingsFrame.INITIAL_WINDOW_SIZE: 65535}
    give_windows = True

    def on_headers(self, stream):
        if stream.headers.get("x-when") == "headers":
            ACTS[stream.headers["x-do"]](stream)

    def on_data(self, stream, data):
        if stream.headers.get("x-when") == "data" and not hasattr(stream, "acted"):
            stream.acted = True
            ACTS[stream.headers["x-do"]](stream)

    def on_request(self, stream):
        if stream.headers.get("x-when", "end") == "end":
            ACTS[stream.headers.get("x-do", "echo")](stream)


def much(stream, n):
    """n bytes in one message, within the window that the gateway has given (1 MiB)."""
    stream.send_headers()
    data = frames.grpc_message(bytes(range(256)) * (n // 256))
    stream.conn.send(*(stream.conn.data_frame(stream.id, data[i:i + 16384]) for i in range(0, len(data), 16384)))


def then(*more):
    def act(stream):
        much(stream, 500 * 1024)
        for m in more:
            m(stream)
    return act


def trailers(status):
    return lambda s: s.send_trailers(status, "said")


def goaway(s):
    s.conn.send(GoAwayFrame(0, last_stream_id=s.id))


def settle(s):
    time.sleep(0.2)  # else the kernel may drop what the gateway has not read yet


ACTS = {
    "echo": lambda s: s.respond(*s.messages),
    "much": then(trailers(OK)),
    "much, error": then(trailers(9)),
    "much, FIN": then(trailers(OK), lambda s: s.conn.close()),
    "much, GOAWAY, FIN": then(trailers(9), goaway, lambda s: s.conn.close()),
    "much, TCP reset": then(trailers(9), settle, lambda s: s.conn.reset_tcp()),
    "much, NO_ERROR": then(trailers(9), lambda s: s.send_reset(0)),
    "much, CANCEL": then(trailers(9), lambda s: s.send_reset(8)),
    "much, no trailers, FIN": then(lambda s: s.conn.close()),
    "much, no trailers, TCP reset": then(settle, lambda s: s.conn.reset_tcp()),
    "much, no trailers, CANCEL": then(lambda s: s.send_reset(8)),
    "much, no trailers, INTERNAL_ERROR": then(lambda s: s.send_reset(2)),
    "much, no trailers, END_STREAM": then(lambda s: s.conn.send(s.conn.data_frame(s.id, b"", end_stream=True))),
    "error": lambda s: s.respond(status=EXHAUSTED, message="enough"),
    "error, FIN": lambda s: (s.respond(status=EXHAUSTED, message="enough"), s.conn.close()),
    "nothing": lambda s: None,
}
ENDS = {"much": OK, "much, error": 9, "much, FIN": OK, "much, GOAWAY, FIN": 9, "much, TCP reset": 9, "much, NO_ERROR": 9, "much, CANCEL": 9,
        "much, no trailers, FIN": UNAVAILABLE, "much, no trailers, TCP reset": UNAVAILABLE, "much, no trailers, CANCEL": CANCELLED,
        "much, no trailers, INTERNAL_ERROR": 13, "much, no trailers, END_STREAM": 2}


@pytest.fixture(params=ENGINES)
def hop(request, programs, scripted):
    replica = scripted(Script())
    gateway = penstock.relay(programs, [replica.address], "--engine", request.param, "--probe", "off")
    gateway.replica = replica
    return gateway


def slow_client(gateway):
    c = frames.Client(gateway.grpc, give_windows=False)
    c.conn.send(WindowUpdateFrame(0, 1 << 30))
    return c


def read_on(client, stream, step=20000, pause=0.0):
    """Gives the stream's window a little at a time until its end."""
    while not stream.ended:
        have = len(stream.body)
        client.conn.send(WindowUpdateFrame(stream.id, step))
        until = time.monotonic() + 0.3
        while not stream.ended and len(stream.body) < have + step and time.monotonic() < until:
            client.conn.sock.settimeout(0.3)
            try:
                client.step()
            except TimeoutError:
                break
        time.sleep(pause)


def test_all_that_came_is_delivered_to_a_slow_reader(hop):
    """others 4: the replica ends, closes or resets while most of its answer waits here for the client's window."""
    for do, status in ENDS.items():
        client = slow_client(hop)
        stream = client.request(ECHO, b"x", ("x-do", do))
        while len(stream.body) < 65535:
            client.step()
        time.sleep(0.25)  # whatever the replica did has arrived
        assert not stream.ended, f"{do}: {stream.shape}"
        read_on(client, stream)
        assert (stream.status, stream.reset, stream.shape) == (status, None, "H D H$"), f"{do}: {stream.status} {stream.message} {stream.shape}"
        assert len(stream.body) == 5 + 500 * 1024 and stream.messages == [bytes(range(256)) * 2000], do
        client.close()


@pytest.mark.parametrize("size", [16384 - 5, 16384, 32768 - 5, 65535 - 5])
def test_trailers_at_the_edge_of_a_window(programs, scripted, size):
    """DATA that fills a frame or the window exactly, and trailers at once behind it."""
    class Edge(frames.Replica):
        def on_request(self, stream):
            data = frames.grpc_message(bytes(size))
            encoded = stream.conn.headers_frame
            stream.conn.send(encoded(stream.id, [(":status", "200"), ("content-type", "application/grpc")]),
                             *(stream.conn.data_frame(stream.id, data[i:i + 16384]) for i in range(0, len(data), 16384)),
                             encoded(stream.id, [("grpc-status", "0")], end_stream=True))

    replica = scripted(Edge())
    for engine in ENGINES:
        gateway = penstock.relay(programs, [replica.address], "--engine", engine, "--probe", "off")
        client = slow_client(gateway)
        for _ in range(20):
            stream = client.wait(client.request(ECHO, b"x"))
            assert (stream.status, stream.shape, len(stream.body)) == (OK, "H D H$", size + 5)
        client.close()


@pytest.mark.parametrize("when", ["headers", "data"])
def test_an_early_error_stops_an_upload_that_the_window_holds(hop, when):
    """the answer comes while the upload waits for flow control; it is delivered, then the upload is told to stop."""
    for do in ("error", "error, FIN"):
        client = frames.Client(hop.grpc)
        stream = client.open(ECHO, ("x-do", do), ("x-when", when))
        client.upload(stream, frames.grpc_message(bytes(3 << 20)))
        client.wait(stream)
        assert (stream.status, stream.message) == (EXHAUSTED, "enough"), (stream.shape, stream.message)
        if stream.reset is None:
            client.wait_frame(frames.RstStreamFrame)
        assert stream.shape == "H$ R0"
        assert client.wait(client.request(ECHO, b"x")).messages == [b"x"]
        client.close()


def test_a_replica_that_does_not_read_holds_its_own_call_only(programs, scripted, tmp_path):
    """The upload of one call stands still; the deadline ends it, others on both connections go on meanwhile."""
    class Deaf(frames.Replica):
        settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 1000}

        def on_headers(self, stream):
            if stream.path != "/test.Deaf/Upload":
                stream.conn.send(WindowUpdateFrame(stream.id, 100000))

    replica = scripted(Deaf())
    for engine in ENGINES:
        gateway = penstock.relay(programs, [replica.address], "--engine", engine, "--probe", "off")
        client = frames.Client(gateway.grpc)
        stuck = client.open("/test.Deaf/Upload", ("grpc-timeout", "700m"))
        uploader = threading.Thread(target=client.upload, args=(stuck, frames.grpc_message(bytes(5 << 20))), daemon=True)
        uploader.start()
        other = frames.Client(gateway.grpc)
        for _ in range(10):
            assert other.wait(other.request(ECHO, bytes(5000))).messages == [bytes(5000)]
        uploader.join(10)
        client.wait(stuck)
        assert stuck.status == DEADLINE_EXCEEDED, (stuck.shape, stuck.message)
        penstock.wait_for(lambda g=gateway: g.counter("penstock_streams_open") == 0, 10, "every call's end")
        client.close()
        other.close()


def test_a_client_that_does_not_read_is_ended_by_its_deadline(hop):
    """Its window is shut, the answer waits: the deadline ends the call at the replica, and others are not held up."""
    client = slow_client(hop)
    stuck = client.request(ECHO, b"x", ("x-do", "much"), ("grpc-timeout", "800m"))
    while len(stuck.body) < 65535:
        client.step()
    assert client.wait(client.request(ECHO, b"other")).messages == [b"other"]
    time.sleep(1)
    read_on(client, stuck)
    assert stuck.status in (OK, DEADLINE_EXCEEDED) or stuck.reset == frames.CANCEL  # the answer was whole before the deadline
    assert client.wait(client.request(ECHO, b"other")).messages == [b"other"]
    client.close()


def test_windows_are_given_back_for_what_nobody_wants(hop):
    """A bidirectional call that is cancelled with a full window each way, 60 times on the same two connections."""
    client = slow_client(hop)
    for _ in range(60):
        stream = client.open(ECHO, ("x-do", "much"), ("x-when", "headers"))
        while len(stream.body) < 65535:
            client.step()
        client.upload(stream, bytes([0]) + (1 << 20).to_bytes(4, "big") + bytes(100000))
        client.cancel(stream)
        stream.ended = True
    stream = client.request(ECHO, b"x", ("x-do", "much"))
    read_on(client, stream, step=1 << 20)
    assert stream.status == OK and len(stream.body) == 5 + 500 * 1024
    assert hop.replica.errors == []
    client.close()
