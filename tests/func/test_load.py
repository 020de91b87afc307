"""penstock-load against servers that are known to be right, wrong, slow or gone: it must report what happened."""
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import time

import fashion
import penstock
import pytest

UNARY, BIDI = "/test.Echo/Unary", "/test.Echo/Bidi"


def load(programs, to, *flags, code=0):
    r = programs.run("penstock-load", "--to", to, "--json", *flags)
    assert r.returncode == code, r
    return json.loads(r.stdout)


def test_closed_loop_counts_what_the_replica_saw(programs, stock):
    replica = stock()
    report = load(programs, replica.address, "--echo", 100, "--method", UNARY, "--calls", 300, "--concurrency", 8, "--connections", 2,
                  "--metadata", "x-tag=t", "--deadline-ms", 20000, "--request-ids")
    assert (report["started"], report["ok"], report["failed"], report["status"]) == (300, 300, 0, {"OK": 300})
    assert len(replica.calls) == 300 and all(m["x-tag"] == "t" for _, m in replica.calls)
    assert len({m["x-request-id"] for _, m in replica.calls}) == 300
    latency = report["latency_ms"]
    assert latency["count"] == 300 and 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99_9"] <= latency["max"]


@pytest.mark.parametrize("arrival", ["even", "poisson"])
def test_open_loop_keeps_its_rate(programs, stock, arrival):
    report = load(programs, stock().address, "--echo", 10, "--method", UNARY, "--rate", 100, "--duration", 2, "--arrival", arrival)
    assert report["loop"] == "open" and report["failed"] == 0
    assert report["started"] == 200 if arrival == "even" else 120 < report["started"] < 280  # 200 +- 5.6 deviations


def test_a_traced_rate(programs, stock, tmp_path):
    (tmp_path / "rate").write_text("# from second, calls per second\n0 50\n1 200\n1.5 0\n")
    report = load(programs, stock().address, "--echo", 10, "--method", UNARY, "--rate-file", tmp_path / "rate")
    assert report["started"] == 150 and report["ok"] == 150
    (tmp_path / "rate").write_text("0 50\n1 fast\n")
    r = programs.run("penstock-load", "--to", "127.0.0.1:1", "--echo", 1, "--rate-file", tmp_path / "rate")
    assert r.returncode == 64 and "rate:2" in r.stderr


def test_latency_counts_from_the_intended_start(programs):
    """One slot of 20 ms and a call every 10 ms: in 1 s the queue grows to about 50 calls, the last waits about 1 s. A
    generator that waits for answers before it sends (coordinated omission) would report 20 ms."""
    server = penstock.model_server(programs, "--service-ms", 20, "--slots", 1)
    report = load(programs, server.grpc, "--echo", 1, "--rate", 100, "--duration", 1)
    assert report["started"] == 100 and report["failed"] == 0
    assert report["latency_ms"]["max"] > 900 and 350 < report["latency_ms"]["p50"] < 800
    held = load(programs, server.grpc, "--echo", 1, "--rate", 100, "--duration", 1, "--max-in-flight", 1)
    assert held["started"] == 100 and held["latency_ms"]["max"] > 900  # also when the calls waited in the generator


def test_errors_are_counted_by_status(programs, stock):
    report = load(programs, stock().address, "--echo", 1, "--method", "/test.Echo/Rich", "--calls", 5, code=1)
    assert report["status"] == {"FAILED_PRECONDITION": 5} and report["failed"] == 5 and report["ok"] == 0
    assert report["errors"] == [{"status": "FAILED_PRECONDITION", "message": "not yet: 100% \u00e4\u2603", "count": 5}]
    load(programs, stock().address, "--echo", 1, "--method", "/test.Echo/Rich", "--calls", 5, "--allow-fail", code=0)


def test_an_answer_to_another_request_is_found(programs, stock):
    """Collect answers with sizes, not with the request: every call is OK and every answer wrong."""
    report = load(programs, stock().address, "--echo", 5, "--method", "/test.Echo/Collect", "--calls", 10, code=1)
    assert report["status"] == {"OK": 10} and report["wrong"] == 10 and report["failed"] == 10 and report["ok"] == 0


def test_a_deadline_ends_calls(programs):
    server = penstock.model_server(programs, "--service-ms", 5000)
    report = load(programs, server.grpc, "--echo", 1, "--calls", 3, "--deadline-ms", 100, code=1)
    assert report["status"] == {"DEADLINE_EXCEEDED": 3} and report["elapsed_s"] < 3


def test_calls_that_never_end_are_unfinished(programs):
    server = penstock.model_server(programs, "--service-ms", 60000)
    report = load(programs, server.grpc, "--echo", 1, "--calls", 3, "--concurrency", 3, "--drain-ms", 100, code=1)
    assert report["unfinished"] == 3 and report["ok"] == 0


@pytest.mark.parametrize("flags", [["--rate", 300], ["--concurrency", 8], ["--stream", "--concurrency", 8], ["--stream", "--rate", 300]],
                         ids=lambda f: "".join(str(x) for x in f))
def test_a_server_that_dies_and_comes_back(programs, flags):
    """Calls fail while it is gone and succeed again after; all are counted."""
    port = penstock.free_port()
    server = penstock.model_server(programs, listen=f"127.0.0.1:{port}")
    client = programs.start("penstock-load", "--to", server.grpc, "--echo", 10, "--duration", 3, "--json", *flags, ready=False)
    penstock.wait_for(lambda: penstock.call(server.grpc, "/grpc.health.v1.Health/Check", b"").code == "OK")
    time.sleep(0.5)
    server.kill()
    time.sleep(0.3)
    penstock.model_server(programs, listen=f"127.0.0.1:{port}")
    client.expect_exit = {1}
    assert client.wait_exit() == 1
    report = json.loads(client.lines[-1])
    assert report["started"] == report["ok"] + report["failed"] and report["unfinished"] == 0
    assert report["failed"] == report["status"]["UNAVAILABLE"] > 0 and report["ok"] > 200
    assert report["elapsed_s"] > 2.5  # it went on after the death


def test_a_signal_ends_it_with_the_report(programs, stock):
    client = programs.start("penstock-load", "--to", stock().address, "--echo", 10, "--method", UNARY, "--duration", 600, "--json", ready=False)
    time.sleep(0.5)
    client.signal(signal.SIGINT)
    assert client.wait_exit(10) == 0
    report = json.loads(client.lines[-1])
    assert report["ok"] == report["started"] > 0


def test_progress_is_for_terminals_only(programs, stock):
    to = stock().address
    argv = [penstock.binary("penstock-load"), "--to", to, "--echo", "1", "--method", UNARY, "--rate", "20", "--duration", "2.5"]
    ours, theirs = pty.openpty()
    run = subprocess.run(argv, stdout=subprocess.PIPE, stderr=theirs, timeout=30)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(ours, 4096):
            seen += chunk
    os.close(ours)
    assert run.returncode == 0 and re.search(rb"\d+ ok/s", seen) and b"\x1b[K" not in run.stdout
    assert programs.run(*argv).stderr == ""


def test_no_connection(programs):
    r = programs.run("penstock-load", "--to", f"127.0.0.1:{penstock.free_port()}", "--echo", 1, "--connect-ms", 200)
    assert r.returncode == 1 and "no connection" in r.stderr


def test_message_file(programs, stock, tmp_path):
    (tmp_path / "m").write_bytes(b"\x00\x01raw")
    (tmp_path / "other").write_bytes(b"else")
    to, flags = stock().address, ["--message", tmp_path / "m", "--method", UNARY, "--calls", 3]
    assert load(programs, to, *flags, "--expect", "same")["ok"] == 3
    assert load(programs, to, *flags, "--expect", tmp_path / "m")["ok"] == 3
    assert load(programs, to, *flags, "--expect", tmp_path / "other", code=1)["wrong"] == 3


def test_streams(programs, stock):
    """Four streams, closed and opened again each 10 messages: each message is a call with its answer."""
    replica = stock()
    report = load(programs, replica.address, "--echo", 50, "--method", BIDI, "--streams", 4, "--connections", 2, "--concurrency", 8,
                  "--messages-per-stream", 10, "--calls", 200)
    assert report["ok"] == 200 and report["failed"] == 0 and report["messages"] == 200
    assert len(replica.calls) >= 20


@pytest.mark.skipif(not fashion.DATA.exists(), reason=f"{fashion.DATA} is not there (dataset-fashion-mnist)")
@pytest.mark.parametrize("flags", [[], ["--typed"], ["--stream"], ["--protocol", "tf"], ["--protocol", "tf", "--typed"], ["--threads", "2"]],
                         ids=lambda f: "".join(f) or "unary")
def test_versions_replicas_and_accuracy(programs, flags):
    """The accuracy of 1,000 images in batches of 10 is that of numpy on the weights file."""
    server = programs.start("penstock-model", "--listen", "127.0.0.1:0", "--replica", "r-1", "--weights", "3=" + penstock.weights_file("fashion-2"))
    report = load(programs, server.grpc, "--model", "digits", "--batch", 10, "--images", 1000, "--calls", 100, "--concurrency", 4, *flags)
    images, labels = fashion.test_set(1000)
    right = int((fashion.predict(fashion.read_weights(penstock.weights_file("fashion-2")), images).argmax(1) == labels).sum())
    threads = 2 if "--threads" in flags else 1  # each thread begins with the first image
    version = report["versions"]["3"]
    assert report["ok"] == 100 and version["calls"] == 100 and version["share"] == 1 and version["images"] == 1000
    assert report["replicas"] == {"r-1": {"calls": 100, "share": 1, "first_us": report["replicas"]["r-1"]["first_us"],
                                          "last_us": report["replicas"]["r-1"]["last_us"]}}
    if threads == 1:
        assert version["correct"] == right


def openssl(folder, *args):
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)


def test_tls_and_mtls_through_the_relay(programs, stock, tmp_path):
    """The relay terminates TLS with a certificate of our own authority and wants one of it from the client."""
    openssl(tmp_path, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
            "-subj", "/CN=test ca", "-days", "2")
    for name, san in (("server", "DNS:gate.test"), ("client", "DNS:client.test")):
        openssl(tmp_path, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}", "-addext", f"subjectAltName={san}")
        openssl(tmp_path, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-copy_extensions", "copy", "-out", f"{name}.pem")
    relay = penstock.relay(programs, [stock().address], "--cert", tmp_path / "server.pem", "--key", tmp_path / "server.key",
                           "--client-ca", tmp_path / "ca.pem")
    echo = ["--echo", 100, "--method", UNARY, "--calls", 50, "--concurrency", 4]
    ours = ["--cert", tmp_path / "client.pem", "--key", tmp_path / "client.key"]
    ca = ["--ca", tmp_path / "ca.pem", "--tls-host", "gate.test"]
    assert load(programs, relay.grpc, *echo, *ca, *ours)["ok"] == 50
    assert load(programs, relay.grpc, *echo, "--insecure", *ours)["ok"] == 50
    for flags in (["--ca", tmp_path / "ca.pem", "--tls-host", "other.test", *ours],  # not that name
                  ["--tls", "--tls-host", "gate.test", *ours], ca):  # not that authority; no certificate of ours
        r = programs.run("penstock-load", "--to", relay.grpc, *echo, *flags, "--connect-ms", 500)
        assert r.returncode == 1, r
    r = programs.run("penstock-load", "--to", relay.grpc, *echo, "--cert", tmp_path / "client.pem")
    assert r.returncode == 64 and "--key" in r.stderr


def test_help_and_usage(programs):
    r = programs.run("penstock-load", "--help")
    assert r.returncode == 0 and "--max-in-flight" in r.stdout and r.stderr == ""
    for flags, word in (([], "--to"), (["--to", "127.0.0.1:1"], "one of --model"), (["--to", "127.0.0.1:1", "--echo", "1", "--rate", "0"], "--rate 0"),
                        (["--to", "127.0.0.1:1", "--echo", "1", "--metadata", "A=b"], "A=b"), (["--to", "127.0.0.1:1", "--message", "/none"], "--method"),
                        (["--to", "127.0.0.1:1", "--model", "m", "--protocol", "x"], "x")):
        r = programs.run("penstock-load", *flags)
        assert r.returncode == 64 and word in r.stderr, (flags, r)
