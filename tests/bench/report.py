"""Tables of docs/performance.md: each row has a target and what was found, each block its own pair of marks."""
import dataclasses
import pathlib
import re
import statistics
import sys

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs/performance.md"


@dataclasses.dataclass
class Row:
    """One line: what was asked, what was found. spread: of the rounds, "" for one figure."""
    workload: str
    target: str
    figure: str
    reached: bool
    spread: str = ""


def table(rows):
    out = ["| workload | to reach | figure | rounds | reached |", "| --- | --- | ---: | --- | --- |"]
    return "\n".join(out + [f"| {r.workload} | {r.target} | {r.figure} | {r.spread} | {'yes' if r.reached else '**no**'} |" for r in rows])


def median_range(values, digits=2):
    """(median, "min to max")"""
    return statistics.median(values), f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def ratio_row(workload, target, values, at_least=None, at_most=None, digits=2, unit="x"):
    """A row of a ratio or figure of several rounds: its median is held against the bound."""
    m, spread = median_range(values, digits)
    reached = (at_least is None or m >= at_least) and (at_most is None or m <= at_most)
    return Row(workload, target, f"{m:.{digits}f} {unit}".strip(), reached, spread if len(values) > 1 else "")


def write_block(name, text):
    """Into its place in docs/performance.md."""
    page = DOCS.read_text()
    begin, end = f"<!-- bench:begin {name} -->\n", f"<!-- bench:end {name} -->"
    if begin not in page or end not in page:
        sys.exit(f"{DOCS} has no lines {begin.strip()} and {end}: add them where the block belongs")
    DOCS.write_text(re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + text.rstrip() + "\n" + end, page, flags=re.S))
