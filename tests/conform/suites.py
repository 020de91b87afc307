#!/usr/bin/env python3
"""The real conformance suites: built from pinned Go modules (go/go.mod, go/go.sum), run against our programs, read.

usage: suites.py [ROUNDS]      runs all of them with both engines and writes docs/conformance.md; exit 1 when it is bad

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
import time
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
PAGE = ROOT / "docs/conformance.md"

# h2spec's cases that the session engine may fail, each by nghttp2's choice: it drops frames on a stream that it has
# forgotten, where RFC 9113 5.1 has STREAM_CLOSED, and takes an id below the last for such a stream (5.1.1).
SESSION_MAY_FAIL = {f"http2/5.1/{n}" for n in (5, 6, 8, 9, 11, 12)} | {
    "http2/5.1.1/2", "http2/6.1/2", "http2/6.1/3", "http2/8.1/1", "http2/8.1.2.1/3"}

# The same behind us, in the rows of h2_client_rows: h2specd passes there, as its connection is not used again.
SESSION_MAY_IGNORE = {f"client/5.1/{n}" for n in (5, 6, 8, 9)} | {"client/6.1/2"}

ORCA = ["-service_config_json", '{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}']
SOAK = ["-soak_iterations", "200", "-soak_num_threads", "4", "-soak_max_failures", "0", "-soak_overall_timeout_seconds", "120",
        # A stalled call is a failure, a machine that stops for a second is not.
        "-soak_per_iteration_max_acceptable_latency_ms", "20000"]
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


def interop(tools, address, case, certificate=None, more=()):
    """Runs a case of the interop client; "" or what it said."""
    host, port = address.rsplit(":", 1)
    tls = ["-use_tls", "-use_test_ca", "-ca_file", certificate.cert, "-server_host_override", "localhost"] if certificate else []
    try:
        r = subprocess.run([tools["client"], "-server_host", host, "-server_port", port, "-test_case", case, *tls, *INTEROP[case], *more],
                           capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired as e:
        return f"{case}: no end after {e.timeout} s"
    return "" if r.returncode == 0 else f"{case}: exit {r.returncode}: {(r.stdout + r.stderr)[-1500:]}"


# ---- docs/conformance.md ----

PEERS = """| server | h2spec: generic | http2 | hpack | all, strict off | h2specd, two runs |
| --- | --- | --- | --- | --- | --- |
| nghttpd 1.52 | 44/44 | 93/94 | 7/7 | 144/145 | |
| HAProxy 2.6.12 | 44/44 | 94/94 | 7/7 | 145/145 | 39, 48 of 57 |
| nghttpx 1.52 | 44/44 | 86-89/94 | 7/7 | 137-140/145 | 56, 57 of 57 |
| nginx 1.22 grpc_pass | 43/44 | 71/94 | 5/7 | 119/145 | 52, 45 of 57 |

gRPC interop, 18 cases, three rounds plain and TLS: nginx and nghttpx 18; HAProxy 17 or 18 (`rpc_soak` stalls in one run of
three with its default buffers, and fails every time with `tune.bufsize 65536`).
"""


def row(engine, suite, mode, figure):
    """A line of the results table. Tests compare theirs with the page."""
    return f"| {engine} | {suite} | {mode} | {figure} |"


def h2spec_row(engine, tls, cases):
    mode = "TLS" if tls else "cleartext"
    if engine == "session":
        return row(engine, "h2spec, strict", mode, f"all but at most the {len(SESSION_MAY_FAIL)} named below, of {len(cases)}")
    return row(engine, "h2spec, strict", mode, f"{len(cases) - len(failed(cases))}/{len(cases)}")


def h2specd_row(engine, cases):
    return row(engine, "h2specd", "cleartext", f"{len(cases) - len(failed(cases))}/{len(cases)}")


def interop_row(engine, tls, wrong):
    return row(engine, "gRPC interop", "TLS" if tls else "cleartext", f"{len(INTEROP) - len(wrong)}/{len(INTEROP)}")


def page(rows, notes, rounds):
    pins = versions()
    return f"""# Conformance

Written by `./dev conform` from what the suites said; `./dev test` runs them again, where there is Go {needed_go()} or later, and
compares with this page. The suites come from pinned modules (`tests/conform/go/go.mod`): h2spec and h2specd
{pins["github.com/summerwind/h2spec"].split("+")[0]}, grpc-go {pins["google.golang.org/grpc"]}.

* **h2spec** plays a client that breaks rules before `penstock relay`; **h2specd** a server that breaks rules behind it.
* **gRPC interop** is the client and the server of the gRPC project with the relay in between: {len(INTEROP)} cases, all but
  `pick_first_unary`, which no server of that module answers as its client wants. `rpc_soak` and `channel_soak` make 200 calls of
  270 KB up and 314 KB down on 4 threads.
* One worker, the sanitized build, {time.strftime("%Y-%m-%d")}, {rounds} round{"s" if rounds > 1 else ""}: a case counts as passed when it passed in each.
  h2specd has one; a section of it with a failure is run again, up to three times, as its own time limits break on a busy machine.

| engine | suite | | passed |
| --- | --- | --- | --- |
{chr(10).join(rows)}

{chr(10).join(notes)}
## Others, with the same suites

On Debian 12, each before nghttpd 1.52 (h2spec), cleartext; TLS gave the same.

{PEERS}"""


def notes_of(titles):
    out = ["The session engine is the reference on nghttp2, which drops what comes for a stream that it has forgotten where RFC 9113",
           "section 5.1 asks for STREAM_CLOSED, and takes an id below the last for such a stream (5.1.1). Which of these cases fail depends",
           "on whether the answer overtakes the next frame:", ""]
    return out + [f"* `{name}` {titles[name]}" for name in sorted(SESSION_MAY_FAIL)] + [""]


def run_all(rounds):
    """(rows of the page, notes, what is wrong)."""
    import tempfile
    tools, rows, wrong, titles = build(), [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        certificate = Certificate(folder)
        for engine in ENGINES:
            for tls in (False, True):
                rows += [run_h2spec(tools, engine, tls, certificate, folder, rounds, wrong, titles)]
            cases = h2specd(tools, engine)
            rows += [h2specd_row(engine, cases)]
            wrong += [f"{engine}: h2specd {name} {title}" for name, title in failed(cases).items()]
            for tls in (False, True):
                rows += [run_interop(tools, engine, certificate if tls else None, rounds, wrong)]
    return rows, notes_of(titles), wrong


def run_h2spec(tools, engine, tls, certificate, folder, rounds, wrong, titles):
    programs, replica = penstock.Programs(), frames.Replica().start()
    try:
        relay = penstock.relay(programs, [replica.address], "--engine", engine, *(certificate.flags() if tls else []))
        cases = {}
        for _ in range(rounds):
            for name, (title, passed) in h2spec(tools, relay.grpc, folder, tls).items():
                cases[name] = (title, passed and cases.get(name, (title, True))[1])
        titles.update({name: title for name, (title, _) in cases.items()})
        may = SESSION_MAY_FAIL if engine == "session" else set()
        wrong += [f"{engine}: h2spec {name} {title}" for name, title in failed(cases).items() if name not in may]
        return h2spec_row(engine, tls, cases)
    finally:
        replica.stop()
        programs.stop_all()


def run_interop(tools, engine, certificate, rounds, wrong):
    programs, bad = penstock.Programs(), {}
    try:
        server = interop_server(programs, tools)
        relay = penstock.relay(programs, [server.grpc], "--engine", engine, *(certificate.flags() if certificate else []))
        for _ in range(rounds):
            for case in INTEROP:
                said = interop(tools, relay.grpc, case, certificate)
                if said:
                    bad[case] = said
    finally:
        programs.stop_all()
    wrong += [f"{engine}: interop {said}" for said in bad.values()]
    return interop_row(engine, certificate is not None, bad)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    try:
        rows, notes, wrong = run_all(rounds)
    except NoGo as e:
        sys.exit(str(e))
    PAGE.write_text(page(rows, notes, rounds))
    print("\n".join(rows))
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
