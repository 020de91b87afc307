"""Batch jobs with the real binary: gangs of shell tasks, their surroundings, retries, cancel, logs, and serving first."""
import json
import os
import pathlib
import signal

import pytest

import penstock

NODES = {"box": {"cpu_milli": 8000, "memory_mib": 8192,
                 "cards": [{"id": f"card-{i}", "model": "T4", "memory_mib": 16384} for i in range(3)]}}


# A config has at least one model; nobody is called here.
ELSEWHERE = {"elsewhere": {"versions": {"1": {"endpoints": ["127.0.0.1:1"]}}, "traffic": {"1": 10000}}}


def shell(script, role="worker", count=1, **more):
    return {"role": role, "count": count, "command": ["/bin/sh", "-c", script], "cpu_milli": 100, "memory_mib": 16, **more}


def whole_card(script, count=1, **more):
    return shell(script, count=count, gpu={"milli": 1000}, **more)


class Jobs:
    """`penstock jobs` against one `penstock up`."""

    def __init__(self, programs, folder, models=None, **kw):
        self.programs, self.folder = programs, pathlib.Path(folder)
        self.up = penstock.up(programs, folder, models or ELSEWHERE, nodes=NODES, **kw)

    def verb(self, *argv, **kw):
        return self.programs.run("penstock", "jobs", *argv, "--admin", self.up.admin, **kw)

    def file(self, name, *tasks, **more):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({"job": name, "tasks": tasks, **more}))
        return path

    def submit(self, name, *tasks, **more):
        r = self.verb("submit", self.file(name, *tasks, **more))
        assert r.returncode == 0, r.stderr
        return r.stdout

    def show(self, name):
        return self.up.json(f"/v1/jobs/{name}")

    def wait(self, name, state, timeout=20):
        def look():
            job = self.show(name)
            assert job["state"] == state or not job["ended"], f"{name} {job['state']}: {job['why']}"
            return job if job["state"] == state else None
        return penstock.wait_for(look, timeout, f"job {name} {state}")

    def log(self, name, task):
        r = self.verb("logs", name, task)
        assert r.returncode == 0, r.stderr
        return r.stdout


@pytest.fixture
def jobs(programs, tmp_path):
    return Jobs(programs, tmp_path)


def test_tasks_of_a_gang_know_each_other_and_get_their_cards(jobs):
    jobs.submit("train", shell("echo serving; sleep 1000", role="ps"),
                whole_card("echo {rank} {role} {index} {address} {cards}; echo $RANK $WORLD_SIZE $PENSTOCK_JOB $PENSTOCK_TASK "
                           "$MASTER_ADDR:$MASTER_PORT $CUDA_VISIBLE_DEVICES $COLOUR; echo $TF_CONFIG", count=2, env={"COLOUR": "blue"}),
                gang=True, grace_ms=2000)
    job = jobs.wait("train", "succeeded")
    ps, w0, w1 = job["tasks"]
    assert ps["state"] == "stopped"  # a service: ended by us when the workers had succeeded
    assert {tuple(w0["cards"]), tuple(w1["cards"])} == {("card-0",), ("card-1",)}
    for rank, task in ((1, w0), (2, w1)):
        first, second, config = jobs.log("train", task["task"]).splitlines()
        assert first == f"{rank} worker {rank - 1} {task['address']} {task['cards'][0]}"
        assert second == f"{rank} 3 train {task['task']} {ps['address']} {task['cards'][0]} blue"
        assert json.loads(config) == {"cluster": {"ps": [ps["address"]], "worker": [w0["address"], w1["address"]]},
                                      "task": {"type": "worker", "index": rank - 1}}
    assert jobs.log("train", "ps-0") == "serving\n"


def test_a_gang_waits_whole_says_why_and_starts_when_it_has_room(jobs):
    release = jobs.folder / "release"
    jobs.submit("first", whole_card(f"while [ ! -e {release} ]; do sleep 0.05; done", count=2), gang=True)
    jobs.wait("first", "running")
    assert "waiting" in jobs.submit("second", whole_card("echo together", count=3), gang=True)
    jobs.submit("third", whole_card("true"))  # would fit, but comes after in its queue
    second, third = jobs.show("second"), jobs.show("third")
    assert second["state"] == "waiting" and "card-0 (T4) 0 of 1000 milli free" in second["why"]
    assert all(t["state"] == "pending" and t["cards"] == [] for t in second["tasks"])
    assert third["state"] == "queued" and third["why"].startswith("behind job second in queue default")
    assert "it would delay job second" in third["why"]
    why = jobs.verb("why", "second").stdout
    assert why.startswith("job second waiting: waits for room: task ") and "asks for 100 mCPU, 16 MiB, 1 whole card" in why
    release.touch()
    done = jobs.wait("second", "succeeded")
    assert done["waited_us"] > 0
    jobs.wait("third", "succeeded")
    started = [e["job"] for e in jobs.up.events("job_state", state="starting")]
    assert started == ["first", "second", "third"]


def test_a_suspended_job_gives_its_cards_back_and_starts_again_when_resumed(jobs):
    jobs.submit("long", whole_card("echo try $PENSTOCK_TRY; sleep 1000", count=3), gang=True, grace_ms=2000)
    jobs.wait("long", "running")
    assert jobs.verb("suspend", "long").returncode == 0
    jobs.wait("long", "suspended")
    jobs.submit("short", whole_card("true", count=3), gang=True)
    jobs.wait("short", "succeeded")
    late = jobs.verb("resume", "short")
    assert late.returncode == 1 and "job short has ended: succeeded" in late.stderr
    assert jobs.verb("resume", "long").returncode == 0
    jobs.wait("long", "running")
    penstock.wait_for(lambda: jobs.log("long", "worker-0") == "try 1\ntry 2\n")


def test_a_gang_of_higher_priority_ends_a_lower_one_and_queues_shows_it(programs, tmp_path):
    jobs = Jobs(programs, tmp_path, queues={"ads": {"weight": 2, "gpu_milli_deserved": 2000, "preempt": True, "min_run_s": 0}})
    jobs.submit("low", whole_card("sleep 1000", count=2), gang=True, queue="ads", grace_ms=2000)
    jobs.wait("low", "running")
    jobs.submit("high", whole_card("sleep 1000", count=3), gang=True, queue="ads", priority=5)
    jobs.wait("high", "running")
    low = jobs.wait("low", "waiting")
    assert low["evictions"] == 1 and low["failures"] == 0
    table = programs.run("penstock", "queues", "--admin", jobs.up.admin).stdout.splitlines()
    assert table[0].split() == ["QUEUE", "WEIGHT", "CARDS", "DESERVED", "CAP", "RUNNING", "WAITING", "SUSPENDED", "LONGEST", "WAIT"]
    assert table[1].split()[:8] == ["ads", "2", "3.000", "2.000", "-", "1", "1", "0"]
    jobs.verb("cancel", "high")
    jobs.wait("low", "running")


def test_a_failed_task_stops_its_gang_and_all_start_again(jobs):
    up = jobs.folder / "up"
    up.mkdir()
    jobs.submit("flaky", shell(f"echo try $PENSTOCK_TRY; [ $PENSTOCK_TRY = 2 ] && exit 0; touch {up}/{{rank}}; "
                               f"[ {{rank}} = 1 ] || sleep 1000; until [ -e {up}/0 -a -e {up}/2 ]; do sleep 0.01; done; exit 9",
                               count=3), gang=True, retries=1, backoff_ms=20)
    job = jobs.wait("flaky", "succeeded")
    assert job["failures"] == 1
    assert [t["tries"] for t in job["tasks"]] == [2, 2, 2]
    for task in job["tasks"]:
        lines = jobs.log("flaky", task["task"]).splitlines()
        assert [line for line in lines if line.startswith("try")] == ["try 1", "try 2"]
    states = [e["state"] for e in jobs.up.events("job_state", job="flaky")]
    assert states[:6] == ["queued", "starting", "running", "stopping", "retrying", "queued"] and states[-1] == "succeeded"
    assert jobs.up.events("job_state", job="flaky", state="retrying")[0]["msg"] == "worker-1 failed (exit status 9), retry 1 of 1"


def test_a_job_without_retries_left_fails_and_submit_wait_says_so(jobs):
    r = jobs.verb("submit", "--wait", jobs.file("doomed", shell("echo broken >&2; exit 7")))
    assert r.returncode == 1
    assert "job doomed failed: worker-0 failed (exit status 7) after 0 of 0 retries" in r.stdout
    assert jobs.log("doomed", "worker-0") == "broken\n"
    assert jobs.verb("submit", "--wait", jobs.file("fine", shell("true"))).returncode == 0


def test_cancel_ends_processes_and_waiting_jobs(jobs):
    jobs.submit("long", whole_card("trap 'echo asked; exit 1' TERM; echo up; sleep 1000 & wait", count=3), gang=True)
    jobs.submit("behind", whole_card("true"))
    pids = [t["pid"] for t in jobs.wait("long", "running")["tasks"]]
    penstock.wait_for(lambda: jobs.verb("logs", "long").stdout.count("up\n") == 3)
    assert jobs.verb("cancel", "long").returncode == 0
    jobs.wait("long", "cancelled")
    assert jobs.log("long", "worker-2") == "up\nasked\n"
    for pid in pids:
        assert not os.path.exists(f"/proc/{pid}")
    jobs.wait("behind", "succeeded")
    again = jobs.verb("cancel", "long")
    assert again.returncode == 1 and "has ended: cancelled" in again.stderr


def test_list_and_errors(jobs):
    jobs.submit("a", shell("true"))
    jobs.wait("a", "succeeded")
    jobs.submit("b", shell("sleep 1000"), priority=3)
    jobs.wait("b", "running")
    lines = jobs.verb("list").stdout.splitlines()
    assert lines[0].split() == ["JOB", "STATE", "QUEUE", "PRIORITY", "RUNNING", "AGE", "WHY"]
    assert lines[1].split()[:5] == ["a", "succeeded", "default", "0", "0/1"]
    assert lines[2].split()[:5] == ["b", "running", "default", "3", "1/1"]
    assert [j["job"] for j in json.loads(jobs.verb("list", "--json").stdout)["jobs"]] == ["a", "b"]

    twice = jobs.verb("submit", jobs.file("b", shell("true")))
    assert twice.returncode == 1 and "a job b is there and has not ended" in twice.stderr
    unknown = jobs.verb("show", "nobody")
    assert unknown.returncode == 1 and 'there is no job "nobody"' in unknown.stderr
    task = jobs.verb("logs", "b", "worker-9")
    assert task.returncode == 1 and 'job b has no task "worker-9"' in task.stderr
    assert jobs.verb("lsit").returncode == 64

    bad = jobs.folder / "bad.json"
    bad.write_text('{"job": "x", "gangs": true, "tasks": [{"role": "w", "count": 0, "command": ["{adress}"]}]}')
    refused = jobs.verb("submit", bad)
    assert refused.returncode == 78
    for part in (f"{bad}#/gangs: unknown key; nearest: gang", f"{bad}#/tasks/0/count: 0 is under the limit of 1",
                 f"{bad}#/tasks/0/command/0: "):
        assert part in refused.stderr, refused.stderr


def test_a_program_that_is_not_there_is_named(jobs):
    jobs.submit("typo", {"role": "worker", "command": ["no-such-program"]})
    job = penstock.wait_for(lambda: jobs.show("typo") if jobs.show("typo")["ended"] else None)
    assert job["state"] == "failed" and "can't run no-such-program: No such file or directory" in job["why"]


def test_tasks_die_with_penstock_and_what_they_started_too(jobs):
    jobs.submit("long", shell("sleep 1000 & echo $!; wait", count=2))
    pids = [t["pid"] for t in jobs.wait("long", "running")["tasks"]]
    for task in ("worker-0", "worker-1"):
        pids.append(int(penstock.wait_for(lambda: jobs.log("long", task))))
    jobs.up.kill()

    def dead(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"
        except FileNotFoundError:
            return True
    penstock.wait_for(lambda: all(dead(pid) for pid in pids))


def test_jobs_end_with_a_graceful_end(jobs):
    jobs.submit("long", shell("trap 'echo bye; exit 0' TERM; echo up; sleep 1000 & wait"))
    penstock.wait_for(lambda: jobs.log("long", "worker-0") == "up\n")
    assert jobs.up.stop() == 0
    assert (jobs.folder / "state/logs/job-long.1.worker-0.log").read_text() == "up\nbye\n"


def digits(replicas):
    return {"digits": {"versions": {"1": {"command": [penstock.binary("penstock-model"), "--name", "digits", "--version", "1",
                                                      "--weights", penstock.weights_file("fashion-1"), "--listen", "{address}"],
                                          "cpu_milli": 100, "memory_mib": 64, "gpu": {"milli": 1000}}},
                       "traffic": {"1": 10000}, "scaling": {"min": replicas, "max": replicas}}}


def test_a_gang_waits_for_cards_of_replicas_until_they_scale_down(programs, tmp_path):
    jobs = Jobs(programs, tmp_path, digits(2))

    def ready(n):
        states = [r["state"] for r in jobs.up.json("/v1/replicas")["replicas"]]
        return states == ["ready"] * n
    penstock.wait_for(lambda: ready(2), 30)
    jobs.submit("train", whole_card("echo trained", count=2), gang=True)
    job = jobs.show("train")
    assert job["state"] == "waiting" and "1 placed before it" in job["why"]
    tree = penstock.write_models(tmp_path / "config", digits(1), NODES)
    r = programs.run("penstock", "apply", tree, "--reason", "night", "--admin", jobs.up.admin)
    assert r.returncode == 0, r.stderr
    jobs.wait("train", "succeeded", 30)
    assert ready(1)
    drained = [i for i, line in enumerate(jobs.up.log) if "drain" in line]
    started = [i for i, line in enumerate(jobs.up.log) if "ev=job_state" in line and "state=starting" in line]
    assert drained and drained[0] < started[0]


def test_output_that_is_no_text_is_shown_to_its_end(jobs):
    jobs.submit("bytes", shell(r"printf 'a\000b\377\nend\n'"))
    jobs.wait("bytes", "succeeded")
    assert jobs.log("bytes", "worker-0") == "a\ufffdb\ufffd\nend\n"


def test_a_task_that_somebody_stopped_still_hears_the_end(jobs):
    jobs.submit("still", shell("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    penstock.wait_for(lambda: jobs.log("still", "worker-0") == "up\n")
    os.kill(jobs.show("still")["tasks"][0]["pid"], signal.SIGSTOP)
    assert jobs.verb("cancel", "still").returncode == 0
    jobs.wait("still", "cancelled", 5)  # SIGKILL would come after 10 s
    # The signal goes to the whole group: the shell may also tell that it ended the sleep.
    assert [line for line in jobs.log("still", "worker-0").split() if line != "Terminated"] == ["up", "bye"]
