"""penstock-fault: a link must be as slow and as far as it was asked to be, and lose nothing. By plain sockets."""
import os
import socket
import threading
import time

import pytest

KIB = 1 << 10


class Server:
    """A TCP server on loopback; serve(connection) runs in a thread for each connection."""

    def __init__(self, serve):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.serve = serve
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()


def echo(connection):
    while data := connection.recv(1 << 16):
        connection.sendall(data)
    connection.close()


@pytest.fixture
def link(programs):
    """link(serve, flags) -> a socket through the link to a server that runs serve()."""
    servers = []

    def connect(serve, *flags):
        servers.append(Server(serve))
        fault = programs.start("penstock-fault", "--listen", "127.0.0.1:0", "--to", servers[-1].address, *flags)
        host, port = fault.grpc.split(":")
        return socket.create_connection((host, int(port)), timeout=20)

    yield connect
    for s in servers:
        s.listener.close()


def read_to_end(s):
    out = b""
    while data := s.recv(1 << 20):
        out += data
    return out


@pytest.mark.parametrize("flags", [[], ["--delay-ms", "30"], ["--rate-kib", "20000", "--delay-ms", "5"]])
def test_every_byte_comes_in_order_and_the_end_behind_it(link, flags):
    data = os.urandom(3 << 20)
    s = link(echo, *flags)
    threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)), daemon=True).start()
    assert read_to_end(s) == data


def test_a_round_trip_takes_twice_the_delay(link):
    s = link(echo, "--delay-ms", "60")
    for _ in range(3):
        began = time.monotonic()
        s.sendall(b"x")
        assert s.recv(1) == b"x"
        assert 0.12 <= time.monotonic() - began < 1.5


def test_the_delay_is_no_limit_on_what_is_under_way(link):
    """8 MiB with 50 ms each way and no rate: were each read delayed after the other, this took 500 times 50 ms."""
    s = link(echo, "--delay-ms", "50")
    began = time.monotonic()
    threading.Thread(target=lambda: (s.sendall(bytes(8 << 20)), s.shutdown(socket.SHUT_WR)), daemon=True).start()
    assert len(read_to_end(s)) == 8 << 20
    assert time.monotonic() - began < 8


def test_a_rate_is_kept_each_way_by_itself(link):
    """1 MiB at 2 MiB/s up, and the same back while it comes: 0.5 s, not 1."""
    s = link(echo, "--rate-kib", str(2 * KIB))
    began = time.monotonic()
    threading.Thread(target=lambda: (s.sendall(bytes(1 << 20)), s.shutdown(socket.SHUT_WR)), daemon=True).start()
    assert len(read_to_end(s)) == 1 << 20
    assert 0.5 <= time.monotonic() - began < 0.95


def test_a_slow_link_stops_its_sender(link):
    """The link holds 20 ms of its rate, the sockets some MiB: a sender of 64 MiB must wait."""
    def swallow(connection):
        while connection.recv(1 << 16):
            pass

    s = link(swallow, "--rate-kib", "100")
    s.setblocking(False)
    sent = 0
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        try:
            sent += s.send(bytes(1 << 16))
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < 32 << 20


def test_a_server_that_is_gone_closes_the_client(programs):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = "127.0.0.1:%d" % closed.getsockname()[1]
    fault = programs.start("penstock-fault", "--listen", "127.0.0.1:0", "--to", address)
    host, port = fault.grpc.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as s:
        assert s.recv(1) == b""


def test_wrong_usage_says_what_is_needed(programs):
    r = programs.run("penstock-fault", "--listen", "127.0.0.1:0")
    assert r.returncode == 64 and "--to ADDR" in r.stderr
    r = programs.run("penstock-fault", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--delay-ms", "60001")
    assert r.returncode == 64 and "60000" in r.stderr
