"""Rows that the `peers` harness measures with h2load: CPU a call, latency, split, replicas that go, system calls.

The harness is not part of this repository: it lies in $PENSTOCK_SHARED/bench or ../shared/bench. It is copied, and two
things are mended in the copy: its own client sends noise where the load sends a request, which a gateway that routes by
what a message says refuses; and a row for 100 KiB in TLS is added.
"""
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

from report import Row, ratio_row, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
# workload: (peer, ours at most so much of it)
TARGETS = {"many": ("nghttpx", 0.45), "one": ("nghttpx", 0.50), "tls": ("nghttpx", 0.50), "paced": ("nghttpx", 0.80), "solo": ("nghttpx", 0.70),
           "100k": ("nginx", 0.90), "1m": ("nginx", 0.90), "tls100k": ("nginx", 1 / 1.15)}
PEERS = ("nginx", "haproxy", "nghttpx", "envoy")
UPSET_PAUSE_MS = 300  # no call may take longer while a replica goes; the slowest of all calls of a quiet run takes some 20
IN_FLIGHT = 100       # of the upset runs
SYSCALLS = {"many": 0.25, "solo": 8, "100k": 5}
NOISE = "body[k] = k < 5 ? (k ? (body_len - 5) >> (8 * (4 - k)) : 0) : k * 2654435761u >> 13;\n"
FROM_FILE = NOISE + """	char body_name[32];
	snprintf(body_name, sizeof(body_name), "body%zu", (size_t)body_len);
	FILE *body_file = fopen(body_name, "rb");
	if (body_file && fread(body, 1, body_len, body_file) != body_len)
		return 1;
"""
WORK_100K = '    "100k":  NS('
WORK_TLS_100K = '    "tls100k": NS(c=20, m=5, size=100 << 10, n=6000, tls=True, rps=0),\n'


def find():
    shared = pathlib.Path(os.environ.get("PENSTOCK_SHARED", ROOT.parent / "shared"))
    return shared / "bench" if (shared / "bench/peers").exists() else None


def fetch(scratch):
    """A mended copy, or None with a message: the rows are left out then."""
    source = find()
    if source is None:
        print("h2load rows: skipped, no harness at ../shared/bench/peers (PENSTOCK_SHARED names the folder above bench/)", file=sys.stderr)
        return None
    copy = scratch / "harness"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("results"))
    probe, peers = copy / "probe.c", copy / "peers"
    probe.write_text(probe.read_text().replace(NOISE, FROM_FILE))
    peers.write_text(peers.read_text().replace(WORK_100K, WORK_TLS_100K + WORK_100K, 1))
    return copy


def call(bench, copy, *args):
    env = {**os.environ, "PENSTOCK": bench.tool("penstock"), "PENSTOCK_ARGS": "gateway --config @CONF/penstock.json@",
           "PENSTOCK_CONF": str(ROOT / "tests/bench"), "PEERS_DIR": str(bench.scratch / "peers"), **({"ENVOY": bench.envoy} if bench.envoy else {})}
    r = subprocess.run([sys.executable, copy / "peers", *map(str, args)], env=env, stdout=subprocess.PIPE, text=True)
    if r.returncode != 0:
        raise RuntimeError(f"peers {args[0]} ended with {r.returncode}")
    return r.stdout


def names(bench, peers, only):
    return ",".join(n for n in ("penstock", *peers) if bench.has(n) and (not only or n in only))


# ---- loads ----

def good_pairs(cells, work, peer):
    return [(o, p) for o, p in zip(cells.get(("penstock", work), []), cells.get((peer, work), [])) if not o["error"] and not p["error"]]


def load_rows(result, cells):
    rows = []
    for work in dict.fromkeys(w for _, w in cells):
        peer, bound = TARGETS[work]
        both = good_pairs(cells, work, peer)
        if not both:
            continue
        text = f"h2load, {work}: CPU a call, penstock over {peer}"
        rows.append(ratio_row(text, f"at most {bound:.2f} x", [o["cpu_us"] / p["cpu_us"] for o, p in both], at_most=round(bound, 3)))
        bad = sum(c["bad"] for c in cells["penstock", work])
        if bad:
            rows.append(Row(f"h2load, {work}: calls not answered", "0", str(bad), False))
    ours = [c for c in cells.get(("penstock", "paced"), []) if not c["error"]]
    for key, text in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")) if ours else ():
        known = {p: statistics.median(c[key] for c in cells[p, "paced"] if not c["error"]) for p in PEERS
                 if any(not c["error"] for c in cells.get((p, "paced"), []))}
        if known:
            best, mine = min(known, key=known.get), [c[key] for c in ours]
            m = statistics.median(mine)
            rows.append(Row(f"paced 4,000 calls/s: {text} in ms", f"at most {known[best]:.2f} ({best})", f"{m:.2f}", m <= known[best],
                            f"{min(mine):.2f} to {max(mine):.2f}" if len(mine) > 1 else ""))
    split = [c["split"] for c in cells.get(("penstock", "one"), []) if not c["error"]]
    if split:
        worst = max(abs(s[0] / sum(s) - 1 / len(s)) * 100 for s in split)
        rows.append(Row("split of one connection's calls over two replicas", "within 1 % of even", f"{worst:.2f} % off", worst <= 1))
    return rows


def load_details(result, cells):
    out = []
    for work in dict.fromkeys(w for _, w in cells):
        w = result["workloads"][work]
        pace = f", paced to {w['c'] * w['rps']}/s" if w["rps"] else ""
        out += ["", f"**{work}**: {w['size']} B each way, {w['c']} connections x {w['m']} in flight{', TLS 1.3' if w['tls'] else ''}{pace}", "",
                "| | CPU us a call | x penstock | calls/s | p50 ms | p99 ms | p99.9 ms | bad | RSS MiB |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
        for name in dict.fromkeys(n for n, _ in cells):
            runs = [r for r in cells.get((name, work), []) if not r["error"]]
            if not runs:
                continue
            ratios = [p["cpu_us"] / o["cpu_us"] for o, p in good_pairs(cells, work, name) if o["cpu_us"]]
            m = {k: statistics.median(r[k] for r in runs) for k in ("cpu_us", "rps", "p50", "p99", "p999", "bad", "rss")}
            low, high = min(r["cpu_us"] for r in runs), max(r["cpu_us"] for r in runs)
            out.append(f"| {name} | {m['cpu_us']:.1f} ({low:.1f} to {high:.1f}) | {statistics.median(ratios) if ratios else 0:.2f} | {m['rps']:,.0f} "
                       f"| {m['p50']:.2f} | {m['p99']:.2f} | {m['p999']:.2f} | {m['bad']:.0f} | {m['rss']:.1f} |")
    return out


def run_loads(bench, copy, rounds, works=None, only=None):
    """All peers where each is a bound (paced), else those that are: the rest stands in the saturated part."""
    chosen = [w for w in TARGETS if not works or w in works]
    cells, result = {}, {}
    for few, peers in ((["paced"], PEERS), ([w for w in TARGETS if w != "paced"], ("nginx", "nghttpx"))):
        part = [w for w in chosen if w in few]
        if not part:
            continue
        out = bench.scratch / "peers.json"
        call(bench, copy, "bench", "--base", "penstock", "--reps", rounds, "--tries", 1, "--only", names(bench, peers, only), "--work", ",".join(part),
             "--json", out)
        result = json.loads(out.read_text())
        cells.update({(c["proxy"], c["work"]): c["runs"] for c in result["cells"]})
    rows = load_rows(result, cells)
    return rows, "\n".join([table(rows), *load_details(result, cells)])


# ---- replicas that go ----

def run_upset(bench, copy, only=None):
    # The other peers answer a gRPC client with 502 or a reset.
    text = call(bench, copy, "upset", "--only", names(bench, ["envoy"], only))
    rows, out = [], ["", "| a replica | proxy | what clients saw |", "| --- | --- | --- |"]
    for how, name, counts in re.findall(r"^replica (\w+) +([\w-]+) +(.*)$", text, re.M):
        c = {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", counts)}
        shown = " ".join(f"{k}={v:g}" for k, v in c.items() if v and not k.startswith("http_"))
        out.append(f"| {how} | {name} | {shown} |")
        if name != "penstock":
            continue
        failed = sum(v for k, v in c.items() if k not in ("ok", "slowest_ms") and not k.startswith(("http_", "grpc_")))
        slowest = f"slowest call {c.get('slowest_ms', 0):.0f} ms"
        if how == "dies":
            rows.append(Row("a replica dies", f"only calls that it held (at most {IN_FLIGHT}), each grpc-status 14", f"{failed:.0f} failed, {c.get('grpc_14', 0):.0f} of them 14",
                            failed == c.get("grpc_14", 0) <= IN_FLIGHT, slowest))
        else:
            rows.append(Row(f"a replica {'drains' if how == 'drains' else 'is missing'}", f"0 failed, no pause (over {UPSET_PAUSE_MS} ms)",
                            f"{failed:.0f} failed, {slowest}", failed == 0 and c.get("slowest_ms", 0) <= UPSET_PAUSE_MS))
    return rows, "\n".join([table(rows), *out])


# ---- system calls ----

def run_syscalls(bench, copy):
    text = call(bench, copy, "syscalls", "--only", "penstock", "--work", ",".join(SYSCALLS))
    rows, out = [], [""]
    for work, figure, which in re.findall(r"^(\w+) +penstock +([\d.]+) a call: (.*)$", text, re.M):
        bound = SYSCALLS[work]
        rows.append(Row(f"system calls a call, {work}", f"at most {bound}", figure, float(figure) <= bound))
        out.append(f"- {work}: {which}")
    return rows, "\n".join([table(rows), *out])
