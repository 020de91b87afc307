"""penstock-load --saturate and penstock-light: the cheap generator must count as truly as the thorough one."""
import json
import os
import subprocess

import frames
import penstock
import pytest

UNARY = "/test.Echo/Unary"


def saturate(programs, to, *flags, code=0):
    r = programs.run("penstock-load", "--to", to, "--json", *flags)
    assert r.returncode == code, r
    return json.loads(r.stdout)


def light(programs, *flags):
    return programs.start("penstock-light", "--listen", "127.0.0.1:0", *flags)


def test_it_counts_what_the_replica_saw(programs, stock):
    """grpcio reads our blocks: first literals, then indices; each request id once; the metadata and the timeout there."""
    replica = stock()
    report = saturate(programs, replica.address, "--echo", 100, "--method", UNARY, "--calls", 300, "--connections", 3, "--saturate", 7,
                      "--request-ids", "--metadata", "x-tag=t", "--metadata", "x-long=" + "v" * 300, "--deadline-ms", 20000)
    assert report["ok"] == 300 and report["failed"] == 0 and report["by_status"] == {"OK": 300}
    assert report["bytes_per_answer"] == 5 + 16 + 100  # prefix, number, bytes
    seen = [m for _, m in replica.calls]
    assert len(seen) == 300 and all(m["x-tag"] == "t" and m["x-long"] == "v" * 300 for m in seen)
    assert len({m["x-request-id"] for m in seen}) == 300


def test_a_status_in_trailers_is_a_failure(programs, stock):
    report = saturate(programs, stock().address, "--echo", 1, "--method", "/test.Echo/Rich", "--calls", 50, "--saturate", 5, code=1)
    assert report["by_status"] == {"FAILED_PRECONDITION": 50} and report["failed"] == 50 and report["ok"] == 0
    server = penstock.model_server(programs, "--fault", "unavailable-after-data")
    report = saturate(programs, server.grpc, "--echo", 1, "--calls", 50, "--saturate", 5, code=1)
    assert report["by_status"] == {"UNAVAILABLE": 50}


@pytest.mark.parametrize("fault, word", [("reset-after-request", "reset"), ("close-after-request", "lost")])
def test_broken_calls_are_told_apart(programs, fault, word):
    server = penstock.model_server(programs, "--fault", fault)
    report = saturate(programs, server.grpc, "--echo", 1, "--calls", 20, "--saturate", 4, code=1)
    assert report[word] > 0 and report[word] == report["failed"] and report["ok"] == 0


def test_ok_without_a_message_is_no_answer(programs, scripted):
    class Silent(frames.Replica):
        def on_request(self, stream):
            stream.respond()  # headers, and trailers that say OK

    report = saturate(programs, scripted(Silent()).address, "--echo", 1, "--calls", 10, "--saturate", 2, code=1)
    assert report["empty"] == 10 and report["failed"] == 10 and report["ok"] == 0


@pytest.mark.parametrize("said, came", [(100, 99), (100, 101), (0, 1)])
def test_an_answer_of_another_length_than_its_prefix_says_is_no_answer(programs, scripted, said, came):
    class Liar(frames.Replica):
        def on_request(self, stream):
            stream.send_headers()
            stream.conn.send(stream.conn.data_frame(stream.id, b"\0" + said.to_bytes(4, "big") + bytes(came)))
            stream.send_trailers()

    report = saturate(programs, scripted(Liar()).address, "--echo", 1, "--calls", 10, "--saturate", 2, code=1)
    assert report["empty"] == 10 and report["ok"] == 0


@pytest.fixture
def certificate(tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=x",
                    "-addext", "subjectAltName=DNS:gate.test", "-keyout", "k.pem", "-out", "c.pem"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "c.pem", tmp_path / "k.pem"


@pytest.mark.parametrize("sent, answered", [(128, 128), (300000, 128), (128, 300000)])
def test_it_saturates_in_tls(programs, tmp_path, certificate, sent, answered):
    cert, key = certificate
    replica = light(programs, "--bytes", answered)
    gateway = penstock.relay(programs, [replica.grpc], "--cert", cert, "--key", key)
    (tmp_path / "q").write_bytes(os.urandom(sent))
    call = ["--method", UNARY, "--message", tmp_path / "q", "--calls", 200, "--connections", 4, "--saturate", 10]
    report = saturate(programs, gateway.grpc, *call, "--ca", cert, "--tls-host", "gate.test")
    assert report["ok"] == 200 and report["bytes_per_answer"] == 5 + answered
    report = saturate(programs, gateway.grpc, *call, "--ca", cert, "--tls-host", "other.test", code=1)
    assert report["ok"] == 0 and report["connections_lost"] == 4


def test_connections_are_held_after_a_call_each(programs):
    replica = light(programs)
    load = programs.start("penstock-load", "--to", replica.grpc, "--echo", 1, "--connections", 300, "--saturate", 1, "--calls-each", 2,
                          "--hold-ms", 60000, "--json", ready=False)
    penstock.wait_for(lambda: "holding 300 connections" in load.log, what="the connections")
    assert sum(1 for _ in os.scandir(f"/proc/{replica.pid}/fd")) >= 300
    load.process.terminate()
    assert load.process.wait(20) == 0
    assert json.loads(load.lines[-1])["ok"] == 600


def test_a_long_message_waits_for_windows(programs):
    """1 MiB through windows of 64 KiB, and back: what came is what was sent."""
    server = penstock.model_server(programs)
    report = saturate(programs, server.grpc, "--echo", 1 << 20, "--calls", 12, "--connections", 2, "--saturate", 3)
    assert report["ok"] == 12 and report["bytes_per_answer"] == 5 + 16 + (1 << 20)


def test_a_limit_on_streams_is_kept(programs):
    server = penstock.model_server(programs, "--max-streams", 3)
    report = saturate(programs, server.grpc, "--echo", 1, "--calls", 200, "--saturate", 50)
    assert report["ok"] == 200 and report["failed"] == 0


def test_the_light_replica_is_a_grpc_server(programs, tmp_path):
    """By the thorough client: status, length, bodies of several frames, many calls on a connection."""
    replica = light(programs, "--bytes", 77)
    (tmp_path / "q").write_bytes(os.urandom(300000))
    (tmp_path / "a").write_bytes(bytes(77))
    r = programs.run("penstock-load", "--to", replica.grpc, "--method", "/a.B/C", "--message", tmp_path / "q",
                     "--expect", tmp_path / "a", "--calls", 200, "--concurrency", 20)
    assert r.returncode == 0, r


def test_the_light_replica_keeps_to_the_windows(programs):
    """100,000 bytes to a client that opens the window by 1,000 at a time, and takes another call in between."""
    replica = light(programs, "--bytes", 100000)
    client = frames.Client(replica.grpc, {frames.SettingsFrame.INITIAL_WINDOW_SIZE: 1000}, give_windows=False)
    slow = client.request(UNARY, b"x")
    client.wait_frame(frames.DataFrame)
    assert len(slow.body) == 1000
    while not slow.ended:
        client.conn.send(frames.WindowUpdateFrame(slow.id, 1000), frames.WindowUpdateFrame(0, 1000))
        before = len(slow.body)
        while not slow.ended and len(slow.body) == before:
            client.step()
    assert slow.status == 0 and len(slow.body) == 5 + 100000
    client.close()


def test_the_light_replica_honours_a_small_table(programs):
    """nginx asks for none: an index into a table it hasn't got makes it fail every call."""
    replica = light(programs)
    client = frames.Client(replica.grpc, {frames.SettingsFrame.HEADER_TABLE_SIZE: 0})
    client.conn.decoder.header_table_size = 0
    client.conn.decoder.max_allowed_table_size = 0
    for _ in range(3):
        s = client.wait(client.request(UNARY, b"x"))
        assert s.status == 0 and (":status", "200") in s.headers
    client.close()


def test_a_run_reports_cpu_of_a_process(programs):
    replica = light(programs)
    report = saturate(programs, replica.grpc, "--echo", 128, "--duration", 0.5, "--warm-up-ms", 100, "--connections", 5, "--saturate", 10,
                      "--cpu-of", replica.pid)
    assert report["ok"] > 1000 and report["cpu_us_per_call"] > 0 and report["own_cpu_us_per_call"] > 0
    assert report["own_writes_per_call"] < 0.5  # one write for all that a read brought
    r = programs.run("penstock-load", "--to", replica.grpc, "--echo", 1, "--saturate", 1, "--cpu-of", "me")
    assert r.returncode == 64 and "--cpu-of me" in r.stderr
