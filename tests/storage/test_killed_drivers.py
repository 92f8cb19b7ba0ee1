"""Drivers as processes over a bucket, one of them killed: what `tests/faults` does often is here done once."""

import signal
from pathlib import Path

import pytest

from pipeline.base.names import game_key
from pipeline.data.streams.active_games import read_leftover
from pipeline.health.facts.placing import placing
from pipeline.store.games import assigned, register_group
from tests.faults.driver_world import Drivers, Place, driver, wait_for
from tests.faults.faults import Faults
from tests.storage.served import served

_EVENTS = 300  # of each of three parts

pytestmark = pytest.mark.timeout(600)  # a minute, most of it four starts of drivers


@pytest.mark.long
@pytest.mark.proves("G163")
def test_a_kill_within_a_pass_and_a_move_lose_and_double_nothing_in_a_bucket(tmp_path: Path) -> None:
    """Laws L1 to L7 over a bucket: a pass that was cut off repeats, and moved games go on from their cursors.

    The driver dies with its JVM and workers when it has committed two of its games' tables.
    """
    with served(tmp_path / "objects") as url:
        place = Place(tmp_path, events=3 * _EVENTS, storage=url)
        register_group(place.engine, "a", placing())
        drivers = Drivers(place, Faults(tmp_path / "failpoints"))
        moved = {game_key(name) for name in place.simulator.games[::2]}
        try:
            place.produce(_EVENTS)
            drivers.faults.arm("between_table_commits", "crash", 2)
            for kind in ("ingest", "group"):
                drivers.start(kind)
            drivers.wait("group", -signal.SIGKILL)
            in_hand = read_leftover(place.paths.checkpoints / "demux" / "a")
            assert in_hand, "it was not within a pass"
            drivers.start("group")
            with driver(place.env, "groups", "run", "b"):
                drivers.rest()
                place.produce(_EVENTS)  # so that they may be in a's hands when they move
                place.give(moved, "b")
                place.produce(_EVENTS)
                place.landed_seq()
                wait_for(lambda: place.is_at_rest("a") and place.is_at_rest("b"), "they do not come to rest")
            drivers.stop()
        finally:
            drivers.force()
        assert moved == {each.game_key for each in assigned(place.engine, "b")}
        place.engine.dispose()
        verdict = place.judge()
    assert verdict.clean, verdict
    assert verdict.events == 3 * _EVENTS
    assert drivers.faults.fired() == {"between_table_commits": 1}
