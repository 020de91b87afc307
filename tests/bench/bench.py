#!/usr/bin/env python3
"""Penstock beside other proxies in one run: ./dev bench [--reps N] [--work NAMES] [--only NAMES] [--docs].

The measuring is done by the `peers` harness, which lies outside this repository: in $PENSTOCK_SHARED/bench, or in
../shared/bench. Without it this says so and ends 0. --docs puts the figures into docs/performance.md.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/bench"
DOCS = ROOT / "docs/performance.md"
PORT = int(os.environ.get("PEERS_PORT", 19080))


BODY_LOOP = "body[k] = k < 5 ? (k ? (body_len - 5) >> (8 * (4 - k)) : 0) : k * 2654435761u >> 13;\n"
BODY_FILE = BODY_LOOP + """	char body_name[32];
	snprintf(body_name, sizeof(body_name), "body%zu", (size_t)body_len);
	FILE *body_file = fopen(body_name, "rb");
	if (body_file && fread(body, 1, body_len, body_file) != body_len)
		return 1;
"""


def mend_probe(harness):
    """The harness's own client sends noise in its check of answers; a gateway that routes by what the message says needs
    the message that the load sends, which lies in a file beside it."""
    probe = harness / "probe.c"
    probe.write_text(probe.read_text().replace(BODY_LOOP, BODY_FILE))


def markdown(result):
    """One table a workload: CPU a call with the ratio to us in the same round, calls/s, latency, memory."""
    cells = {(c["proxy"], c["work"]): c["runs"] for c in result["cells"]}
    works = list(dict.fromkeys(w for _, w in cells))
    names = list(dict.fromkeys(n for n, _ in cells if n != "direct"))
    out = [f"{result['machine']['cpu']}, {result['machine']['cores']} cores, Linux {result['machine']['kernel']}; " +
           ", ".join(v for n, v in result["versions"].items() if n != "direct") + "."]
    for work in works:
        w = result["workloads"][work]
        pace = f", paced to {w['c'] * w['rps']}/s" if w["rps"] else ""
        out += ["", f"**{work}**: {w['size']} B each way, {w['c']} connections x {w['m']} in flight{', TLS 1.3' if w['tls'] else ''}{pace}", "",
                "| | CPU µs a call | x penstock | calls/s | p50 ms | p99 ms | bad | RSS MiB |", "|---|---|---|---|---|---|---|---|"]
        ours = cells.get(("penstock", work), [])
        for name in names:
            runs = [r for r in cells.get((name, work), []) if not r["error"]]
            if not runs:
                continue
            ratios = [r["cpu_us"] / o["cpu_us"] for r, o in zip(cells[name, work], ours) if not r["error"] and not o["error"] and o["cpu_us"]]
            med = {k: statistics.median(r[k] for r in runs) for k in ("cpu_us", "rps", "p50", "p99", "bad", "rss")}
            ratio = f"{statistics.median(ratios):.2f}" if ratios else "-"
            out.append(f"| {name} | {med['cpu_us']:.1f} | {ratio} | {med['rps']:,.0f} | {med['p50']:.2f} | {med['p99']:.2f} "
                       f"| {med['bad']:.0f} | {med['rss']:.1f} |")
    return "\n".join(out)


def write_docs(text):
    page = DOCS.read_text()
    new = re.sub(r"(<!-- bench:begin -->\n).*?(<!-- bench:end -->)", lambda m: m[1] + text.rstrip() + "\n" + m[2], page, flags=re.S)
    if new == page:
        sys.exit("docs/performance.md has no bench:begin and bench:end marks, or nothing changed")
    DOCS.write_text(new)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--work", default="many,solo,one,tls,paced,100k,1m", help="workloads, comma-separated")
    p.add_argument("--only", default="direct,nginx,haproxy,nghttpx,penstock", help="proxies, comma-separated")
    p.add_argument("--docs", action="store_true", help="put the figures into docs/performance.md")
    a = p.parse_args()
    shared = pathlib.Path(os.environ.get("PENSTOCK_SHARED", ROOT.parent / "shared"))
    if not (shared / "bench/peers").exists():
        print(f"skipped: no harness at {shared}/bench/peers (PENSTOCK_SHARED names the folder above bench/)")
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as tmp:
        tmp = pathlib.Path(tmp)
        harness = tmp / "bench"
        shutil.copytree(shared / "bench", harness)
        mend_probe(harness)
        out = ROOT / "build/bench.json"
        env = {"PENSTOCK_ARGS": "gateway --config @CONF/penstock.json@", **os.environ, "PENSTOCK": str(ROOT / "build/penstock/penstock"), "PENSTOCK_CONF": str(HERE), "PEERS_PORT": str(PORT),
               "PEERS_DIR": str(tmp / "work")}
        subprocess.run([sys.executable, harness / "peers", "bench", "--base", "penstock", "--reps", str(a.reps), "--only", a.only,
                        "--work", a.work, "--json", out], env=env, check=True)
        text = markdown(json.loads(out.read_text()))
    print("\n" + text)
    if a.docs:
        write_docs(text)


if __name__ == "__main__":
    main()
