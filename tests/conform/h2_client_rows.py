"""What a server may send to a client of HTTP/2, and what must come of it: the cases of h2specd (their names are its ids), in
bytes of our own, with the outcome that the RFC asks for. A row begins when the client's preface, its SETTINGS and the whole
request of a call on stream 1 are there and the server's SETTINGS have been sent; what `then` holds answers the call of a row that leaves it open."""
from wire import (ACK, DATA, PADDED, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, Row, block, connection_error, continuation, data, field,
                  frame, goaway, headers, number, ping, priority, settings, stream_error)

RESPONSE = block((":status", "200"), ("content-type", "application/grpc"))
TRAILERS = block(("grpc-status", "0"))
ANSWER = headers(1, RESPONSE + TRAILERS, end=True)
OPEN = headers(1, RESPONSE)
PONG = "pong " + b"conform!".hex()
UNKNOWN_FRAME = frame(0x16, 0, 0, bytes(8))
PROTOCOL, CLOSED, SIZE, FLOW, COMPRESSION = (connection_error(c) for c in (
    "PROTOCOL_ERROR", "STREAM_CLOSED", "FRAME_SIZE_ERROR", "FLOW_CONTROL_ERROR", "COMPRESSION_ERROR"))
RESET = [OPEN, number(RST_STREAM, 1, 8)]
STREAMS, INITIAL_WINDOW, MAX_FRAME = 3, 4, 5
MESSAGE = b"\0\0\0\x3f\xfb" + bytes(16379)

ROWS = [
    Row("client/1/1", "a server preface", [], "ack", then=ANSWER),
    Row("client/4.1/1", "a frame of unknown type is ignored", [UNKNOWN_FRAME, ping()], PONG, then=ANSWER),
    Row("client/4.1/2", "an undefined flag is ignored", [ping(flags=0x16)], PONG, then=ANSWER),
    Row("client/4.1/3", "the reserved bit is ignored", [ping(stream=1 << 31)], PONG, then=ANSWER),
    Row("client/4.2/1", "DATA of 2^14 bytes", [OPEN, data(1, MESSAGE), ping()], PONG, then=headers(1, TRAILERS, end=True)),
    Row("client/4.2/2", "DATA of more", [OPEN, data(1, bytes(16385), end=True)], *stream_error(1, "FRAME_SIZE_ERROR")),
    Row("client/4.2/3", "HEADERS of more", [headers(1, RESPONSE + field("x", "y" * 100) * 160, end=True)], *SIZE),
    Row("client/4.3/1", "a block that is cut", [headers(1, b"\x40", end=True)], *COMPRESSION),
    Row("client/5.1/1", "idle: DATA", [data(2, end=True)], *PROTOCOL),
    Row("client/5.1/2", "idle: RST_STREAM", [number(RST_STREAM, 2, 8)], *PROTOCOL),
    Row("client/5.1/3", "idle: WINDOW_UPDATE", [number(WINDOW_UPDATE, 2, 100)], *PROTOCOL),
    Row("client/5.1/4", "idle: CONTINUATION", [continuation(2, RESPONSE)], *PROTOCOL),
    Row("client/5.1/5", "reset: DATA", [*RESET, data(1, end=True)], *stream_error(1, "STREAM_CLOSED")),
    Row("client/5.1/6", "reset: HEADERS", [*RESET, headers(1, TRAILERS, end=True)], *stream_error(1, "STREAM_CLOSED")),
    Row("client/5.1/7", "reset: CONTINUATION", [*RESET, continuation(1, TRAILERS)], *stream_error(1, "STREAM_CLOSED", "PROTOCOL_ERROR")),
    Row("client/5.1/8", "closed: DATA", [ANSWER, data(1, end=True)], *stream_error(1, "STREAM_CLOSED")),
    Row("client/5.1/9", "closed: HEADERS", [ANSWER, headers(1, RESPONSE, end=True)], *stream_error(1, "STREAM_CLOSED")),
    Row("client/5.1/10", "closed: CONTINUATION", [ANSWER, continuation(1, TRAILERS)], *CLOSED, *PROTOCOL),
    Row("client/5.1.1/1", "HEADERS on a stream that nobody opened", [headers(101, RESPONSE, end=True)], *PROTOCOL),
    Row("client/5.4.1/1", "an error of the connection closes it", [ping(stream=3)], "closed"),
    Row("client/5.4.1/2", "GOAWAY is sent before", [ping(stream=3)], *PROTOCOL),
    Row("client/5.5/1", "an extension frame is ignored", [UNKNOWN_FRAME, ping()], PONG, then=ANSWER),
    Row("client/6.1/1", "DATA on stream 0", [data(0, end=True)], *PROTOCOL),
    Row("client/6.1/2", "DATA on a stream that is not open", [ANSWER, data(1, end=True)], *stream_error(1, "STREAM_CLOSED")),
    Row("client/6.1/3", "DATA: padding over the payload", [OPEN, frame(DATA, 9, 1, b"\6test")], *PROTOCOL),
    Row("client/6.2/1", "PRIORITY where CONTINUATION must be", [headers(1, RESPONSE, more=True), priority(1)], *PROTOCOL),
    Row("client/6.2/2", "HEADERS on stream 0", [headers(0, RESPONSE, end=True)], *PROTOCOL),
    Row("client/6.2/3", "HEADERS: padding over the payload", [headers(1, b"\xff" + RESPONSE, PADDED, end=True)], *stream_error(1, "PROTOCOL_ERROR")),
    Row("client/6.3/1", "PRIORITY on stream 0", [priority(0)], *PROTOCOL),
    Row("client/6.3/2", "PRIORITY of 4 bytes", [frame(PRIORITY, 0, 1, bytes(4))], *stream_error(1, "FRAME_SIZE_ERROR")),
    Row("client/6.4/1", "RST_STREAM on stream 0", [number(RST_STREAM, 0, 8)], *PROTOCOL),
    Row("client/6.4/2", "RST_STREAM on an idle stream", [number(RST_STREAM, 2, 8)], *PROTOCOL),
    Row("client/6.4/3", "RST_STREAM of 3 bytes", [frame(RST_STREAM, 0, 1, bytes(3))], *SIZE),
    Row("client/6.5/1", "SETTINGS ACK with a payload", [frame(SETTINGS, ACK, 0, b"\0")], *SIZE),
    Row("client/6.5/2", "SETTINGS on a stream", [settings((STREAMS, 100), stream=1)], *PROTOCOL),
    Row("client/6.5/3", "SETTINGS of 3 bytes", [frame(SETTINGS, 0, 0, b"\0\3\0")], *SIZE),
    Row("client/6.5.2/1", "INITIAL_WINDOW_SIZE 2^31", [settings((INITIAL_WINDOW, 1 << 31))], *FLOW),
    Row("client/6.5.2/2", "MAX_FRAME_SIZE 16383", [settings((MAX_FRAME, 16383))], *PROTOCOL),
    Row("client/6.5.2/3", "MAX_FRAME_SIZE 2^24", [settings((MAX_FRAME, 1 << 24))], *PROTOCOL),
    Row("client/6.5.2/4", "an unknown setting is ignored", [settings((0xff, 1)), ping()], PONG, then=ANSWER),
    Row("client/6.5.3/1", "SETTINGS are acknowledged", ["ack", settings((STREAMS, 100))], "ack", then=ANSWER),
    Row("client/6.7/1", "PING is answered with its payload", [ping()], PONG, then=ANSWER),
    Row("client/6.7/2", "PING ACK is not answered", [ping(b"invalid!", flags=ACK), ping()], PONG, never="pong " + b"invalid!".hex(), then=ANSWER),
    Row("client/6.7/3", "PING on a stream", [ping(stream=1)], *PROTOCOL),
    Row("client/6.7/4", "PING of 6 bytes", [frame(PING, 0, 0, bytes(6))], *SIZE),
    Row("client/6.8/1", "GOAWAY on a stream", [goaway(stream=1)], *PROTOCOL),
    Row("client/6.9/1", "WINDOW_UPDATE 0 of the connection", [number(WINDOW_UPDATE, 0, 0)], *PROTOCOL),
    Row("client/6.9/2", "WINDOW_UPDATE 0 of a stream", [OPEN, number(WINDOW_UPDATE, 1, 0)], *stream_error(1, "PROTOCOL_ERROR")),
    Row("client/6.9/3", "WINDOW_UPDATE of 3 bytes", [frame(WINDOW_UPDATE, 0, 0, b"\0\0\1")], *SIZE),
    Row("client/6.9.1/1", "the connection's window over 2^31-1", [number(WINDOW_UPDATE, 0, 0x7fffffff)] * 2, *FLOW),
    Row("client/6.9.1/2", "a stream's window over 2^31-1", [OPEN, number(WINDOW_UPDATE, 1, 0x7fffffff) * 2], *stream_error(1, "FLOW_CONTROL_ERROR")),
    Row("client/6.10/1", "several CONTINUATION frames",
        [headers(1, RESPONSE, more=True), continuation(1, field("a", "b"), more=True), continuation(1, field("c", "d")), ping()], PONG,
        then=headers(1, TRAILERS, end=True)),
    Row("client/6.10/2", "DATA behind CONTINUATION without END_HEADERS",
        [headers(1, RESPONSE, more=True), continuation(1, field("a", "b"), more=True), data(1, end=True)], *PROTOCOL),
    Row("client/6.10/3", "CONTINUATION on stream 0", [headers(1, RESPONSE, end=True, more=True), continuation(0, field("a", "b"))], *PROTOCOL),
    Row("client/6.10/4", "CONTINUATION behind HEADERS with END_HEADERS", [OPEN, continuation(1, field("a", "b"))], *PROTOCOL),
    Row("client/6.10/5", "CONTINUATION behind CONTINUATION with END_HEADERS",
        [headers(1, RESPONSE, more=True), continuation(1, field("a", "b")), continuation(1, field("c", "d"))], *PROTOCOL),
    Row("client/6.10/6", "CONTINUATION behind DATA inside a block", [headers(1, RESPONSE, more=True), data(1, end=True), continuation(1, field("a", "b"))],
        *PROTOCOL),
]
