"""Deadlines with the real grpc-go server behind the relay: at the deadline it resets with CANCEL and says nothing else, and
other proxies make INTERNAL, UNAVAILABLE or UNKNOWN of that (others 1)."""
import frames
import penstock
import pytest
import suites

STREAM = "/grpc.testing.TestService/StreamingOutputCall"
DEADLINE_EXCEEDED = 4


def varint(n):
    return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])


def outputs(*delays_ms):
    """StreamingOutputCallRequest: a message of 10 bytes after each delay."""
    parts = [b"\x08\x0a\x10" + varint(ms * 1000) for ms in delays_ms]
    return b"".join(b"\x12" + bytes([len(p)]) + p for p in parts)


@pytest.mark.parametrize("engine", suites.ENGINES)
def test_a_grpc_go_server_at_its_deadline(programs, tools, engine):
    """Before any answer, and behind one, two, three messages: 200 calls of a raw client, 100 of grpcio."""
    server = suites.interop_server(programs, tools)
    server.expect_exit = {-15}
    relay = penstock.relay(programs, [server.grpc], "--engine", engine, "--probe", "off")
    client = frames.Client(relay.grpc)
    kinds = [(), (10,), (10, 20), (5, 5, 5)]
    calls = [(client.request(STREAM, outputs(*kinds[i % 4], 5000), ("grpc-timeout", f"{100 + i}m")), kinds[i % 4]) for i in range(200)]
    client.wait(*(c for c, _ in calls))
    assert {(c.status, c.reset) for c, _ in calls} == {(DEADLINE_EXCEEDED, None)}, {c.message for c, _ in calls}
    assert all(len(c.messages) == len(kind) for c, kind in calls)
    assert client.goaway is None
    client.close()
    with penstock.channel(relay.grpc) as channel:
        rpcs = [channel.unary_stream(STREAM)(outputs(10, 5000), timeout=0.1 + i * 0.002) for i in range(100)]
        assert {r.code().name for r in rpcs} == {"DEADLINE_EXCEEDED"}
    penstock.wait_for(lambda: relay.counter("penstock_streams_started_total") == 300 and relay.counter("penstock_streams_open") == 0, 10, "every call's end")
    deadline, gone = (relay.counter(f"penstock_ended_{cause}_total") for cause in ("deadline", "by_client"))
    assert deadline >= 200 and deadline + gone == 300


@pytest.mark.parametrize("engine", suites.ENGINES)
def test_what_a_grpc_go_server_says_comes_whole(programs, tools, engine):
    """Errors of the server itself: unknown method, unknown service, a message over its limit while the upload goes on (it
    answers early and resets), a compression that it does not know; each with its status and nothing made of it."""
    server = suites.interop_server(programs, tools)
    server.expect_exit = {-15}
    relay = penstock.relay(programs, [server.grpc], "--engine", engine, "--probe", "off")
    rows = [("/grpc.testing.TestService/Nothing", (), b"", "UNIMPLEMENTED"),
            ("/grpc.testing.Other/Unary", (), b"", "UNIMPLEMENTED"),
            ("/grpc.testing.TestService/UnaryCall", (), b"\x00" * 10, "INTERNAL"),
            ("/grpc.testing.TestService/UnaryCall", (), b"\x1a\x80\x80\x80\x03" + bytes(6 << 20), "RESOURCE_EXHAUSTED"),
            ("/grpc.testing.TestService/StreamingInputCall", (), b"\x0a\x80\x80\x80\x03" + bytes(6 << 20), "RESOURCE_EXHAUSTED")]
    for path, metadata, request, code in rows * 3:
        through, direct = (penstock.call(to, path, request, metadata=metadata) for to in (relay.grpc, server.grpc))
        assert (through.code, through.details, through.messages) == (direct.code, direct.details, direct.messages), path
        assert through.code == code, path
    client = frames.Client(relay.grpc)
    for _ in range(10):
        s = client.open("/grpc.testing.TestService/UnaryCall", ("grpc-encoding", "none-such"))
        client.send(s, frames.grpc_message(b"", compressed=1), end_stream=True)
        client.wait(s)
        assert (s.status, s.reset) == (12, None), (s.shape, s.message)
    client.close()
