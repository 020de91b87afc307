"""What the gateway holds: idle connections, large messages to slow readers; and how it fills a far link."""
import statistics
import sys
import threading
import time

from cells import children, memory_kib
from report import Row, table

MIB = 1 << 20


def wait_log(p, text, limit_s):
    until = time.monotonic() + limit_s
    while text not in p.log.read_text():
        if p.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{p.args[0]}: no {text!r} in {p.log.read_text()[-300:]}")
        time.sleep(0.05)


# ---- idle connections ----

def idle_kib(bench, name, n, tls):
    """KiB of the proxy's own memory (PSS) for each of n connections that made a call and rest."""
    replicas = bench.replicas(128)
    try:
        process, port, tls_port = bench.proxy(name, replicas)
        message = bench.message(128)
        bench.load(port, message, "--connections", 4, "--saturate", 4, "--calls", 400)  # replicas' connections are not the clients' cost
        time.sleep(0.5)
        before = memory_kib(children(process.pid), "Pss")
        load = bench.spawn(0, bench.load_argv(tls_port if tls else port, message, "--connections", n, "--saturate", 1, "--calls-each", 1,
                                              "--hold-ms", 60000, tls=tls), "hold.log")
        wait_log(load, f"holding {n} connections", 60)
        time.sleep(1.5)
        after = memory_kib(children(process.pid), "Pss")
        load.terminate()
        load.wait(30)
        return (after - before) / n
    finally:
        bench.stop_all()


def run_idle(bench, only=None):
    rows, out = [], ["", "| proxy | connections | KiB each, one call made |", "| --- | --- | ---: |"]
    for name, n, tls, bound in (("penstock", 20000, False, 4), ("penstock", 1000, True, 20), ("nginx", 5000, False, None), ("nginx", 1000, True, None),
                                ("haproxy", 5000, False, None), ("nghttpx", 5000, False, None)):
        if not bench.has(name) or (only and name not in only):
            continue
        n = min(n, bench.files - 1000)  # the gateway keeps some free for replicas
        text = f"{n:,}{' TLS' if tls else ''}"
        try:
            kib = idle_kib(bench, name, n, tls)
        except RuntimeError as e:
            print(f"idle {name} {text}: {e}", file=sys.stderr)
            if bound:
                rows.append(Row(f"{text} idle connections, one call made", f"held, at most {bound} KiB each", "not held", False))
            continue
        print(f"idle {name} {text}: {kib:.2f} KiB each", file=sys.stderr, flush=True)
        out.append(f"| {name} | {text} | {kib:.2f} |")
        if bound:
            rows.append(Row(f"{text} idle connections held, one call made: KiB each beyond the kernel", f"at most {bound}", f"{kib:.2f}", kib <= bound))
    return rows, "\n".join([table(rows), *out])


# ---- large messages, slow readers ----

class Watch:
    """The largest resident size of a process while it is watched, in KiB."""

    def __init__(self, pid):
        self.pid, self.most, self.stopped = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.stopped.wait(0.1):
            self.most = max(self.most, memory_kib([self.pid], "Rss"))

    def stop(self):
        self.stopped.set()
        self.thread.join()
        return self.most


def fault(bench, port, *flags):
    p = bench.spawn(0, [bench.tool("penstock-fault"), "--listen", "127.0.0.1:0", "--to", f"127.0.0.1:{port}", *flags], f"fault{port}.log")
    wait_log(p, "ready", 10)
    return int(p.log.read_text().split("listening grpc ")[1].split()[0].rsplit(":", 1)[1])


def slow_readers(bench, upload, mib, seconds):
    """20 messages of mib at a time through 10 MB/s each: growth of the gateway's RSS in MiB, calls that ended well."""
    no_limit = {"model": {"limits": {"message_mib": 0}}}
    rate = ["--rate-kib", 10_000_000 // 1024]
    replicas = bench.replicas(128 if upload else mib * MIB)
    try:
        if upload:
            replicas = [fault(bench, port, *rate) for port in replicas]
        process, port, _ = bench.proxy("penstock", replicas, **no_limit)
        if not upload:
            port = fault(bench, port, *rate)
        time.sleep(0.3)
        before = memory_kib([process.pid], "Rss")
        watch = Watch(process.pid)
        try:
            r = bench.load(port, bench.message(mib * MIB if upload else 128), "--connections", 20, "--saturate", 1, "--calls-each", 1, "--duration", seconds,
                           "--allow-fail")
        finally:
            most = watch.stop()
        return (most - before) / 1024, r
    finally:
        bench.stop_all()


def run_large(bench):
    rows = []
    for upload, mib, seconds, text in ((False, 256, 60, "20 answers of 256 MiB at a time, each read at 10 MB/s"),
                                       (True, 256, 8, "20 uploads of 256 MiB at a time over two links of 10 MB/s, 8 s of them")):
        grown, r = slow_readers(bench, upload, mib, seconds)
        print(f"large: {text}: RSS + {grown:.1f} MiB, {r['ok']} ok, {r['failed'] - r['unfinished']} failed", file=sys.stderr, flush=True)
        whole = r["ok"] == 20 if not upload else r["failed"] == r["unfinished"]
        rows.append(Row(text + ": RSS growth of the gateway", "under 64 MiB, no call fails", f"{grown:.1f} MiB, {r['failed'] - r['unfinished']} failed",
                        grown < 64 and whole))
    return rows, table(rows)


# ---- a far link ----

def link_share(bench, upload, rate_kib, mib):
    """One call of mib over a link with 50 ms of round trip: the share of the link's rate that it reached."""
    no_limit = {"model": {"limits": {"message_mib": 0}}}
    link = ["--delay-ms", 25, "--rate-kib", rate_kib]
    replicas = bench.replicas(128 if upload else mib * MIB)
    try:
        if not upload:
            replicas = [fault(bench, port, *link) for port in replicas]
        _, port, _ = bench.proxy("penstock", replicas, **no_limit)
        if upload:
            port = fault(bench, port, *link)
        r = bench.load(port, bench.message(mib * MIB if upload else 128), "--connections", 1, "--saturate", 1, "--calls", 1, "--duration", 60)
        if r["ok"] != 1:
            raise RuntimeError(f"the call failed: {r}")
        return mib * 1024 / (r["p50_ms"] / 1000) / rate_kib
    finally:
        bench.stop_all()


def run_link(bench, rounds):
    rows = []
    for rate, mbit, mib in ((12207, 100, 48), (122070, 1000, 400)):
        for upload in (True, False):
            text = f"one stream, {mbit} Mbit/s with 50 ms of round trip, {mib} MiB {'up from the client' if upload else 'down from the replica'}"
            shares = [link_share(bench, upload, rate, mib) * 100 for _ in range(rounds)]
            m = statistics.median(shares)
            print(f"link: {text}: {m:.0f} %", file=sys.stderr, flush=True)
            rows.append(Row(text, "at least 80 % of the link", f"{m:.0f} %", m >= 80, f"{min(shares):.0f} to {max(shares):.0f}" if rounds > 1 else ""))
    return rows, table(rows)
