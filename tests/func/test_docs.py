"""The docs say what the programs do."""
import subprocess
import sys

import penstock


def test_the_pages_that_the_programs_write_are_fresh():
    r = subprocess.run([sys.executable, penstock.ROOT / "tests/make_docs.py", penstock.BUILD], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr


def test_every_example_config_passes_the_check(programs):
    for tree in sorted(penstock.ROOT.glob("conf/examples/*/")):
        r = programs.run("penstock", "check", tree)
        assert r.returncode == 0, f"{tree}: {r.stdout}{r.stderr}"
