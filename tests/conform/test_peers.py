"""What peers were seen to send, played by a script at frame level: fields that must stay as they are, frames that are large or late,
streams that nobody may read. test_real_servers.py has the peers themselves."""
import frames
import penstock
import pytest
import suites
from hyperframe.frame import DataFrame, GoAwayFrame, HeadersFrame, PingFrame, SettingsFrame
from tritonclient.grpc import service_pb2 as kserve

ECHO = "/test.Echo/Unary"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
UNIMPLEMENTED, FRAME_SIZE_ERROR = 12, 6

pytestmark = pytest.mark.parametrize("engine", suites.ENGINES)


def relay_to(programs, replica, engine):
    return penstock.relay(programs, [replica.address], "--engine", engine, "--probe", "off")


class Sends(frames.Replica):
    """Sends these fields and messages to each call."""

    def __init__(self, headers, messages, trailers):
        super().__init__()
        self.what = headers, messages, trailers

    def on_request(self, stream):
        headers, messages, trailers = self.what
        stream.conn.send_headers(stream.id, headers, end_stream=trailers is None)
        for m in messages:
            stream.send_message(m)
        if trailers is not None:
            stream.conn.send_headers(stream.id, trailers, end_stream=True)


RESPONSE = [(":status", "200"), ("content-type", "application/grpc")]


@pytest.mark.parametrize("headers, messages, trailers", [
    (RESPONSE + [("grpc-accept-encoding", "identity, deflate, gzip")], [b"x"], [("grpc-status", "0")]),
    (RESPONSE + [("grpc-status", "5"), ("grpc-message", "none")], [], None),
    (RESPONSE + [("grpc-status", "12"), ("grpc-message", "")], [], None),
    (RESPONSE, [b"x"], [("ce-id", "1"), ("ce-requestid", "1"), ("grpc-status", "0"), ("grpc-message", ""), ("ce-type", "t"), ("ce-source", "s")]),
    (RESPONSE + [("server", "theirs"), ("date", "today"), ("trailer", "grpc-status")], [b""], [("grpc-status", "0"), ("x", ""), ("x", " a ".strip())]),
], ids=["accept-encoding", "trailers-only", "empty message", "ce- fields", "server and date"])
def test_fields_of_an_answer_are_the_replicas(programs, scripted, engine, headers, messages, trailers):
    """nginx adds `server`, `date` and `content-length: 0`; grpc-core writes lists with blanks; MLServer's trailers have the status in the
    middle; Triton's UNIMPLEMENTED has an empty message."""
    replica = scripted(Sends(headers, messages, trailers))
    client = frames.Client(relay_to(programs, replica, engine).grpc)
    for _ in range(3):  # new, remembered, remembered
        stream = client.wait(client.request(ECHO, b"x"))
        assert stream.headers == headers
        assert stream.trailers == trailers and stream.messages == messages
    client.close()


@pytest.mark.parametrize("order", ["grpc-core", "grpc-go"])
def test_fields_of_a_request_are_the_clients(programs, scripted, engine, order):
    """The two orders of pseudo fields that are about, the client's own :authority (nginx puts the server's address there), lists with blanks."""
    replica = scripted(frames.Replica())
    pseudo = {"grpc-core": [(":path", ECHO), (":authority", "models.example:443"), (":method", "POST"), (":scheme", "http")],
              "grpc-go": [(":method", "POST"), (":scheme", "http"), (":path", ECHO), (":authority", "models.example:443")]}[order]
    rest = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-accept-encoding", "identity, deflate, gzip"),
            ("user-agent", "grpc-c++/1.54 perf_analyzer"), ("grpc-trace-bin", "AAA"), ("b3", "0"), ("x", "2"), ("x", "1")]
    client = frames.Client(relay_to(programs, replica, engine).grpc)
    for _ in range(3):
        stream = client.open("", fields=pseudo + rest)
        client.send(stream, frames.grpc_message(b"x"), end_stream=True)
        assert client.wait(stream).status == 0
        got = replica.requests[-1].fields
        assert sorted(f for f in got if f[0].startswith(":")) == sorted(pseudo)
        assert [f for f in rest if f not in got] == []
        assert [v for k, v in got if k == "x"] == ["2", "1"]
    client.close()


def test_messages_of_a_stream_are_nobodys_business(programs, scripted, engine, tmp_path):
    """ModelStreamInfer is two protocols: Triton answers with ModelStreamInferResponse and puts errors in it, MLServer answers with a bare
    ModelInferResponse; an empty message may be the end of a decoupled answer. None is read, and the stream goes on."""
    answers = [b"\x0a\x06failed", b"\x0a\x06fmnist\x12\x011", b"", b"\xff\xff\xff no protobuf", b"\x12\x00", bytes(70000)]
    replica = scripted(Sends(RESPONSE, answers, [("grpc-status", "0")]))
    gateway = penstock.gateway(programs, tmp_path, {"fmnist": {"versions": {"1": {"endpoints": [replica.address]}}}}, engine=engine)
    penstock.wait_for(lambda: gateway.http("/readyz")[0] == 200, 20)
    client = frames.Client(gateway.grpc)
    stream = client.wait(client.request(STREAM_INFER, b"\x0a\x06fmnist"))
    assert (stream.status, stream.messages) == (0, answers)
    client.close()


class Raises(frames.Replica):
    """Begins with a window of 1,000 bytes; gives no credit to a stream, but raises INITIAL_WINDOW_SIZE and MAX_FRAME_SIZE to 8 MiB."""

    settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 1000}

    def on_data(self, stream, data):
        if len(stream.body) == 1000:
            stream.conn.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 8388608, SettingsFrame.MAX_FRAME_SIZE: 8388608}))


def test_settings_raised_in_mid_upload_open_the_running_stream(programs, scripted, engine):
    """Triton does this behind 16 MiB; RFC 9113 6.9.2: the change counts for streams that are open."""
    replica = scripted(Raises())
    client = frames.Client(relay_to(programs, replica, engine).grpc)
    payload = bytes(range(256)) * 1000
    stream = client.open(ECHO)
    client.upload(stream, frames.grpc_message(payload), end_stream=True)
    assert client.wait(stream).messages == [payload]
    client.close()


def test_settings_raised_by_a_client_open_its_answer(programs, scripted, engine):
    """The same in the other direction, with MAX_CONCURRENT_STREAMS 0, as grpc-core says it: it speaks of pushes."""
    replica = scripted(frames.Replica())
    client = frames.Client(relay_to(programs, replica, engine).grpc, settings={
        SettingsFrame.INITIAL_WINDOW_SIZE: 100, SettingsFrame.MAX_CONCURRENT_STREAMS: 0, SettingsFrame.ENABLE_PUSH: 0}, give_windows=False)
    stream = client.request(ECHO, b"y" * 5000)
    client.wait_frame(DataFrame)
    assert len(stream.body) == 100 and not stream.ended
    client.conn.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 4194304, SettingsFrame.MAX_FRAME_SIZE: 4194304}))
    assert client.wait(stream).messages == [b"y" * 5000]
    client.close()


def test_a_frame_larger_than_we_announced_is_refused(programs, scripted, engine):
    """grpc-core sends DATA of 442,368 bytes to who announced as much: we did not, and hold no such frame."""
    relay = relay_to(programs, scripted(frames.Replica()), engine)
    before, client = relay.rss_mib(), frames.Client(relay.grpc)
    client.conn.send(DataFrame(client.open(ECHO).id, bytes(442368)))
    assert client.wait_closed().error_code == FRAME_SIZE_ERROR
    assert relay.rss_mib() - before < 16
    client.close()


class ResetsLate(frames.Replica):
    """Answers on, whatever the client said: what it sends meets a stream that was reset."""

    def on_reset(self, stream):
        stream.respond(b"late")


def test_late_frames_meet_a_stream_that_was_reset(programs, scripted, engine):
    """An answer crosses the client's cancel: the connections on both sides live on, and the next calls are whole."""
    replica = scripted(ResetsLate())
    relay = relay_to(programs, replica, engine)
    client = frames.Client(relay.grpc)
    for _ in range(20):
        n, stream = len(replica.requests), client.open(ECHO)
        client.send(stream, frames.grpc_message(b"x"))
        penstock.wait_for(lambda: len(replica.requests) > n and replica.requests[n].body, 5)
        client.cancel(stream)
        penstock.wait_for(lambda: replica.requests[n].reset is not None, 5, "the cancel at the replica")
        assert client.wait(client.request(ECHO, b"y")).messages == [b"y"]
    assert len(replica.connections) == 1 and client.goaway is None
    client.close()


@pytest.mark.parametrize("payload", [bytes(8), bytes.fromhex("02041010090e0707")], ids=["grpc-core", "grpc-go"])
def test_a_ping_with_the_first_data_is_answered_before_the_answer(programs, scripted, engine, payload):
    """Clients measure the path with it and size their windows by what comes back; a PING that waits makes them small."""
    replica = scripted(frames.Replica())
    replica.on_request = lambda stream: None  # no answer at all
    client = frames.Client(relay_to(programs, replica, engine).grpc)
    stream = client.open(ECHO)
    client.conn.send(client.conn.data_frame(stream.id, frames.grpc_message(b"x"), end_stream=True), PingFrame(0, payload))
    pong = client.wait_frame(PingFrame, timeout=5)
    assert pong.opaque_data == payload and "ACK" in pong.flags
    assert not any(isinstance(f, HeadersFrame) for f in client.frames)
    client.close()


def test_our_own_end_is_told_as_the_real_servers_tell_it(programs, scripted, engine):
    """GOAWAY(2^31-1) and PING; behind its ACK GOAWAY with the last id; a call in between is served."""
    replica = scripted(frames.Replica())
    relay = relay_to(programs, replica, engine)
    client = frames.Client(relay.grpc)
    client.conn.answer_pings = False
    held = client.open(ECHO)  # keeps the connection for the rest
    penstock.wait_for(lambda: replica.requests, 5)
    relay.signal(15)
    ping = client.wait_frame(PingFrame)  # in one segment; nghttp2 puts it first
    penstock.wait_for(lambda: client.goaway or client.step(), 5)
    assert client.goaway.last_stream_id == 2**31 - 1
    assert client.wait(client.request(ECHO, b"crossed")).messages == [b"crossed"]
    client.conn.send(PingFrame(0, ping.opaque_data, flags=["ACK"]))
    assert client.wait_frame(GoAwayFrame).last_stream_id == 3
    client.send(held, frames.grpc_message(b"x"), end_stream=True)
    assert client.wait(held).messages == [b"x"]
    client.wait_closed()
    assert relay.wait_exit() == 0


@pytest.mark.parametrize("sequence", [{"uint64_param": 2**63}, {"int64_param": 7}, {"string_param": "session-\u00e9"}], ids=["uint64", "int64", "text"])
def test_a_sequences_parameters_pass_as_they_are(programs, scripted, engine, tmp_path, sequence):
    """Triton keeps the state of a sequence by its id, number or text, and by start and end flags."""
    request = kserve.ModelInferRequest(model_name="seq")
    for name, value in (("sequence_id", sequence), ("sequence_start", {"bool_param": True}), ("sequence_end", {"bool_param": False})):
        for key, v in value.items():
            setattr(request.parameters[name], key, v)
    request.inputs.add(name="x", datatype="FP32", shape=[1]).contents.fp32_contents.append(1)
    replica = scripted(frames.Replica())
    gateway = penstock.gateway(programs, tmp_path, {"seq": {"versions": {"1": {"endpoints": [replica.address]}}}}, engine=engine)
    penstock.wait_for(lambda: gateway.http("/readyz")[0] == 200, 20)
    payload = request.SerializeToString()
    client = frames.Client(gateway.grpc)
    assert client.wait(client.request("/inference.GRPCInferenceService/ModelInfer", payload)).messages == [payload]
    assert replica.requests[-1].messages == [payload]
    client.close()
