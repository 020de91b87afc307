"""The demo is a test: it checks what it tells."""
import os
import subprocess
import sys

import penstock
import pytest


@pytest.mark.slow
def test_the_demo_ends_well():
    r = subprocess.run([sys.executable, penstock.ROOT / "tests/demo/demo.py"], env={**os.environ, "PENSTOCK_BUILD": str(penstock.BUILD)},
                       capture_output=True, text=True, timeout=240)
    assert r.returncode == 0, r.stdout + r.stderr
    assert "WRONG" not in r.stdout and "0 failed, 0 lost" in r.stdout
