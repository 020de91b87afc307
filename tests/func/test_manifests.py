"""Manifests of other schedulers, submitted to the real binary: the pages' examples, warnings, refusals, dry runs."""
import json
import re

import pytest

import penstock
from test_jobs import Jobs

VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: NAME}
spec:
  minAvailable: 3
  plugins: {ssh: []}
  tasks:
  - name: ps
    replicas: 1
    template:
      spec:
        containers:
        - {name: ps, command: [sleep, '1000'], resources: {limits: {cpu: 100m, memory: 16Mi}}}
  - name: worker
    replicas: 2
    policies: [{event: TaskCompleted, action: CompleteJob}]
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: main
          command: [sh, -c]
          args: ['echo $(GREETING) {rank} $RANK; exit 0']
          env: [{name: GREETING, value: hello}]
          resources: {limits: {cpu: 100m, memory: 16Mi, nvidia.com/gpu: 1}}
"""


@pytest.fixture
def jobs(programs, tmp_path):
    return Jobs(programs, tmp_path)


def submit(jobs, text, *options):
    path = jobs.folder / "job.yaml"
    path.write_text(text)
    return jobs.verb("submit", *options, path)


def test_a_volcano_job_runs_to_its_end(jobs):
    r = submit(jobs, VOLCANO.replace("NAME", "volcano"), "--wait")
    assert r.returncode == 0, r.stdout + r.stderr
    assert f"{jobs.folder}/job.yaml:6: ignored: spec.plugins\n" in r.stderr
    job = jobs.show("volcano")
    assert job["state"] == "succeeded" and job["gang"]
    assert [t["state"] for t in job["tasks"]] == ["stopped", "succeeded", "succeeded"]
    assert len({c for t in job["tasks"] for c in t["cards"]}) == 2
    assert jobs.log("volcano", "worker-1") == "hello {rank} 2\n"


def test_each_document_is_a_job_and_all_are_taken_or_none(jobs):
    two = VOLCANO.replace("NAME", "a") + "---\n" + VOLCANO.replace("NAME", "b")
    r = submit(jobs, two)
    assert r.returncode == 0, r.stderr
    assert re.findall(r"^job (\w+) submitted", r.stdout, re.M) == ["a", "b"]
    for name in "ab":
        jobs.wait(name, "succeeded")
    r = submit(jobs, VOLCANO.replace("NAME", "c") + "---\n" + VOLCANO.replace("NAME", "c"))
    assert r.returncode == 1 and "a job c is there" in r.stderr
    assert jobs.verb("show", "c").returncode == 1


def test_a_wrong_manifest_is_refused_by_line_and_path(jobs):
    r = submit(jobs, VOLCANO.replace("NAME", "bad").replace("replicas: 2", "replicas: x").replace("memory: 16Mi}", "memory: 2000mb}"))
    assert r.returncode != 0
    path = f"{jobs.folder}/job.yaml"
    assert f'{path}:15: spec.tasks[1].replicas: "x" is not a whole number from 1 to 4096' in r.stderr
    assert f'{path}:13: spec.tasks[0].template.spec.containers[0].resources.limits.memory: "2000mb": unknown unit "mb"' in r.stderr
    assert jobs.verb("show", "bad").returncode == 1


def test_a_dry_run_says_what_it_would_be_and_starts_nothing(jobs):
    r = submit(jobs, VOLCANO.replace("NAME", "dry"), "--dry-run")
    assert r.returncode == 0, r.stderr
    first, text = r.stdout.split("\n", 1)
    assert first == "job dry would start now"
    file = json.loads(text)
    assert file["job"] == "dry" and file["min_available"] == 3 and file["tasks"][1]["gpu"]["milli"] == 1000
    assert jobs.up.json("/v1/jobs")["jobs"] == []
    r = submit(jobs, VOLCANO.replace("NAME", "dry").replace("replicas: 2", "replicas: 4").replace("minAvailable: 3", ""), "--dry-run")
    assert r.returncode == 0 and r.stdout.startswith("job dry would wait: can never start here: ")
    # What it printed is a job file.
    own = jobs.folder / "own.json"
    own.write_text(text)
    assert jobs.verb("submit", "--wait", own).returncode == 0


def test_the_manifests_of_the_page_are_read(jobs):
    page = (penstock.ROOT / "docs/jobs.md").read_text()
    examples = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    assert len(examples) >= 3
    for text in examples:
        r = submit(jobs, text, "--dry-run")
        assert r.returncode == 0, text + r.stderr
    ours = re.findall(r"^```json\n(.*?)^```", page, re.M | re.S)
    assert len(ours) == 1
    assert submit(jobs, ours[0], "--dry-run").returncode == 0
