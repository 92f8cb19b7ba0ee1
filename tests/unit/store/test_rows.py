"""The database refuses a row that does not fit; one that got in anyway is named when a process starts."""

import sqlite3
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_seen, register_group
from pipeline.store.operations import Intent, submit
from pipeline.store.processes.drivers import start_driver

EDITS: Final = {
    "a text for a number": "games SET epoch = 'purple'",
    "a text for a time": "drivers SET heartbeat_at = 'yesterday'",
    "an infinite time": "games SET discovered_at = CAST('{infinity}' AS {real})",
    "an infinite capacity": "groups SET capacity_cores = CAST('{infinity}' AS {real})",
    "no cores": "groups SET capacity_cores = 0",
    "an unknown state of a group": "groups SET desired = 'purple'",
    "an unknown priority": "games SET priority = 'purple'",
    "an unknown state of an operation": "operations SET state = 'bogus'",
    "an epoch below the first": "games SET epoch = 0",
    "a pid that is many processes": "drivers SET pid = -1",
    "no JSON": "operations SET parameters = '{{not json'",
    "JSON without an end": f"operations SET parameters = '{'[' * 20_000}'",
    "a list for an object": "operations SET preview = '[]'",
    "nothing where something must be": "games SET game = NULL",
}


def fill(engine: Engine) -> None:
    register_group(engine, "a", placing())
    start_driver(engine, "group", "a", None)
    record_seen(engine, {game_key("Go"): "Go"}, 1, placing())
    submit(engine, Intent("pause", (f"game:{game_key('Go')}",), "ann", "r"))


def spelled(edit: str, dialect: str) -> str:
    infinity, real = ("9e999", "REAL") if dialect == "sqlite" else ("infinity", "double precision")
    return f"UPDATE {edit.format(infinity=infinity, real=real)}"


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.proves("D18", "G182")
def test_a_row_that_does_not_fit_is_refused_by_the_database(engine: Engine, edit: str) -> None:
    """What reads a row needs no case for a value that no process of turnout writes: there is none."""
    fill(engine)
    with engine.begin() as connection, pytest.raises(DBAPIError):  # noqa: PT012 - the row is there only once written
        connection.execute(text(spelled(edit, engine.dialect.name).replace(":", "\\:")))
        pytest.fail("the database has taken it")


def test_bytes_are_no_text(tmp_path: Path) -> None:
    """Only SQLite would keep them."""
    engine = open_store(*load(tmp_path, {}))
    fill(engine)
    with engine.begin() as connection, pytest.raises(DBAPIError, match="cannot store BLOB value in TEXT column"):
        connection.exec_driver_sql("UPDATE games SET game = X'00FF'")


@pytest.mark.proves("G182")
def test_a_row_that_got_in_anyway_is_named_when_a_process_starts(tmp_path: Path) -> None:
    """Another tool may turn SQLite's checks off, or bring a store back from elsewhere: one sentence names the row."""
    fill(open_store(*load(tmp_path, {})))
    with sqlite3.connect(tmp_path / "control.db") as other:
        other.execute("PRAGMA ignore_check_constraints = ON")
        other.execute("UPDATE groups SET desired = 'purple'")
    with pytest.raises(
        Refused, match=r"has an invalid row: ck_groups_desired in table groups, where name 'a'\. Correct"
    ):
        open_store(*load(tmp_path, {}))


def test_a_value_of_a_wrong_type_that_got_in_anyway_is_named(tmp_path: Path) -> None:
    """A file whose definition of the table was weaker for a while holds what a strict table refuses."""
    fill(open_store(*load(tmp_path, {})))
    with sqlite3.connect(tmp_path / "control.db") as other:
        other.execute("PRAGMA writable_schema = ON")
        other.execute("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'games'")
    other.close()
    with sqlite3.connect(tmp_path / "control.db") as other:
        other.execute("UPDATE games SET last_seq = 'purple'")
        other.execute("PRAGMA writable_schema = ON")
        other.execute("UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE name = 'games'")
    other.close()
    where = f"where game_key '{game_key('Go')}'"
    with pytest.raises(Refused, match=rf"has an invalid row: last_seq in table games, {where}"):
        open_store(*load(tmp_path, {}))


def test_a_file_that_is_damaged_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """What a disk has lost is no row that anybody can correct."""
    engine = open_store(*load(tmp_path, {}))
    fill(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        page = connection.exec_driver_sql("SELECT rootpage FROM sqlite_schema WHERE name = 'games'").scalar_one()
        size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    engine.dispose()
    with (tmp_path / "control.db").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(Refused, match=r"Restore it from a copy|cannot be opened: database disk image is malformed"):
        open_store(*load(tmp_path, {}))
