"""Maintenance of tables in a bucket, on another machine than the drivers: it sees none of their checkpoints."""

import json
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable
from sqlalchemy import Engine, update
from sqlalchemy.exc import OperationalError

from pipeline.data.maintenance import process
from pipeline.data.maintenance.readers import readers_said
from pipeline.data.maintenance.report import Round
from pipeline.data.streams.checkpoint import reads_from
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths
from pipeline.store.database.states import ProcessState
from pipeline.store.database.tables import drivers
from pipeline.store.processes.drivers import heartbeat, start_driver
from tests.tables.maintenance_world import DAY, LATER, SETTINGS, bronze_table, checkpoint_of, live, maintain, on_disk

FILES = 24
"""Of twelve commits of bronze."""


@pytest.fixture
def here(tmp_path: Path) -> Paths:
    """Return where maintenance runs."""
    paths = Paths(tmp_path / "here", str(tmp_path / "bucket"))
    paths.root.mkdir()
    bronze_table(Path(paths.bronze), FILES // 2)
    return paths


def round_of(here: Paths, store: Engine, after: float = 0.0) -> Round:
    return maintain(here, after=after, said=lambda: readers_said(store))


def notes_of(done: Round) -> list[str]:
    return [note for table in done.tables for note in table.notes]


def moved(store: Engine, host: str) -> None:
    with store.begin() as connection:
        connection.execute(update(drivers).values(host=host))


@pytest.mark.parametrize("state", ["running", "stopped"])
@pytest.mark.proves("G236")
def test_files_that_a_reader_elsewhere_reads_by_name_stay(
    tmp_path: Path, here: Paths, engine: Engine, state: ProcessState
) -> None:
    """A driver that is behind reads the files that the log's commits name, on whatever machine it runs."""
    query = checkpoint_of(Paths(tmp_path / "elsewhere"), DeltaTable(here.bronze).metadata().id, next_version=7)
    start_driver(engine, "group", "a", None)
    heartbeat(engine, "group", "a", state, None, reads_from=reads_from(located(query)))
    moved(engine, "another machine")
    named = on_disk(Path(here.bronze))
    round_of(here, engine)
    round_of(here, engine, after=LATER)
    assert len(named & on_disk(Path(here.bronze))) == 2 * 6
    assert len(live(Path(here.bronze))) == 2 * 6 + 1


@pytest.mark.proves("G236")
def test_a_driver_that_has_not_said_its_position_holds_all_of_bronze(here: Paths, engine: Engine) -> None:
    """The driver may read from anywhere: bronze waits for it, and the round says so."""
    start_driver(engine, "group", "a", None)
    done = round_of(here, engine)
    assert len(live(Path(here.bronze))) == FILES
    assert "bronze is not merged: maintenance does not know the position of the reader of group a" in notes_of(done)
    heartbeat(engine, "group", "a", "running", None, reads_from=13)
    round_of(here, engine)
    assert len(live(Path(here.bronze))) == 1


def test_a_reader_elsewhere_that_is_quiet_for_as_long_as_the_log_is_kept_holds_nothing(
    here: Paths, engine: Engine
) -> None:
    """As of readers on this machine: a group that nobody starts again must not stop maintenance for ever."""
    start_driver(engine, "group", "a", None)
    heartbeat(engine, "group", "a", "stopped", None, reads_from=7)
    done = round_of(here, engine, after=31 * DAY)
    assert len(live(Path(here.bronze))) == 1
    assert "maintenance does not wait for the reader of group a: it is behind the log's retention" in notes_of(done)


@pytest.mark.proves("G236")
def test_bronze_waits_while_the_control_store_is_away(
    here: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then no reader elsewhere is known, which does not mean that there is none; the round itself goes on."""

    def away(_engine: Engine) -> None:
        raise OperationalError("select", {}, Exception("no answer"))

    monkeypatch.setattr(process, "readers_said", away)
    assert process.maintain(SETTINGS, here, threading.Event(), once=True, as_json_lines=True) == 0
    assert len(live(Path(here.bronze))) == FILES
    notes = json.loads(capsys.readouterr().out)["tables"][0]["notes"]
    why = "of the reader of any group, as the control store does not answer"
    assert notes == [f"bronze is not merged: maintenance does not know the position {why}"]
