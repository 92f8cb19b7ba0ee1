"""Faults in one process: whatever raises at a named point, every row still lands exactly once."""

import os
import random
from typing import Any

import pytest

from tests.faults.faults import Faults
from tests.faults.life import Life
from tests.faults.oracle import judge, tell

FAULTS = int(os.environ.get("TURNOUT_FAULTS", "100"))
EVENTS = int(os.environ.get("TURNOUT_FAULT_EVENTS", "100000"))
SPARK_POINTS = (
    "after_bronze_write",
    "after_schema_pin",
    "after_quarantine_write",
    "mid_data_files",
    "between_table_commits",
    "after_table_commits",
    "in_catch_up",
)

pytestmark = pytest.mark.timeout(1500 + FAULTS * 10)


def test_no_fault_at_a_named_point_loses_or_doubles_a_row(world: Any, faults: Faults) -> None:
    """Laws L1 to L7 under fire: each point raises at least five times, and the books still balance exactly."""
    life = Life(world, faults, EVENTS)
    draw = random.Random(5)
    points = [SPARK_POINTS[number % len(SPARK_POINTS)] for number in range(FAULTS)]
    for number, point in enumerate(points):
        life.produce(EVENTS // FAULTS)
        if point == "in_catch_up":
            life.fall_behind()
        faults.arm(point, "raise", draw.randint(1, 3) if point in {"mid_data_files", "between_table_commits"} else 1)
        life.attempt()
        if number % 4 == 3:
            life.rest()
    life.rest()
    verdict, fired = judge(world.paths.root, life.log), faults.fired()
    tell(verdict, fired)
    assert verdict.clean, verdict
    assert verdict.events == EVENTS // FAULTS * FAULTS
    assert all(fired[point] >= min(5, FAULTS // len(SPARK_POINTS)) for point in SPARK_POINTS), fired
