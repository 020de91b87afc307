"""Every row of h2_server_rows and h2_client_rows with a relay and a gateway of each engine in the middle."""
import socket
import threading

import frames
import h2_client_rows
import h2_server_rows
import hpack
import penstock
import pytest
import suites
import wire

COUNTED = {"server": 147, "client": 57}  # what h2spec 2.6 and h2specd have


def test_no_case_is_missing():
    for kind, rows in (("server", h2_server_rows.ROWS), ("client", h2_client_rows.ROWS)):
        assert len({r.name for r in rows}) == len(rows) == COUNTED[kind]


def may_be_ignored(row, engine):
    return engine == "session" and row.name in suites.SESSION_MAY_FAIL | suites.SESSION_MAY_IGNORE


@pytest.fixture(scope="module", params=suites.ENGINES)
def front(request, module_programs):
    replica = frames.Replica().start()
    relay = penstock.relay(module_programs, [replica.address], "--engine", request.param)
    relay.replica, relay.engine = replica, request.param
    yield relay
    relay.stop()
    replica.stop()


def connect(address):
    host, port = address.rsplit(":", 1)
    return wire.Wire(socket.create_connection((host, int(port)), timeout=10))


@pytest.mark.parametrize("row", h2_server_rows.ROWS, ids=lambda r: r.name)
def test_as_a_server(front, row):
    w = connect(front.grpc)
    try:
        if row.preface:
            w.send(wire.PREFACE + wire.settings())
        w.play(row.script)
        said = row.judge(w, may_be_ignored(row, front.engine))
        assert said == "", f"{row.title}: {said}; there was {w.events}"
        if row.reaches:
            assert row.reaches in front.replica.requests[-1].fields
    finally:
        w.close()


class Scripted:
    """A server that plays a row to the first call that comes on a connection."""

    def __init__(self, row, engine):
        self.row, self.engine, self.done, self.said, self.events = row, engine, threading.Event(), "no call came", []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(wire.Wire(sock),), daemon=True).start()

    def serve(self, w):
        preface = b""
        while len(preface) < len(wire.PREFACE) and (more := w.sock.recv(len(wire.PREFACE) - len(preface))):
            preface += more
        w.send(wire.settings() + wire.settings(flags=wire.ACK))
        if w.wait("end 1", timeout=30) and dict(hpack.Decoder().decode(w.blocks[0]))[":path"].startswith("/row."):
            w.passed = 0
            try:
                w.play(self.row.script)
                said = self.row.judge(w, may_be_ignored(self.row, self.engine))
            except AssertionError as e:
                said = str(e)
            if not self.done.is_set():
                self.said, self.events = said, w.events
                self.done.set()
            w.send(self.row.then)
            w.wait("closed", timeout=30)
        w.close()

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def service_of(row):
    return "row." + row.name.replace("/", "_").replace(".", "_")


@pytest.fixture(scope="module", params=suites.ENGINES)
def behind(request, module_programs, tmp_path_factory):
    """A gateway with a service and a scripted replica for each row."""
    scripted = {row.name: Scripted(row, request.param) for row in h2_client_rows.ROWS}
    models = {service_of(row): {"protocol": "grpc", "dialect": "plain", "services": [service_of(row)], "endpoints": [scripted[row.name].address],
                                "versions": {"1": {}}} for row in h2_client_rows.ROWS}
    gateway = penstock.gateway(module_programs, tmp_path_factory.mktemp("rows"), models, engine=request.param)
    gateway.scripted = scripted
    yield gateway
    gateway.stop()
    for s in scripted.values():
        s.stop()


@pytest.mark.parametrize("row", h2_client_rows.ROWS, ids=lambda r: r.name)
def test_as_a_client(behind, row):
    """The replica is told what it did wrong, and the end client gets a status, never silence or a reset."""
    client = frames.Client(behind.grpc)
    try:
        stream = client.request(f"/{service_of(row)}/Unary", b"x", ("grpc-timeout", "20S"))
        client.wait(stream)
        script = behind.scripted[row.name]
        assert script.done.wait(15)
        assert script.said == "", f"{row.title}: {script.said}; there was {script.events}"
        assert stream.reset in (None, frames.NO_ERROR) and stream.status is not None
        if row.then:
            assert (stream.status, stream.message) == (0, None)
    finally:
        client.close()
