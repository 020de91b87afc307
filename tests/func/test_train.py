"""penstock-train alone and as a gang: the same result, also when tasks die and come back."""
import json
import re
import signal
import time

import fashion
import numpy as np
import penstock
import pytest

pytestmark = pytest.mark.skipif(not fashion.DATA.exists(), reason=f"{fashion.DATA} is not there (dataset-fashion-mnist)")

PLAN = ["--hidden", "24", "--examples", "3200", "--epochs", "3", "--log-every", "50"]  # 300 steps


class Gang:
    """A parameter server and workers as the job driver starts them: one command, roles in the environment."""

    def __init__(self, programs, out, *flags, workers=2):
        self.programs, self.flags, self.workers = programs, [*PLAN, *flags, "--out", str(out)], workers
        self.port = penstock.free_port()

    def env(self, role, index):
        cluster = {"ps": [f"127.0.0.1:{self.port}"], "worker": [f"127.0.0.1:{i + 1}" for i in range(self.workers)]}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})}

    def start(self, role, index=0, ready=False):
        return self.programs.start("penstock-train", *self.flags, env=self.env(role, index), ready=ready, name=f"{role}-{index}")


@pytest.fixture(scope="module")
def alone(module_programs, tmp_path_factory):
    """What one process makes of the plan: its weights and its last line."""
    out = tmp_path_factory.mktemp("alone") / "w"
    r = module_programs.run("penstock-train", *PLAN, "--out", out)
    assert r.returncode == 0, r
    return fashion.read_weights(out), float(re.search(r"test_accuracy=(\S+)", r.stdout)[1])


def assert_same(out, alone):
    layers, _ = alone
    for (w, b), (w0, b0) in zip(fashion.read_weights(out), layers, strict=True):
        assert np.abs(w - w0).max() < 1e-3 and np.abs(b - b0).max() < 1e-3  # only the order of additions differs


def test_the_trained_weights_do_what_they_say(alone):
    layers, accuracy = alone
    images, labels = fashion.test_set()
    assert abs((fashion.predict(layers, images).argmax(1) == labels).mean() - accuracy) < 0.0005
    assert accuracy > 0.78


def test_parameter_server_and_workers_equal_one_process(programs, tmp_path, alone):
    """Workers first: they wait for the server. All three end by themselves with 0; the server alone writes."""
    gang = Gang(programs, tmp_path / "w", "--checkpoint", tmp_path / "c")
    workers = [gang.start("worker", i) for i in range(2)]
    time.sleep(0.3)
    ps = gang.start("ps")
    assert ps.wait_exit() == 0 and [w.wait_exit() for w in workers] == [0, 0]
    steps = [re.match(r"step=(\d+)/300 .*loss=(\S+) accuracy=(\S+)", line) for line in ps.lines]
    losses = [float(m[2]) for m in steps if m]
    assert [int(m[1]) for m in steps if m] == [50, 100, 150, 200, 250, 300] and losses[-1] < losses[0]
    assert any(line.startswith("done step=300") for line in ps.lines)
    assert_same(tmp_path / "w", alone)
    assert not (tmp_path / "c").exists()


def test_three_workers_by_the_variables_of_pytorch(programs, tmp_path, alone):
    """Rank 0 keeps the parameters and works too; a batch of 32 in three parts."""
    port = penstock.free_port()
    tasks = [programs.start("penstock-train", *PLAN, "--out", tmp_path / "w", ready=False, name=f"rank-{rank}",
                            env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "3"})
             for rank in range(3)]
    assert [t.wait_exit() for t in tasks] == [0, 0, 0]
    assert_same(tmp_path / "w", alone)


def test_a_worker_that_is_killed_comes_back(programs, tmp_path, alone):
    gang = Gang(programs, tmp_path / "w", "--step-delay-ms", "5")
    ps, survivor, victim = gang.start("ps"), gang.start("worker", 0), gang.start("worker", 1)
    ps.wait_line(r"^step=100/")
    victim.kill()
    again = gang.start("worker", 1)
    assert [p.wait_exit() for p in (ps, survivor, again)] == [0, 0, 0]
    assert_same(tmp_path / "w", alone)


def test_a_server_that_is_killed_resumes_from_its_checkpoint(programs, tmp_path, alone):
    gang = Gang(programs, tmp_path / "w", "--checkpoint", tmp_path / "c", "--checkpoint-every", "40", "--step-delay-ms", "5")
    workers = [gang.start("worker", i) for i in range(2)]
    ps = gang.start("ps")
    ps.wait_line(r"^step=100/")
    ps.kill()
    again = gang.start("ps")
    assert again.wait_line(r"^resumed step=(\d+)")[1] in ("80", "120")
    assert [p.wait_exit() for p in (again, *workers)] == [0, 0, 0]
    assert_same(tmp_path / "w", alone)


def test_sigterm_leaves_a_checkpoint_and_says_not_finished(programs, tmp_path, alone):
    """Alone: ends with 143 after a checkpoint; the same command again ends with the very same bits."""
    flags = [*PLAN, "--out", tmp_path / "w", "--checkpoint", tmp_path / "c"]
    first = programs.start("penstock-train", *flags, "--step-delay-ms", "5", ready=False)
    first.wait_line(r"^step=50/")
    first.expect_exit = {143}
    first.signal(signal.SIGTERM)
    assert first.wait_exit() == 143 and (tmp_path / "c").exists() and not (tmp_path / "w").exists()
    assert programs.run("penstock-train", *flags).returncode == 0
    for (w, b), (w0, b0) in zip(fashion.read_weights(tmp_path / "w"), alone[0], strict=True):
        assert (w == w0).all() and (b == b0).all()


def test_a_worker_without_a_server_gives_up(programs, tmp_path):
    gang = Gang(programs, tmp_path / "w", "--wait-ms", "300")
    worker = gang.start("worker", 0)
    worker.expect_exit = {1}
    assert worker.wait_exit() == 1 and any(f"127.0.0.1:{gang.port}" in line for line in worker.log)


@pytest.mark.parametrize("env, word", [
    ({"TF_CONFIG": "{"}, "TF_CONFIG"), ({"TF_CONFIG": '{"task":{"type":"worker","index":0}}'}, "0 workers"),
    ({"TF_CONFIG": '{"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":3}}'}, "worker 3"),
    ({"WORLD_SIZE": "x"}, "WORLD_SIZE=x"), ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK=2"),
    ({"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "99999"}, "MASTER_PORT=99999"),
])
def test_a_wrong_environment_is_refused_by_name(programs, tmp_path, env, word):
    r = programs.run("penstock-train", *PLAN, "--out", tmp_path / "w", env=env)
    assert r.returncode == 64 and word in r.stderr, r.stderr


def test_a_checkpoint_of_another_plan_is_refused(programs, tmp_path):
    first = programs.start("penstock-train", *PLAN, "--out", tmp_path / "w", "--checkpoint", tmp_path / "c", "--step-delay-ms", "5", ready=False)
    first.expect_exit = {143}
    first.wait_line(r"^step=50/")
    first.stop()
    r = programs.run("penstock-train", *PLAN, "--seed", "2", "--out", tmp_path / "w", "--checkpoint", tmp_path / "c")
    assert r.returncode == 1 and "another plan" in r.stderr
