"""A driver's memory of the control store, while the store answers and while it does not."""

import logging
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.pins import SetPin
from pipeline.data.streams.outage import CachedRegistry, tolerate_store_outage
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store, reading
from tests.unit.data.contracts.definition_world import bundle, define
from tests.unit.store.outage_world import away


def register(registry: LocalRegistry, game: str) -> None:
    registry.register(game, "t.M", bundle(define({"M": {"n": (1, "int64")}})))


@pytest.mark.proves("B3")
def test_b3_the_last_schema_set_stays_in_use_until_the_store_answers_again(tmp_path: Path) -> None:
    """B3: without the store a pass gets the set that its driver last read; it reads newer ones later."""
    engine = open_store(*load(tmp_path / "env", {}))
    registry = LocalRegistry(engine)
    register(registry, "chess")
    known = CachedRegistry(LocalRegistry(engine))
    with away(engine), pytest.raises(OperationalError):
        known.latest_version()  # it has never heard of any
    assert known.latest_version() == 1
    first = known.latest()
    register(registry, "go")
    with away(engine) as calls:
        assert known.latest_version() == 1
        assert set(known.snapshot(first).games) == {game_key("chess")}
    assert calls
    assert known.latest_version() == 2
    assert set(known.snapshot(known.latest()).games) == set(registry.snapshot(2).games)
    assert known.snapshot(first) == registry.snapshot(1)
    engine.dispose()


@pytest.mark.proves("G48")
def test_a_pinned_set_that_the_store_lacks_stops_no_game(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """L6: a store that was put back from before a registration stops no chunk and no batch; the log says so."""
    engine = open_store(*load(tmp_path / "env", {}))
    register(LocalRegistry(engine), "chess")
    known = CachedRegistry(LocalRegistry(engine))
    assert known.snapshot(SetPin(99)).version == known.latest_version() == 1
    engine.dispose()
    assert "schema set 99 is missing; its rows are split with the newest" in caplog.text


def test_b3_only_a_store_that_does_not_answer_is_gone_on_without(caplog: pytest.LogCaptureFixture) -> None:
    """B3: it is told what goes on with what; a refused write and any other error are not swallowed."""
    with caplog.at_level(logging.WARNING):
        meet(OperationalError("SELECT 1", {}, sqlite3.OperationalError("disk I/O error")))
    assert [record.getMessage() for record in caplog.records] == [
        "the control store does not answer (disk I/O error): all stays as it is"
    ]
    meet(NoConnectionFree("QueuePool limit of size 2 overflow 2 reached"))
    meet_reading(OperationalError("SELECT 1", {}, sqlite3.OperationalError("disk I/O error")))
    with pytest.raises(Refused, match="cannot be read: no such table"):
        meet_reading(ProgrammingError("SELECT 1", {}, sqlite3.ProgrammingError("no such table")))
    for error in (IntegrityError("INSERT", {}, sqlite3.IntegrityError("taken")), ValueError("a bug")):
        with pytest.raises(type(error)):
            meet(error)


def meet(error: Exception) -> None:
    with tolerate_store_outage("all stays as it is"):
        raise error


def meet_reading(error: Exception) -> None:
    with tolerate_store_outage("all stays as it is"), reading():
        raise error
