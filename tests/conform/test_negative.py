"""The negative HTTP/2 cases of the gRPC project (doc/negative-http2-test-descriptions.md): a scripted server that misbehaves, the relay as
its client, and what the end client must see: grpcio by hand, and the project's own client where there is a Go that builds it."""
import concurrent.futures
import re
import subprocess
import threading
import time

import frames
import penstock
import pytest
import suites
from hyperframe.frame import GoAwayFrame, PingFrame, SettingsFrame

UNARY = "/grpc.testing.TestService/UnaryCall"
UP, DOWN = 271828, 314159


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def message_of(size):
    """SimpleResponse (and, as far as the server reads it, SimpleRequest) with a payload of this size: field 1 with field 2 in it."""
    body = b"\x12" + varint(size) + bytes(size)
    return b"\x0a" + varint(len(body)) + body


class Large(frames.Replica):
    """Answers each call with 314,159 bytes within the windows; what it does before, in and behind that is the case's."""

    settings = {SettingsFrame.MAX_CONCURRENT_STREAMS: 1000, SettingsFrame.INITIAL_WINDOW_SIZE: 1 << 20}

    def on_request(self, stream):
        threading.Thread(target=self.answer, args=(stream,), daemon=True).start()

    def answer(self, stream):
        stream.send_headers()
        self.put(stream, frames.grpc_message(message_of(DOWN)))
        stream.send_trailers()

    def put(self, stream, data):
        at = 0
        while at < len(data) and not stream.conn.closed and stream.reset is None:
            n = stream.conn.take_window(max(0, min(stream.window, 16384, len(data) - at)))
            if n == 0:
                time.sleep(0.001)
                continue
            stream.window -= n
            stream.conn.send(stream.conn.data_frame(stream.id, data[at:at + n]))
            at += n


class GoAway(Large):
    """A GOAWAY behind the first answer: the next call needs another connection."""

    def answer(self, stream):
        super().answer(stream)
        if len(self.executions) == 1:
            stream.conn.send(GoAwayFrame(0, last_stream_id=stream.id))


class ResetAfterHeader(Large):
    def answer(self, stream):
        stream.send_headers()
        stream.send_reset(frames.NO_ERROR)


class ResetDuringData(Large):
    def answer(self, stream):
        stream.send_headers()
        self.put(stream, frames.grpc_message(message_of(DOWN))[:DOWN // 2])
        stream.send_reset(frames.NO_ERROR)


class ResetAfterData(Large):
    def answer(self, stream):
        stream.send_headers()
        self.put(stream, frames.grpc_message(message_of(DOWN)))
        stream.send_reset(frames.NO_ERROR)


class Pings(Large):
    """A PING before and behind each frame. frames.Connection gives ACKs to nobody, so they are counted where frames are read."""

    def __init__(self):
        super().__init__()
        self.sent, self.answered = [], []

    def ping(self, conn):
        self.sent.append(b"%08d" % len(self.sent))
        conn.send(PingFrame(0, self.sent[-1]))

    def _dispatch(self, conn, frame):
        if isinstance(frame, PingFrame) and "ACK" in frame.flags:
            self.answered.append(frame.opaque_data)
        super()._dispatch(conn, frame)

    def answer(self, stream):
        data = frames.grpc_message(message_of(DOWN))
        self.ping(stream.conn)
        stream.send_headers()
        for at in range(0, len(data), 16384):
            self.ping(stream.conn)
            self.put(stream, data[at:at + 16384])
        self.ping(stream.conn)
        stream.send_trailers()
        self.ping(stream.conn)


class MaxStreams(Large):
    """One stream at a time, said after the first call; from the ACK on, more is an error of the client's."""

    def on_connect(self, conn):
        conn.acks = 0  # of the first connection the second is that of the limit

    def _dispatch(self, conn, frame):
        if isinstance(frame, SettingsFrame) and "ACK" in frame.flags:
            conn.acks += 1
        super()._dispatch(conn, frame)

    def on_headers(self, stream):
        open_now = [s for s in stream.conn.streams.values() if not s.is_probe and not hasattr(s, "answered")]
        if stream.conn.acks > (stream.conn is self.connections[0]) and len(open_now) > 1:
            self.errors.append(f"{len(open_now)} streams at once")

    def answer(self, stream):
        if len(self.executions) == 1:
            self.settings = {**self.settings, SettingsFrame.MAX_CONCURRENT_STREAMS: 1}
            stream.conn.send(SettingsFrame(0, settings=self.settings))
        stream.send_headers()
        self.put(stream, frames.grpc_message(message_of(DOWN)))
        stream.answered = True  # before its END_STREAM leaves: the next stream may follow at once
        stream.send_trailers()


def large_call(address):
    return penstock.call(address, UNARY, message_of(UP), timeout=20)


def must_be_ok(answer):
    assert (answer.code, [len(m) for m in answer.messages]) == ("OK", [len(message_of(DOWN))]), answer.details


def goaway(replica, address):
    for _ in range(2):
        must_be_ok(large_call(address))
        penstock.wait_for(lambda: len(replica.executions) in (1, 2), 5)
    assert len({id(s.conn) for s in replica.executions}) == 2


def rst_after_header(_, address):
    answer = large_call(address)
    assert (answer.code, answer.messages) == ("INTERNAL", []) and "NO_ERROR" in answer.details


def rst_during_data(_, address):
    answer = large_call(address)
    assert answer.messages == [] and answer.code in ("INTERNAL", "UNKNOWN"), answer


def rst_after_data(_, address):
    """The message came whole, so a reader of streams has it; the call failed all the same."""
    answer = large_call(address)
    assert answer.code == "INTERNAL" and [len(m) for m in answer.messages] == [len(message_of(DOWN))]


def ping(replica, address):
    must_be_ok(large_call(address))
    penstock.wait_for(lambda: replica.answered == replica.sent, 5, "all ACKs, in order")


def max_streams(replica, address):
    must_be_ok(large_call(address))
    with penstock.channel(address) as channel, concurrent.futures.ThreadPoolExecutor(15) as pool:
        for answer in pool.map(lambda _: large_call(channel), range(15)):
            must_be_ok(answer)
    assert len(replica.executions) == 16


CASES = {goaway: GoAway, rst_after_header: ResetAfterHeader, rst_during_data: ResetDuringData, rst_after_data: ResetAfterData, ping: Pings,
         max_streams: MaxStreams}


@pytest.fixture(params=suites.ENGINES)
def case(request, programs, scripted):
    """(the case's function, its server, a relay before it)."""
    act = request.getfixturevalue("act")
    replica = scripted(CASES[act]())
    yield act, replica, penstock.relay(programs, [replica.address], "--engine", request.param, "--probe", "off")
    assert replica.errors == []


@pytest.mark.parametrize("act", CASES, ids=lambda a: a.__name__)
def test_what_grpcio_sees(case, act):
    act(case[1], case[2].grpc)


@pytest.mark.parametrize("act", CASES, ids=lambda a: a.__name__)
def test_what_grpc_go_says(case, act, tools, scripted):
    """Its client knows what it must see, and exits 1 when it does not; what it says to us is what it says without us (of
    rst_during_data it has another opinion than it has code)."""
    def said(address):
        host, port = address.rsplit(":", 1)
        r = subprocess.run([tools["http2"], "-server_host", host, "-server_port", port, "-test_case", act.__name__], capture_output=True, text=True,
                           timeout=60)
        return r.returncode, re.findall(r"_, \w+, want _, \w+", r.stderr)

    direct = said(scripted(CASES[act]()).address)
    assert direct[0] == 0 or act is rst_during_data
    assert said(case[2].grpc) == direct
