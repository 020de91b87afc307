"""`penstock up` and its verbs: replicas come, scale, crash and go; generations, rollback, history; nothing is lost on the way."""
import datetime
import json
import os
import signal
import subprocess
import time

import fashion
import numpy
import penstock
import pytest

pytestmark = pytest.mark.skipif(not fashion.DATA.exists(), reason=f"{fashion.DATA} is not there (dataset-fashion-mnist)")

QUICK = {"stable_window_s": 6, "burst_window_s": 2, "scale_down_delay_s": 1, "warm_s": 0}


def version(weights="fashion-1", *flags, **conf):
    return {"command": [penstock.binary("penstock-model"), "--weights", penstock.weights_file(weights), "--name", "{model}", "--version",
                        "{version}", "--listen", "{address}", *flags], "cpu_milli": 100, "memory_mib": 64, **conf}


def digits(traffic, scaling=None, **versions):
    """Versions v1=..., v2=... and their weights."""
    return {"digits": {"versions": {k[1:]: v for k, v in versions.items()}, "traffic": traffic,
                       "scaling": scaling or {"min": 1}, "limits": {"idempotent": True}}}


def replicas(up, **want):
    """Replicas of /v1/replicas with these values."""
    return [r for r in up.json("/v1/replicas")["replicas"] if all(r[k] == v for k, v in want.items())]


def wait_ready(up, n, timeout=30, **want):
    penstock.wait_for(lambda: len(replicas(up, state="ready", **want)) == n, timeout, f"{n} ready replicas {want}")


def ctl(programs, up, *argv, code=0):
    """A verb against this process: its JSON answer; code: the wanted exit status (then the text of stderr when not 0)."""
    r = programs.run("penstock", *argv, "--admin", up.admin, "--json")
    assert r.returncode == code, f"{argv}: exit {r.returncode}\n{r.stdout}{r.stderr}"
    return json.loads(r.stdout) if code == 0 else r.stderr


def load(up, *flags):
    """penstock-load in the background; .wait() gives its report."""
    argv = [penstock.binary("penstock-load"), "--to", up.grpc, "--model", "digits", "--json", "--allow-fail", *map(str, flags)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def report(running, timeout=60):
    out, err = running.communicate(timeout=timeout)
    assert out, err
    return json.loads(out)


def test_load_adds_replicas_and_its_end_takes_them_away(programs, tmp_path):
    """6 calls at a time, 2 slots and 30 ms each: 1 replica becomes 3, then 1 again; no call is lost."""
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, {"min": 1, "max": 3, "target_inflight": 2, **QUICK},
                                                v1=version("fashion-1", "--service-ms", "30", slots=2)))
    wait_ready(up, 1)
    running = load(up, "--concurrency", 6, "--duration", 12)
    wait_ready(up, 3)
    r = report(running)
    assert r["failed"] == r["wrong"] == r["unfinished"] == 0 and r["ok"] > 500
    assert len(r["replicas"]) == 3
    wait_ready(up, 1, 40)
    penstock.wait_for(lambda: len(replicas(up)) == 1, 20, "the others gone")
    said = ctl(programs, up, "why", "digits")["decisions"]
    assert any(d["what"] == "scale" and d["text"].startswith("1 -> ") for d in said), said
    assert any(d["what"] == "replica_drain" and "are enough" in d["text"] for d in said), said


def test_a_version_without_replicas_wakes_for_a_call_and_sleeps_again(programs, tmp_path):
    """min 0: the first call is held while a replica starts; a version without traffic wakes for who asks for it by name."""
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, {"min": 0, "max": 2, "idle_s": 2, **QUICK}, v1=version("fashion-1"),
                                                v2=version("fashion-2")))
    assert up.json("/v1/replicas")["replicas"] == []
    r = report(load(up, "--calls", 1))
    assert r["ok"] == 1 and r["replicas"]["digits/1#1"]["calls"] == 1
    r = report(load(up, "--calls", 3, "--version", "2"))
    assert r["ok"] == 3 and r["versions"]["2"]["calls"] == 3
    penstock.wait_for(lambda: not replicas(up), 20, "no replica left")
    assert any(d["what"] == "scale" and d["text"].startswith("1 -> 0 replicas (idle)") for d in ctl(programs, up, "why", "digits")["decisions"])


def test_a_replica_that_took_long_is_used_as_soon_as_it_is_ready(programs, tmp_path):
    """The second replica refuses connections for 6 s while it starts, and the gateway's back-off by then is seconds: its first
    call comes at once, and none fails for that."""
    start = f'mkdir {tmp_path}/first 2>/dev/null || sleep 6; exec "$@"'
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, {"min": 2}, v1={
        "command": ["/bin/sh", "-c", start, "sh", *version("fashion-1")["command"]]}))
    wait_ready(up, 1)
    running = load(up, "--rate", 100, "--duration", 9)
    wait_ready(up, 2)
    ready = up.events("replica_ready")[1]
    r = report(running)
    assert r["ok"] == 900 and len(r["replicas"]) == 2
    second = ready["msg"].split()[0]
    when = datetime.datetime.fromisoformat(ready["ts"].replace("Z", "+00:00")).timestamp()
    assert r["replicas"][second]["first_us"] / 1e6 < when + 0.5
    assert not up.events("attempt_failed") and not up.events("replica_out")


def test_sighup_takes_over_the_folder_and_a_bad_one_changes_nothing(programs, tmp_path):
    conf = digits({"1": 10000}, v1=version("fashion-1"), v2=version("fashion-2"))
    up = penstock.up(programs, tmp_path, conf)
    (tmp_path / "config/models/bad.json").write_text("{")
    up.signal(signal.SIGHUP)
    refused = up.wait_event("config_refused")
    assert refused["problems"] == "1" and "models/bad.json:1:1" in up.wait_event("config_problem")["msg"]
    assert up.json("/v1/config")["generation"] == 1
    (tmp_path / "config/models/bad.json").unlink()
    penstock.write_models(tmp_path / "config", digits({"2": 10000}, v1=version("fashion-1"), v2=version("fashion-2")))
    up.signal(signal.SIGHUP)
    penstock.wait_for(lambda: up.json("/v1/config")["generation"] == 2, 10, "generation 2")
    assert up.json("/v1/history")["history"][0]["reason"] == "SIGHUP"


def test_rollback_of_a_bad_version_takes_under_a_second_and_loses_nothing(programs, tmp_path):
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, v1=version("fashion-1"), v2=version("fashion-bad")))
    wait_ready(up, 1)
    running = load(up, "--rate", 100, "--duration", 10)
    ctl(programs, up, "traffic", "digits", "1=5000,2=5000", "--reason", "trial")
    wait_ready(up, 2)
    penstock.wait_for(lambda: up.counter("penstock_model_calls_total", version="2") > 50
                      or [v["finished"] for m in up.json("/v1/status")["models"] for v in m["versions"] if v["version"] == "2"][0] > 50,
                      10, "calls of version 2")
    began = time.time()
    answer = ctl(programs, up, "rollback", "digits", "--reason", "wrong labels")
    ended = time.time()
    r = report(running)
    assert ended - began < 1 and answer["took_us"] < 1e6 and answer["applied"]
    assert r["failed"] == r["wrong"] == r["unfinished"] == 0 and r["ok"] == 1000
    assert r["versions"]["2"]["calls"] > 50 and r["versions"]["2"]["accuracy"] < 0.05
    assert r["versions"]["2"]["last_us"] / 1e6 < ended + 0.05  # not one more once the verb had returned
    assert r["versions"]["1"]["last_us"] / 1e6 > ended
    history = ctl(programs, up, "history")["history"]
    assert [(g["generation"], g["reason"]) for g in history[:2]] == [(3, "wrong labels"), (2, "trial")]
    assert "models/digits.json#/traffic/1: 5000 -> 10000" in history[0]["diff"]
    assert replicas(up, version="2", state="ready")  # kept warm: the next rollback would want it


def test_state_outlives_the_process(programs, tmp_path):
    """Generation, history and numbers after a restart without a config folder."""
    conf = digits({"1": 10000}, v1=version("fashion-1"), v2=version("fashion-2"))
    up = penstock.up(programs, tmp_path, conf)
    ctl(programs, up, "traffic", "digits", "1=1,2=9999", "--author", "ann", "--reason", "more of 2")
    before = up.json("/v1/config")
    up.stop()
    file = json.loads((tmp_path / "penstock.json").read_text())
    (tmp_path / "penstock.json").write_text(json.dumps({**file, "models": ""}))
    again = programs.start("penstock", "up", "--config", tmp_path / "penstock.json")
    assert again.json("/v1/config") == before
    history = ctl(programs, again, "history")["history"]
    assert [(g["generation"], g["author"]) for g in history] == [(2, "ann"), (1, "penstock up")]
    wait_ready(again, 1, version="2")
    assert ctl(programs, again, "rollback", "digits")["generation"] == 3


def test_a_killed_replica_is_started_again_and_its_calls_go_elsewhere(programs, tmp_path):
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, {"min": 2}, v1=version("fashion-1", "--service-ms", "5")))
    wait_ready(up, 2)
    running = load(up, "--rate", 100, "--duration", 6)
    victim = replicas(up)[0]
    time.sleep(1)  # calls are under way
    os.kill(victim["pid"], signal.SIGKILL)
    penstock.wait_for(lambda: len(replicas(up, state="ready")) == 2 and not replicas(up, replica=victim["replica"]), 20, "its successor")
    r = report(running)
    assert r["failed"] == r["unfinished"] == 0 and r["ok"] == 600  # the model is idempotent
    assert up.events("replica_crash", model="digits")[0]["msg"].startswith(f"{victim['replica']} ended by itself while ready: killed by")


def test_a_command_that_always_fails_is_tried_ever_more_slowly(programs, tmp_path):
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, v1={"command": ["/bin/false"]}))
    penstock.wait_for(lambda: len(up.events("replica_crash")) >= 4, 30, "four crashes")
    waits = [float(e["msg"].split("next start in ")[1].split()[0]) for e in up.events("replica_crash")[:4]]
    assert waits == [0.25, 0.5, 1.0, 2.0]
    answer = penstock.call(up.grpc, "/inference.GRPCInferenceService/ModelReady", b"\x0a\x06digits")
    assert answer.code == "OK" and answer.messages == [b""]  # not ready, said by the gateway itself


def test_a_command_that_is_not_there_is_said_with_its_name(programs, tmp_path):
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, v1={"command": ["/no/such/model-server"]}))
    penstock.wait_for(lambda: "/no/such/model-server" in json.dumps(ctl(programs, up, "why", "digits")), 10, "the name in `why`")


def test_running_calls_end_before_their_replica_does(programs, tmp_path):
    """Calls of 4 s run on version 1 while it loses its traffic and then leaves the config, and nothing is kept warm: they are
    answered, then the replica stops."""
    conf = {"min": 1, **QUICK}
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, conf, v1=version("fashion-1", "--service-ms", "4000"), v2=version("fashion-2")))
    wait_ready(up, 1)
    running = load(up, "--calls", 4, "--concurrency", 4)
    penstock.wait_for(lambda: sum(r["in_flight"] for r in replicas(up)) == 4, 10, "four calls at the replica")
    ctl(programs, up, "traffic", "digits", "2=10000")
    up.wait_event("traffic_moved", version="2")
    tree = penstock.write_models(tmp_path / "next", digits({"2": 10000}, conf, v2=version("fashion-2")))
    ctl(programs, up, "apply", tree)
    penstock.wait_for(lambda: replicas(up, version="1", state="draining"), 10, "the drain")
    assert running.poll() is None
    r = report(running)
    assert r["ok"] == 4 and r["versions"]["1"]["calls"] == 4
    # A model server that hears SIGTERM sometimes stays until SIGKILL, 10 s later; it has no calls then.
    penstock.wait_for(lambda: not replicas(up, version="1"), 25, "version 1 gone")
    assert not up.events("replica_drain_limit")


def test_a_switch_to_a_cold_version_makes_no_call_wait(programs, tmp_path):
    """Version 2 takes 3 s to start; calls have 1 s: version 1 serves until then, then all move; a version that crashes gets none."""
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, {"min": 1}, v1=version("fashion-1"), v2=version("fashion-2", "--start-delay-ms", "3000"),
                                                v3={"command": ["/bin/false"]}))
    wait_ready(up, 1)
    running = load(up, "--rate", 100, "--duration", 9, "--deadline-ms", 1000)
    answer = ctl(programs, up, "traffic", "digits", "2=10000")
    assert answer["applied"] and answer["held"] == [{"model": "digits", "version": "2", "weight": 10000, "serves": 0}]
    moved = up.wait_event("traffic_moved", 20, version="2")
    assert float(up.events("replica_ready", version="2")[0]["msg"].split("after ")[1].split()[0]) > 2.5 and moved
    ctl(programs, up, "traffic", "digits", "2=1,3=9999")
    r = report(running)
    assert r["failed"] == r["wrong"] == r["unfinished"] == 0 and r["ok"] == 900 and set(r["versions"]) == {"1", "2"}
    assert r["versions"]["1"]["last_us"] < r["versions"]["2"]["last_us"] and r["versions"]["2"]["calls"] > 100
    weights = {v["version"]: v["weight"] for v in up.json("/v1/status")["models"][0]["versions"]}
    assert weights == {"1": 0, "2": 10000, "3": 0}


def test_a_version_with_traffic_cannot_leave_but_a_rollback_takes_it_away(programs, tmp_path):
    one, both = version("fashion-1"), {"v1": version("fashion-1"), "v2": version("fashion-2")}
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, v1=one))
    tree = penstock.write_models(tmp_path / "next", digits({"2": 10000}, v2=both["v2"]))
    assert ("models/digits.json#/versions/1: is gone, but has 10000 parts of the traffic in generation 1"
            in ctl(programs, up, "apply", tree, code=78))
    penstock.write_models(tree, digits({"2": 10000}, **both))
    assert ctl(programs, up, "apply", tree)["generation"] == 2
    assert ctl(programs, up, "rollback", "digits")["generation"] == 3
    wait_ready(up, 1, version="1")


def test_shares_are_placed_on_cards_and_a_full_cluster_says_so(programs, tmp_path):
    nodes = {"gpu-1": {"cpu_milli": 4000, "memory_mib": 8192, "cards": [{"id": "7", "model": "T4", "memory_mib": 16000}]}}
    gpu = {"milli": 400, "memory_mib": 5000, "models": ["T4"]}
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, {"min": 3}, v1=version("fashion-1", gpu=gpu)), nodes=nodes)
    wait_ready(up, 2)
    for r in replicas(up):
        assert (r["node"], r["cards"], r["gpu_milli"], r["gpu_memory_mib"]) == ("gpu-1", ["7"], 400, 5000)
        env = dict(e.split("=", 1) for e in open(f"/proc/{r['pid']}/environ").read().split("\0") if "=" in e)
        assert env["CUDA_VISIBLE_DEVICES"] == "7" and env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "40"
        assert (env["PENSTOCK_MODEL"], env["PENSTOCK_VERSION"], env["PENSTOCK_REPLICA"]) == ("digits", "1", r["replica"])
    card = ctl(programs, up, "nodes")["nodes"][0]["cards"][0]
    assert (card["used_milli"], card["used_memory_mib"], card["users"]) == (800, 10000, 2)
    says = [v for v in up.json("/v1/replicas")["versions"] if v["version"] == "1"][0]
    assert says["desired"] == 3 and "gpu-1" in says["no_room"]
    assert any(d["what"] == "no_room" for d in ctl(programs, up, "why", "digits")["decisions"])


def test_another_command_replaces_replicas_under_load(programs, tmp_path):
    conf = digits({"1": 10000}, {"min": 2}, v1=version("fashion-1"))
    up = penstock.up(programs, tmp_path, conf)
    wait_ready(up, 2)
    old = {r["replica"] for r in replicas(up)}
    running = load(up, "--rate", 100, "--duration", 6)
    time.sleep(1)
    penstock.write_models(tmp_path / "config", digits({"1": 10000}, {"min": 2}, v1=version("fashion-2")))
    ctl(programs, up, "apply", tmp_path / "config")
    penstock.wait_for(lambda: len(replicas(up, state="ready")) == 2 and not old & {r["replica"] for r in replicas(up)}, 30, "successors")
    r = report(running)
    assert r["failed"] == r["unfinished"] == 0 and r["ok"] == 600


def test_apply_compares_the_number_and_refuses_whole(programs, tmp_path):
    conf = digits({"1": 10000}, v1=version("fashion-1"), v2=version("fashion-2"))
    up = penstock.up(programs, tmp_path, conf)
    tree = tmp_path / "next"
    penstock.write_models(tree, digits({"2": 10000}, v1=version("fashion-1"), v2=version("fashion-2")))
    assert "generation 1 is in force" in ctl(programs, up, "apply", tree, "--expect", 7, code=1)
    assert ctl(programs, up, "diff", tree)["diff"] == 'models/digits.json#/traffic/1: - 10000\nmodels/digits.json#/traffic/2: + 10000\n'
    assert ctl(programs, up, "apply", tree, "--expect", 1)["generation"] == 2
    assert ctl(programs, up, "apply", tree)["changed"] is False
    assert ctl(programs, up, "diff", tree) == {"changed": False, "diff": ""}
    assert "#/traffic: the weights sum to 9999" in ctl(programs, up, "traffic", "digits", "1=9999", code=78)
    assert "there is no model nobody" in ctl(programs, up, "traffic", "nobody", "1=10000", code=1)
    assert "no earlier generation has another config of model nobody" in ctl(programs, up, "rollback", "nobody", code=1)
    assert "there is no generation 9" in ctl(programs, up, "rollback", "digits", 9, code=1)
    penstock.write_models(tree, {"digits": {"versions": {"1": {}}}})
    assert "models/digits.json#/versions/1: has neither command nor endpoints" in ctl(programs, up, "apply", tree, code=78)
    status, text = up.http("/v1/apply", body={"config": {"models": {"x.json": {"model": 7}}}, "reasn": ""})
    assert status == 422 and json.loads(text)["problems"] == ["request#/reasn: unknown key; nearest: reason"]
    status, text = up.http("/v1/apply", body={"config": {"models": {"x.json": {"model": 7}}}})
    assert status == 422 and "models/x.json#/model: 7 is not a string" in json.loads(text)["problems"]
    assert up.json("/v1/config")["generation"] == 2


def test_predict_asks_and_shows(programs, tmp_path):
    """Zeros by default, the bytes of a file when given: the labels are those of the real model."""
    images, labels = fashion.test_set(1)
    (tmp_path / "image.raw").write_bytes(images[0].tobytes())
    up = penstock.up(programs, tmp_path, digits({"1": 10000}, v1=version("fashion-3"), v2=version("fashion-2")))
    wait_ready(up, 1)
    probabilities = fashion.predict(fashion.read_weights(penstock.weights_file("fashion-3")), images)[0]
    r = programs.run("penstock", "predict", "digits", "--to", up.grpc, "--input", f"image={tmp_path}/image.raw")
    assert r.returncode == 0, r.stderr
    answer = json.loads(r.stdout)
    outputs = {o["name"]: o for o in answer["outputs"]}
    assert (answer["model"], answer["version"], answer["replica"]) == ("digits", "1", "digits/1#1")
    assert outputs["label"]["first_values"] == [numpy.argmax(probabilities)]
    assert numpy.allclose(outputs["probs"]["first_values"], probabilities, atol=1e-4)
    r = programs.run("penstock", "predict", "digits", "--to", up.grpc)
    assert r.returncode == 0 and json.loads(r.stdout)["outputs"][0]["shape"][0] == 1
    r = programs.run("penstock", "predict", "nobody", "--to", up.grpc)
    assert r.returncode == 1 and "NOT_FOUND" in r.stderr and "nobody" in r.stderr
    r = programs.run("penstock", "predict", "digits", "--to", up.grpc, "--input", "picture=/dev/null")
    assert r.returncode == 1 and "the model's inputs are: image" in r.stderr


def test_nobody_at_the_admin_address(programs):
    r = programs.run("penstock", "status", "--admin", f"127.0.0.1:{penstock.free_port()}")
    assert r.returncode == 69 and "no answer from the admin address" in r.stderr


def test_a_second_process_on_the_same_state_is_refused(programs, tmp_path):
    conf = digits({"1": 10000}, v1=version("fashion-1"))
    penstock.up(programs, tmp_path, conf)
    r = programs.run("penstock", "up", "--config", tmp_path / "penstock.json")
    assert r.returncode == 1 and "another process has this state folder" in r.stderr


def test_a_bad_config_at_the_start_is_told_whole(programs, tmp_path):
    path = penstock.write_config(tmp_path, {"a": {"versions": {"1": {}}}, "b": {"protocol": "http", "endpoints": ["b:1"]}})
    r = programs.run("penstock", "up", "--config", path)
    assert r.returncode == 78
    assert "models/a.json#/versions/1: has neither" in r.stderr and "models/b.json#/protocol:" in r.stderr
