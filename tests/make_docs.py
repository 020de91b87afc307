#!/usr/bin/env python3
"""The pages of docs/ that the programs write themselves: cli.md from --help, config.md and limits.md from the field tables.

usage: make_docs.py BUILD [--write]      compares, or writes; exit 1 when a page differs
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLI_HEAD = """# Command line

Made by `./dev docs` from what the programs print with `--help`; a test compares.

Exit statuses: 0 done, 1 failed, 64 wrong usage, 69 the admin address does not answer, 78 bad config. Verbs that talk to a
running penstock take `--admin ADDR` (or `$PENSTOCK_ADMIN`; default 127.0.0.1:7080) and `--json`.
"""


def run(*argv):
    r = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    if r.returncode != 0:
        sys.exit(f"{' '.join(map(str, argv))}: exit {r.returncode}: {r.stderr}")
    return r.stdout.rstrip() + "\n"


def listed(text):
    """The verbs, or subjects of a verb, that a --help lists."""
    return re.findall(r"^  (\w[\w-]*) +\S", text, re.M)


def cli_page(build):
    """One section a verb, one a program of loadtest/."""
    penstock = build / "penstock/penstock"
    top = run(penstock, "--help")
    page = [CLI_HEAD, "\n## penstock\n\n```\n", top, "```\n"]
    for verb in listed(top):
        text = run(penstock, verb, "--help")
        page += [f"\n## penstock {verb}\n\n```\n", text, "```\n"]
        for subject in listed(text) if verb == "simulate" else []:
            page += [f"\n## penstock {verb} {subject}\n\n```\n", run(penstock, verb, subject, "--help"), "```\n"]
    for program in ("penstock-load", "penstock-model", "penstock-train", "penstock-light", "penstock-fault"):
        page += [f"\n## {program}\n\n```\n", run(build / "loadtest" / program, "--help"), "```\n"]
    return "".join(page)


def config_page(build):
    return run(build / "penstock/penstock", "check", "--print-reference")


def limits_page(build):
    return run(build / "penstock/penstock", "check", "--print-limits")


def main():
    build, write = pathlib.Path(sys.argv[1]).resolve(), "--write" in sys.argv
    stale = []
    for name, text in (("cli.md", cli_page(build)), ("config.md", config_page(build)), ("limits.md", limits_page(build))):
        page = ROOT / "docs" / name
        if write:
            page.write_text(text)
        elif not page.exists() or page.read_text() != text:
            stale.append(f"docs/{name}")
    if stale:
        sys.exit(f"{' and '.join(stale)} no longer say what the programs print: run ./dev docs")


if __name__ == "__main__":
    main()
