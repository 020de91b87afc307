#!/usr/bin/env python3
"""Penstock beside other proxies and against its targets, in one run: tables with what was asked and what was found.

usage: ./dev bench [--parts NAMES] [--rounds N] [--seconds S] [--work NAMES] [--only NAMES] [--docs] [--quick]

Parts, all of them unless named, about 12 minutes with three rounds:
  saturated     penstock-load --saturate: nginx, HAProxy, nghttpx, Envoy and a raw TCP relay, round by round
  h2load        the `peers` harness, which is not part of this repository; left out where it isn't
  upset         the same harness: one of two replicas drains, dies, is missing
  syscalls      the same harness, with strace
  idle          20,000 idle connections, and 1,000 in TLS: memory of each
  large         messages of 256 MiB to slow readers: memory
  link          one stream over a link of 50 ms (penstock-fault)
  instructions  user instructions a relayed call (callgrind): not moved by what else runs
Measure on a quiet machine, and read ratios: what is measured in one run moves together.
--docs puts each part's table into docs/performance.md. Exit 0 also where a target was missed.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import harness
import holds
import report
import saturated
from cells import Bench, machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTRUCTIONS = {False: 3500, True: 6000}  # unique ids?


def run_instructions(build):
    rows = []
    for unique, bound in INSTRUCTIONS.items():
        argv = [sys.executable, ROOT / "tests/bench/instructions", "--build", build, "--engines", "native", "--json", *["--unique"] * unique]
        count = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)["native"]["instructions"]
        what = ", a request id of its own in each" if unique else ""
        rows.append(report.Row(f"user instructions a call, 50 x 20, 128 B{what}", f"at most {bound:,}", f"{count:,}", count <= bound))
    return rows, report.table(rows)


def parts_of(a, bench, copy):
    """{name: function that gives (rows, text)}, in the order in which they run."""
    h = {"h2load": lambda: harness.run_loads(bench, copy, max(1, a.rounds - 1), a.work, a.only), "upset": lambda: harness.run_upset(bench, copy, a.only),
         "syscalls": lambda: harness.run_syscalls(bench, copy)}
    return {"saturated": lambda: saturated.run(bench, a.rounds, a.seconds, a.work, a.only), **(h if copy else {}),
            "idle": lambda: holds.run_idle(bench, a.only), "large": lambda: holds.run_large(bench), "link": lambda: holds.run_link(bench, 1),
            "instructions": lambda: run_instructions(bench.build)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda s: s.split(",")
    p.add_argument("--parts", type=names, help="comma-separated")
    p.add_argument("--rounds", type=int, default=3, help="of saturated; h2load gets one less (3)")
    p.add_argument("--seconds", type=float, default=0.8, help="of a saturated cell (0.8)")
    p.add_argument("--work", type=names, help="workloads of saturated and h2load, comma-separated")
    p.add_argument("--only", type=names, help="proxies, comma-separated")
    p.add_argument("--build", default=ROOT / "build", help="build folder (build)")
    p.add_argument("--quick", action="store_true", help="one round of 0.3 s: does everything run?")
    p.add_argument("--docs", action="store_true", help="put the tables into docs/performance.md")
    a = p.parse_args()
    if a.quick:
        a.rounds, a.seconds = 1, 0.3
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        pathlib.Path(scratch).chmod(0o755)
        bench = Bench(a.build, scratch)
        if not a.only or "envoy" in a.only:
            bench.install_envoy()
        parts = parts_of(a, bench, harness.fetch(bench.scratch))
        unknown = [n for n in a.parts or [] if n not in parts and n not in ("h2load", "upset", "syscalls")]
        if unknown:
            p.error(f"--parts {','.join(unknown)}: known are {', '.join(parts)}")
        versions = [bench.version(n) for n in ("penstock", "nginx", "haproxy", "nghttpx", "envoy") if bench.has(n)]
        head = f"{machine()}; {', '.join(versions)}; {time.strftime('%Y-%m-%d', time.gmtime())}, {a.rounds} round{'s' * (a.rounds > 1)}"
        missed = []
        for name, run in parts.items():
            if a.parts and name not in a.parts:
                continue
            began = time.monotonic()
            try:
                rows, text = run()
            finally:
                bench.stop_all()
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
            print(f"\n### {name}\n\n{text}", flush=True)
            missed += [r for r in rows if not r.reached]
            if a.docs:
                report.write_block(name, f"{head}.\n\n{text}")
        print("\nmissed: " + ("none" if not missed else "\n" + report.table(missed)))


if __name__ == "__main__":
    main()
