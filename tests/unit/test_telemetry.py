"""The file by which Prometheus finds a driver."""

import json
from pathlib import Path

from pipeline.settings import Metrics, Paths
from pipeline.telemetry import Telemetry


def test_a_driver_that_ends_late_leaves_its_successor_on_the_list(tmp_path: Path) -> None:
    """Health: Prometheus keeps scraping the driver that took over, and nobody once that one has ended."""
    old, new = (Telemetry(Metrics(), Paths(tmp_path), "group", "a") for _ in range(2))
    target = Paths(tmp_path).targets / "group-a.json"
    old.close()
    assert json.loads(target.read_text("utf-8"))[0]["targets"] == [new.address]
    new.close()
    assert not target.exists()
