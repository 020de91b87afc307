"""./dev bench: its parts run and say what was asked, what was found, and whether that is enough."""
import pathlib
import subprocess
import sys

import penstock
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))

import report  # noqa: E402


def bench(*flags):
    r = subprocess.run([sys.executable, ROOT / "tests/bench/bench.py", "--build", penstock.BUILD, "--quick", *flags], capture_output=True, text=True,
                       timeout=120, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PENSTOCK_SHARED": "/nowhere"})
    assert r.returncode == 0, r.stderr
    return r.stdout


@pytest.mark.skipif(not (penstock.BUILD / "tests/raw_relay").exists(), reason="tests/raw_relay is not built")
def test_saturated_cells_of_us_and_the_raw_relay():
    out = bench("--parts", "saturated", "--work", "many,100k-echo,tls", "--only", "penstock,relay 64 KiB")
    assert "| 50 x 20, 128 B: CPU a call, penstock over relay 64 KiB | at most 2 x |" in out
    assert out.count("| penstock |") == 3 and "not measured" not in out.split("TLS 1.3")[0]


def test_without_the_harness_its_rows_are_left_out():
    r = subprocess.run([sys.executable, ROOT / "tests/bench/bench.py", "--build", penstock.BUILD, "--parts", "h2load", "--only", "penstock"],
                       capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin", "PENSTOCK_SHARED": "/nowhere"})
    assert r.returncode == 0 and "skipped, no harness" in r.stderr and "missed: none" in r.stdout


@pytest.mark.parametrize("bounds, values, reached", [
    (dict(at_least=10), [9, 11, 12], True), (dict(at_least=10), [9, 9.9, 12], False),
    (dict(at_most=2), [1.9, 2, 7], True), (dict(at_most=2), [2.1], False)])
def test_the_median_of_the_rounds_is_held_against_the_bound(bounds, values, reached):
    assert report.ratio_row("w", "t", values, **bounds).reached is reached


def test_the_page_has_a_place_for_each_part():
    page = report.DOCS.read_text()
    for name in ("saturated", "h2load", "upset", "syscalls", "idle", "large", "link", "instructions"):
        assert page.count(f"<!-- bench:begin {name} -->\n") == page.count(f"<!-- bench:end {name} -->") == 1
