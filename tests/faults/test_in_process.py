"""Faults in one process: whatever raises at a named point, every row still lands exactly once."""

import os
import random
from typing import Any

import pytest

from tests.faults.faults import Faults
from tests.faults.life import WAYS, Life
from tests.faults.oracle import judge, tell

FAULTS = int(os.environ.get("PROOF_FAULTS", "110"))
EVENTS = int(os.environ.get("PROOF_EVENTS", "110000"))
SEVERAL_HITS = {
    "mid_data_files",
    "between_table_commits",
    "in_maintenance",
}  # each time, the other points once or twice
TWO_HITS = {"in_schema_change", "in_catch_up", "in_rebuild_switch", "in_replay"}  # before and after what they do

pytestmark = pytest.mark.timeout(1500 + FAULTS * 10)


def test_no_fault_at_a_named_point_loses_or_doubles_a_row(world: Any, faults: Faults) -> None:
    """Laws L1 to L7 and L12 under fire: every fail-point raises at least five times, and the books balance exactly."""
    life = Life(world, faults, EVENTS, late=FAULTS // (2 * len(WAYS)) + 1)
    draw = random.Random(5)
    life.produce(EVENTS // FAULTS)
    life.rest()  # so that there are games to change, to rebuild and to tend
    for number in range(1, FAULTS):
        point = list(WAYS)[number % len(WAYS)]
        life.produce(EVENTS // FAULTS)
        latest = 3 if point in SEVERAL_HITS else 2 if point in TWO_HITS else 1
        faults.arm(point, "raise", draw.randint(1, latest))
        WAYS[point](life)
        if number % 4 == 3:
            life.rest()
    life.rest()
    verdict, fired = judge(world.paths.root, life.log), faults.fired()
    tell(verdict, fired)
    assert verdict.clean, verdict
    assert verdict.events == EVENTS // FAULTS * FAULTS
    assert all(fired[point] >= FAULTS // len(WAYS) // 2 for point in WAYS), fired
