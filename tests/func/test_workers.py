"""How client connections are shared out among workers, and what happens to them at the end."""
import signal
import socket

import frames
import penstock
from test_relay import ECHO, Scripted


def sessions(gateway):
    return [w["sessions"] for w in gateway.json("/v1/status")["workers"]]


def echo(programs, scripted, workers):
    replica = scripted(Scripted(lambda s: s.respond(*s.messages)))
    return penstock.relay(programs, [replica.address], workers=workers)


def test_forty_connections_are_ten_for_each_of_four_workers(programs, scripted):
    gateway = echo(programs, scripted, 4)
    clients = [frames.Client(gateway.grpc) for _ in range(40)]
    for c in clients:
        assert c.wait(c.request(ECHO, b"x")).status == 0
    penstock.wait_for(lambda: sum(sessions(gateway)) == 40, 10, "the workers' reports")
    assert sessions(gateway) == [10] * 4
    for c in clients[::4]:  # all of one worker, as it were: ten new ones go where these left
        c.conn.close()
    penstock.wait_for(lambda: sum(sessions(gateway)) == 30, 10, "the ends")
    again = [frames.Client(gateway.grpc) for _ in range(11)]
    for c in again:
        assert c.wait(c.request(ECHO, b"x")).status == 0
    penstock.wait_for(lambda: sum(sessions(gateway)) == 41, 10, "the workers' reports")
    assert max(sessions(gateway)) - min(sessions(gateway)) == 1


def test_a_drain_ends_connections_of_every_worker_and_those_just_made(programs, scripted):
    gateway = echo(programs, scripted, 4)
    clients = [frames.Client(gateway.grpc) for _ in range(12)]
    for c in clients:
        assert c.wait(c.request(ECHO, b"x")).status == 0
    host, port = gateway.grpc.rsplit(":", 1)
    late = [socket.create_connection((host, int(port))) for _ in range(50)]
    gateway.signal(signal.SIGTERM)
    for c in clients:
        penstock.wait_for(lambda c=c: isinstance(c.step(), object) and c.goaway is not None, 10, "GOAWAY")
        c.conn.close()
    for sock in late:  # closed, whichever worker had it and whether or not it was accepted
        sock.settimeout(10)
        try:
            while sock.recv(4096):
                pass
        except ConnectionResetError:
            pass
    assert gateway.process.wait(20) == 0
