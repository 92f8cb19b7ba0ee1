"""Faults in one process whose tables are in a bucket: the same life as over folders, judged by the same oracle."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.faults.life import WAYS

FAULTS = int(os.environ.get("PROOF_BUCKET_FAULTS", "34"))
EVENTS = FAULTS * 200

pytestmark = pytest.mark.timeout(600 + FAULTS * 30)


@pytest.mark.proves("G230")
def test_no_fault_at_a_named_point_loses_or_doubles_a_row_of_a_bucket(tmp_path: Path) -> None:
    """Laws L1 to L7 and L12 over a bucket: every fail-point raises, and every row is accounted for."""
    command = [sys.executable, "-m", "tests.faults.in_bucket", str(tmp_path), str(FAULTS), str(EVENTS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600 + FAULTS * 30, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    fired = json.loads(done.stdout.splitlines()[-1])
    assert {point for point, times in fired.items() if times} == set(WAYS)
