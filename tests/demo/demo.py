#!/usr/bin/env python3
"""The story of penstock with real figures, in under three minutes: ./dev demo [--keep]

A trained model behind the gateway; calls rise, the autoscaler adds replicas on the shares of cards that the placer
chose; a training gang waits for whole cards, gets them when calls fall, and trains a better version; that version
takes 10 % of the calls; a bad one is rolled back. One load generator runs through all of it, and no call may be lost.

Everything shown is asked of the running programs (build/) while they run. The folder is build/demo. --keep leaves
penstock running at the end, on the ports of its penstock.json instead of free ones. Exit status 1: something was not as
it has to be, and it says what.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")).resolve()
WORK = BUILD / "demo"
EXAMPLE = ROOT / "conf/examples/demo"
COLOUR = sys.stdout.isatty()
# seconds and calls/s: what the load generator does until the story is over
RATES = [(12, 100), (16, 1200), (600, 100)]
FREE_PORTS = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
LIMIT_S = 170 if BUILD.name == "build" else 230  # a sanitized build on a busy machine trains slowly


def real_cards():
    """How many cards of NVIDIA this machine has."""
    if not shutil.which("nvidia-smi"):
        return 0
    return len(re.findall(r"^GPU \d+:", subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout, re.M))


class Demo:
    def __init__(self, keep):
        self.keep = keep
        self.start = time.monotonic()
        self.wrong = []  # what was not as it has to be
        self.timeline = []  # (seconds, replicas ready, calls/s)

    # ---- telling ----

    def now(self):
        return time.monotonic() - self.start

    def head(self, text):
        print(f"\n\033[1m{text}\033[0m" if COLOUR else f"\n{text}", flush=True)

    def say(self, text):
        print(f"  {self.now():5.1f} s  {text}", flush=True)

    def must(self, ok, text):
        """A line of the story that has to be true."""
        self.say(f"{'ok   ' if ok else 'WRONG'}  {text}")
        if not ok:
            self.wrong.append(text)

    # ---- running ----

    def run(self, *argv, show=True):
        """A command as an operator types it; its output."""
        r = subprocess.run([str(a) for a in argv], cwd=WORK, env=self.env, capture_output=True, text=True)
        if show:
            print(f"\n    $ {shlex.join(map(str, argv))}")
            for line in (r.stdout + r.stderr).rstrip().splitlines():
                print(f"    {line}")
            print(flush=True)
        return r

    def ask(self, path):
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=10) as f:
            return json.load(f)

    def load(self, *flags):
        """One run of the load generator to its end: its report."""
        r = self.run("penstock-load", "--to", self.grpc, "--model", "fashion", "--json", *flags, show=False)
        try:
            return json.loads(r.stdout)
        except ValueError:
            sys.exit(f"penstock-load: {r.stdout}{r.stderr}")

    def wait(self, condition, limit_s, what):
        """The first true value of condition(), looking four times a second; the story ends when it never comes."""
        until = time.monotonic() + limit_s
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > until or self.now() > LIMIT_S:
                self.fail(f"{what}: not within {limit_s} s")
            if self.penstock.poll() is not None:
                self.fail(f"penstock ended with {self.penstock.returncode}")
            time.sleep(0.25)

    def fail(self, text):
        log = (WORK / "penstock.log").read_text().splitlines()[-15:]
        print("\n".join(log), file=sys.stderr)
        self.stop()
        sys.exit(f"demo: {text}")

    # ---- the world ----

    def replicas(self, state="ready"):
        return [r for r in self.ask("/v1/replicas")["replicas"] if r["state"] == state]

    def job(self):
        return self.ask("/v1/jobs/train-fashion")

    def ended(self):
        """Calls of model fashion that have ended, by version."""
        time.sleep(0.6)  # workers report each 250 ms
        versions = next(m for m in self.ask("/v1/status")["models"] if m["model"] == "fashion")["versions"]
        return {v["version"]: v["finished"] for v in versions}

    def prepare(self):
        shutil.rmtree(WORK, ignore_errors=True)
        shutil.copytree(EXAMPLE, WORK)
        (WORK / "weights").mkdir()
        for name in ("fashion-1", "fashion-bad"):
            source = BUILD / f"loadtest/{name}.weights"
            if not source.exists():
                sys.exit(f"demo: no {source}: install dataset-fashion-mnist (./dev deps) and build again")
            shutil.copy(source, WORK / "weights")
        n = real_cards()
        if n > 0:
            (WORK / "nodes.json").unlink()  # then the driver takes what it finds
            self.scale_shares(min(1, n / 4))
        self.env = {**os.environ, "PATH": f"{BUILD}/penstock:{BUILD}/loadtest:{os.environ['PATH']}"}

    def scale_shares(self, factor):
        """The story is written for four cards; with fewer real ones every share of it is that much smaller."""
        for path in (WORK / "models/fashion.json", WORK / "jobs/train.json"):
            conf = json.loads(path.read_text())
            for holder in [*conf.get("versions", {}).values(), *conf.get("tasks", [])]:
                for key in holder.get("gpu", {}):
                    holder["gpu"][key] = int(holder["gpu"][key] * factor)
            path.write_text(json.dumps(conf, indent=2))

    def start_penstock(self):
        with open(WORK / "penstock.log", "w") as log, open(WORK / "penstock.out", "w") as out:
            self.penstock = subprocess.Popen(
                ["penstock", "up", "--config", "penstock.json", *([] if self.keep else FREE_PORTS)],
                cwd=WORK, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        lines = self.wait(lambda: (t := (WORK / "penstock.out").read_text()) and "\nready" in t and t, 20, "penstock ready")
        self.grpc, self.admin = (re.search(rf"^listening {kind} (\S+)", lines, re.M)[1] for kind in ("grpc", "admin"))
        self.env["PENSTOCK_ADMIN"] = self.admin
        self.wait(lambda: self.replicas(), 20, "the first replica")

    def worker_share(self):
        milli = json.loads((WORK / "jobs/train.json").read_text())["tasks"][1]["gpu"]["milli"]
        return "a whole card each" if milli == 1000 else f"{milli}/1000 of a card each"

    def start_load(self):
        (WORK / "rate.txt").write_text("".join(f"{s} {r}\n" for s, r in self.rate_lines()))
        with open(WORK / "load.json", "w") as out:
            self.generator = subprocess.Popen(
                ["penstock-load", "--to", self.grpc, "--model", "fashion", "--rate-file", "rate.txt", "--connections", "4",
                 "--duration", "600", "--json"],
                cwd=WORK, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)

    @staticmethod
    def rate_lines():
        """The generator's trace: the second at which each rate begins."""
        at = 0
        for seconds, rate in RATES:
            yield at, rate
            at += seconds

    def watch(self, until, limit_s, what):
        """Wait for a condition, and tell whenever the number of replicas changes."""
        def look():
            answer = self.ask("/v1/replicas")
            ready = sum(1 for r in answer["replicas"] if r["state"] == "ready")
            run = next(v for v in answer["versions"] if v["version"] == "1")
            if not self.timeline or self.timeline[-1][1] != ready:
                self.timeline.append((self.now(), ready, run["qps"]))
                self.say(f"{ready} replica{'' if ready == 1 else 's'} ready, {run['qps']:.0f} calls/s, "
                         f"{run['inflight']:.1f} in flight; wants {run['desired']}: {run['text']}")
            return until(answer)
        return self.wait(look, limit_s, what)

    # ---- the story ----

    def tell_serving(self):
        self.head("1. A trained model behind the gateway")
        node = self.ask("/v1/nodes")["nodes"][0]
        self.real = not node["declared"]
        self.say(f"node {node['node']}, cards: " + ", ".join(f"{c['model']} {c['memory_mib']} MiB" for c in node["cards"]) +
                 (" (found on this machine)" if self.real else " (declared in nodes.json: this machine's own are not used)"))
        report = self.load("--check-accuracy", "--batch", "100", "--calls", "100")
        self.must(report["failed"] == 0 and 0.81 < report["accuracy"] < 0.86,
                  f"version 1 through the gateway: {report['accuracy']:.2%} of 10,000 test images right")

    def tell_scaling(self):
        self.head("2. Calls rise, replicas follow")
        self.say(f"{RATES[0][1]} calls/s for {RATES[0][0]} s, then {RATES[1][1]} for {RATES[1][0]} s, then {RATES[2][1]}")
        self.start_load()
        self.watch(lambda a: sum(r["state"] == "ready" for r in a["replicas"]) >= 4, 40, "four replicas")
        self.run("penstock", "replicas")
        self.run("penstock", "nodes")
        shares = {}
        for r in self.replicas():
            for card in r["cards"]:
                shares[card] = shares.get(card, 0) + r["gpu_milli"]
        self.must(all(n <= 1000 for n in shares.values()), "no card is given away twice: " +
                  ", ".join(f"card {c} {n}/1000" for c, n in sorted(shares.items())))

    def tell_gang(self):
        self.head("3. A training gang waits for its cards, then trains a better version")
        self.run("penstock", "jobs", "submit", "jobs/train.json")
        submitted = time.monotonic()
        self.wait(lambda: self.job()["state"] != "queued", 10, "the job looked at")
        job = self.job()
        self.must(job["state"] == "waiting", f"a parameter server, and two workers that want {self.worker_share()}: {job['state']}, {job['why']}")
        self.watch(lambda a: self.job()["state"] in ("running", "succeeded"), 60, "the gang started")
        waited = time.monotonic() - submitted
        placed = ", ".join(f"{t['task']} on card {'+'.join(t['cards'])}" if t["cards"] else f"{t['task']} without a card"
                           for t in self.job()["tasks"])
        self.must(True, f"calls fell, replicas left, all three started together after {waited:.1f} s: {placed}")
        self.watch(lambda a: self.job()["state"] in ("succeeded", "failed"), 120, "the training done")
        self.must(self.job()["state"] == "succeeded", f"trained in {time.monotonic() - submitted - waited:.1f} s")
        self.run("penstock", "jobs", "logs", "train-fashion", "ps-0")

    def set_versions(self, versions, traffic):
        """What an operator edits: models/fashion.json."""
        path = WORK / "models/fashion.json"
        model = json.loads(path.read_text())
        for version, weights in versions.items():
            model["versions"][version] = {**model["versions"]["1"], "command": [
                f"weights/{weights}.weights" if "weights/" in word else word for word in model["versions"]["1"]["command"]]}
        model["traffic"] = traffic
        path.write_text(json.dumps(model, indent=2))

    def tell_canary(self):
        self.head("4. What the gang wrote becomes version 2 and takes 10 % of the calls")
        self.set_versions({"2": "fashion-2"}, {"1": 9000, "2": 1000})
        self.run("penstock", "diff", ".")
        self.run("penstock", "apply", ".", "--reason", "train-fashion is done: 10 % to version 2")
        self.wait(lambda: any(r["version"] == "2" for r in self.replicas()), 20, "a replica of version 2")
        before = self.ended()
        report = self.load("--calls", "2000", "--concurrency", "4")
        after = self.ended()
        one, two = (after.get(v, 0) - before.get(v, 0) for v in "12")
        self.must(abs(two / (one + two) - 0.10) < 0.005,
                  f"asked for 10.00 %, seen at the gateway {two / (one + two):.2%}: {one} and {two} calls; "
                  f"2,000 of them are one client's, which saw {report['versions']['2']['calls']} from version 2")
        report = self.load("--version", "2", "--check-accuracy", "--batch", "100", "--calls", "100")
        self.must(report["accuracy"] > 0.86, f"version 2: {report['accuracy']:.2%} of the test images right")

    def tell_rollback(self):
        self.head("5. A bad version goes out by mistake, and back")
        self.set_versions({"3": "fashion-bad"}, {"1": 4000, "2": 1000, "3": 5000})
        self.run("penstock", "apply", ".", "--reason", "version 3: looked fine on my machine", show=False)
        self.wait(lambda: any(r["version"] == "3" for r in self.replicas()), 20, "a replica of version 3")
        report = self.load("--calls", "1000", "--concurrency", "4")
        bad = report["versions"].get("3", {"calls": 0, "accuracy": 1})
        self.must(bad["calls"] > 400 and bad["accuracy"] < 0.2,
                  f"version 3 takes {bad['calls'] / report['ok']:.1%} of the calls, {bad['accuracy']:.1%} of its answers are right")
        with open(WORK / "rollback.json", "w") as out:
            probe = subprocess.Popen(["penstock-load", "--to", self.grpc, "--model", "fashion", "--rate", "400", "--duration", "4",
                                      "--json"], cwd=WORK, env=self.env, stdout=out)
        time.sleep(1)
        at_us = time.time() * 1e6
        self.run("penstock", "rollback", "fashion", "--reason", "version 3 answers nonsense")
        took_ms = (time.time() * 1e6 - at_us) / 1e3
        probe.wait()
        report = json.loads((WORK / "rollback.json").read_text())
        last = report["versions"].get("3", {}).get("last_us", 0)
        self.must(0 < last < at_us + 1e6 and report["failed"] == 0,
                  f"last answer of version 3 {(last - at_us) / 1e3:.0f} ms after the command began (it took {took_ms:.0f} ms); "
                  f"{report['ok']} calls meanwhile, {report['failed']} failed")
        self.run("penstock", "history")

    def tell_end(self):
        self.head("6. The whole time, one load generator")
        self.generator.send_signal(signal.SIGINT)
        self.generator.wait(30)
        r = json.loads((WORK / "load.json").read_text())
        lost = r["started"] - r["ok"] - r["failed"]
        self.say(f"calls: {r['started']} sent, {r['ok']} ok, {r['failed']} failed, {lost} lost, {r['wrong']} answers to another call")
        if r["failed"]:
            self.say(f"statuses: {r['status']}; {r['errors']}")
        self.must(r["failed"] == 0 and lost == 0 and r["wrong"] == 0, "nothing was lost")
        ms = r["latency_ms"]
        self.say(f"latency of a call: p50 {ms['p50']:.1f} ms, p99 {ms['p99']:.1f} ms, max {ms['max']:.0f} ms")
        for version, n in sorted(r["versions"].items()):
            self.say(f"version {version}: {n['calls']} calls, {n['accuracy']:.1%} right")
        self.say("replicas of version 1 over time: " + ", ".join(f"{n} at {t:.0f} s" for t, n, _ in self.timeline))

    def stop(self):
        for p in (getattr(self, "generator", None), getattr(self, "penstock", None)):
            if p and p.poll() is None:
                p.terminate()
                try:
                    p.wait(30)
                except subprocess.TimeoutExpired:
                    p.kill()
                    p.wait()

    def tell(self):
        self.prepare()
        self.start_penstock()
        try:
            for part in (self.tell_serving, self.tell_scaling, self.tell_gang, self.tell_canary, self.tell_rollback, self.tell_end):
                part()
        except BaseException:
            self.stop()
            raise
        if self.keep:
            self.head(f"penstock goes on: calls to {self.grpc}, admin at {self.admin}, config in {WORK}; to end it: kill {self.penstock.pid}")
        else:
            self.stop()
            self.must(self.penstock.returncode == 0, f"SIGTERM: penstock drained and ended with {self.penstock.returncode}")
        self.head(f"{len(self.wrong)} wrong" if self.wrong else f"All of it happened, in {self.now():.0f} s.")
        return 1 if self.wrong else 0


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        sys.exit(0)
    sys.exit(Demo("--keep" in sys.argv).tell())
