"""The real conformance suites: built from pinned Go modules (go/go.mod, go/go.sum), run against our programs, read.

h2spec: an HTTP/2 client that breaks rules, before the relay's listener. h2specd: an HTTP/2 server that breaks rules,
behind the relay. interop: client and server of the gRPC project, with the relay in between.
"""
import fcntl
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "func"))
import frames  # noqa: E402  (after the path)
import penstock  # noqa: E402

MODULE = HERE / "go"
BUILT = ROOT / ".cache/conform"
PACKAGES = ["github.com/summerwind/h2spec/cmd/h2spec", "github.com/summerwind/h2spec/cmd/h2specd",
            "google.golang.org/grpc/interop/client", "google.golang.org/grpc/interop/http2", "./interop_server"]
ENGINES = ["native", "session"]

# h2spec's cases that the session engine may fail, each by nghttp2's choice: it drops frames on a stream that it has
# forgotten, where RFC 9113 5.1 has STREAM_CLOSED, and takes an id below the last for such a stream (5.1.1).
SESSION_MAY_FAIL = {f"http2/5.1/{n}" for n in (5, 6, 8, 9, 11, 12)} | {
    "http2/5.1.1/2", "http2/6.1/2", "http2/6.1/3", "http2/8.1/1", "http2/8.1.2.1/3"}

# The same behind us, in the rows of h2_client_rows: h2specd passes there, as its connection is not used again.
SESSION_MAY_IGNORE = {f"client/5.1/{n}" for n in (5, 6, 8, 9)} | {"client/6.1/2"}

ORCA = ["-service_config_json", '{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}']
# A stalled call is a failure, a machine that stops for a second is not.
SOAK_LIMITS = ["-soak_num_threads", "4", "-soak_max_failures", "0", "-soak_per_iteration_max_acceptable_latency_ms", "20000"]
SOAK = ["-soak_iterations", "200", "-soak_overall_timeout_seconds", "120", *SOAK_LIMITS]
# All cases of the client but pick_first_unary, which no server of the module answers as it wants.
INTEROP = {case: [] for case in (
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
    "timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
    "special_status_message", "custom_metadata", "unimplemented_method", "unimplemented_service")}
INTEROP |= {"rpc_soak": SOAK, "channel_soak": SOAK, "orca_per_rpc": ORCA, "orca_oob": ORCA}


class NoGo(Exception):
    """There is no Go of the age that the suites need; the message says what to install."""


def needed_go():
    return re.search(r"^go (\d+\.\d+)", (MODULE / "go.mod").read_text(), re.M)[1]


def versions():
    """{module: version} of the suites, as pinned."""
    text = (MODULE / "go.mod").read_text()
    return {m: re.search(rf"{re.escape(m)} (\S+)", text)[1] for m in ("github.com/summerwind/h2spec", "google.golang.org/grpc")}


def build(module=MODULE, packages=PACKAGES):
    """Paths of the programs, built when go.mod or a source of ours is newer."""
    need = needed_go()
    if shutil.which("go") is None:
        raise NoGo(f"no Go: install Go {need} or later (go.dev/dl) for the conformance suites")
    env = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    have = re.search(r"go(\d+)\.(\d+)", subprocess.run(["go", "version"], capture_output=True, text=True, env=env).stdout)
    if tuple(map(int, have.groups())) < tuple(map(int, need.split("."))):
        raise NoGo(f"Go {have[0][2:]} is too old: install Go {need} or later (go.dev/dl) for the conformance suites")
    BUILT.mkdir(parents=True, exist_ok=True)
    with open(BUILT / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        out = [BUILT / p.rsplit("/", 1)[1] for p in packages]
        sources = [module / "go.mod", module / "go.sum", *module.glob("*/*.go")]
        if not all(o.exists() for o in out) or min(o.stat().st_mtime for o in out) < max(s.stat().st_mtime for s in sources):
            r = subprocess.run(["go", "build", "-trimpath", "-o", f"{BUILT}/", *packages], cwd=module, env=env, capture_output=True, text=True)
            if r.returncode != 0 and re.search(r"dial tcp|lookup|proxy", r.stderr):
                raise NoGo(f"the suites' Go modules cannot be had: {r.stderr.strip().splitlines()[-1]}")
            if r.returncode != 0:
                raise RuntimeError(f"go build in {module}: {r.stderr}")
            for o in out:
                os.utime(o)
    return {o.name: str(o) for o in out}


class Certificate:
    """Of localhost and 127.0.0.1, signed by itself."""

    def __init__(self, folder):
        self.cert, self.key = str(folder / "cert.pem"), str(folder / "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", self.key, "-out", self.cert], check=True, capture_output=True)

    def flags(self):
        return ["--cert", self.cert, "--key", self.key]


# ---- h2spec ----

def read_junit(path):
    """{case id as http2/5.1/8: (title, passed)} of h2spec's report."""
    cases = {}
    for suite in xml.parse(path).getroot().iter("testsuite"):
        for n, case in enumerate(suite.iter("testcase"), 1):
            bad = [case.find(word) for word in ("failure", "error", "skipped")]
            cases[f"{case.get('package')}/{n}"] = (case.get("classname"), all(b is None for b in bad))
    return cases


def h2spec(tools, address, folder, tls=False, strict=True):
    """Cases of one run against address; a case that is skipped has not passed."""
    report = pathlib.Path(folder) / "h2spec.xml"
    report.unlink(missing_ok=True)
    host, port = address.rsplit(":", 1)
    argv = [tools["h2spec"], "-h", host, "-p", port, "-o", "2", "-j", str(report)] + ["-S"] * strict + ["-t", "-k"] * tls
    r = subprocess.run(argv, capture_output=True, timeout=300)
    assert report.exists(), r.stdout[-2000:] + r.stderr
    return read_junit(report)


def failed(cases):
    return {name: title for name, (title, passed) in cases.items() if not passed}


# ---- h2specd ----

H2SPECD_LINE = re.compile(r"(✔|×) (?:\x1b\[\d+m)*\s*(\d+): (.*)")
H2SPECD_SECTION = re.compile(r"^\s*(\d+(?:\.\d+)*)\. (.*)")
SECTIONS = ["1", "4.1", "4.2", "4.3", "5.1", "5.4.1", "5.5", "6.1", "6.2", "6.3", "6.4", "6.5", "6.7", "6.8", "6.9", "6.10"]


def free_ports(n):
    """The first of n ports in a row that nobody listens on."""
    start = os.getpid() * n % 10000  # tests beside us begin elsewhere
    for base in range(20000 + start, 32000 - n, n):
        held = []
        try:
            for port in range(base, base + n):
                s = socket.socket()
                held.append(s)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", port))
            return base
        except OSError:
            continue
        finally:
            for s in held:
                s.close()
    raise RuntimeError("no free ports in a row")


def h2specd_section(tools, engine, section):
    """{id: (title, passed)}; {}: the suite gave up (a case took over its 3 s)."""
    command = f"{sys.executable} {HERE}/h2specd_client.py {penstock.binary('penstock')} {engine}"
    r = subprocess.run([tools["h2specd"], "-h", "127.0.0.1", "-f", str(free_ports(60)), "-o", "1", "-e", command, f"client/{section}"],
                       capture_output=True, text=True, errors="replace", timeout=120)
    cases, at = {}, None
    for line in re.sub(r"\x1b\[[0-9;]*m", "", r.stdout.replace("\r", "\n")).split("\nFailures:")[0].splitlines():
        heading, case = H2SPECD_SECTION.match(line), H2SPECD_LINE.search(line)
        if case:
            cases[f"client/{at}/{case[2]}"] = (case[3].strip(), case[1] == "✔")
        elif heading:
            at = heading[1]
    return cases if "Finished in" in r.stdout else {}


def h2specd(tools, engine, tries=3):
    """All sections; one with a failure is run again, up to `tries` times: a slow machine breaks the suite's time limits."""
    cases = {}
    for section in SECTIONS:
        for _ in range(tries):
            got = h2specd_section(tools, engine, section)
            for name, (title, passed) in got.items():
                cases[name] = (title, passed or cases.get(name, (title, False))[1])
            if got and not any(name in got for name in failed(cases)):
                break
        else:
            if not got:
                cases[f"client/{section}"] = ("the suite gave up", False)
    return cases


# ---- gRPC interop ----

def interop_server(programs, tools, certificate=None, *flags):
    server = programs.start(tools["interop_server"], "-listen", "127.0.0.1:0",
                            *(["-cert", certificate.cert, "-key", certificate.key] if certificate else []), *flags)
    server.expect_exit = {-15}  # it knows no other end
    return server


def soak(tools, address, calls, certificate=None):
    """This many calls of 16 bytes on 4 threads; "" or what the client said."""
    return interop(tools, address, "rpc_soak", certificate, timeout=calls / 50 + 60, more=[
        "-soak_iterations", str(calls), "-soak_request_size", "16", "-soak_response_size", "16", "-soak_overall_timeout_seconds",
        str(calls // 50 + 30)])


def interop(tools, address, case, certificate=None, more=(), timeout=180):
    """Runs a case of the interop client; "" or what it said."""
    host, port = address.rsplit(":", 1)
    tls = ["-use_tls", "-use_test_ca", "-ca_file", certificate.cert, "-server_host_override", "localhost"] if certificate else []
    try:
        r = subprocess.run([tools["client"], "-server_host", host, "-server_port", port, "-test_case", case, *tls, *INTEROP[case], *more],
                           capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as e:
        return f"{case}: no end after {e.timeout} s"
    return "" if r.returncode == 0 else f"{case}: exit {r.returncode}: {(r.stdout + r.stderr)[-1500:]}"
