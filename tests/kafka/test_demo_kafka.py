import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(420)  # several cold sessions and a broker in one test
def test_the_bounded_run_through_a_real_broker_loses_nothing(tmp_path: Path) -> None:
    """The same promise through Kafka: what the broker confirmed is in the tables or in quarantine, once."""
    command = [sys.executable, "-m", "pipeline", "demo", "--once", "--json", "--source", "kafka"]
    options = ["--env-dir", str(tmp_path / "env"), "--events", "15000", "--games", "40", "--versions", "5", "--hostile"]
    done = subprocess.run([*command, *options], check=False, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert {"events": 15_000, "bronze_rows": 15_000, "complete": True}.items() <= result.items()
    assert tuple(result[name] for name in ("lost", "duplicated", "misrouted")) == (0, 0, 0)
