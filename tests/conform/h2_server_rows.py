"""What a client may send to a server of HTTP/2, and what must come of it: the cases of h2spec (their names are its ids), in
bytes of our own, with the outcome that the RFC asks for. Sections are of RFC 9113, and of RFC 7541 for hpack; where RFC 9113
has moved one, h2spec's id has the number of RFC 7540."""
from wire import (ACK, CONTINUATION, DATA, END_HEADERS, HEADERS, PADDED, PING, PREFACE, PRIORITY, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE,
                  WITH_PRIORITY, Row, block, connection_error, continuation, data, field, frame, goaway, headers, number, ping, priority,
                  settings, stream_error)

METHOD, SCHEME, PATH, AUTHORITY = (":method", "POST"), (":scheme", "http"), (":path", "/test.Echo/Unary"), (":authority", "test")
PSEUDO = [METHOD, SCHEME, PATH, AUTHORITY]
GRPC = [("te", "trailers"), ("content-type", "application/grpc")]
REQUEST = block(*PSEUDO, *GRPC)
MESSAGE = b"\0\0\0\0\4test"
PONG = "pong " + b"conform!".hex()
UNKNOWN_FRAME = frame(0x16, 0, 0, bytes(8))
INITIAL_WINDOW, MAX_FRAME, PUSH, STREAMS = 4, 5, 2, 3
ANSWERED = ("headers 1",)


def call(*extra, **kw):
    """A whole request with these bytes at the end of its block."""
    return headers(1, REQUEST + b"".join(extra), **kw) + data(1, MESSAGE, end=True)


def request_of(*fields):
    return headers(1, block(*fields), end=True)


def without(name):
    return [f for f in PSEUDO if f[0] != name] + GRPC


PROTOCOL, CLOSED, SIZE, FLOW, COMPRESSION = (connection_error(c) for c in (
    "PROTOCOL_ERROR", "STREAM_CLOSED", "FRAME_SIZE_ERROR", "FLOW_CONTROL_ERROR", "COMPRESSION_ERROR"))
MALFORMED = stream_error(1, "PROTOCOL_ERROR")
OPEN = headers(1, REQUEST)
ENDED = headers(1, REQUEST, end=True)

GENERIC = [
    Row("generic/1/1", "a client preface", [], "settings"),
    Row("generic/2/1", "PRIORITY on an idle stream", [priority(1), ping()], PONG),
    Row("generic/2/2", "WINDOW_UPDATE on a half-closed stream", [settings((INITIAL_WINDOW, 0)), call(), "headers 1", number(WINDOW_UPDATE, 1, 1)],
        "data 1 1"),
    Row("generic/2/3", "PRIORITY on a half-closed stream",
        [settings((INITIAL_WINDOW, 0)), call(), "headers 1", priority(1), number(WINDOW_UPDATE, 1, 1)], "data 1 1"),
    Row("generic/2/4", "RST_STREAM on a half-closed stream", [ENDED, number(RST_STREAM, 1, 8), ping()], PONG),
    Row("generic/2/5", "PRIORITY on a closed stream", [call(), "end 1", priority(1), ping()], PONG),
    Row("generic/3.1/1", "one DATA frame", [OPEN, data(1, MESSAGE, end=True)], *ANSWERED),
    Row("generic/3.1/2", "several DATA frames", [OPEN, data(1, MESSAGE[:3]), data(1, MESSAGE[3:], end=True)], "data 1 9"),
    Row("generic/3.1/3", "padded DATA", [OPEN, data(1, b"\5" + MESSAGE + bytes(5), PADDED, end=True)], "data 1 9"),
    Row("generic/3.2/1", "HEADERS", [ENDED], *ANSWERED),
    Row("generic/3.2/2", "padded HEADERS", [headers(1, b"\5" + REQUEST + bytes(5), PADDED, end=True)], *ANSWERED),
    Row("generic/3.2/3", "HEADERS with a priority", [headers(1, bytes([0, 0, 0, 0, 255]) + REQUEST, WITH_PRIORITY, end=True)], *ANSWERED),
    Row("generic/3.3/1", "PRIORITY of weight 1", [priority(1, weight=0), ENDED], *ANSWERED),
    Row("generic/3.3/2", "PRIORITY of weight 256", [priority(1, weight=255), ENDED], *ANSWERED),
    Row("generic/3.3/3", "PRIORITY that depends on a stream", [priority(3, depends_on=1), ENDED], *ANSWERED),
    Row("generic/3.3/4", "PRIORITY, exclusive", [priority(1, exclusive=True), ENDED], *ANSWERED),
    Row("generic/3.3/5", "PRIORITY for an idle stream, then a lower one opens", [priority(3), ENDED], *ANSWERED),
    Row("generic/3.4/1", "RST_STREAM", [OPEN, number(RST_STREAM, 1, 8), ping()], PONG),
    Row("generic/3.5/1", "SETTINGS", ["ack", settings((STREAMS, 100))], "ack"),
    Row("generic/3.7/1", "PING", [ping()], PONG),
    Row("generic/3.8/1", "GOAWAY", [goaway(), ping()], PONG, "closed"),
    Row("generic/3.9/1", "WINDOW_UPDATE of the connection", [number(WINDOW_UPDATE, 0, 1), ping()], PONG),
    Row("generic/3.9/2", "WINDOW_UPDATE of a stream", [OPEN, number(WINDOW_UPDATE, 1, 1), data(1, MESSAGE, end=True)], *ANSWERED),
    Row("generic/3.10/1", "CONTINUATION", [headers(1, REQUEST[:5], end=True, more=True), continuation(1, REQUEST[5:])], *ANSWERED),
    Row("generic/3.10/2", "several CONTINUATION frames",
        [headers(1, REQUEST[:5], end=True, more=True), continuation(1, REQUEST[5:10], more=True), continuation(1, REQUEST[10:])], *ANSWERED),
    Row("generic/4/1", "GET: answered, if only with an HTTP status", [request_of((":method", "GET"), *PSEUDO[1:])], *ANSWERED),
    Row("generic/4/2", "HEAD: answered, if only with an HTTP status", [request_of((":method", "HEAD"), *PSEUDO[1:])], *ANSWERED),
    Row("generic/4/3", "POST", [call()], *ANSWERED),
    Row("generic/4/4", "POST with trailers", [OPEN, data(1, MESSAGE), headers(1, field("x-test", "ok"), end=True)], *ANSWERED),
    Row("generic/5/1", "indexed field", [call(b"\x90")], *ANSWERED, reaches=("accept-encoding", "gzip, deflate")),
    Row("generic/5/2", "literal that is indexed, indexed name", [call(b"\x7a\4test")], *ANSWERED, reaches=("user-agent", "test")),
    Row("generic/5/3", "the same, Huffman", [call(b"\x7a\x83\x49\x50\x9f")], *ANSWERED, reaches=("user-agent", "test")),
    Row("generic/5/4", "literal that is indexed, new name", [call(b"\x40\6x-test\4test")], *ANSWERED, reaches=("x-test", "test")),
    Row("generic/5/5", "the same, Huffman", [call(b"\x40\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x9f")], *ANSWERED, reaches=("x-test", "test")),
    Row("generic/5/6", "literal without indexing, indexed name", [call(b"\x0f\x2b\4test")], *ANSWERED, reaches=("user-agent", "test")),
    Row("generic/5/7", "the same, Huffman", [call(b"\x0f\x2b\x83\x49\x50\x9f")], *ANSWERED, reaches=("user-agent", "test")),
    Row("generic/5/8", "literal without indexing, new name", [call(b"\0\6x-test\4test")], *ANSWERED, reaches=("x-test", "test")),
    Row("generic/5/9", "the same, Huffman", [call(b"\0\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x9f")], *ANSWERED, reaches=("x-test", "test")),
    Row("generic/5/10", "literal never indexed, indexed name", [call(b"\x1f\x2b\4test")], *ANSWERED, reaches=("user-agent", "test")),
    Row("generic/5/11", "the same, Huffman", [call(b"\x1f\x2b\x83\x49\x50\x9f")], *ANSWERED, reaches=("user-agent", "test")),
    Row("generic/5/12", "literal never indexed, new name", [call(b"\x10\6x-test\4test")], *ANSWERED, reaches=("x-test", "test")),
    Row("generic/5/13", "the same, Huffman", [call(b"\x10\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x9f")], *ANSWERED, reaches=("x-test", "test")),
    Row("generic/5/14", "a table size update", [headers(1, b"\x3f\x61" + REQUEST, end=True)], *ANSWERED),
    Row("generic/5/15", "two table size updates", [headers(1, b"\x3f\x61\x3f\xe1\x1f" + REQUEST, end=True)], *ANSWERED),
]

FRAMES = [
    Row("http2/3.5/1", "SETTINGS are the first frame of a server", [], "settings"),
    Row("http2/3.5/2", "no preface", [b"INVALID CONNECTION PREFACE\r\n\r\n"], "closed", preface=False),
    Row("http2/4.1/1", "a frame of unknown type is ignored", [UNKNOWN_FRAME, ping()], PONG),
    Row("http2/4.1/2", "an undefined flag is ignored", [ping(flags=0x16)], PONG),
    Row("http2/4.1/3", "the reserved bit is ignored", [ping(stream=1 << 31)], PONG),
    Row("http2/4.2/1", "DATA of 2^14 bytes", [OPEN, data(1, b"\0\0\0\x3f\xfb" + bytes(16379), end=True)], *ANSWERED),
    Row("http2/4.2/2", "DATA of more", [OPEN, data(1, bytes(16385), end=True)], *stream_error(1, "FRAME_SIZE_ERROR")),
    Row("http2/4.2/3", "HEADERS of more", [headers(1, REQUEST + field("x", "y" * 100) * 160, end=True)], *SIZE),
    Row("http2/4.3/1", "a block that is cut", [headers(1, b"\x40", end=True)], *COMPRESSION),
    Row("http2/4.3/2", "PRIORITY inside a block", [headers(1, REQUEST, more=True), priority(1), continuation(1, field("a", "b"))], *PROTOCOL),
    Row("http2/4.3/3", "HEADERS of another stream inside a block",
        [headers(1, REQUEST, more=True), headers(3, REQUEST, end=True), continuation(1, field("a", "b"))], *PROTOCOL),
    Row("http2/5.1/1", "idle: DATA", [data(1, end=True)], *PROTOCOL),
    Row("http2/5.1/2", "idle: RST_STREAM", [number(RST_STREAM, 1, 8)], *PROTOCOL),
    Row("http2/5.1/3", "idle: WINDOW_UPDATE", [number(WINDOW_UPDATE, 1, 100)], *PROTOCOL),
    Row("http2/5.1/4", "idle: CONTINUATION", [continuation(1, REQUEST)], *PROTOCOL),
    Row("http2/5.1/5", "half-closed: DATA", [ENDED, data(1, end=True)], *stream_error(1, "STREAM_CLOSED")),
    Row("http2/5.1/6", "half-closed: HEADERS", [ENDED, ENDED], *stream_error(1, "STREAM_CLOSED")),
    Row("http2/5.1/7", "half-closed: CONTINUATION", [ENDED, continuation(1, REQUEST)], *stream_error(1, "STREAM_CLOSED", "PROTOCOL_ERROR")),
    Row("http2/5.1/8", "reset: DATA", [OPEN, number(RST_STREAM, 1, 8), data(1, end=True)], *stream_error(1, "STREAM_CLOSED")),
    Row("http2/5.1/9", "reset: HEADERS", [OPEN, number(RST_STREAM, 1, 8), ENDED], *stream_error(1, "STREAM_CLOSED")),
    Row("http2/5.1/10", "reset: CONTINUATION", [OPEN, number(RST_STREAM, 1, 8), continuation(1, field("a", "b"))],
        *stream_error(1, "STREAM_CLOSED", "PROTOCOL_ERROR")),
    Row("http2/5.1/11", "closed: DATA", [ENDED, "end 1", data(1, end=True)], *stream_error(1, "STREAM_CLOSED")),
    Row("http2/5.1/12", "closed: HEADERS", [ENDED, "end 1", ENDED], *CLOSED),
    Row("http2/5.1/13", "closed: CONTINUATION", [ENDED, "end 1", continuation(1, field("a", "b"))], *CLOSED, *PROTOCOL),
    Row("http2/5.1.1/1", "an even id", [headers(2, REQUEST, end=True)], *PROTOCOL),
    Row("http2/5.1.1/2", "an id below the last", [headers(5, REQUEST, end=True), headers(3, REQUEST, end=True)], *PROTOCOL),
    Row("http2/5.1.2/1", "more streams than were announced", ["ack", *(headers(n, REQUEST) for n in range(1, 2003, 2))],
        *stream_error(2001, "REFUSED_STREAM", "PROTOCOL_ERROR")),
    Row("http2/5.3.1/1", "HEADERS that depend on themselves", [headers(1, bytes([0, 0, 0, 1, 255]) + REQUEST, WITH_PRIORITY, end=True)], *MALFORMED),
    Row("http2/5.3.1/2", "PRIORITY that depends on itself", [priority(1, depends_on=1)], *MALFORMED),
    Row("http2/5.4.1/1", "an error of the connection closes it", [ping(stream=3)], "closed"),
    Row("http2/5.4.1/2", "GOAWAY is sent before (strict)", [ping(stream=3)], *PROTOCOL),
    Row("http2/5.5/1", "an extension frame is ignored", [UNKNOWN_FRAME, ping()], PONG),
    Row("http2/5.5/2", "but not inside a block", [headers(1, REQUEST, end=True, more=True), UNKNOWN_FRAME], *PROTOCOL),
    Row("http2/6.1/1", "DATA on stream 0", [data(0, end=True)], *PROTOCOL),
    Row("http2/6.1/2", "DATA on a half-closed stream", [ENDED, data(1, end=True)], *stream_error(1, "STREAM_CLOSED")),
    Row("http2/6.1/3", "DATA: padding over the payload",
        [headers(1, REQUEST + field("content-length", "4")), frame(DATA, 9, 1, b"\6test")], *PROTOCOL),
    Row("http2/6.2/1", "PRIORITY where CONTINUATION must be", [headers(1, REQUEST, more=True), priority(1)], *PROTOCOL),
    Row("http2/6.2/2", "HEADERS where CONTINUATION must be", [headers(1, REQUEST, more=True), headers(3, REQUEST, end=True)], *PROTOCOL),
    Row("http2/6.2/3", "HEADERS on stream 0", [headers(0, REQUEST, end=True)], *PROTOCOL),
    Row("http2/6.2/4", "HEADERS: padding over the payload", [headers(1, b"\xff" + REQUEST, PADDED, end=True)], *MALFORMED),
    Row("http2/6.3/1", "PRIORITY on stream 0", [priority(0)], *PROTOCOL),
    Row("http2/6.3/2", "PRIORITY of 4 bytes", [OPEN, frame(PRIORITY, 0, 1, bytes(4))], *stream_error(1, "FRAME_SIZE_ERROR")),
    Row("http2/6.4/1", "RST_STREAM on stream 0", [number(RST_STREAM, 0, 8)], *PROTOCOL),
    Row("http2/6.4/2", "RST_STREAM on an idle stream", [number(RST_STREAM, 1, 8)], *PROTOCOL),
    Row("http2/6.4/3", "RST_STREAM of 3 bytes", [OPEN, frame(RST_STREAM, 0, 1, bytes(3))], *SIZE),
    Row("http2/6.5/1", "SETTINGS ACK with a payload", [frame(SETTINGS, ACK, 0, b"\0")], *SIZE),
    Row("http2/6.5/2", "SETTINGS on a stream", [settings((STREAMS, 100), stream=1)], *PROTOCOL),
    Row("http2/6.5/3", "SETTINGS of 3 bytes", [frame(SETTINGS, 0, 0, b"\0\3\0")], *SIZE),
    Row("http2/6.5.2/1", "ENABLE_PUSH 2", [settings((PUSH, 2))], *PROTOCOL),
    Row("http2/6.5.2/2", "INITIAL_WINDOW_SIZE 2^31", [settings((INITIAL_WINDOW, 1 << 31))], *FLOW),
    Row("http2/6.5.2/3", "MAX_FRAME_SIZE 16383", [settings((MAX_FRAME, 16383))], *PROTOCOL),
    Row("http2/6.5.2/4", "MAX_FRAME_SIZE 2^24", [settings((MAX_FRAME, 1 << 24))], *PROTOCOL),
    Row("http2/6.5.2/5", "an unknown setting is ignored", [settings((0xff, 1)), ping()], PONG),
    Row("http2/6.5.3/1", "of two values of a setting the last holds",
        [settings((INITIAL_WINDOW, 100), (INITIAL_WINDOW, 1)), call()], "data 1 1", never="data 1 9"),
    Row("http2/6.5.3/2", "SETTINGS are acknowledged", ["ack", settings((INITIAL_WINDOW, 1))], "ack"),
    Row("http2/6.7/1", "PING is answered with its payload", [ping()], PONG),
    Row("http2/6.7/2", "PING ACK is not answered", [ping(b"invalid!", flags=ACK), ping()], PONG, never="pong " + b"invalid!".hex()),
    Row("http2/6.7/3", "PING on a stream", [ping(stream=1)], *PROTOCOL),
    Row("http2/6.7/4", "PING of 6 bytes", [frame(PING, 0, 0, bytes(6))], *SIZE),
    Row("http2/6.8/1", "GOAWAY on a stream", [goaway(stream=1)], *PROTOCOL),
    Row("http2/6.9/1", "WINDOW_UPDATE 0 of the connection", [number(WINDOW_UPDATE, 0, 0)], *PROTOCOL),
    Row("http2/6.9/2", "WINDOW_UPDATE 0 of a stream", [OPEN, number(WINDOW_UPDATE, 1, 0)], *MALFORMED),
    Row("http2/6.9/3", "WINDOW_UPDATE of 3 bytes", [frame(WINDOW_UPDATE, 0, 0, b"\0\0\1")], *SIZE),
    Row("http2/6.9.1/1", "a window of 1", [settings((INITIAL_WINDOW, 1)), call()], "data 1 1", never="data 1 9"),
    Row("http2/6.9.1/2", "the connection's window over 2^31-1", [number(WINDOW_UPDATE, 0, 0x7fffffff)] * 2, *FLOW),
    Row("http2/6.9.1/3", "a stream's window over 2^31-1", [OPEN, number(WINDOW_UPDATE, 1, 0x7fffffff) * 2], *stream_error(1, "FLOW_CONTROL_ERROR")),
    Row("http2/6.9.2/1", "INITIAL_WINDOW_SIZE raised behind HEADERS",
        [settings((INITIAL_WINDOW, 0)), call(), "headers 1", settings((INITIAL_WINDOW, 1))], "data 1 1"),
    Row("http2/6.9.2/2", "a window below zero",
        [settings((INITIAL_WINDOW, 3)), call(), "data 1 3", settings((INITIAL_WINDOW, 2)), "ack", number(WINDOW_UPDATE, 1, 2)], "data 1 1",
        never="data 1 2"),
    Row("http2/6.9.2/3", "INITIAL_WINDOW_SIZE over 2^31-1", [settings((INITIAL_WINDOW, 1 << 31))], *FLOW),
    Row("http2/6.10/1", "several CONTINUATION frames",
        [headers(1, REQUEST, end=True, more=True), continuation(1, field("a", "b"), more=True), continuation(1, field("c", "d"))], *ANSWERED),
    Row("http2/6.10/2", "DATA behind CONTINUATION without END_HEADERS",
        [headers(1, REQUEST, more=True), continuation(1, field("a", "b"), more=True), data(1, end=True)], *PROTOCOL),
    Row("http2/6.10/3", "CONTINUATION on stream 0", [headers(1, REQUEST, end=True, more=True), continuation(0, field("a", "b"))], *PROTOCOL),
    Row("http2/6.10/4", "CONTINUATION behind HEADERS with END_HEADERS", [ENDED, continuation(1, field("a", "b"))], *PROTOCOL),
    Row("http2/6.10/5", "CONTINUATION behind CONTINUATION with END_HEADERS",
        [headers(1, REQUEST, end=True, more=True), continuation(1, field("a", "b")), continuation(1, field("c", "d"))], *PROTOCOL),
    Row("http2/6.10/6", "CONTINUATION behind DATA inside a block", [headers(1, REQUEST, more=True), data(1, end=True), continuation(1, field("a", "b"))],
        *PROTOCOL),
    Row("http2/7/1", "GOAWAY with an unknown code", [goaway(0xff), ping()], PONG, "closed"),
    Row("http2/7/2", "RST_STREAM with an unknown code", [OPEN, number(RST_STREAM, 1, 0xff), ping()], PONG),
]

MESSAGES = [
    Row("http2/8.1/1", "a second HEADERS without END_STREAM", [OPEN, data(1, MESSAGE), headers(1, field("x-test", "ok"))], *MALFORMED),
    Row("http2/8.1.2/1", "a name in upper case", [call(field("X-TEST", "ok"))], *MALFORMED),
    Row("http2/8.1.2.1/1", "an unknown pseudo field", [request_of(*PSEUDO, (":test", "ok"), *GRPC)], *MALFORMED),
    Row("http2/8.1.2.1/2", ":status in a request", [request_of(*PSEUDO, (":status", "200"), *GRPC)], *MALFORMED),
    Row("http2/8.1.2.1/3", "a pseudo field in trailers", [OPEN, data(1, MESSAGE), headers(1, field(":method", "POST"), end=True)], *MALFORMED),
    Row("http2/8.1.2.1/4", "a pseudo field behind another field", [request_of(*PSEUDO[:2], GRPC[1], *PSEUDO[2:])], *MALFORMED),
    Row("http2/8.1.2.2/1", "connection", [request_of(*PSEUDO, *GRPC, ("connection", "keep-alive"))], *MALFORMED),
    Row("http2/8.1.2.2/2", "te that is not `trailers`", [request_of(*PSEUDO, GRPC[1], ("te", "trailers, deflate"))], *MALFORMED),
    Row("http2/8.1.2.3/1", ":path is empty", [request_of(METHOD, SCHEME, (":path", ""), AUTHORITY, *GRPC)], *MALFORMED),
    Row("http2/8.1.2.3/2", "no :method", [request_of(*without(":method"))], *MALFORMED),
    Row("http2/8.1.2.3/3", "no :scheme", [request_of(*without(":scheme"))], *MALFORMED),
    Row("http2/8.1.2.3/4", "no :path", [request_of(*without(":path"))], *MALFORMED),
    Row("http2/8.1.2.3/5", "two :method", [request_of(*PSEUDO, METHOD, *GRPC)], *MALFORMED),
    Row("http2/8.1.2.3/6", "two :scheme", [request_of(*PSEUDO, SCHEME, *GRPC)], *MALFORMED),
    Row("http2/8.1.2.3/7", "two :path", [request_of(*PSEUDO, PATH, *GRPC)], *MALFORMED),
    Row("http2/8.1.2.6/1", "content-length is not what DATA bring", [headers(1, REQUEST + field("content-length", "1")), data(1, MESSAGE, end=True)],
        *MALFORMED),
    Row("http2/8.1.2.6/2", "nor what several bring",
        [headers(1, REQUEST + field("content-length", "1")), data(1, MESSAGE[:5]), data(1, MESSAGE[5:], end=True)], *MALFORMED),
    Row("http2/8.2/1", "PUSH_PROMISE from a client", [OPEN, frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\3" + REQUEST)], *PROTOCOL),
]

HPACK = [
    Row("hpack/2.3.3/1", "an indexed field past both tables", [call(b"\xc6")], *COMPRESSION),
    Row("hpack/2.3.3/2", "a literal whose name is past both tables", [call(b"\x7f\7\4test")], *COMPRESSION),
    Row("hpack/4.2/1", "a table size update behind fields", [call(b"\x21")], *COMPRESSION),
    Row("hpack/5.2/1", "Huffman: padding of more than 7 bits", [call(b"\0\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff")], *COMPRESSION),
    Row("hpack/5.2/2", "Huffman: padding of zeros", [call(b"\0\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90")], *COMPRESSION),
    Row("hpack/5.2/3", "Huffman: EOS", [call(b"\0\x85\xf2\xb2\x4a\x87\xff\xff\xff\xfd\x25\x42\x7f")], *COMPRESSION),
    Row("hpack/6.1/1", "index 0", [call(b"\x80")], *COMPRESSION),
    Row("hpack/6.3/1", "a table size over the setting", [headers(1, b"\x3f\xe2\x1f" + REQUEST, end=True)], *COMPRESSION),
]

ROWS = [*GENERIC, *FRAMES, *MESSAGES, *HPACK]
