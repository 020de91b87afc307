"""Runs the real binaries for tests: start on free loopback ports, wait for events, look at logs, counters and answers.

    gateway = penstock.relay(programs, [replica.address])
    answer = penstock.call(gateway.grpc, "/test.Echo/Unary", b"hello")
    assert answer.code == "OK" and answer.messages == [b"hello"]

`programs` is a fixture: what was started through it is stopped at the end of the test, and the test fails when a
program left a sanitizer report or an unexpected exit code. Nothing here sleeps for a result: wait_for() polls a
condition with a limit.
"""
import dataclasses
import json
import os
import pathlib
import queue
import re
import shlex
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build-test")).resolve()
SANITIZED = BUILD.name == "build-test"
START_S = 30  # a sanitized binary on a busy machine
SANITIZER_REPORT = re.compile(r"ERROR: (Address|Leak|Thread)Sanitizer|runtime error:|check failed")
LOG_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')


def binary(name):
    """Path of one of our programs in the build folder."""
    for folder in ("penstock", "loadtest"):
        if (BUILD / folder / name).exists():
            return str(BUILD / folder / name)
    raise FileNotFoundError(f"{name} is not built in {BUILD}: run ./dev test, or set PENSTOCK_BUILD")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(condition, timeout=10, what="the condition", every=0.01):
    """The first true value of condition(); fails after timeout seconds."""
    until = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come within {timeout} s (last: {value!r})")
        time.sleep(every)


class Program:
    """One running binary: its stdout lines, its log (stderr), its end."""

    def __init__(self, argv, env=None, cwd=None, name=None):
        self.name = name or os.path.basename(argv[0])
        self.argv = argv
        self.lines, self.log = [], []
        self.expect_exit = {0}  # add to it where a test wants another end
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        errors="replace", cwd=cwd, env={**os.environ, **(env or {})})
        self.pid = self.process.pid
        self.readers = [threading.Thread(target=self._read, args=(f, to), daemon=True)
                        for f, to in ((self.process.stdout, self.lines), (self.process.stderr, self.log))]
        for r in self.readers:
            r.start()

    @staticmethod
    def _read(file, to):
        for line in file:
            to.append(line.rstrip("\n"))

    def __str__(self):
        tail = "\n".join(self.log[-40:])
        return f"{shlex.join(self.argv)}\nstdout: {self.lines[-10:]}\nlog:\n{tail}"

    def wait_line(self, pattern, timeout=START_S):
        """The match of the first stdout line that fits; fails early when the program ends."""
        def look():
            for line in list(self.lines):
                m = re.search(pattern, line)
                if m:
                    return m
            if self.process.poll() is not None and not self.readers[0].is_alive():
                raise RuntimeError(f"{self.name} ended ({self.process.returncode}) before {pattern!r}: {self}")
            return None
        return wait_for(look, timeout, f"{pattern!r} from {self}")

    def wait_ready(self, timeout=START_S):
        self.wait_line(r"^ready\b", timeout)
        return self

    def listening(self, kind="grpc", index=0):
        """Address of the index-th `listening KIND ADDRESS` line."""
        found = [line.split()[2] for line in list(self.lines) if line.startswith(f"listening {kind} ")]
        return found[index]

    @property
    def grpc(self):
        return self.listening("grpc")

    @property
    def admin(self):
        return self.listening("admin")

    def events(self, ev=None, **fields):
        """Log events (dicts of logfmt fields) with this ev and these field values."""
        out = []
        for line in list(self.log):
            e = {k: v.strip('"').replace('\\"', '"') for k, v in LOG_FIELD.findall(line)}
            if (ev is None or e.get("ev") == ev) and all(e.get(k) == str(v) for k, v in fields.items()):
                out.append(e)
        return out

    def wait_event(self, ev, timeout=10, **fields):
        return wait_for(lambda: self.events(ev, **fields), timeout, f"event {ev} {fields} from {self}")[0]

    def http(self, path, body=None, method=None, timeout=10):
        """(status, text) of a request to the admin listener."""
        request = urllib.request.Request(f"http://{self.admin}{path}", method=method,
                                         data=None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=timeout) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def json(self, path, **kw):
        status, text = self.http(path, **kw)
        assert status == 200, f"{path}: {status} {text}"
        return json.loads(text)

    def metrics(self):
        """{(name, frozenset of label pairs): value} of /metrics."""
        status, text = self.http("/metrics")
        assert status == 200, text
        out = {}
        for line in text.splitlines():
            m = re.match(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", line)
            if m:
                out[m[1], frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', m[2] or ""))] = float(m[3])
        return out

    def counter(self, name, **labels):
        """Sum over all series of that name that have these labels."""
        want = set(labels.items())
        return sum(v for (n, have), v in self.metrics().items() if n == name and want <= have)

    def rss_mib(self):
        with open(f"/proc/{self.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) / 1024

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """kill -9, as a crash would."""
        self.expect_exit = {-signal.SIGKILL}
        self.process.kill()
        self.process.wait()

    def wait_exit(self, timeout=30):
        code = self.process.wait(timeout)
        for r in self.readers:
            r.join(5)
        return code

    def stop(self, timeout=30):
        """SIGTERM, wait; the exit code. kill -9 after timeout (and the test fails)."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.wait_exit(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"still running {timeout} s after SIGTERM: {self}") from None

    def verify_end(self):
        code = self.stop()
        report = [line for line in self.log if SANITIZER_REPORT.search(line)]
        assert not report, f"sanitizer report: {report[:3]}\n{self}"
        assert code in self.expect_exit, f"exit code {code}, wanted {sorted(self.expect_exit)}: {self}"


class Programs:
    """What one test started. stop_all() ends them, newest first, and then raises what was wrong with any."""

    def __init__(self):
        self.running = []

    def start(self, *argv, env=None, cwd=None, ready=True, name=None):
        """start("penstock", "relay", ...): a binary of ours by name, anything else by path."""
        argv = [str(a) for a in argv]
        if "/" not in argv[0]:
            argv[0] = binary(argv[0])
        p = Program(argv, env, cwd, name)
        if ready:
            try:
                p.wait_ready()
            except BaseException:
                p.process.kill()
                raise
        self.running.append(p)
        return p

    def run(self, *argv, env=None, cwd=None, timeout=60, input=None):
        """Run to the end: CompletedProcess with text. Fails on a sanitizer report, not on an exit code."""
        argv = [str(a) for a in argv]
        if "/" not in argv[0]:
            argv[0] = binary(argv[0])
        r = subprocess.run(argv, env={**os.environ, **(env or {})}, cwd=cwd, timeout=timeout, capture_output=True, text=True, input=input)
        assert not SANITIZER_REPORT.search(r.stderr), r.stderr
        return r

    def stop_all(self):
        wrong = []
        for p in reversed(self.running):
            try:
                p.verify_end()
            except AssertionError as e:
                wrong.append(str(e))
        self.running.clear()
        assert not wrong, "\n".join(wrong)


# ---- our programs ----

ENGINE = os.environ.get("PENSTOCK_ENGINE", "")  # an HTTP/2 engine by name, for every gateway of the run; "": the default


def relay(programs, to, *flags, workers=1, **kw):
    """`penstock relay` in front of these addresses, with an admin listener."""
    if ENGINE and "--engine" not in flags:
        flags = ("--engine", ENGINE, *flags)
    return programs.start("penstock", "relay", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", workers,
                          "--to", ",".join(to), *flags, **kw)


def write_config(folder, models=(), nodes=None, queues=None, **process):
    """penstock.json and the config tree in folder; the path of penstock.json.

    models: {name: dict without "model"}; process: keys of penstock.json over the tests' defaults."""
    folder = pathlib.Path(folder)
    tree = folder / "config"
    write_models(tree, models, nodes, queues)
    conf = {"listeners": [{"address": "127.0.0.1:0"}], "admin": "127.0.0.1:0", "state": str(folder / "state"), "models": str(tree),
            "workers": 1, **({"engine": ENGINE} if ENGINE else {}), **process}
    (folder / "penstock.json").write_text(json.dumps(conf, indent=1))
    return str(folder / "penstock.json")


def write_models(tree, models, nodes=None, queues=None):
    """A config tree as `penstock apply DIR` takes it."""
    (tree / "models").mkdir(parents=True, exist_ok=True)
    for old in (tree / "models").glob("*.json"):
        old.unlink()
    for name, conf in dict(models).items():
        (tree / "models" / f"{name}.json").write_text(json.dumps({"model": name, **conf}, indent=1))
    for name, conf in (("nodes", nodes), ("queues", queues)):
        if conf is not None:
            (tree / f"{name}.json").write_text(json.dumps(conf, indent=1))
    return tree


def gateway(programs, folder, models, *flags, **process):
    """`penstock gateway` over a config with static endpoints."""
    return programs.start("penstock", "gateway", "--config", write_config(folder, models, **process), *flags)


def up(programs, folder, models, *flags, nodes=None, queues=None, env=None, **process):
    """`penstock up`: gateway and controller in one process."""
    path = write_config(folder, models, nodes, queues, **process)
    return programs.start("penstock", "up", "--config", path, *flags, env=env)


def model_server(programs, *flags, name="digits", version="1", weights="fashion-3", listen="127.0.0.1:0", ready=True):
    """penstock-model with weights made by the build."""
    return programs.start("penstock-model", "--name", name, "--version", version, "--listen", listen,
                          "--weights", weights_file(weights), *flags, ready=ready)


def weights_file(name):
    """A weights file of the build by its stem, as `fashion-1`."""
    found = [p for p in BUILD.glob(f"loadtest/{name}.*") if p.suffix in (".json", ".bin", ".weights")]
    assert found, f"no {name} weights in {BUILD}/loadtest (is dataset-fashion-mnist installed?)"
    return str(found[0])


# ---- calls of a stock client, at the level of bytes ----

CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0),
                   ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def channel(address, *options):
    """A channel with a connection of its own."""
    return grpc.insecure_channel(address, options=[*CHANNEL_OPTIONS, *options])


@dataclasses.dataclass
class Answer:
    """All that a client can see of a call."""
    code: str
    details: str
    messages: list
    headers: list
    trailers: list
    took_s: float = dataclasses.field(default=0, compare=False)

    def header(self, name):
        return [v for k, v in self.headers if k == name]

    def trailer(self, name):
        return [v for k, v in self.trailers if k == name]


def call(to, path, *messages, metadata=(), timeout=30, compression=None):
    """One call of any kind with raw message bytes; the whole Answer, errors included. to: address or channel."""
    own = isinstance(to, str)
    ch = channel(to) if own else to
    try:
        start = time.monotonic()
        rpc = ch.stream_stream(path)(iter(messages), metadata=tuple(metadata), timeout=timeout, compression=compression)
        got = []
        try:
            got.extend(rpc)
        except grpc.RpcError:
            pass
        took = time.monotonic() - start
        pairs = [[(m.key, m.value) for m in part or ()] for part in (rpc.initial_metadata(), rpc.trailing_metadata())]
        return Answer(rpc.code().name, rpc.details(), got, *pairs, took)
    finally:
        if own:
            ch.close()


class Bidi:
    """A bidirectional stream driven step by step: send(), receive(), close(), cancel()."""

    def __init__(self, to, path, metadata=(), timeout=60):
        self.channel = channel(to) if isinstance(to, str) else to
        self.own = isinstance(to, str)
        self.out = queue.Queue()
        self.rpc = self.channel.stream_stream(path)(iter(self.out.get, None), metadata=tuple(metadata), timeout=timeout)

    def send(self, message):
        self.out.put(message)

    def receive(self):
        return next(self.rpc)

    def close(self):
        """Half close: no more messages from us."""
        self.out.put(None)

    def cancel(self):
        self.rpc.cancel()
        self.out.put(None)

    def end(self):
        """Read to the end and release: (rest of the messages, code name)."""
        self.close()
        rest = []
        try:
            rest.extend(self.rpc)
        except grpc.RpcError:
            pass
        code = self.rpc.code().name
        if self.own:
            self.channel.close()
        return rest, code
