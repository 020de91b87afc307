"""Saturated rows: penstock, the other proxies and a raw TCP relay, interleaved round by round, one core each.

The load is `penstock-load --saturate`, the replicas are `penstock-light`: h2load would fill its core before the proxy does.
CPU a call is the scheduler's count for all of a proxy's processes over the calls that were answered whole.
"""
import dataclasses
import json
import statistics
import sys

from cells import children
from report import Row, ratio_row, table

KIB, MIB = 1 << 10, 1 << 20


@dataclasses.dataclass
class Work:
    text: str
    connections: int
    streams: int
    sent: int = 128
    answered: int = 128
    tls: bool = False
    request_ids: bool = False
    proxies: tuple = ()
    # (proxy, "at least" | "at most", bound): at least: its CPU over ours; at most: ours over its
    targets: tuple = ()


WORKS = {
    "many": Work("50 x 20, 128 B", 50, 20, proxies=("relay 64 KiB", "haproxy", "nginx", "nghttpx", "envoy", "penstock by path", "penstock with 2 workers"),
                 targets=(("haproxy", "at least", 10), ("nginx", "at least", 25), ("nghttpx", "at least", 5), ("envoy", "at least", 25),
                          ("relay 64 KiB", "at most", 2), ("penstock by path", "at most", 1.03), ("penstock with 2 workers", "at least, inverse", 1.1))),
    "ids": Work("50 x 20, 128 B, a request id of its own in each call", 50, 20, request_ids=True, proxies=("haproxy",),
                targets=(("haproxy", "at least", 8),)),
    "one": Work("1 x 100, 128 B", 1, 100, proxies=("relay 64 KiB", "haproxy"), targets=(("haproxy", "at least", 5),)),
    "wide": Work("200 x 1, 128 B", 200, 1, proxies=("relay 64 KiB", "haproxy"), targets=(("haproxy", "at least", 3),)),
    "100k": Work("20 x 5, 100 KiB up", 20, 5, sent=100 * KIB, proxies=("relay 64 KiB", "relay 256 KiB", "haproxy", "nginx", "nghttpx"),
                 targets=(("haproxy", "at least", 2.5), ("nginx", "at most", 0.6), ("relay 256 KiB", "at most", 1.15))),
    "1m": Work("8 x 2, 1 MiB up", 8, 2, sent=MIB, proxies=("relay 64 KiB", "relay 256 KiB", "haproxy", "nginx", "nghttpx"),
               targets=(("haproxy", "at least", 2.5), ("nginx", "at most", 0.6), ("relay 256 KiB", "at most", 1.4))),
    "100k-echo": Work("20 x 5, 100 KiB both ways", 20, 5, sent=100 * KIB, answered=100 * KIB - 5, proxies=("nginx",),
                      targets=(("nginx", "at most", 0.8),)),
    "1m-echo": Work("8 x 2, 1 MiB both ways", 8, 2, sent=MIB, answered=MIB - 5, proxies=("nginx",), targets=(("nginx", "at most", 0.8),)),
    "tls": Work("TLS 1.3, 50 x 20, 128 B", 50, 20, tls=True, proxies=("haproxy", "nginx", "nghttpx", "envoy"),
                targets=(("best", "at least", 2), ("envoy", "at least", 8))),
    "tls-100k": Work("TLS 1.3, 20 x 5, 100 KiB both ways", 20, 5, sent=100 * KIB, answered=100 * KIB - 5, tls=True, proxies=("nginx", "nghttpx"),
                     targets=(("nginx", "at least", 1.3),)),
}


def measure(bench, name, w, seconds):
    """One cell: CPU a call in us, or a reason why there is none."""
    replicas = bench.replicas(w.answered)
    try:
        process, port, tls_port = bench.proxy(name, replicas)
        port = tls_port if w.tls else port
        bench.load(port, bench.message(w.sent), "--connections", 1, "--saturate", 1, "--calls", 5, tls=w.tls)  # its workers are there by then
        pids = [x for p in children(process.pid) for x in ("--cpu-of", p)]
        r = bench.load(port, bench.message(w.sent), "--connections", w.connections, "--saturate", w.streams, "--duration", seconds,
                       "--warm-up-ms", 400, *pids, *(["--request-ids"] if w.request_ids else []), tls=w.tls)
        log = process.log.read_text()[-200:] if process.poll() is not None else ""
    except RuntimeError as e:
        return {"error": str(e)}
    finally:
        bench.stop_all()
    # The generator holds each answer against its own length; parts of answers that the end cut off count as bytes, too.
    if r["failed"] or r["ok"] < 10 or not 0.7 < r["bytes_per_answer"] / (w.answered + 5) < 1.5:
        what = {k: v for k, v in r.items() if k in ("ok", "failed", "by_status", "empty", "no_status", "reset", "lost", "unfinished", "why_lost")}
        return {"error": f"not all calls were answered whole: {json.dumps(what)} {log}"}
    if r["cpu_us_per_call"] <= 0:
        return {"error": f"the proxy used no CPU: {log}"}
    return {"cpu_us": r["cpu_us_per_call"], "rps": r["calls_per_s"], "p50": r["p50_ms"], "p99": r["p99_ms"], "own_us": r["own_cpu_us_per_call"],
            "core": r["cpu_us_per_call"] * r["calls_per_s"] / 1e6}


def pairs(cells, work, a, b):
    """CPU of a over CPU of b, round by round."""
    return [x["cpu_us"] / y["cpu_us"] for x, y in zip(cells.get((work, a), []), cells.get((work, b), [])) if "error" not in x and "error" not in y]


def best_peer(cells, work, names):
    known = {n: statistics.median(c["cpu_us"] for c in cells[work, n] if "error" not in c) for n in names
             if any("error" not in c for c in cells.get((work, n), []))}
    return min(known, key=known.get) if known else None


def rows_of(cells, work):
    w = WORKS[work]
    rows = []
    for peer, kind, bound in w.targets:
        name = best_peer(cells, work, w.proxies) if peer == "best" else peer
        if (work, peer) not in cells and peer != "best":
            continue
        ahead = pairs(cells, work, name, "penstock") if kind.startswith("at least") else pairs(cells, work, "penstock", name)
        text = f"{w.text}: CPU a call, "
        if not ahead:
            rows.append(Row(text + str(name), f"{bound}", "not measured", False))
        elif kind == "at least":
            rows.append(ratio_row(f"{text}{name} over penstock", f"at least {bound} x", ahead, at_least=bound))
        elif kind == "at most":
            rows.append(ratio_row(f"{text}penstock over {name}", f"at most {bound} x", ahead, at_most=bound))
        else:
            rows.append(ratio_row(f"{text}{name} over one", f"at most {bound} x", ahead, at_most=bound))
    return rows


def details(cells, work):
    w = WORKS[work]
    out = ["", f"**{w.text}**", "", "| | CPU us a call | x penstock | calls/s | p50 ms | p99 ms | core |", "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name in ("penstock", *w.proxies):
        good = [c for c in cells.get((work, name), []) if "error" not in c]
        bad = [c["error"] for c in cells.get((work, name), []) if "error" in c]
        if not good:
            out += [f"| {name} | not measured: {bad[0][:160]} | | | | | |"] if bad else []
            continue
        med = {k: statistics.median(c[k] for c in good) for k in good[0]}
        low, high = min(c["cpu_us"] for c in good), max(c["cpu_us"] for c in good)
        ratio = pairs(cells, work, name, "penstock")
        out.append(f"| {name} | {med['cpu_us']:.2f} ({low:.2f} to {high:.2f}) | {statistics.median(ratio) if ratio else 0:.2f} | {med['rps']:,.0f} "
                   f"| {med['p50']:.2f} | {med['p99']:.2f} | {med['core']:.0%} |")
    return out


def run(bench, rounds, seconds, works=None, only=None):
    """(rows, text of the block)"""
    cells = {}
    for r in range(rounds):
        for work, w in WORKS.items():
            if works and work not in works:
                continue
            for name in ("penstock", *w.proxies):
                if not bench.has(name) or (only and name not in only):
                    continue
                c = measure(bench, name, w, seconds)
                cells.setdefault((work, name), []).append(c)
                print(f"{r + 1}/{rounds} {work} {name}: " + (c.get("error") or f"{c['cpu_us']:.2f} us, {c['rps']:.0f}/s, core {c['core']:.0%}"),
                      file=sys.stderr, flush=True)
    done = list(dict.fromkeys(w for w, _ in cells))
    rows = [row for work in done for row in rows_of(cells, work)]
    text = [table(rows)]
    for work in done:
        text += details(cells, work)
    return rows, "\n".join(text)
