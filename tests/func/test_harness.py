"""The harness itself: its peers talk to each other without a gateway, so that a failure elsewhere is not theirs."""
import frames
import penstock
from hyperframe.frame import GoAwayFrame


def test_stock_client_and_scripted_replica(scripted):
    replica = scripted(frames.Replica())
    answer = penstock.call(replica.address, "/test.Echo/Unary", b"one")
    assert (answer.code, answer.messages) == ("OK", [b"one"])
    assert replica.executions[0].path == "/test.Echo/Unary"
    assert replica.errors == []


def test_odd_client_and_stock_replica(stock):
    client = frames.Client(stock().address)
    stream = client.wait(client.request("/test.Echo/Unary", b"two", ("x-tag", "t")))
    assert stream.status == 0 and stream.messages == [b"two"]
    assert ("x-from-replica", "yes") in stream.headers and ("x-trailer", "a b c") in stream.trailers
    client.close()


def test_scripted_replica_and_odd_client_see_every_frame(scripted):
    class Leaving(frames.Replica):
        def on_request(self, stream):
            stream.send_headers()
            stream.send_reset(frames.INTERNAL_ERROR)
            stream.conn.send(GoAwayFrame(0, last_stream_id=stream.id, error_code=frames.NO_ERROR))
            stream.conn.close()

    client = frames.Client(scripted(Leaving()).address)
    stream = client.wait(client.request("/a.B/C", b""))
    assert stream.reset == frames.INTERNAL_ERROR and stream.status is None
    assert client.wait_closed().last_stream_id == stream.id


def test_rich_status_of_the_stock_replica(stock):
    answer = penstock.call(stock().address, "/test.Echo/Rich", b"x")
    assert answer.code == "FAILED_PRECONDITION" and answer.details == "not yet: 100% \u00e4\u2603"
    assert len(answer.trailer("grpc-status-details-bin")) == 1
