"""One of two replicas goes while 100 calls are in flight over 10 connections, with the relay's default settings: nobody
notices a drain or a replica that is not there, and a death costs the calls that it held, each UNAVAILABLE."""
import json
import signal
import time

import penstock
import pytest

ENGINES = ["native", "session"]


def replica(programs, address):
    return programs.start("penstock-model", "--listen", address, "--weights", penstock.weights_file("fashion-1"), "--service-ms", "5")


def load(programs, gateway, seconds):
    return programs.start("penstock-load", "--to", gateway.grpc, "--echo", 128, "--connections", 10, "--concurrency", 100,
                          "--duration", seconds, "--json", "--allow-fail", ready=False)


def report_of(load):
    load.wait_exit(60)
    return json.loads("\n".join(load.lines))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["drains", "dies", "missing"])
def test_one_of_two_replicas(programs, engine, how):
    addresses = [f"127.0.0.1:{penstock.free_port()}" for _ in range(2)]
    stays = replica(programs, addresses[0])
    goes = replica(programs, addresses[1]) if how != "missing" else None
    gateway = penstock.relay(programs, addresses, "--engine", engine)
    calls = load(programs, gateway, 2.5)
    penstock.wait_for(lambda: gateway.counter("penstock_attempts_started_total") > 100, 20, "calls")
    time.sleep(0.3)
    if how == "drains":
        goes.stop()
    elif how == "dies":
        goes.signal(signal.SIGSTOP)  # so that it dies with calls in its hands
        time.sleep(0.05)
        goes.kill()
    if goes:
        time.sleep(0.5)
        back = replica(programs, addresses[1])
    report = report_of(calls)
    assert report["wrong"] == report["unfinished"] == 0 and report["ok"] > 500, report
    assert set(report["status"]) <= {"OK", "UNAVAILABLE"}, report["status"]
    lost = gateway.counter("penstock_ended_upstream_lost_total")
    penstock.wait_for(lambda: gateway.counter("penstock_calls_total") == report["started"], 5, "each call counted")
    assert report["failed"] == gateway.counter("penstock_calls_total", code="UNAVAILABLE") == lost
    if how == "dies":
        assert report["failed"] <= 100, report
        assert all("broke its connection under the call" in e["message"] for e in report["errors"]), report["errors"]
    else:
        assert report["failed"] == 0, report["errors"]
    # No pause: the other replica goes on at once. (Alone it answers one call in 5 ms; the bound is the busy machine's.)
    assert report["latency_ms"]["max"] < 2000, report["latency_ms"]
    if goes:  # and the one that came back is used again
        before = gateway.counter("penstock_endpoint_calls_total", address=addresses[1])
        again = report_of(load(programs, gateway, 1))
        assert again["failed"] == 0, again["errors"]
        penstock.wait_for(lambda: gateway.counter("penstock_endpoint_calls_total", address=addresses[1]) > before, 5, "calls at it")
        assert back.process.poll() is None
    assert stays.process.poll() is None
