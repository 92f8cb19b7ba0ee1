"""A short form of the measurement of people who look at a large fleet."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.served import CHROMIUM
from tests.checkout import ROOT

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]


@pytest.mark.long
def test_two_viewers_of_a_thousand_games_meet_no_error(tmp_path: Path) -> None:
    """The measurement runs to its end; neither a console nor the drivers complain, and all its numbers are there."""
    out = tmp_path / "viewers.json"
    command = ["-m", "bench.viewers", "--viewers", "2", "--minutes", "0.17", "--work", str(tmp_path), "--out", str(out)]
    ran = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert "first paint warm" in ran.stdout, ran.stderr
    result = json.loads(out.read_text("utf-8"))
    assert (result["complaints"], result["problems"]) == ([], [])
    assert result["rss_mib"]
    assert result["cores"] > 0
    assert all(0 < each < 60 for took in result["first_paint_seconds"].values() for each in took)
