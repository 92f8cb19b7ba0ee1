"""`turnout demo --once --storage s3`, as a new user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long  # 46 s; test_killed_drivers.py has drivers over a bucket in the ordinary run
@pytest.mark.proves("G232")
def test_the_demo_in_a_bucket_ends_with_the_same_proof(tmp_path: Path) -> None:
    """Law: the last line is that of a demo in a folder, and the folder keeps no table."""
    command = [str(Path(sys.executable).with_name("turnout")), "demo", "--once", "--json", "--storage", "s3"]
    command += ["--games", "3", "--versions", "2", "--events", "600", "--env-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["bronze_rows"], result["ok"], result["complete"], result["problems"]) == (600, True, True, [])
    assert {"bronze", "tables", "quarantine", "landing", "metrics"} & {
        each.name for each in tmp_path.iterdir()
    } == set()
    assert (tmp_path / "s3.env").stat().st_mode & 0o77 == 0, "others cannot read the secret"
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 2
    assert "which holds them in memory" in again.stderr
