"""Real kills: a driver dies with its JVM and its workers and is started again, at named points and at random moments.

Only who was killed is started again: the other driver runs on, as in production, and each kill costs one start.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from pipeline.data.streams.active_games import read_leftover
from pipeline.health.facts.placing import placing
from pipeline.store.games import register_group
from tests.faults import figures
from tests.faults.driver_world import _COMMANDS, Drivers, Place
from tests.faults.faults import Faults
from tests.faults.oracle import report

KILLS = int(os.environ.get("PROOF_KILLS", "36"))
BUCKET_KILLS = int(os.environ.get("PROOF_BUCKET_KILLS", "7"))  # once at each point, once at any moment
WRITER = os.environ.get("PROOF_WRITER", "direct")
SEED = int(os.environ.get("PROOF_SEED", "17"))
POINTS = {  # fail-point → the driver that comes there
    "after_bronze_write": "ingest",
    "after_schema_pin": "group",
    "after_quarantine_write": "group",
    "mid_data_files": "group",
    "between_table_commits": "group",
    "after_table_commits": "group",
}
LIVES = [*((False, first, min(9, KILLS - first)) for first in range(0, KILLS, 9)), (True, 0, BUCKET_KILLS)]
"""Kills of one test each: whether its tables are in a bucket, its first kill, and their number."""

_EVENTS = 1_000  # before each kill, in one landing commit: every game has some
_IN_PASS = {"after_quarantine_write", "mid_data_files", "between_table_commits"}
_SEVERAL_HITS = {"mid_data_files", "between_table_commits"}  # in each pass

pytestmark = pytest.mark.timeout(600 + max(9, BUCKET_KILLS) * 150)


def _hits_until_kill(point: str, number: int) -> int:
    """Return at which hit from now the group's driver, or ingest, dies: not always at the first table or file."""
    if point == "after_schema_pin":
        return 2  # ingest comes there first, with the batch that the group then splits
    return 1 + number % 3 if point in _SEVERAL_HITS else 1


@pytest.mark.parametrize(("storage", "first", "kills"), LIVES, indirect=["storage"])
@pytest.mark.proves("A2", "A3", "A4", "A5", "G163")
def test_no_kill_at_a_named_point_loses_or_doubles_a_row(tmp_path: Path, storage: str, first: int, kills: int) -> None:
    """Laws L1 to L7 under SIGKILL: driver, JVM and workers die together, and Spark is seen to repeat batches.

    Five of six kills are at named points, the sixth at any moment.
    """
    writer = "direct" if storage else WRITER  # a bucket takes no other one
    place = Place(tmp_path, events=(kills + 1) * _EVENTS, games=12, writer=writer, storage=storage)
    register_group(place.engine, "a", placing())
    drivers = Drivers(place, Faults(tmp_path / "failpoints"))
    draw = random.Random(SEED + first)
    killed: Counter[str] = Counter()
    try:
        place.produce(_EVENTS, batch=_EVENTS)
        for kind in _COMMANDS:
            drivers.start(kind)
        drivers.rest()
        points = list(POINTS.items())
        for number in range(first, first + kills):
            at_random, named = number % 6 == 5, number - number // 6
            point, kind = ("any moment", draw.choice(list(_COMMANDS))) if at_random else points[named % len(points)]
            if at_random:
                place.produce(_EVENTS, batch=_EVENTS)
                time.sleep(draw.uniform(0.0, 4.0))  # the moment; nothing is waited for
                drivers.kill(kind)
            else:
                drivers.faults.arm(point, "crash", _hits_until_kill(point, number))
                place.produce(_EVENTS, batch=_EVENTS)
                drivers.wait(kind, -signal.SIGKILL)
                if kind == "group":
                    active_games = read_leftover(place.paths.checkpoints / "demux" / "a")
                    assert bool(active_games) == (point in _IN_PASS), "what it had in hand is told"
            killed[point] += 1
            drivers.start(kind)
            drivers.rest()
        drivers.stop()
    finally:
        drivers.force()
    verdict = place.judge()
    figures.record_faults(kills)
    report(verdict, killed)
    sys.stdout.write(f"proven replays: {drivers.replays}\n")
    assert verdict.clean, verdict
    assert verdict.events == (kills + 1) * _EVENTS
    assert kills - killed["any moment"] == sum(drivers.faults.fired().values())
    assert drivers.replays >= (kills - killed["any moment"]) * 2 // 3
