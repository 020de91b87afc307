"""Clients that are allowed to be odd, and clients that are wrong: how the gateway reads a call, byte by byte."""
import gzip
import socket

import frames
import penstock
import pytest
from hyperframe.frame import GoAwayFrame, PingFrame, RstStreamFrame, SettingsFrame
from tritonclient.grpc import service_pb2 as kserve

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
INVALID_ARGUMENT, UNIMPLEMENTED = 3, 12


class Recorder(frames.Replica):
    """Answers each call with its own name: which replica, so which model and version, got it."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def on_request(self, stream):
        if stream.messages:
            stream.respond(self.name)
        else:
            stream.respond(status=13, message="the message is cut")  # as grpc servers do


@pytest.fixture(scope="module")
def group(module_programs, tmp_path_factory):
    """A gateway with model `one` (versions 1 and 2, all traffic to 1) and model `two`, a replica each."""
    replicas = {name: Recorder(name.encode()).start() for name in ("one/1", "one/2", "two/1")}
    models = {
        "one": {"protocol": "kserve", "labels": {"canary": "2"}, "traffic": {"1": 10000},
                "versions": {v: {"endpoints": [replicas[f"one/{v}"].address]} for v in "12"}},
        "two": {"protocol": "kserve", "versions": {"1": {"endpoints": [replicas["two/1"].address]}}},
    }
    gateway = penstock.gateway(module_programs, tmp_path_factory.mktemp("odd"), models, max_streams=100)
    penstock.wait_for(lambda: gateway.http("/readyz")[0] == 200, 20, "the gateway ready")
    gateway.replicas = replicas
    yield gateway
    for r in replicas.values():
        r.stop()


@pytest.fixture
def client(group):
    c = frames.Client(group.grpc)
    yield c
    c.close()


def request(**kw):
    return kserve.ModelInferRequest(**kw).SerializeToString()


TENSOR = b"\x3a\x80\x08" + bytes(1024)  # raw_input_contents, 1 KiB
NAME_ONE, NAME_TWO, VERSION_2 = b"\x0a\x03one", b"\x0a\x03two", b"\x12\x012"


def answer(client, payload, *more, path=INFER):
    return client.wait(client.request(path, payload, *more))


@pytest.mark.parametrize("payload, who", [
    (NAME_ONE + TENSOR, b"one/1"),
    (NAME_TWO + TENSOR, b"two/1"),
    (NAME_ONE + VERSION_2 + TENSOR, b"one/2"),
    (TENSOR + NAME_ONE, b"one/1"),  # the order of fields is not promised
    (VERSION_2 + TENSOR + NAME_ONE, b"one/2"),
    (NAME_ONE + NAME_ONE + TENSOR, b"one/1"),  # said twice, the same
    (NAME_ONE + b"\x12\x06canary", b"one/2"),
    (NAME_ONE + b"\x08\x05" + TENSOR, b"one/1"),  # field 1 as a number is an unknown field
], ids=["name", "other name", "version", "name last", "version first", "twice the same", "label", "wrong wire type"])
@pytest.mark.parametrize("size", [1, 16384], ids=["byte by byte", "whole"])
def test_the_message_says_where_it_goes(client, group, payload, who, size):
    stream = client.open(INFER)
    client.send(stream, frames.grpc_message(payload), end_stream=True, size=size)
    client.wait(stream)
    assert stream.status == 0 and stream.messages == [who], stream.message


def test_not_a_bit_of_the_message_changes(client, group):
    payload = NAME_TWO + b"\x1a\x02id" + TENSOR
    answer(client, payload)
    assert group.replicas["two/1"].executions[-1].messages == [payload]


@pytest.mark.parametrize("payload", [NAME_ONE + TENSOR + NAME_TWO, NAME_ONE + VERSION_2 + TENSOR + b"\x12\x011"],
                         ids=["name", "version"])
@pytest.mark.parametrize("size", [1, 16384], ids=["byte by byte", "whole"])
def test_a_second_name_is_refused_however_it_is_cut(client, payload, size):
    stream = client.open(INFER)
    client.send(stream, frames.grpc_message(payload), end_stream=True, size=size)
    client.wait(stream)
    assert stream.status == INVALID_ARGUMENT and stream.message.startswith("penstock: ")


@pytest.mark.parametrize("first, second", [(NAME_ONE, NAME_TWO), (NAME_ONE + VERSION_2, b"\x12\x011")], ids=["name", "version"])
def test_a_second_name_behind_the_tensors_cannot_change_the_route(client, group, first, second):
    """The call is on its way when the name comes that the server would take: it is ended, and nobody executes it."""
    tensor = b"\x3a\x80\x80\x0c" + bytes(3 << 16)
    message = frames.grpc_message(first + tensor + second)
    who = group.replicas["one/2" if VERSION_2 in first else "one/1"]
    began, done = len(who.requests), sum(len(r.executions) for r in group.replicas.values())
    stream = client.open(INFER)
    client.upload(stream, message[:60000])
    penstock.wait_for(lambda: len(who.requests) > began, 5, "the call at its replica")
    client.upload(stream, message[60000:], end_stream=True)
    client.wait(stream)
    assert stream.status == INVALID_ARGUMENT and stream.message.startswith("penstock: ")
    penstock.wait_for(lambda: who.requests[-1].reset is not None, 5, "the reset at the replica")
    assert sum(len(r.executions) for r in group.replicas.values()) == done


def test_a_stream_that_changes_its_model_is_refused(client):
    stream = client.open(STREAM_INFER)
    client.send(stream, frames.grpc_message(NAME_ONE) + frames.grpc_message(NAME_TWO), end_stream=True)
    client.wait(stream)
    assert stream.status == INVALID_ARGUMENT


@pytest.mark.parametrize("payload", [b"", TENSOR, b"\x0a\x00" + TENSOR], ids=["empty", "no name", "empty name"])
def test_a_message_without_a_model_is_refused(client, payload):
    assert answer(client, payload).status in (INVALID_ARGUMENT, frames.NOT_FOUND)


@pytest.mark.parametrize("payload", [b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05one", b"\xff" * 11], ids=["length", "cut", "varint"])
def test_garbage_ends_one_call_and_not_the_connection(client, payload):
    assert answer(client, payload).status in (INVALID_ARGUMENT, frames.NOT_FOUND)
    assert answer(client, NAME_ONE).messages == [b"one/1"]


def test_a_compressed_request_is_routed_by_what_is_in_it(client):
    packed = gzip.compress(NAME_ONE + VERSION_2 + TENSOR)
    stream = client.open(INFER, ("grpc-encoding", "gzip"))
    client.send(stream, frames.grpc_message(packed, compressed=1), end_stream=True)
    client.wait(stream)
    assert stream.messages == [b"one/2"], stream.message


def test_a_hint_serves_where_the_message_cannot_be_read(client):
    stream = client.open(INFER, ("grpc-encoding", "snappy"), ("penstock-model", "two"))
    client.send(stream, frames.grpc_message(b"\xff\x06\x00\x00sNaPpY", compressed=1), end_stream=True)
    client.wait(stream)
    assert stream.messages == [b"two/1"], stream.message


def test_what_is_not_grpc_gets_http_statuses(client):
    def answered(**other):
        fields = [(k, other.get(k.strip(":").replace("-", "_"), v)) for k, v in client.fields(INFER)]
        s = client.wait(client.open(INFER, fields=fields, end_stream=True))
        return dict(s.headers)[":status"], bytes(s.body)

    for other, status in ({"content_type": "application/json"}, "415"), ({"method": "GET"}, "405"):
        got, text = answered(**other)
        assert got == status and text.startswith(b"penstock: only gRPC")
    assert answered(method="HEAD") == ("405", b"")  # no body may answer a HEAD


def test_a_refused_http_upload_is_told_to_stop_when_it_goes_on(client):
    def begin():
        s = client.open(INFER, fields=[(k, "text/html" if k == "content-type" else v) for k, v in client.fields(INFER)])
        client.wait(s)
        assert s.reset is None and dict(s.headers)[":status"] == "415"  # it may end on its own
        return s

    uploads, waits = begin(), begin()
    client.send(uploads, bytes(40000))
    assert client.wait_frame(RstStreamFrame).stream_id == uploads.id and uploads.reset == frames.NO_ERROR
    assert client.wait_frame(RstStreamFrame).stream_id == waits.id and waits.reset == frames.NO_ERROR  # a second later


@pytest.mark.parametrize("timeout", ["123456789m", "12", "m", "-1S", "1.5S", "1x", ""])
def test_a_wrong_timeout_is_refused(client, timeout):
    stream = answer(client, NAME_ONE, ("grpc-timeout", timeout))
    assert stream.status == INVALID_ARGUMENT and "grpc-timeout" in stream.message


@pytest.mark.parametrize("timeout", ["1H", "99999999n", "10000m", "5S", "1M", "19997923u"])
def test_every_unit_of_timeout_is_read(client, timeout):
    assert answer(client, NAME_ONE, ("grpc-timeout", timeout)).messages == [b"one/1"]


def test_an_upload_cut_by_the_client_reaches_nobody_twice(client, group):
    """Half a message, then END_STREAM: an error, at most one replica has seen it."""
    stream = client.open(INFER)
    client.send(stream, frames.grpc_message(NAME_ONE + TENSOR)[:-100], end_stream=True)
    client.wait(stream)
    assert stream.status not in (0, None)
    assert answer(client, NAME_ONE).messages == [b"one/1"]


def test_more_streams_than_announced_are_refused_not_lost(client):
    """max_streams is 100: what is over is refused as never processed, which a client may repeat."""
    calls = [client.open(INFER) for _ in range(130)]
    for c in calls:
        if not c.ended:
            client.send(c, frames.grpc_message(NAME_ONE), end_stream=True)
    client.wait(*calls)
    assert client.conn.peer_settings[SettingsFrame.MAX_CONCURRENT_STREAMS] == 100
    served = [c for c in calls if c.messages == [b"one/1"]]
    refused = [c for c in calls if c.reset == frames.REFUSED_STREAM]
    assert len(served) >= 100 and len(served) + len(refused) == 130


def test_ping_is_answered(client):
    client.conn.send(PingFrame(0, b"penstock"))
    assert client.wait_frame(PingFrame).opaque_data == b"penstock"


def test_a_connection_that_is_not_http2_is_closed(group):
    with socket.create_connection(("127.0.0.1", int(group.grpc.rsplit(":", 1)[1])), timeout=10) as s:
        s.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
        while s.recv(4096):
            pass


def test_a_protocol_error_ends_the_connection_with_goaway(group):
    c = frames.Client(group.grpc)
    c.conn.send(b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00")  # WINDOW_UPDATE of 0
    goaway = c.wait_closed()
    assert goaway is not None and goaway.error_code != frames.NO_ERROR
    c.close()


def test_sigterm_ends_in_two_steps_and_loses_no_call(programs, scripted):
    """First GOAWAY with the highest id and a time for calls on their way, then the real one; running calls end well."""
    class Late(frames.Replica):
        def on_request(self, stream):
            self.waiting = stream

    late = scripted(Late())
    gateway = penstock.relay(programs, [late.address])
    c = frames.Client(gateway.grpc)
    running = c.request("/test.Echo/Unary", b"1")
    penstock.wait_for(lambda: late.executions)
    gateway.signal(15)
    first = c.wait_frame(GoAwayFrame)
    assert (first.last_stream_id, first.error_code) == (2**31 - 1, frames.NO_ERROR)
    late.waiting.respond(b"late")
    c.wait(running)
    assert running.messages == [b"late"] and running.status == 0
    assert c.wait_closed().last_stream_id == running.id
    assert gateway.wait_exit() == 0
