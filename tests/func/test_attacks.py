"""What a client may do to a listener: reliability's tables of floods and of malformed input, one row a test.

Each row is played on raw sockets. What must hold: the attacker's connection ends as the row says, the replica sees no
more than the row allows, memory stays, and a client beside it is served. What must stay possible stands beside them.
"""
import threading

import frames
import penstock
import pytest
from hyperframe.frame import SettingsFrame, WindowUpdateFrame

ECHO = "/test.Echo/Unary"
MIB = 1 << 20


@pytest.fixture(scope="module", params=["native", "session"])
def relay(request, module_programs):
    """One gateway for all rows: what a row does must not harm the next."""
    replica = frames.Replica().start()
    gateway = penstock.relay(module_programs, [replica.address], "--engine", request.param)
    gateway.replica, gateway.engine = replica, request.param
    yield gateway
    replica.stop()


# ---- what must stay possible ----

def test_a_peer_may_give_its_windows_back_for_every_frame(programs, scripted):
    """20 MiB each way, 1,280 frames: two WINDOW_UPDATE for each, which is what simple peers do."""
    class PerFrame(frames.Replica):
        settings = {SettingsFrame.MAX_CONCURRENT_STREAMS: 100, SettingsFrame.INITIAL_WINDOW_SIZE: 65535}

        def on_data(self, stream, data):
            stream.conn.send(WindowUpdateFrame(stream.id, len(data)))

        def on_request(self, stream):  # the thread that called reads our window updates
            threading.Thread(target=self.answer, args=(stream,), daemon=True).start()

        def answer(self, stream):
            stream.send_headers()
            for at in range(0, len(stream.body), 16384):
                piece = bytes(stream.body[at:at + 16384])
                penstock.wait_for(lambda: stream.window >= len(piece), every=0.001)
                stream.window -= len(piece)
                stream.conn.send(stream.conn.data_frame(stream.id, piece))
            stream.send_trailers()

    replica = scripted(PerFrame())
    gateway = penstock.relay(programs, [replica.address])
    client = frames.Client(gateway.grpc)
    client.wait_frame(SettingsFrame)
    body = frames.grpc_message(bytes(20 * MIB))
    call = client.open(ECHO)
    client.upload(call, body, end_stream=True)
    client.wait(call)
    assert call.status == 0 and len(call.body) == len(body)
    client.close()
