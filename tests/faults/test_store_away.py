"""Whole drivers while nobody can write to their control store."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline.health.facts.placing import placing
from pipeline.store.games import register_group
from tests.faults import figures
from tests.faults.driver_world import Place, driver, wait_for
from tests.faults.oracle import judge

pytestmark = pytest.mark.timeout(600)


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Hold the store's write lock, as a backup or a hung process does; a writer waits, then fails."""
    with closing(sqlite3.connect(store, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


def landed(place: Place) -> int:
    """How many rows the games' tables have."""
    tables = [folder for folder in Path(place.paths.tables).iterdir() if (folder / "_delta_log").exists()]
    return sum(DeltaTable(each).to_pyarrow_dataset().count_rows() for each in tables)


@pytest.mark.proves("B3")
def test_b3_drivers_that_run_go_on_landing_rows_while_the_store_is_away(tmp_path: Path) -> None:
    """B3: what comes in while the store cannot be written to is in the tables before it can be again, once."""
    place = Place(tmp_path)
    place.produce()
    register_group(place.engine, "a", placing())
    with driver(place.env, "ingest", "run") as ingest, driver(place.env, "groups", "run", "a") as group:
        first = place.landed_seq()
        wait_for(lambda: place.passed("a", first), "group a does not split")
        before = landed(place)
        with locked(place.paths.control_db):
            place.produce()
            wait_for(lambda: landed(place) > before, "nothing lands while the store is away")
            assert (ingest.poll(), group.poll()) == (None, None)
        place.produce()
        last = place.landed_seq()
        wait_for(lambda: place.passed("a", last), "group a does not go on when the store is back")
        assert (ingest.poll(), group.poll()) == (None, None)
    place.finish("a")
    figures.record_faults(1)
    verdict = judge(place.env, place.log)
    assert verdict.clean, verdict
