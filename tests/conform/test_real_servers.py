"""What real gRPC servers do on the wire, with the relay in between: grpcio, grpc-go, libgrpc++, @grpc/grpc-js. The oracle is what the
same client sees without us."""
import threading
import time

import frames
import grpc
import languages
import penstock
import pytest
import replicas
import suites

UNARY, DUPLEX = "/grpc.testing.TestService/UnaryCall", "/grpc.testing.TestService/FullDuplexCall"
engines = pytest.mark.parametrize("engine", suites.ENGINES)


@pytest.fixture
def server(request, programs, stock, tools):
    """start(kind, *flags): the address of a real server with its own limits."""
    def start(kind, *flags):
        if kind == "grpcio":
            return stock(options=[("grpc.max_receive_message_length", 4 << 20), *flags]).address
        if kind == "grpc-go":
            return suites.interop_server(programs, tools, None, *flags).grpc
        try:
            return languages.start_server(programs, kind).grpc
        except languages.Missing as e:
            pytest.skip(str(e))
    return start


def relay_to(programs, address, engine, *flags):
    return penstock.relay(programs, [address], "--engine", engine, "--probe", "connect", *flags)


@engines
@pytest.mark.parametrize("kind", ["grpcio", "grpc-go"])
def test_a_message_over_the_servers_limit_gets_its_own_refusal(programs, server, engine, kind):
    """The server answers when 5 bytes are there and reads no more; a proxy that goes on sending, or resets first, loses the answer."""
    address = server(kind)
    path = "/test.Echo/Unary" if kind == "grpcio" else UNARY
    direct = penstock.call(address, path, bytes(5 << 20))
    assert direct.code == "RESOURCE_EXHAUSTED" and "larger than max" in direct.details
    relay = relay_to(programs, address, engine)
    for _ in range(10):
        answer = penstock.call(relay.grpc, path, bytes(5 << 20))
        assert (answer.code, answer.details) == (direct.code, direct.details)


@engines
@pytest.mark.parametrize("kind", ["grpcio", "grpc-go", "libgrpc++", "grpc-js"])
def test_an_early_refusal_on_a_stream_that_stays_open(programs, server, engine, kind):
    """Trailers-only and RST_STREAM while the client still may send: the answer comes first, and the reset is no error."""
    address = server(kind)
    relay = relay_to(programs, address, engine)

    def refused(at):
        bidi = penstock.Bidi(at, "/test.Missing/Bidi", timeout=20)
        bidi.send(b"one")
        with pytest.raises(grpc.RpcError):
            bidi.receive()
        said = bidi.rpc.code().name, bidi.rpc.details()
        bidi.end()
        return said

    direct = refused(address)
    assert direct[0] == "UNIMPLEMENTED"
    for _ in range(10):
        assert refused(relay.grpc) == direct


def keep_calling(address, path, until, wrong, done, payload=b""):
    with penstock.channel(address) as channel:
        while time.monotonic() < until:
            answer = penstock.call(channel, path, payload)
            done.append(1)
            if answer.code != "OK":
                wrong.append((answer.code, answer.details))


@engines
@pytest.mark.parametrize("kind, flags", [("grpcio", [("grpc.max_connection_age_ms", 500), ("grpc.max_connection_age_grace_ms", 5000)]),
                                         ("grpc-go", ["-max-age", "500ms"])], ids=["grpcio", "grpc-go"])
def test_connections_that_grow_old_cost_no_call(programs, server, engine, kind, flags):
    """Every half second the server sends GOAWAY(2^31-1) and PING, and GOAWAY with the last id behind the ACK."""
    relay = relay_to(programs, server(kind, *flags), engine)
    path, wrong, done = "/test.Echo/Unary" if kind == "grpcio" else UNARY, [], []
    threads = [threading.Thread(target=keep_calling, args=(relay.grpc, path, time.monotonic() + 2.5, wrong, done)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == [] and len(done) > 100


@engines
def test_windows_and_frame_sizes_that_rise_with_the_traffic(programs, stock, engine):
    """grpc-core measures the path with PINGs and announces larger windows and frames in mid-connection, to us and to the replica."""
    replica = stock()
    relay = relay_to(programs, replica.address, engine)
    big = bytes(range(256)) * (16 << 12)
    with penstock.channel(relay.grpc) as channel:
        for payload in (big, b"small", big, b"", big[:442368]):
            answer = penstock.call(channel, "/test.Echo/Unary", payload, timeout=60)
            assert (answer.code, answer.messages == [payload]) == ("OK", True), answer.details


@engines
def test_a_client_that_pings_each_second_is_served(programs, stock, engine):
    """tritonclient can be told so; servers with grpc-core's defaults cut it after four."""
    relay = relay_to(programs, stock().address, engine)
    options = [("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0)]
    with penstock.channel(relay.grpc, *options) as channel:
        for _ in range(2):
            assert penstock.call(channel, "/test.Echo/Unary", b"x").messages == [b"x"]
            time.sleep(2.2)
        assert penstock.call(channel, "/test.Echo/Unary", b"x").messages == [b"x"]


@engines
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_answers_pass_as_they_are(programs, stock, engine, algorithm):
    """The flag of each message and grpc-encoding are the replica's; nobody inflates in between."""
    replica = stock(options=[("grpc.default_compression_algorithm", {"deflate": 1, "gzip": 2}[algorithm])])
    relay = relay_to(programs, replica.address, engine)
    seen = []
    for address in (replica.address, relay.grpc):
        client = frames.Client(address)
        client.wait(stream := client.request("/test.Echo/Unary", b"x" * 5000, ("grpc-accept-encoding", "identity, deflate, gzip")))
        seen.append((bytes(stream.body), [v for k, v in stream.headers if k.startswith("grpc-")], stream.status))
        client.close()
    assert seen[0] == seen[1]
    assert seen[0][0][0] == 1 and algorithm in seen[0][1] and len(seen[0][0]) < 1000


@engines
def test_a_channel_dials_again_by_itself(programs, stock, engine):
    """grpc-core redials behind a GOAWAY: a relay that stops and is back at its address costs a waiting call time, not its life."""
    replica = stock()
    first = relay_to(programs, replica.address, engine)
    with penstock.channel(first.grpc, ("grpc.initial_reconnect_backoff_ms", 50)) as channel:
        assert penstock.call(channel, "/test.Echo/Unary", b"x").code == "OK"
        first.stop()
        programs.start("penstock", "relay", "--listen", first.grpc, "--to", replica.address, "--engine", engine)
        assert channel.unary_unary("/test.Echo/Unary")(b"y", timeout=20, wait_for_ready=True) == b"y"


@engines
def test_mlservers_end(programs, stock, engine):
    """grpcio's stop with a short grace: what it had not begun is CANCELLED beside a GOAWAY; the call goes to the other replica."""
    leaving, staying = replicas.Stock(threads=1), stock()
    relay = penstock.relay(programs, [leaving.address, staying.address], "--engine", engine, "--policy", "round_robin")
    wrong, done = [], []
    threads = [threading.Thread(target=keep_calling, args=(relay.grpc, "/test.Echo/Unary", time.monotonic() + 2, wrong, done)) for _ in range(4)]
    for t in threads:
        t.start()
    time.sleep(0.7)
    leaving.stop(5)
    for t in threads:
        t.join()
    assert wrong == [] and len(done) > 50
