"""Faults in one process: whatever raises or hangs at a named point, every row still lands exactly once."""

import os
from typing import Any

import pytest

from tests.faults.faults import Faults
from tests.faults.life import WAYS, Life, fail_everywhere
from tests.faults.oracle import judge
from tests.spark.conftest import use_source

LIVES = 10
FAULTS = int(os.environ.get("PROOF_FAULTS", "300")) // LIVES  # in one life
EVENTS = int(os.environ.get("PROOF_EVENTS", str(LIVES * FAULTS * 500))) // LIVES

pytestmark = pytest.mark.timeout(600 + FAULTS * 20)


@pytest.mark.parametrize("life", range(LIVES))
@pytest.mark.proves("G162")
def test_no_fault_at_a_named_point_loses_or_doubles_a_row(
    world: Any, faults: Faults, life: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws L1 to L7 and L12 under fire: every fail-point raises in each life, and every row is accounted for."""
    use_source("tail" if life % 2 else "delta", monkeypatch)
    fired = fail_everywhere(world, faults, FAULTS, EVENTS, life)
    assert all(fired[point] >= FAULTS // len(WAYS) // 2 for point in WAYS), fired


@pytest.mark.proves("G166")
def test_a_hang_at_a_named_point_costs_only_its_time(world: Any, faults: Faults) -> None:
    """Laws L1 to L7: what hangs for 30 s goes on, and nobody takes its silence for its end."""
    life = Life(world, faults, 6_000)
    life.produce(500)
    life.rest()
    points = ("after_bronze_write", "mid_data_files", "between_table_commits", "in_catch_up")
    for point in points:
        life.produce(500)
        faults.arm(point, "hang")
        WAYS[point](life)
    life.rest()
    verdict = judge(world.paths.root, life.log)
    assert verdict.clean, verdict
    assert set(faults.fired()) == set(points)
