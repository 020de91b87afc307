"""Clients and replicas that mean harm, and what must hold whatever they send: memory, the route, the others' calls."""
import os
import pathlib
import resource
import signal
import socket
import time

import frames
import penstock
import pytest
from hyperframe.frame import GoAwayFrame, PingFrame, SettingsFrame

INFER = "/inference.GRPCInferenceService/ModelInfer"
ECHO = "/test.Echo/Unary"
RESOURCE_EXHAUSTED = frames.RESOURCE_EXHAUSTED


def plain(*replicas, **limits):
    """A catalogue with one plain service on these replicas."""
    return {"echo": {"protocol": "grpc", "services": ["test.Echo"], "endpoints": [r.address for r in replicas], "limits": limits,
                     "versions": {"1": {}}}}


def ready_client(address, **kw):
    """A client that has read the gateway's settings: its windows are the large ones."""
    c = frames.Client(address, **kw)
    c.wait_frame(SettingsFrame)
    return c


# ---- memory ----

BUDGET_MIB, CALLS, BODY = 16, 120, bytes(500_000)  # 60 MB are offered to a budget of 16


class Stalled(frames.Replica):
    """Takes no byte of any request."""
    settings = {SettingsFrame.MAX_CONCURRENT_STREAMS: 1000, SettingsFrame.INITIAL_WINDOW_SIZE: 0}
    on_request = on_probe = staticmethod(lambda stream: None)


class Flood(frames.Replica):
    """Answers at once, and more than the client will read."""

    def on_request(self, stream):
        stream.send_headers()
        stream.send_message(BODY)


def assert_bounded(gateway, before, client):
    """The budget held, the calls beyond it were ended as such, and a new call finds room."""
    penstock.wait_for(lambda: gateway.counter("penstock_ended_over_memory_total") > 0, what="a call ended for its memory")
    assert gateway.rss_mib() - before < 3 * BUDGET_MIB, "the memory budget did not hold"
    assert gateway.events("over_memory")
    client.close()


def test_uploads_that_nobody_takes_are_ended_when_the_memory_is_used_up(programs, scripted, tmp_path):
    replica = scripted(Stalled())
    gateway = penstock.gateway(programs, tmp_path, plain(replica), memory_mib=BUDGET_MIB)
    before = gateway.rss_mib()
    client = ready_client(gateway.grpc)
    calls = [client.open(ECHO) for _ in range(CALLS)]
    for s in calls:
        client.send(s, frames.grpc_message(BODY))
    ended = [s for s in calls[:CALLS // 2] if client.wait(s).ended]
    assert {s.status for s in ended} == {RESOURCE_EXHAUSTED}  # those that waited longest, not the last to come
    assert "memory_mib = 16 MiB" in ended[0].message
    assert_bounded(gateway, before, client)


def test_answers_that_nobody_reads_are_ended_when_the_memory_is_used_up(programs, scripted, tmp_path):
    replica = scripted(Flood())
    gateway = penstock.gateway(programs, tmp_path, plain(replica), memory_mib=BUDGET_MIB)
    before = gateway.rss_mib()
    client = ready_client(gateway.grpc, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 0})
    calls = [client.request(ECHO, b"more") for _ in range(CALLS)]
    ended = [s for s in calls[:CALLS // 2] if client.wait(s).ended]
    assert {s.reset for s in ended} == {frames.ENHANCE_YOUR_CALM}  # gRPC: RESOURCE_EXHAUSTED
    assert_bounded(gateway, before, client)


@pytest.mark.skipif(penstock.ENGINE == "session", reason="nghttp2's sessions keep their windows")
def test_windows_of_uploads_are_small_while_memory_is_short(programs, scripted, tmp_path):
    """28 uploads of 500,000 bytes are 83 % of 16 MiB: over memory_shrink_percent (80), under memory_refuse_percent (90)."""
    replica = scripted(Stalled())
    gateway = penstock.gateway(programs, tmp_path, plain(replica), memory_mib=BUDGET_MIB)
    client = ready_client(gateway.grpc)
    usual, calls = client.conn.peer_initial_window, [client.open(ECHO) for _ in range(28)]

    def wait_window(want):
        until = time.monotonic() + 20
        while client.conn.peer_initial_window != want:
            client.wait_frame(SettingsFrame, timeout=until - time.monotonic())

    for s in calls:
        client.send(s, frames.grpc_message(BODY))
    wait_window(64 * 1024)
    penstock.wait_for(lambda: gateway.counter("penstock_windows_shrunk_total") == 1)
    assert not any(s.ended for s in calls)
    for s in calls:
        client.cancel(s)
    wait_window(usual)
    client.close()


def test_calls_that_only_begin_can_not_fill_the_memory(programs, scripted, tmp_path):
    """Their header fields count, too, and a call that says where it goes finds room."""
    models = {"one": {"protocol": "kserve", "endpoints": [scripted(frames.Replica()).address], "versions": {"1": {}}}}
    gateway = penstock.gateway(programs, tmp_path, models, memory_mib=BUDGET_MIB)
    client = ready_client(gateway.grpc)
    calls = [client.open(INFER, ("x-pad", "p" * 12_000)) for _ in range(990)]
    penstock.wait_for(lambda: gateway.counter("penstock_ended_over_memory_total") > 0, what="a call ended for its memory")
    client.wait(*calls[:20])
    assert {c.reset for c in calls[:20]} == {frames.ENHANCE_YOUR_CALM}
    assert not calls[-1].ended
    other = ready_client(gateway.grpc)
    assert other.wait(other.request(INFER, b"\x0a\x03one")).status == 0
    client.close()
    other.close()
    penstock.wait_for(lambda: gateway.counter("penstock_streams_open") == 0)


@pytest.mark.parametrize("what", ["refused calls", "pings"])
def test_who_floods_and_reads_no_answer_is_not_read_either(programs, scripted, what):
    gateway = penstock.relay(programs, [scripted(frames.Replica()).address])
    client = frames.Client(gateway.grpc)
    client.conn.answer_settings = False  # so that the limit of streams is not in force: each is refused by a frame
    client.conn.send(*(client.conn.headers_frame(i, client.fields(ECHO)) for i in range(1, 2101, 2)))
    fields = client.conn.headers_frame(1, client.fields(ECHO)).serialize()[9:]
    client.conn.sock.settimeout(3)
    with pytest.raises(OSError):  # the socket takes no more; or, for pings, the connection ended
        for start in range(2101, 2101 + 2 * 4_000_000, 20_000):
            if what == "pings":
                client.conn.send(PingFrame(0, b"12345678").serialize() * 10_000)
            else:
                client.conn.send(b"".join(len(fields).to_bytes(3, "big") + b"\1\4" + i.to_bytes(4, "big") + fields
                                          for i in range(start, start + 20_000, 2)))
    assert penstock.call(gateway.grpc, ECHO, b"x").code == "OK"
    client.close()


# ---- the route ----

@pytest.mark.parametrize("length", [2**32 - 1, 2**32 - 3])
def test_a_length_at_the_end_of_its_range_does_not_wrap_when_the_version_is_added(programs, scripted, tmp_path, length):
    """The replica would read a short message, and what follows as another that was never routed."""
    replica = scripted(frames.Replica())
    models = {"two": {"protocol": "kserve", "endpoints": [replica.address], "limits": {"message_mib": 0},
                      "versions": {"1": {}, "2": {}}, "traffic": {"1": 5000, "2": 5000}}}
    gateway = penstock.gateway(programs, tmp_path, models)
    client = ready_client(gateway.grpc)
    call = client.open(INFER)
    client.send(call, b"\0" + length.to_bytes(4, "big") + b"\x0a\x03two\x3a\x60" + bytes(96))
    client.wait(call)
    assert call.status == RESOURCE_EXHAUSTED and str(length) in call.message
    assert not replica.requests


# ---- replicas ----

def test_a_replica_that_sends_everybody_away_is_not_dialled_in_a_loop(programs, scripted):
    class Leaving(frames.Replica):
        def on_connect(self, conn):
            conn.send(SettingsFrame(0), GoAwayFrame(0, last_stream_id=0, error_code=0))

    leaving, good = scripted(Leaving()), scripted(frames.Replica())
    gateway = penstock.relay(programs, [leaving.address, good.address])
    for _ in range(20):
        assert penstock.call(gateway.grpc, ECHO, b"x", timeout=10).code == "OK"
    begun, connections = time.monotonic(), len(leaving.connections)
    penstock.wait_for(lambda: time.monotonic() - begun > 1)
    assert len(leaving.connections) - connections < 60  # the probes; it was hundreds


# ---- connections and descriptors ----

def tcp(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_in_a_second(pid):
    before, until = cpu_s(pid), time.monotonic() + 1
    penstock.wait_for(lambda: time.monotonic() > until)
    return cpu_s(pid) - before


def test_the_admin_listener_hears_again_after_more_connections_than_it_takes(programs, scripted):
    gateway = penstock.relay(programs, [scripted(frames.Replica()).address])
    slow = [tcp(gateway.admin) for _ in range(100)]
    for s in slow:
        s.sendall(b"GET /heal")
    for s in slow:
        s.close()
    assert gateway.http("/healthz", timeout=20)[0] == 200


def test_without_descriptors_it_waits_and_then_goes_on(programs, scripted):
    replica = scripted(frames.Replica())
    gateway = programs.start("/bin/sh", "-c", f"ulimit -n 26; exec {penstock.binary('penstock')} relay --listen 127.0.0.1:0 "
                             f"--admin 127.0.0.1:0 --workers 1 --to {replica.address}")
    assert penstock.call(gateway.grpc, ECHO, b"x").code == "OK"
    clients = [frames.Client(gateway.grpc) for _ in range(60)]
    gateway.wait_event("accept_failed")
    question = tcp(gateway.admin)
    question.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert cpu_in_a_second(gateway.pid) < 0.2, "it turns in a circle"
    for c in clients:
        c.close()
    assert question.recv(100).startswith(b"HTTP/1.1 200")
    assert penstock.call(gateway.grpc, ECHO, b"x").code == "OK"


def test_connections_without_a_call_make_room_for_others(programs, scripted, tmp_path):
    class Slow(frames.Replica):
        on_request = staticmethod(lambda stream: None)

    replica = scripted(Slow())
    gateway = penstock.gateway(programs, tmp_path, plain(replica), max_connections=4)
    busy = ready_client(gateway.grpc)
    call = busy.request(ECHO, b"x")
    penstock.wait_for(lambda: replica.requests)
    idle = ready_client(gateway.grpc)
    others = [frames.Client(gateway.grpc) for _ in range(10)]
    assert idle.wait_closed().error_code == frames.NO_ERROR
    more = [ready_client(gateway.grpc) for _ in range(3)]
    for c in more:
        c.request(ECHO, b"x")
    penstock.wait_for(lambda: len(replica.requests) == 4)
    penstock.wait_for(lambda: tcp(gateway.grpc).recv(100) == b"")  # each has a call now
    penstock.wait_for(lambda: gateway.counter("penstock_sessions_refused_total") >= 1)
    replica.requests[0].respond(b"late")
    assert busy.wait(call).messages == [b"late"]
    for c in others:
        c.close()


def test_a_port_that_is_taken_is_refused(programs, scripted):
    """SO_REUSEPORT, which the workers share it by, would let a second process take half of the connections."""
    replica = scripted(frames.Replica())
    first = penstock.relay(programs, [replica.address], workers=2)
    r = programs.run("penstock", "relay", "--listen", first.grpc, "--to", replica.address, "--workers", "2", timeout=10)
    assert r.returncode == 1 and first.grpc in r.stderr and "Address already in use" in r.stderr


def test_a_socket_of_a_path_serves_every_worker(programs, scripted, tmp_path):
    replica = scripted(frames.Replica())
    gateway = programs.start("penstock", "relay", "--listen", f"unix:{tmp_path}/s", "--admin", "127.0.0.1:0", "--workers", "3",
                             "--to", replica.address)
    for _ in range(5):
        assert penstock.call(gateway.grpc, ECHO, b"x").messages == [b"x"]
    second = programs.run("penstock", "relay", "--listen", gateway.grpc, "--to", replica.address, timeout=10)
    assert second.returncode == 1 and "Address already in use" in second.stderr
    assert penstock.call(gateway.grpc, ECHO, b"x").code == "OK"


def test_a_header_block_that_never_ends_holds_no_drain_up(programs, scripted):
    gateway = penstock.relay(programs, [scripted(frames.Replica()).address])
    client = ready_client(gateway.grpc)
    half = client.conn.headers_frame(1, client.fields(ECHO))
    half.flags.discard("END_HEADERS")
    client.conn.send(half)
    gateway.signal(signal.SIGTERM)
    assert gateway.wait_exit(10) == 0  # drain_s is 30


@pytest.mark.parametrize("hard", [500, resource.getrlimit(resource.RLIMIT_NOFILE)[1]], ids=["low", "as it is here"])
def test_the_soft_limit_of_descriptors_is_raised_to_what_the_connections_need(programs, hard):
    gateway = programs.start("/bin/sh", "-c", f"ulimit -Sn 64; ulimit -Hn {hard}; exec {penstock.binary('penstock')} relay "
                             "--listen 127.0.0.1:0 --to 127.0.0.1:1")
    assert resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)[0] == min(hard, 24096)
    assert bool(gateway.events("descriptor_limit")) == (hard < 20000)  # max_connections
