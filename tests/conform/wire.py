"""HTTP/2 as bytes, for tables of frames: what is sent is written out, what comes back is told in words.

A script is a list of bytes (sent as they are) and strings (an event to wait for before the rest). An event is one word list:
`headers 1`, `data 1 5`, `end 1` (END_STREAM), `rst 1 CANCEL`, `goaway PROTOCOL_ERROR`, `settings`, `ack`, `pong 0000000000000007`,
`ping ...`, `window 1 5`, `closed`. Blocks are literals that enter no table (RFC 7541 6.2.2), so a row is the same bytes wherever it stands.
"""
import select
import socket
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 1, 1, 4, 8, 0x20
CODES = ("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
         "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED")


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def field(name, value):
    """A literal without indexing, new name (RFC 7541 6.2.2); both shorter than 127 bytes."""
    name, value = name.encode(), value.encode("latin-1")
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def block(*fields):
    return b"".join(field(*f) for f in fields)


def headers(stream, payload, *flags, end=False, more=False):
    """A HEADERS frame; `more`: CONTINUATION follows."""
    return frame(HEADERS, END_STREAM * end | END_HEADERS * (not more) | sum(flags), stream, payload)


def continuation(stream, payload, more=False):
    return frame(CONTINUATION, END_HEADERS * (not more), stream, payload)


def data(stream, payload=b"test", *flags, end=False):
    return frame(DATA, END_STREAM * end | sum(flags), stream, payload)


def settings(*pairs, flags=0, stream=0):
    return frame(SETTINGS, flags, stream, b"".join(k.to_bytes(2, "big") + v.to_bytes(4, "big") for k, v in pairs))


def number(kind, stream, n):
    """RST_STREAM with a code, WINDOW_UPDATE with an increment."""
    return frame(kind, 0, stream, n.to_bytes(4, "big"))


def ping(opaque=b"conform!", flags=0, stream=0):
    return frame(PING, flags, stream, opaque)


def goaway(code=0, last=0, stream=0):
    return frame(GOAWAY, 0, stream, last.to_bytes(4, "big") + code.to_bytes(4, "big"))


def priority(stream, depends_on=0, weight=255, exclusive=False):
    return frame(PRIORITY, 0, stream, (depends_on | exclusive << 31).to_bytes(4, "big") + bytes([weight]))


def told(kind, flags, stream, payload):
    """Events of a frame, as the module's head says."""
    code = int.from_bytes(payload[4:8] if kind == GOAWAY else payload[:4], "big")
    name = CODES[code] if code < len(CODES) else hex(code)
    out = {DATA: [f"data {stream} {len(payload)}"], HEADERS: [f"headers {stream}"], RST_STREAM: [f"rst {stream} {name}"],
           SETTINGS: ["ack" if flags & ACK else "settings"], PING: [("pong " if flags & ACK else "ping ") + payload.hex()],
           GOAWAY: [f"goaway {name}"], WINDOW_UPDATE: [f"window {stream} {code}"]}.get(kind, [])
    return out + ([f"end {stream}"] if kind in (DATA, HEADERS) and flags & END_STREAM else [])


class Wire:
    """A connection of a script: plays it, and keeps in .events what came, in words."""

    def __init__(self, sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.events, self.passed, self.buffer = sock, [], 0, b""
        self.blocks = []  # of the HEADERS frames without padding or priority that came

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError:
            pass  # the other side closed, as it may; what it said before stands in events

    def read(self, until):
        """Books what comes next, the end too; False: nothing came up to this time."""
        if "closed" in self.events or not select.select([self.sock], [], [], max(0, until - time.monotonic()))[0]:
            return False
        try:
            more = self.sock.recv(1 << 16)
        except OSError:
            more = b""
        if not more:
            self.events.append("closed")
            return True
        self.buffer += more
        while len(self.buffer) >= 9 and len(self.buffer) >= (n := 9 + int.from_bytes(self.buffer[:3], "big")):
            head, payload = self.buffer[:9], self.buffer[9:n]
            self.buffer = self.buffer[n:]
            if head[3] == HEADERS:
                self.blocks.append(payload)
            self.events += told(head[3], head[4], int.from_bytes(head[5:9], "big") & 0x7fffffff, payload)
        return True

    def wait(self, *wanted, timeout=5):
        """The first of these events behind what was waited for before; None: none came."""
        until = time.monotonic() + timeout
        while True:
            for i in range(self.passed, len(self.events)):
                if self.events[i] in wanted:
                    self.passed = i + 1
                    return self.events[i]
            if not self.read(until):
                return None

    def play(self, script):
        for step in script:
            if isinstance(step, bytes):
                self.send(step)
            else:
                assert self.wait(step) is not None, f"no {step!r} came: {self.events}"

    def close(self):
        self.sock.close()


class Row:
    """One case. wants: one event or several of which any will do; never: an event that must not come. reaches: a field that the
    replica must see; then: sent when all is judged. Where it wants a GOAWAY the connection must be closed, else it must live on."""

    def __init__(self, name, title, script, *wants, never=None, reaches=None, preface=True, then=b""):
        self.name, self.title, self.script, self.wants = name, title, script, wants
        self.never, self.reaches, self.preface, self.then = never, reaches, preface, then

    def __repr__(self):
        return f"{self.name} {self.title}"

    def judge(self, wire, may_be_ignored=False):
        """"": as it must be; else what is wrong. may_be_ignored: that nothing happens is fine, too."""
        got = wire.wait(*self.wants, timeout=0.5 if may_be_ignored else 5)
        if got is None and not may_be_ignored:
            return f"wanted {' or '.join(self.wants)}"
        if self.never in wire.events:
            return f"there must be no {self.never}"
        if got == "closed":
            return ""
        if got is not None and got.startswith("goaway"):
            return "" if wire.wait("closed") else "GOAWAY, but the connection stays open"
        wire.send(ping(b"live-on!"))
        alive = wire.wait("pong " + b"live-on!".hex()) or "closed" in self.wants
        return "" if alive else "the connection did not live on"


def connection_error(*codes):
    """RFC 9113 5.4.1"""
    return tuple("goaway " + c for c in codes)


def stream_error(stream, *codes):
    """RFC 9113 5.4.2; it may be made an error of the connection (5.4)."""
    return tuple(f"rst {stream} {c}" for c in codes) + connection_error(*codes)
