"""Two owners of one game, as processes: what keeps them apart is the table, not a clock or a row in a store."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import drivers
from pipeline.store.games import assigned, register_group
from tests.faults import figures
from tests.faults.driver_world import Place, driver, wait_for

STOPPED_SECONDS = float(os.environ.get("PROOF_STOPPED_SECONDS", "120"))
BUCKET_STOPPED_SECONDS = float(os.environ.get("PROOF_BUCKET_STOPPED_SECONDS", "40"))
"""Longer than a lease, too."""


pytestmark = pytest.mark.timeout(1200 + int(STOPPED_SECONDS))


@pytest.mark.parametrize("leases", [True, False], ids=["with leases", "without leases"])
@pytest.mark.proves("D6", "G96")
def test_a_driver_that_was_stopped_and_comes_back_after_its_games_moved_does_no_harm(
    tmp_path: Path, storage: str, leases: bool
) -> None:
    """Law L4, D6: a driver stands still while its games move; when it comes back the tables refuse its commits."""
    place = Place(tmp_path, leases=leases, storage=storage)
    least = BUCKET_STOPPED_SECONDS if storage else STOPPED_SECONDS
    place.produce()
    register_group(place.engine, "a", placing())
    with driver(place.env, "ingest", "run"), driver(place.env, "groups", "run", "a") as zombie:
        first = place.landed_seq()
        wait_for(lambda: place.passed("a", first), "group a does not split")
        place.produce()  # so that it has work in its hands
        os.killpg(zombie.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        place.give_all_to("b")
        with driver(place.env, "groups", "run", "b"):
            while time.monotonic() - stopped < least:
                place.produce(200)
                seq = place.landed_seq()
                wait_for(lambda seq=seq: place.passed("b", seq), "group b does not split")  # type: ignore[misc]
            os.killpg(zombie.pid, signal.SIGCONT)
            for _ in range(5):
                place.produce(200)
                seq = place.landed_seq()
                wait_for(lambda seq=seq: place.passed("b", seq), "group b does not split")  # type: ignore[misc]
            wait_for(lambda: place.passed("a", first), "the zombie does not beat")
    assert not assigned(place.engine, "a")
    place.finish("b")
    figures.record_faults(1)
    verdict = place.judge()
    assert verdict.clean, verdict


@pytest.mark.proves("G97")
def test_two_drivers_that_both_own_every_game_neither_lose_nor_double_a_row(tmp_path: Path, storage: str) -> None:
    """Law L4 without leases or assignments: two control stores, one set of tables, both drivers own all games."""
    place = Place(tmp_path, leases=False, storage=storage)
    place.produce()
    register_group(place.engine, "a", placing())
    place.finish("a")
    twin = tmp_path / "twin"
    twin.mkdir()
    in_folder = () if storage else ("bronze", "quarantine", "tables", "landing")
    for shared in ("turnout.toml", *in_folder):
        (twin / shared).symlink_to(place.env / shared)
    with driver(place.env, "ingest", "run"):
        place.engine.dispose()
        shutil.copy(place.env / "control.db", twin / "control.db")
        with driver(place.env, "groups", "run", "a"), driver(twin, "groups", "run", "a"):
            settings, paths = load(twin, {})
            other = open_store(settings, paths)
            for _ in range(8):
                place.produce(400)
                seq = place.landed_seq()
                wait_for(lambda seq=seq: place.passed("a", seq), "group a does not split")  # type: ignore[misc]
            wait_for(lambda: bool(assigned(other, "a")), "the twin owns nothing")
            with other.connect() as connection:
                assert any(row.frontier_seq for row in connection.execute(drivers.select())), "the twin split nothing"
    place.finish("a")
    verdict = place.judge()
    assert verdict.clean, verdict
