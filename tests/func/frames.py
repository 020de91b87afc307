"""Scripted HTTP/2 peers at frame level: a replica that may misbehave, and an odd client.

Nothing is done behind the script's back but answering PING and SETTINGS and giving windows back (each can be
switched off): a script may send any frame at any time, stall a window, drop the connection in mid-body.

    class Liar(frames.Replica):
        def on_request(self, stream):                      # the whole request is here
            stream.respond(status=5, message="unknown model")

    replica = scripted(Liar())          # in a test, with the fixture; replica.address, replica.requests
"""
import socket
import threading
import time

import hpack
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (ContinuationFrame, DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, RstStreamFrame,
                              SettingsFrame, WindowUpdateFrame)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 2, 3, 7, 8, 11
OK, CANCELLED, NOT_FOUND, RESOURCE_EXHAUSTED, UNAVAILABLE = 0, 1, 5, 8, 14
BIG_WINDOW = 2**31 - 1
PROBES = {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", *(
    f"/inference.GRPCInferenceService/{m}" for m in ("ServerLive", "ServerReady", "ModelReady"))}


def grpc_message(payload, compressed=0):
    """A gRPC message with its 5 byte prefix."""
    return bytes([compressed]) + len(payload).to_bytes(4, "big") + payload


def grpc_messages(data):
    """Payloads of all whole messages in data."""
    out = []
    while len(data) >= 5:
        n = int.from_bytes(data[1:5], "big")
        if len(data) < 5 + n:
            break
        out.append(bytes(data[5:5 + n]))
        data = data[5 + n:]
    return out


class Closed(Exception):
    """The other side closed the connection."""


class Connection:
    """One HTTP/2 connection: sending any frame (any thread), reading frames (one thread)."""

    def __init__(self, sock):
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.decoder.max_header_list_size = 1 << 20
        self.lock = threading.Lock()
        self.buffer = b""
        self.window, self.window_lock = 65535, threading.Lock()  # what we may send on the connection
        self.peer_initial_window = 65535
        self.peer_settings = {}
        self.answer_pings = self.answer_settings = True
        self.closed = False

    def send(self, *frames):
        data = b"".join(f if isinstance(f, bytes) else f.serialize() for f in frames)
        with self.lock:
            self.sock.sendall(data)

    def headers_frame(self, stream_id, fields, end_stream=False):
        """Only in the order in which it is sent: HPACK has a state."""
        f = HeadersFrame(stream_id, self.encoder.encode(fields, huffman=False))
        f.flags.add("END_HEADERS")
        if end_stream:
            f.flags.add("END_STREAM")
        return f

    def send_headers(self, stream_id, fields, end_stream=False):
        with self.lock:
            self.sock.sendall(self.headers_frame(stream_id, fields, end_stream).serialize())

    @staticmethod
    def data_frame(stream_id, data, end_stream=False):
        f = DataFrame(stream_id, data)
        if end_stream:
            f.flags.add("END_STREAM")
        return f

    def fill(self, n):
        """Until n bytes are in the buffer; after a time-out nothing is lost."""
        while len(self.buffer) < n:
            try:
                more = self.sock.recv(1 << 18)
            except TimeoutError:
                raise
            except OSError as e:
                raise Closed(str(e)) from None
            if not more:
                raise Closed("end of file")
            self.buffer += more

    def read_exactly(self, n):
        self.fill(n)
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def read_frame_raw(self):
        self.fill(9)
        length = int.from_bytes(self.buffer[:3], "big")
        self.fill(9 + length)
        head, body = self.read_exactly(9), self.read_exactly(length)
        try:
            frame, _ = Frame.parse_frame_header(memoryview(head))
            frame.parse_body(memoryview(body))
        except HyperframeError as e:
            raise AssertionError(f"the peer sent a malformed frame: {e!r}, {head.hex()}") from None
        return frame

    def read_frame(self):
        """The next frame, parsed; SETTINGS and PING are answered on the way unless switched off."""
        frame = self.read_frame_raw()
        if isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
            self.peer_settings.update(frame.settings)
            self.peer_initial_window = frame.settings.get(SettingsFrame.INITIAL_WINDOW_SIZE, self.peer_initial_window)
            if self.answer_settings:
                self.send(SettingsFrame(0, flags=["ACK"]))
        elif isinstance(frame, WindowUpdateFrame) and frame.stream_id == 0:
            self.add_window(frame.window_increment)
        elif isinstance(frame, PingFrame) and "ACK" not in frame.flags and self.answer_pings:
            self.send(PingFrame(0, frame.opaque_data, flags=["ACK"]))
        elif isinstance(frame, (HeadersFrame, ContinuationFrame)):
            block = bytes(frame.data)
            while "END_HEADERS" not in frame.flags and isinstance(frame, HeadersFrame):
                more = self.read_frame_raw()
                block += bytes(more.data)
                if "END_HEADERS" in more.flags:
                    break
            frame.fields = [(k if isinstance(k, str) else k.decode(), v if isinstance(v, str) else v.decode("latin-1"))
                            for k, v in self.decoder.decode(block, raw=True)]
        return frame

    def add_window(self, n):
        with self.window_lock:
            self.window += n

    def take_window(self, n):
        """Up to n bytes of the connection's window, taken; 0: there is none."""
        with self.window_lock:
            n = max(0, min(n, self.window))
            self.window -= n
            return n

    def reset_tcp(self):
        """Close so that the other side gets RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()

    def close(self):
        self.closed = True
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


class ReplicaStream:
    """One call as the replica sees it."""

    def __init__(self, conn, stream_id, fields):
        self.conn, self.id, self.fields = conn, stream_id, fields
        self.headers = dict(fields)
        self.path = self.headers.get(":path", "")
        self.is_probe = self.path in PROBES
        self.body = bytearray()
        self.at = time.monotonic()  # when the headers came
        self.ended = False  # END_STREAM seen
        self.reset = None  # error code of the RST_STREAM from the other side
        self.reset_at = None
        self.window = conn.peer_initial_window  # what we may send

    @property
    def messages(self):
        return grpc_messages(self.body)

    def send_headers(self, *more):
        self.conn.send_headers(self.id, [(":status", "200"), ("content-type", "application/grpc"), *more])

    def send_message(self, payload):
        """A message; the script must stay within the windows (64 KiB unless the peer gave more)."""
        data = grpc_message(payload)
        self.conn.send(*(self.conn.data_frame(self.id, data[i:i + 16384]) for i in range(0, len(data), 16384)))

    def send_trailers(self, status=0, message=None, *more):
        fields = [("grpc-status", str(status))] + ([("grpc-message", message)] if message is not None else [])
        self.conn.send_headers(self.id, [*fields, *more], end_stream=True)

    def respond(self, *payloads, status=0, message=None):
        """A whole answer: trailers-only for an error without messages."""
        if not payloads and status != 0:
            fields = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", str(status))]
            self.conn.send_headers(self.id, fields + ([("grpc-message", message)] if message else []), end_stream=True)
            return
        self.send_headers()
        for p in payloads:
            self.send_message(p)
        self.send_trailers(status, message)

    def send_reset(self, code=CANCEL):
        self.conn.send(RstStreamFrame(self.id, code))


class Replica:
    """An h2c server whose behaviour is in its on_... methods, called on the connection's thread.

    Attributes for tests: address, requests (each ReplicaStream whose headers came, over all connections), connections,
    executions (streams whose whole request came), probes (the same for health and readiness calls, which are kept apart
    and answered by on_probe)."""

    settings = {SettingsFrame.MAX_CONCURRENT_STREAMS: 1000, SettingsFrame.INITIAL_WINDOW_SIZE: BIG_WINDOW}
    settings_delay_s = 0
    give_windows = True  # give the connection's window back as data comes

    def __init__(self, port=0):
        self.port = port
        self.requests, self.executions, self.connections, self.probes = [], [], [], []
        self.errors = []
        self.listener = None

    # what a script overrides
    def on_connect(self, conn):
        pass

    def on_headers(self, stream):
        pass

    def on_data(self, stream, data):
        pass

    def on_request(self, stream):
        stream.respond(*stream.messages)

    def on_reset(self, stream):
        pass

    def on_probe(self, stream):
        stream.respond(b"\x08\x01")  # HealthCheckResponse SERVING; ready or live: true

    # the machine
    def start(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()
        return self

    def stop(self):
        self.stop_listening()
        for c in self.connections:
            c.close()

    def stop_listening(self):
        if self.listener:
            try:
                self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept
            except OSError:
                pass
            self.listener.close()
            self.listener = None

    def close_connections(self):
        for c in self.connections:
            c.close()

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            conn = Connection(sock)
            conn.streams = {}
            self.connections.append(conn)
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        try:
            if conn.read_exactly(len(PREFACE)) != PREFACE:
                self.errors.append("no HTTP/2 preface")
                conn.close()
                return
            self.on_connect(conn)
            if self.settings_delay_s:
                time.sleep(self.settings_delay_s)
            conn.send(SettingsFrame(0, settings=self.settings), WindowUpdateFrame(0, BIG_WINDOW - 65535))
            while True:
                window = conn.peer_initial_window
                frame = conn.read_frame()
                for open_stream in conn.streams.values() if conn.peer_initial_window != window else ():
                    open_stream.window += conn.peer_initial_window - window  # RFC 9113 6.9.2
                self._dispatch(conn, frame)
        except (Closed, OSError):
            conn.closed = True
        except Exception as e:  # a bug of the script or a broken peer: the test looks at errors
            self.errors.append(repr(e))
            conn.close()

    def _dispatch(self, conn, frame):
        stream = conn.streams.get(frame.stream_id)
        if isinstance(frame, HeadersFrame) and stream is None:
            stream = conn.streams[frame.stream_id] = ReplicaStream(conn, frame.stream_id, frame.fields)
            if not stream.is_probe:
                self.requests.append(stream)
                self.on_headers(stream)
        elif isinstance(frame, DataFrame) and stream is not None:
            stream.body += frame.data
            if self.give_windows and frame.flow_controlled_length:
                conn.send(WindowUpdateFrame(0, frame.flow_controlled_length))
            if not stream.is_probe:
                self.on_data(stream, bytes(frame.data))
        elif isinstance(frame, RstStreamFrame) and stream is not None:
            stream.reset, stream.reset_at = frame.error_code, time.monotonic()
            self.on_reset(stream)
        elif isinstance(frame, WindowUpdateFrame) and stream is not None:
            stream.window += frame.window_increment
        elif isinstance(frame, GoAwayFrame):
            conn.goaway = frame
        if stream is not None and isinstance(frame, (HeadersFrame, DataFrame)) and "END_STREAM" in frame.flags and not stream.ended:
            stream.ended = True
            if stream.is_probe:
                self.probes.append(stream)
                self.on_probe(stream)
            else:
                self.executions.append(stream)
                self.on_request(stream)


class ClientStream:
    def __init__(self, stream_id, window):
        self.id = stream_id
        self.headers, self.trailers = None, None
        self.body = bytearray()
        self.reset = None
        self.ended = False
        self.window = window  # what we may send
        self.trace = []  # its frames but WINDOW_UPDATE: ("H", fields, end), ("D", bytes, end), ("R", code, True)

    @property
    def messages(self):
        return grpc_messages(self.body)

    @property
    def shape(self):
        """Its frames in short: H a header block, D data (however cut), $ END_STREAM, R8 a reset with code 8."""
        out = []
        for kind, what, end in self.trace:
            token = f"R{what}" if kind == "R" else kind + "$" * end
            if kind == "D" and out and out[-1] == "D":
                out.pop()
            out.append(token)
        return " ".join(out)

    @property
    def status(self):
        """grpc-status wherever it came, as a number; None: none came."""
        for fields in (self.trailers, self.headers):
            for k, v in fields or ():
                if k == "grpc-status":
                    return int(v)
        return None

    @property
    def message(self):
        return dict((self.trailers or []) + (self.headers or [])).get("grpc-message")


class Client:
    """An odd client: opens a connection and sends what the script says.

        c = frames.Client(gateway.grpc)
        s = c.request("/test.Echo/Unary", b"hello")
        c.wait(s); assert s.status == 0 and s.messages == [b"hello"]
    """

    def __init__(self, address, settings=None, give_windows=True, timeout=30):
        host, port = address.rsplit(":", 1)
        self.conn = Connection(socket.create_connection((host, int(port)), timeout=timeout))
        self.give_windows = give_windows
        self.streams, self.next_id = {}, 1
        self.goaway = None
        self.frames = []  # every frame that came, in order
        self.conn.send(PREFACE, SettingsFrame(0, settings=settings or {}))

    def fields(self, path, *more, authority="test"):
        return [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", authority), ("te", "trailers"),
                ("content-type", "application/grpc"), *more]

    def open(self, path, *more, end_stream=False, fields=None):
        """HEADERS of a new call; body by send()."""
        s = ClientStream(self.next_id, self.conn.peer_initial_window)
        self.next_id += 2
        self.streams[s.id] = s
        self.conn.send_headers(s.id, fields or self.fields(path, *more), end_stream)
        return s

    def send(self, stream, data, end_stream=False, size=16384):
        """DATA in frames of this size; the script must stay within the windows (or read in between)."""
        parts = [data[i:i + size] for i in range(0, len(data), size)] or [b""]
        self.conn.send(*(self.conn.data_frame(stream.id, p, end_stream and i == len(parts) - 1) for i, p in enumerate(parts)))

    def upload(self, stream, data, end_stream=False, timeout=30):
        """DATA of any length within the windows, reading in between; stops early when the call ends."""
        until, at = time.monotonic() + timeout, 0
        while at < len(data) and not stream.ended:
            n = min(16384, len(data) - at, max(0, stream.window))
            n = self.conn.take_window(n) if n else 0
            if n:
                stream.window -= n
                self.send(stream, data[at:at + n], end_stream and at + n == len(data))
                at += n
            else:
                self.conn.sock.settimeout(max(0.001, until - time.monotonic()))
                self.step()

    def request(self, path, payload, *more):
        """A whole unary call."""
        s = self.open(path, *more)
        self.send(s, grpc_message(payload), end_stream=True)
        return s

    def cancel(self, stream, code=CANCEL):
        self.conn.send(RstStreamFrame(stream.id, code))

    def step(self):
        """Read one frame and book it."""
        window = self.conn.peer_initial_window
        f = self.conn.read_frame()
        for open_stream in self.streams.values() if self.conn.peer_initial_window != window else ():
            open_stream.window += self.conn.peer_initial_window - window  # RFC 9113 6.9.2
        self.frames.append(f)
        s = self.streams.get(f.stream_id)
        if s and isinstance(f, (HeadersFrame, DataFrame)):
            kind, what = ("H", f.fields) if isinstance(f, HeadersFrame) else ("D", bytes(f.data))
            s.trace.append((kind, what, "END_STREAM" in f.flags))
        elif s and isinstance(f, RstStreamFrame):
            s.trace.append(("R", f.error_code, True))
        if isinstance(f, GoAwayFrame):
            self.goaway = f
        elif isinstance(f, HeadersFrame) and s:
            if s.headers is None:
                s.headers = f.fields
            else:
                s.trailers = f.fields
        elif isinstance(f, DataFrame) and s:
            s.body += f.data
            if self.give_windows and f.flow_controlled_length:
                self.conn.send(WindowUpdateFrame(0, f.flow_controlled_length), WindowUpdateFrame(f.stream_id, f.flow_controlled_length))
        elif isinstance(f, RstStreamFrame) and s:
            s.reset = f.error_code
        elif isinstance(f, WindowUpdateFrame) and s:
            s.window += f.window_increment
        if s and (isinstance(f, RstStreamFrame) or "END_STREAM" in f.flags):
            s.ended = True
        return f

    def wait(self, *streams, timeout=30):
        """Read until all of these (all that are open, when none is named) have ended."""
        until = time.monotonic() + timeout
        wanted = streams or list(self.streams.values())
        while not all(s.ended for s in wanted):
            self.conn.sock.settimeout(max(0.001, until - time.monotonic()))
            self.step()
        return wanted[0] if len(wanted) == 1 else wanted

    def wait_frame(self, kind, timeout=10, **have):
        """Read until a frame of this class (with these attributes) comes."""
        until = time.monotonic() + timeout
        while True:
            self.conn.sock.settimeout(max(0.001, until - time.monotonic()))
            f = self.step()
            if isinstance(f, kind) and all(getattr(f, k) == v for k, v in have.items()):
                return f

    def wait_closed(self, timeout=10):
        """Read until the other side closes; the GOAWAY that came before, if any."""
        self.conn.sock.settimeout(timeout)
        try:
            while True:
                self.step()
        except Closed:
            return self.goaway

    def close(self):
        self.conn.close()
