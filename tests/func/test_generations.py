"""100 config generations under load, every tenth invalid: no call fails, no connection closes, invalid ones change nothing."""
import json
import time

import fashion
import penstock
import pytest
from test_controller import digits, load, report, version, wait_ready

pytestmark = pytest.mark.skipif(not fashion.DATA.exists(), reason=f"{fashion.DATA} is not there (dataset-fashion-mnist)")

BROKEN = [lambda m: m["traffic"].update({"1": 1}), lambda m: m.update(trafic={}), lambda m: m["versions"]["1"].pop("command"),
          lambda m: m["scaling"].update(min=1001), lambda m: m.pop("model")]


def test_a_hundred_generations_under_load(programs, tmp_path):
    conf = digits({"1": 10000}, {"min": 1}, v1=version("fashion-1"), v2=version("fashion-2"))
    up = penstock.up(programs, tmp_path, conf, workers=2)
    wait_ready(up, 1)
    running = load(up, "--rate", 200, "--duration", 15, "--connections", 4)
    penstock.wait_for(lambda: up.counter("penstock_sessions_open") == 4, 10, "the load's connections")
    in_force, refused, slowest = 1, 0, 0
    for i in range(1, 101):
        model = {"model": "digits", **json.loads(json.dumps(conf["digits"]))}
        model["traffic"] = {"1": 10000 - i * 50, "2": i * 50}
        model["scaling"]["max"] = 2 + i % 3
        if i % 10 == 0:
            BROKEN[i // 10 % len(BROKEN)](model)
        began = time.monotonic()
        status, text = up.http("/v1/apply", body={"config": {"models": {"digits.json": model}}, "author": "test", "reason": f"step {i}",
                                                  "expected": in_force})
        answer = json.loads(text)
        if i % 10 == 0:
            assert status == 422 and answer["problems"] and answer["problems"][0].startswith("models/digits.json#/"), text
            refused += 1
        else:
            assert status == 200 and answer["generation"] == in_force + 1 and answer["applied"], text
            in_force += 1
            slowest = max(slowest, time.monotonic() - began)
        assert up.json("/v1/status")["generation"] == in_force
    assert (in_force, refused) == (91, 10)
    assert running.poll() is None, "the load ended before the generations did"
    assert up.counter("penstock_sessions_accepted_total") == up.counter("penstock_sessions_open") == 4
    r = report(running)
    assert r["failed"] == r["wrong"] == r["unfinished"] == 0 and r["ok"] == 3000, r
    assert r["versions"]["2"]["calls"] > 200
    assert slowest < 2
    history = up.json("/v1/history?limit=200")["history"]
    assert len(history) == 91 and history[0]["reason"] == "step 99"
