"""What a replica may do to one call, and what its client must see: one row a case, each with the rule it follows.

A row's `act` is what the replica does with the call's stream; the expectation is written by hand from the rule, never
from what the gateway answered. test_upstream.py plays each row to a raw client, which looks at the frames, and to
grpcio, once through the gateway and once without it: the direct call is a second oracle, since a gateway may not change
what a gRPC client makes of a server.
"""
import time

import frames
from hyperframe.frame import (ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame, PingFrame, PushPromiseFrame,
                              RstStreamFrame, SettingsFrame, WindowUpdateFrame)

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 0, 1, 2, 3, 4, 5
PERMISSION_DENIED, EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 7, 8, 12, 13, 14, 16
RESPONSE = [(":status", "200"), ("content-type", "application/grpc")]
MESSAGE = frames.grpc_message(b"answer")

# gRPC, doc/http-grpc-status-mapping.md; 431 as the clients of gRPC have it. Every other status: UNKNOWN.
HTTP_STATUS = {400: INTERNAL, 401: UNAUTHENTICATED, 403: PERMISSION_DENIED, 404: UNIMPLEMENTED, 429: UNAVAILABLE, 431: INTERNAL,
               502: UNAVAILABLE, 503: UNAVAILABLE, 504: UNAVAILABLE}
# gRPC, doc/PROTOCOL-HTTP2.md, "Errors". Codes that are not in that table: UNKNOWN.
RESET_STATUS = {0: INTERNAL, 1: INTERNAL, 2: INTERNAL, 3: INTERNAL, 4: INTERNAL, 6: INTERNAL, 7: UNAVAILABLE, 8: CANCELLED,
                9: INTERNAL, 10: INTERNAL, 11: EXHAUSTED, 12: PERMISSION_DENIED}
HTTP2, HTTP_MAP, RESETS = "PROTOCOL-HTTP2", "http-grpc-status-mapping", "PROTOCOL-HTTP2 Errors"


class Row:
    """name, source, act: see above. status: what the client gets; a set where the rule leaves a choice.
    early: act runs when the headers are there, while the client goes on uploading.
    shape: the frames that a raw client gets, as frames.ClientStream.shape has them; None: any that are allowed.
    messages: what comes before the end. cause: the counter penstock_ended_<cause>_total of the call.
    tries: requests that the replica gets; None: any number. direct: does grpcio without a gateway get the same status?
    stock: False where grpcio gives up on what passes well (it decodes), and a raw client calls once more in its place.
    check: more that must hold of the raw client's stream. metadata: what the client sends."""

    def __init__(self, name, source, act, status, *, early=False, shape=None, messages=(), cause="relayed", tries=1, direct=True,
                 stock=True, check=None, metadata=()):
        self.name, self.source, self.act, self.early, self.shape = name, source, act, early, shape
        self.status = status if isinstance(status, set) else {status}
        self.messages, self.cause, self.tries, self.direct = list(messages), cause, tries, direct
        self.stock, self.check, self.metadata = stock, check, metadata


ROWS = []


def row(name, source, act, status, **more):
    ROWS.append(Row(name, source, act, status, **more))


# ---- steps ----

def head(*more, status="200", kind="application/grpc", end=False):
    """Response headers; kind None: without content-type."""
    fields = [(":status", status)] * (status is not None) + [("content-type", kind)] * (kind is not None)
    return lambda s: s.conn.send_headers(s.id, [*fields, *more], end_stream=end)


def block(*fields, end=False):
    return lambda s: s.conn.send_headers(s.id, fields, end_stream=end)


def data(payload=MESSAGE, end=False, **padding):
    def act(s):
        f = DataFrame(s.id, payload, **padding)
        if padding:
            f.flags.add("PADDED")
        if end:
            f.flags.add("END_STREAM")
        s.conn.send(f)
    return act


def trailers(status="0", *more):
    return block(*[("grpc-status", str(status))] * (status is not None), *more, end=True)


def reset(code):
    return lambda s: s.conn.send(RstStreamFrame(s.id, code))


def pause(seconds):
    return lambda s: time.sleep(seconds)


def raw(make):
    """What make(stream) returns: a frame, several, or bytes."""
    def act(s):
        made = make(s)
        s.conn.send(*(made if isinstance(made, (list, tuple)) else [made]))
    return act


def goaway(code=0, last=lambda s: s.id, debug=b""):
    return raw(lambda s: GoAwayFrame(0, last_stream_id=last(s), error_code=code, additional_data=debug))


def before(s):
    """The last id that GOAWAY gives when this call is above it."""
    return max(0, s.id - 2)


def fin(s):
    s.conn.close()


def tcp_reset(s):
    s.conn.reset_tcp()


def do(*steps):
    def act(s):
        for step in steps:
            step(s)
    return act


def first(*steps):
    """These steps at the first try; a proper answer at the next."""
    def act(s):
        (do(*steps) if s.try_no == 1 else do(head(), data(), trailers()))(s)
    return act


ANSWER = do(head(), data(), trailers())
MID = data(MESSAGE[:7])  # the prefix and two bytes
# Where in its answer a replica may be: the steps so far, and what of it the client must have.
PHASES = {
    "before headers": (do(), []),
    "behind headers": (do(head()), []),
    "behind headers for a while": (do(head(), pause(0.05)), []),
    "inside a prefix": (do(head(), data(MESSAGE[:3]), pause(0.02)), []),
    "inside a message": (do(head(), MID, pause(0.02)), []),
    "behind a message": (do(head(), data(), pause(0.02)), [b"answer"]),
    "at once behind a message": (do(head(), data()), [b"answer"]),
    "inside the second message": (do(head(), data(), MID, pause(0.02)), [b"answer"]),
}

# ---- where the status stands ----

for code in range(17):
    row(f"trailers-only {code}", HTTP2, head(("grpc-status", str(code)), ("grpc-message", "why"), end=True), code, shape="H$",
        check=lambda s: s.message == "why")
    row(f"headers, trailers {code}, no data", "others 2", do(head(("x-head", "1")), trailers(code, ("x-tail", "2"))), code, shape="H H$",
        check=lambda s: ("x-head", "1") in s.headers and ("x-tail", "2") in s.trailers)
    row(f"headers, late trailers {code}, no data", "others 2", do(head(), pause(0.03), trailers(code)), code, shape="H H$")
    row(f"message, trailers {code}", HTTP2, do(head(), data(), trailers(code, ("grpc-message", "why"))), code, shape="H D H$",
        messages=[b"answer"], check=lambda s: s.message == "why")
for in_head in (0, 5, 14):
    for in_tail in (0, 8, 14):
        row(f"status {in_head} in headers, {in_tail} in trailers", "others 3",
            do(head(("grpc-status", str(in_head))), data(), trailers(in_tail)), in_tail, shape="H D H$", messages=[b"answer"], direct=False)
        row(f"status {in_head} in headers, {in_tail} in trailers, no data", "others 3",
            do(head(("grpc-status", str(in_head))), trailers(in_tail)), in_tail, shape="H H$", direct=False)
row("status in headers, then an empty end", "others 3", do(head(("grpc-status", "5")), data(b"", end=True)), UNKNOWN, shape="H H$", direct=False)
row("an empty end without status", "case U5", do(head(), data(b"", end=True)), UNKNOWN, shape="H H$")
row("data with the end, no status", "case U5", do(head(), data(end=True)), UNKNOWN, shape="H D H$", messages=[b"answer"])
row("headers with the end, no status", "case U5", head(end=True), UNKNOWN, shape="H$")
row("trailers without status", "gRPC", do(head(), data(), trailers(None, ("x", "y"))), UNKNOWN, shape="H D H$", messages=[b"answer"],
    check=lambda s: ("x", "y") in s.trailers)
row("empty trailers", "gRPC", do(head(), data(), trailers(None)), UNKNOWN, shape="H D H$", messages=[b"answer"], direct=False)
for text in ("abc", "-1", "0x0", "00", "05", "17", "99", "", "+5", "5 5", "4294967296", "18446744073709551616"):
    row(f"grpc-status {text!r} alone", "case B17", head(("grpc-status", text), ("grpc-message", "odd"), end=True), UNKNOWN, shape="H$",
        direct=False, check=lambda s: s.message == "odd")
    row(f"grpc-status {text!r} behind a message", "case B17", do(head(), data(), trailers(text)), UNKNOWN, shape="H D H$",
        messages=[b"answer"], direct=False)
row("grpc-status twice, 0 and 5", "case B17", do(head(), data(), block(("grpc-status", "0"), ("grpc-status", "5"), end=True)), NOT_FOUND,
    messages=[b"answer"], direct=False)
row("grpc-status twice, the same", "case B17", do(head(), block(("grpc-status", "7"), ("x", "1"), ("grpc-status", "7"), end=True)), 7,
    direct=False, check=lambda s: ("x", "1") in s.trailers)
row("status 0 inside a message", "statuscodes.md: INTERNAL", do(head(), MID, trailers(0)), INTERNAL, shape="H D H$", direct=False)
row("status 0 inside a prefix", "statuscodes.md: INTERNAL", do(head(), data(MESSAGE[:2]), trailers(0)), INTERNAL, shape="H D H$", direct=False)
row("status 9 inside a message", HTTP2, do(head(), MID, trailers(9)), 9, shape="H D H$", direct=False)

# ---- HTTP statuses and content types ----

for http in (200, 201, 202, 204, 206, 299, 300, 301, 302, 304, 307, 400, 401, 402, 403, 404, 405, 408, 409, 410, 411, 412, 413, 414, 415,
             416, 418, 421, 422, 425, 426, 429, 431, 451, 499, 500, 501, 502, 503, 504, 505, 507, 511, 599):
    made = HTTP_STATUS.get(http, UNKNOWN)
    for kind in ("text/html", "application/grpc"):
        if http == 200 and kind == "application/grpc":
            continue
        # The clients of gRPC read an HTTP status in trailers-only the same way; with 200 and 204 they differ among themselves.
        plain = do(head(status=str(http), kind=kind, end=True))
        row(f"HTTP {http} {kind}, no body", HTTP_MAP, plain, made, shape="H$", cause="relayed" if http == 200 else "upstream_lost", direct=False)
        if http not in (204, 304):
            row(f"HTTP {http} {kind}, a page", HTTP_MAP, do(head(status=str(http), kind=kind), data(b"<html>" * 50, end=True)), made,
                shape="H$", cause="upstream_lost", direct=False)
    row(f"HTTP {http} with a grpc-status", f"{HTTP_MAP}: only when it is absent", head(("grpc-status", "5"), status=str(http), end=True),
        NOT_FOUND, shape="H$", direct=False)
row("HTTP 503 page in pieces", HTTP_MAP, do(head(status="503", kind="text/html"), data(b"<html>"), pause(0.03), data(b"</html>", end=True)),
    UNAVAILABLE, shape="H$", cause="upstream_lost")
row("HTTP 503, then a reset", HTTP_MAP, do(head(status="503", kind="text/html"), reset(0)), UNAVAILABLE, shape="H$", cause="upstream_lost")
row("HTTP 503, then nothing", HTTP_MAP, head(status="503", kind="text/html"), UNAVAILABLE, shape="H$", cause="upstream_lost")
row("HTTP 404, then the connection closes", HTTP_MAP, do(head(status="404", kind="text/html"), fin), UNIMPLEMENTED, shape="H$",
    cause="upstream_lost", direct=False)
row("HTTP 503 with trailers", HTTP_MAP, do(head(status="503", kind="application/grpc"), trailers(5)), UNAVAILABLE, shape="H$",
    cause="upstream_lost", direct=False)
row("204 with a body", "RFC 9110 15.3.5", do(head(status="204", kind="text/html"), data(b"x", end=True)), {UNKNOWN, INTERNAL}, shape="H$",
    cause="upstream_lost", direct=False)
row("304 with a body", "RFC 9110 15.4.5", do(head(status="304", kind="text/html"), data(b"x", end=True)), {UNKNOWN, INTERNAL}, shape="H$",
    cause="upstream_lost", direct=False)
for bad in ("abc", "99", "1000", "", "2 0", "-20", "+200"):
    row(f":status {bad!r}", "RFC 9113 8.3.2", do(head(status=bad), data(), trailers(0)), INTERNAL, shape="H$", cause="upstream_lost", direct=False)
row(":status missing", "RFC 9113 8.3.2", do(head(status=None), data(), trailers(0)), INTERNAL, shape="H$", cause="upstream_lost", direct=False)
row(":status twice", "RFC 9113 8.3", do(block((":status", "200"), *RESPONSE), data()), INTERNAL, shape="H$", cause="upstream_lost", direct=False)
row(":status last", "RFC 9113 8.3", do(block(RESPONSE[1], RESPONSE[0]), data()), INTERNAL, shape="H$", cause="upstream_lost", direct=False)
row("a pseudo field of requests", "RFC 9113 8.3", do(head((":path", "/")), data()), INTERNAL, shape="H$", cause="upstream_lost", direct=False)
row(":status in trailers", "RFC 9113 8.1", do(head(), data(), block((":status", "200"), ("grpc-status", "0"), end=True)), INTERNAL,
    shape="H D H$", messages=[b"answer"], cause="upstream_lost", direct=False)
for kind in ("application/grpc", "application/grpc+proto", "application/grpc+json", "application/grpc;charset=utf-8", "Application/GRPC",
             "application/grpc+proto; x=y"):
    row(f"content-type {kind}", HTTP2, do(head(kind=kind), data(), trailers()), OK, shape="H D H$", messages=[b"answer"],
        check=lambda s, kind=kind: ("content-type", kind) in s.headers)
for kind in ("text/html", "application/json", "application/grpc-web", "application/grpc-web+proto", "application/grpcx", "application/grp", "", None):
    row(f"content-type {kind!r}", HTTP2, do(head(kind=kind), data(), trailers()), UNKNOWN, shape="H$", cause="upstream_lost", direct=False)
    row(f"content-type {kind!r} trailers-only", HTTP_MAP, head(("grpc-status", "5"), kind=kind, end=True), NOT_FOUND, shape="H$", direct=False)

# ---- 1xx, lengths, sizes ----

for n in (1, 2, 10):
    row(f"{n} informational blocks", "case U7", do(*[block((":status", "103"), ("link", "x"))] * n, ANSWER), OK, shape="H D H$",
        messages=[b"answer"], direct=False)
row("100 and an error", "case U7", do(block((":status", "100")), head(("grpc-status", "5"), end=True)), NOT_FOUND, shape="H$", direct=False)
for n in (11, 100):
    row(f"{n} informational blocks are too many", "case U7: cap 10", do(*[block((":status", "103"))] * n, ANSWER), INTERNAL,
        shape="H$", cause="upstream_lost", direct=False)
row("1xx with END_STREAM", "RFC 9113 8.1", block((":status", "103"), end=True), INTERNAL, shape="H$", cause="upstream_lost", direct=False)
row("101", "RFC 9113 8.6", do(block((":status", "101")), ANSWER), INTERNAL, shape="H$", cause="upstream_lost", direct=False)
row("1xx behind the headers", "RFC 9113 8.1", do(head(), pause(0.03), block((":status", "103")), data(), trailers()), INTERNAL,
    shape="H H$", cause="upstream_lost", direct=False)
row("content-length that is right", "RFC 9113 8.1.1", do(head(("content-length", str(len(MESSAGE)))), data(), trailers()), OK, shape="H D H$",
    messages=[b"answer"])
row("content-length 0 of trailers-only", "fact 29", head(("grpc-status", "5"), ("content-length", "0"), end=True), NOT_FOUND, shape="H$")
row("content-length short", "RFC 9113 8.1.1", do(head(("content-length", "3")), data(), trailers()), INTERNAL, cause="upstream_lost", direct=False)
row("content-length long", "RFC 9113 8.1.1", do(head(("content-length", "300")), data(), pause(0.02), trailers()), INTERNAL, shape="H D H$",
    messages=[b"answer"], cause="upstream_lost", direct=False)
row("content-length long, then a reset", "RFC 9113 8.1.1: ours is no promise", do(head(("content-length", "300")), data(), pause(0.02), reset(8)),
    CANCELLED, shape="H D H$", messages=[b"answer"], cause="upstream_lost", check=lambda s: "content-length" not in dict(s.headers))
for bad in ("-1", "abc", "1, 2", str(2**64)):
    row(f"content-length {bad!r}", "RFC 9110 8.6", do(head(("content-length", bad)), data(), trailers()), INTERNAL, shape="H$",
        cause="upstream_lost", direct=False)
row("content-length twice", "RFC 9110 8.6", do(head(("content-length", "11"), ("content-length", "12")), data(), trailers()), INTERNAL, shape="H$",
    cause="upstream_lost", direct=False)
big = [(f"x-{i}", "v" * 900) for i in range(8)]  # 7.5 KiB as RFC 9113 6.5.2 counts
row("headers of 7 KiB", "gRPC", do(head(*big), data(), trailers()), OK, shape="H D H$", messages=[b"answer"],
    check=lambda s: [f for f in s.headers if f[0][:2] == "x-"] == big)
row("trailers of 7 KiB", "gRPC", do(head(), data(), trailers(9, *big)), 9, shape="H D H$", messages=[b"answer"],
    check=lambda s: [f for f in s.trailers if f[0][:2] == "x-"] == big)


def split_block(fields, end=False, size=16384):
    """The block in HEADERS and CONTINUATION frames of this size."""
    def make(s):
        b = s.conn.encoder.encode(fields, huffman=False)
        parts = [b[i:i + size] for i in range(0, len(b), size)]
        out = [HeadersFrame(s.id, parts[0])] + [ContinuationFrame(s.id, p) for p in parts[1:]]
        out[-1].flags.add("END_HEADERS")
        if end:
            out[0].flags.add("END_STREAM")
        return out
    return raw(make)


huge = [(f"x-{i}", "v" * 15000) for i in range(6)]  # 90 KB
row("headers of 90 KB", "case U14", do(split_block([*RESPONSE, *huge]), data(), trailers()), EXHAUSTED, shape="H$", cause="upstream_lost",
    direct=False)
row("trailers of 90 KB", "case U14", do(head(), data(), pause(0.02), split_block([("grpc-status", "0"), *huge], end=True)), EXHAUSTED,
    shape="H D H$", messages=[b"answer"], cause="upstream_lost", direct=False)
row("an error with 90 KB of metadata", "case U14", split_block([*RESPONSE, ("grpc-status", "5"), *huge], end=True), EXHAUSTED, shape="H$",
    cause="upstream_lost", direct=False)
row("a block in frames of 100 bytes", "RFC 9113 6.10", do(split_block([*RESPONSE, ("x", "v" * 500)], size=100), data(), trailers()), OK,
    shape="H D H$", messages=[b"answer"], check=lambda s: ("x", "v" * 500) in s.headers)

# ---- grpc-message and metadata ----

for text in ("", "plain", "100%25", "%E2%98%83", "%e2%98%83", "100%", "%zz", "%e2%9", "%", "%%%", "a b  c", "%0D%0A", "%00", "\xe4\xf6", "~!\"#$&'()*",
             "x" * 3000):
    row(f"grpc-message {text[:20]!r}", "gRPC", do(head(), data(), trailers(9, ("grpc-message", text))), 9, shape="H D H$",
        messages=[b"answer"], check=lambda s, text=text: ("grpc-message", text.encode().decode("latin-1")) in s.trailers)
    row(f"grpc-message {text[:20]!r} trailers-only", "gRPC", head(("grpc-status", "9"), ("grpc-message", text), end=True), 9, shape="H$",
        check=lambda s, text=text: ("grpc-message", text.encode().decode("latin-1")) in s.headers)
for text in ("a\r\nb", "a\nb", "a\0b"):
    row(f"grpc-message {text!r}", "RFC 9113 8.2.1", do(head(), data(), pause(0.02), trailers(9, ("grpc-message", text))), INTERNAL,
        shape="H D H$", messages=[b"answer"], cause="upstream_lost", direct=False)
KEPT = [("x-bin", "AAE="), ("x-bin", "AAE"), ("x-bin", "AA,AQ"), ("x-bin", ""), ("no-bin", "%%%"), ("grpc-server-stats-bin", "AA"),
        ("grpc-trace-bin", "AAAA"), ("grpc-tags-bin", ""), ("grpc-new-thing", "1"), ("a", "2"), ("a", "1"), ("a", ""), ("0_a.b-c", "x"), ("b", "1"),
        ("a", "3"), ("set-cookie", "a=b"), ("server", "x"), ("date", "today"), ("grpc-status-details-bin", "CAU"), ("long", "y" * 2000)]
row("metadata in headers and trailers", "gRPC", do(head(*KEPT), data(), trailers(0, *KEPT)), OK, shape="H D H$", messages=[b"answer"],
    direct=False, stock=False, check=lambda s: s.headers[2:] == KEPT and [f for f in s.trailers if f[0] != "grpc-status"] == KEPT)
row("metadata of trailers-only", "gRPC", head(("grpc-status", "5"), *KEPT, end=True), NOT_FOUND, shape="H$", direct=False, stock=False,
    check=lambda s: [f for f in s.headers[2:] if f[0] != "grpc-status"] == KEPT)
row("encodings", "gRPC", do(head(("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity, deflate, gzip")),
                                   data(frames.grpc_message(b"\x1f\x8b", 1)), trailers()), OK, shape="H D H$", messages=[b"\x1f\x8b"], direct=False, stock=False,
    check=lambda s: s.headers[2:] == [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity, deflate, gzip")] and s.body[0] == 1)
row("unsupported encoding", "gRPC", head(("grpc-status", "12"), ("grpc-accept-encoding", "identity"), end=True), UNIMPLEMENTED, shape="H$",
    check=lambda s: ("grpc-accept-encoding", "identity") in s.headers)
for field in (("connection", "close"), ("transfer-encoding", "chunked"), ("keep-alive", "1"), ("upgrade", "h2c"), ("proxy-connection", "x"), ("X-Up", "1"),
              ("x y", "1"), ("", "1"), ("x", " padded"), ("x", "a\rb")):
    row(f"field {field}", "RFC 9113 8.2", do(head(field), data(), trailers()), INTERNAL, shape="H$", cause="upstream_lost", direct=False)
row("push-back", "gRPC A6", head(("grpc-status", "14"), ("grpc-retry-pushback-ms", "1000"), end=True), UNAVAILABLE, shape="H$",
    check=lambda s: ("grpc-retry-pushback-ms", "1000") in s.headers)

# ---- resets, in each phase, with each code ----

for where, (steps, messages) in PHASES.items():
    for code in (*range(14), 14, 255, 0xfffffffe):
        again = code == frames.REFUSED_STREAM and where == "before headers"
        row(f"reset {code} {where}", RESETS, do(steps, reset(code)), RESET_STATUS.get(code, UNKNOWN), messages=messages,
            shape="H$" if where == "before headers" else "H D H$" if messages or "inside" in where else None,
            cause="no_replica" if again else "upstream_lost", tries=None if again else 1,
            # Codes outside the table are read in different ways; before an answer NO_ERROR is none of it.
            direct=code in RESET_STATUS)
row("REFUSED_STREAM once", "gRPC A6: never processed", first(reset(7)), OK, messages=[b"answer"], shape="H D H$", tries=2, direct=False)
row("REFUSED_STREAM behind headers", "gRPC A6: committed", do(head(), reset(7)), UNAVAILABLE, cause="upstream_lost")

# ---- the connection ends, in each phase ----

for where, (steps, messages) in PHASES.items():
    shape = "H$" if where == "before headers" else "H D H$" if messages or "inside" in where else None
    for name, end in (("FIN", fin), ("TCP reset", tcp_reset), ("GOAWAY and FIN", do(goaway(), fin)),
                      ("GOAWAY(INTERNAL_ERROR) and FIN", do(goaway(2), fin)), ("a broken frame", raw(lambda s: bytes(3) + b"\x06" + bytes(5)))):
        if where == "at once behind a message" and end is tcp_reset:
            continue  # RST lets the kernel drop what was not read yet
        row(f"{name} {where}", "case U13", do(steps, end), UNAVAILABLE, shape=shape, messages=messages, cause="upstream_lost", direct=False)
row("GOAWAY below, then closed", "case U2", first(goaway(last=before), fin), OK, messages=[b"answer"], tries=2, direct=False)
row("GOAWAY below, left open", "case U2", first(goaway(last=before)), OK, messages=[b"answer"], tries=2, direct=False)
row("GOAWAY 0 with an error", "case U2", first(goaway(2, last=lambda s: 0)), OK, messages=[b"answer"], tries=2, direct=False)
row("GOAWAY at the id, then the answer", "case U2", do(goaway(), pause(0.02), ANSWER), OK, messages=[b"answer"], shape="H D H$", direct=False)
row("GOAWAY 2^31-1, then the answer", "case U3", do(goaway(last=lambda s: 2**31 - 1), ANSWER), OK, messages=[b"answer"], shape="H D H$", direct=False)
row("GOAWAY in two steps, then the answer", "case U3", do(goaway(last=lambda s: 2**31 - 1), goaway(), ANSWER), OK, messages=[b"answer"], direct=False)
row("GOAWAY inside the answer", "case U3", do(head(), MID, goaway(), data(MESSAGE[7:]), trailers()), OK, messages=[b"answer"], direct=False)
row("too_many_pings above the id", "case U18", first(goaway(11, last=before, debug=b"too_many_pings"), fin), OK,
    messages=[b"answer"], tries=2, direct=False)
row("CANCELLED with GOAWAY", "fact 7", first(goaway(last=lambda s: 2**31 - 1), head(("grpc-status", "1"), end=True), reset(0)), OK,
    messages=[b"answer"], tries=2, direct=False)

# ---- frames that break a rule or try one ----

row("DATA before HEADERS", "RFC 9113 8.1", data(), {INTERNAL, UNAVAILABLE}, shape="H$", cause="upstream_lost", direct=False)
row("trailers without END_STREAM", "RFC 9113 8.1", do(head(), data(), pause(0.02), block(("grpc-status", "0"))), INTERNAL, shape="H D H$",
    messages=[b"answer"], cause="upstream_lost", direct=False)
row("headers twice", "RFC 9113 8.1", do(head(), block(*RESPONSE)), INTERNAL, cause="upstream_lost", direct=False)
row("PUSH_PROMISE", "case U15", raw(lambda s: PushPromiseFrame(s.id, promised_stream_id=2, data=s.conn.encoder.encode([(":path", "/")]),
                                                                      flags=["END_HEADERS"])), UNAVAILABLE, shape="H$", cause="upstream_lost", direct=False)
row("WINDOW_UPDATE 0 on the stream", "RFC 9113 6.9, 5.4.2", raw(lambda s: bytes([0, 0, 4, 8, 0]) + s.id.to_bytes(4, "big") + bytes(4)), {INTERNAL, UNAVAILABLE}, shape="H$",
    cause="upstream_lost", direct=False)
row("WINDOW_UPDATE over the top", "RFC 9113 6.9.1", raw(lambda s: [WindowUpdateFrame(s.id, 2**31 - 1)] * 2), INTERNAL, shape="H$", cause="upstream_lost",
    direct=False)
row("WINDOW_UPDATE over the top behind a message", "RFC 9113 6.9.1", do(head(), data(), pause(0.02), raw(lambda s: [WindowUpdateFrame(s.id, 2**31 - 1)] * 2)),
    INTERNAL, shape="H D H$", messages=[b"answer"], cause="upstream_lost", direct=False)
row("WINDOW_UPDATE 0 on the connection", "RFC 9113 6.9", raw(lambda s: bytes([0, 0, 4, 8, 0]) + bytes(8)), UNAVAILABLE, shape="H$", cause="upstream_lost",
    direct=False)
row("DATA on stream 0", "RFC 9113 6.1", raw(lambda s: bytes([0, 0, 1, 0, 0]) + bytes(5)), UNAVAILABLE, shape="H$", cause="upstream_lost", direct=False)
row("HEADERS on an even stream", "RFC 9113 5.1.1", raw(lambda s: s.conn.headers_frame(2, RESPONSE)), UNAVAILABLE, shape="H$", cause="upstream_lost", direct=False)
row("a frame over the size that we allow", "RFC 9113 4.2", raw(lambda s: (2**24 - 1).to_bytes(3, "big") + bytes([0, 0]) + s.id.to_bytes(4, "big")), UNAVAILABLE,
    shape="H$", cause="upstream_lost", direct=False)
row("HPACK index that is not there", "RFC 7541 2.3.3", raw(lambda s: bytes([0, 0, 1, 1, 4]) + s.id.to_bytes(4, "big") + b"\xff"[:1]), UNAVAILABLE, shape="H$",
    cause="upstream_lost", direct=False)
row("ENABLE_PUSH 1 from a server", "RFC 9113 6.5.2", raw(lambda s: SettingsFrame(0, settings={SettingsFrame.ENABLE_PUSH: 1})), UNAVAILABLE, shape="H$",
    cause="upstream_lost", direct=False)
row("a window over 2^31-1", "RFC 9113 6.5.2", raw(lambda s: bytes([0, 0, 6, 4, 0]) + bytes(4) + b"\0\4\xff\xff\xff\xff"), UNAVAILABLE, shape="H$",
    cause="upstream_lost", direct=False)
row("MAX_FRAME_SIZE 100", "RFC 9113 6.5.2", raw(lambda s: bytes([0, 0, 6, 4, 0]) + bytes(4) + b"\0\5\0\0\0\x64"), UNAVAILABLE, shape="H$",
    cause="upstream_lost", direct=False)
row("settings change in the call", "case U11, fact 22", do(head(), raw(lambda s: [
    SettingsFrame(0, settings={SettingsFrame.HEADER_TABLE_SIZE: 0, SettingsFrame.INITIAL_WINDOW_SIZE: 8388608, SettingsFrame.MAX_FRAME_SIZE: 8388608}),
    SettingsFrame(0, settings={SettingsFrame.HEADER_TABLE_SIZE: 4096, 0xfe03: 1})]), data(), trailers()), OK, shape="H D H$", messages=[b"answer"])
row("PINGs and unknown frames between", "fact 21", do(raw(lambda s: [PingFrame(0, b"12345678"), bytes([0, 0, 2, 0xfa, 9]) + s.id.to_bytes(4, "big") + b"ab"]), head(),
    raw(lambda s: [PingFrame(0, b"12345678"), bytes([0, 0, 0, 0xfb, 0]) + bytes(4)]), data(), trailers()), OK, shape="H D H$", messages=[b"answer"])
row("padding and bytes", "RFC 9113 6.1", do(head(), *[data(bytes([b]), pad_length=9) for b in MESSAGE], data(b"", pad_length=200), trailers()), OK,
    shape="H D H$", messages=[b"answer"], direct=False)
for flag in (2, 3, 128, 255):
    row(f"compressed flag {flag}", "case B13, PROTOCOL-HTTP2", do(head(), data(bytes([flag]) + MESSAGE[1:]), trailers()), INTERNAL,
        cause="upstream_lost", direct=False)
row("a message over the cap", "gRPC", do(head(), data(b"\0\xff\xff\xff\xff" + bytes(100))), EXHAUSTED, cause="over_message", direct=False)
row("empty messages", HTTP2, do(head(), data(bytes(5)), data(bytes(10)), trailers()), OK, shape="H D H$", messages=[b""] * 3)
row("empty DATA frames", HTTP2, do(head(), data(b""), data(), data(b""), trailers()), OK, shape="H D H$", messages=[b"answer"])

# ---- answers that come early ----

for name, more in (("", do()), (", NO_ERROR", reset(0)), (", CANCEL", reset(8)), (", INTERNAL_ERROR", reset(2)), (", GOAWAY and FIN", do(goaway(), fin)), (", FIN", fin)):
    row(f"early error{name}", "others 4", do(head(("grpc-status", "8"), ("grpc-message", "enough"), end=True), more), EXHAUSTED, early=True, shape="H$ R0",
        check=lambda s: s.message == "enough", direct=False)
    row(f"early message and error{name}", "others 4", do(head(), data(), trailers(8), more), EXHAUSTED, early=True, shape="H D H$ R0", messages=[b"answer"],
        direct=False)
    row(f"early success{name}", "others 4", do(head(), data(), trailers(0), more), OK, early=True, shape="H D H$ R0", messages=[b"answer"], direct=False)
for code in range(14):
    if code != frames.REFUSED_STREAM:
        row(f"early reset {code}", RESETS, reset(code), RESET_STATUS.get(code, UNKNOWN), early=True, shape="H$ R0", cause="upstream_lost", direct=False)
row("early FIN", "case U13", fin, UNAVAILABLE, early=True, shape="H$ R0", cause="upstream_lost", direct=False)
row("early HTTP 413 page", HTTP_MAP, do(head(status="413", kind="text/html"), data(b"<html>", end=True)), UNKNOWN, early=True, shape="H$ R0",
    cause="upstream_lost", direct=False)
row("early answer, then a broken connection", "others 4", do(head(), data(), trailers(8), raw(lambda s: bytes(3) + b"\x06" + bytes(5))), EXHAUSTED, early=True,
    shape="H D H$ R0", messages=[b"answer"], direct=False)

assert len({r.name for r in ROWS}) == len(ROWS), "two rows of one name"
