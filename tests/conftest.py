"""For the tests of all folders: one tuned Spark session of a process, and control stores that are made quickly."""

import os
import shutil
import socketserver
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import psycopg
import pytest
from sqlalchemy import Connection, Engine, event, inspect
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache
from xdist.scheduler import LoadFileScheduling

from pipeline.base.failpoints import ENVIRON
from pipeline.settings.tree import load
from pipeline.store.database import engine, migrate
from tests.dead_workers import (  # noqa: F401 - hooks
    pytest_configure,
    pytest_configure_node,
    pytest_terminal_summary,
    pytest_testnodedown,
)
from tests.examples import ORDINARY, fewer_examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = r" hunter2 = \u0041\ canary: #!é😀 "
HEAP_MB = 1_200
_SESSION = f"""[spark.conf]
"spark.driver.memory" = "{HEAP_MB}m"
"spark.hadoop.secret.key" = '{SECRET}'
"""
"""Settings of the tests' session, which `tests/spark/test_session.py` finds in it."""

_SPARK = ("tests/kafka/", "tests/spark/")
_ALONE = ("/test_demo.py", "/test_moves.py")  # whose sessions are in other processes


# How long an example takes says how busy the machine is, and no test asserts it.
hypothesis.settings.register_profile("turnout", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("turnout")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a worker one file after another, and all files that share the session and the broker to one worker."""
    if config.getoption("dist") != "loadfile":
        return None
    made = LoadFileScheduling(config, log)
    made._split_scope = _share_of
    return made


def _share_of(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return "session" if file.startswith(_SPARK) and not file.endswith(_ALONE) else file


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the longest begin first, and try fewer random examples in the ordinary run."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))
    if config.option.markexpr == ORDINARY:
        for function in {item.obj for item in items if isinstance(item, pytest.Function)}:
            fewer_examples(function)


@pytest.fixture(scope="session", autouse=True)
def _no_power_cut() -> Iterator[None]:
    """Wait for no disk in this process: no test cuts the power, and a killed process loses nothing by it."""
    tune = engine._tune_sqlite

    def tune_without_waiting(connection: sqlite3.Connection, record: object) -> None:
        connection.execute("PRAGMA synchronous=OFF")
        tune(connection, record)
        connection.execute("PRAGMA synchronous=OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)
        patch.setattr(engine, "_tune_sqlite", tune_without_waiting)
        yield


@pytest.fixture(scope="session", autouse=True)
def _statements_compiled_once() -> Iterator[None]:
    """Let all SQLite stores of this process share what SQLAlchemy compiled: a new store's cache is empty.

    Its keys have the dialect, of which each engine has its own; those of one class compile alike.
    """
    shared, begin = LRUCache[Any, Any](2_000), Engine.__init__

    def begun(self: Engine, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        if isinstance(self.dialect, SQLiteDialect_pysqlite):
            self._compiled_cache = shared

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "__init__", begun)
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda self, other: type(self) is type(other))
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda self: hash(type(self)))
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_ends_of_servers() -> Iterator[None]:
    """Let each server in this process see soon that it is to end: by default it looks twice a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socketserver.BaseServer.serve_forever, "__defaults__", (0.02,))
        yield


@pytest.fixture(scope="session")
def failpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Name the fail-points' folder before the session's JVM starts, so that its Python workers inherit it."""
    folder = tmp_path_factory.mktemp("failpoints")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRON, str(folder))
        yield folder


@pytest.fixture(scope="session")
def spark(failpoints: Path) -> Iterator["SparkSession"]:
    from pipeline.data.streams.warming import WORKERS
    from pipeline.platforms.session.spark import spark_session  # imported here, as it takes a second

    folder = Path(tempfile.mkdtemp(prefix="t"))  # pytest's is too long for the sockets of Python workers
    (folder / "turnout.toml").write_text(_SESSION, "utf-8")
    settings, paths = load(folder, {})
    session = spark_session(settings, paths, "turnout-tests", light=True, workers=WORKERS)
    yield session
    session.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def real_upgrade() -> Iterator[Callable[[Connection], None]]:
    """Migrate the first new store of each database for real, and make every later one by the statements of that.

    Migrations take 75 ms, on PostgreSQL 200 ms, which 2,000 tests pay. What they do from any version on is tested in
    `tests/unit/store`; a test that needs the real ones on a new store gets them from here.
    """
    real, scripts = migrate._upgrade, dict[str, str]()

    def upgrade(connection: Connection) -> None:
        database, raw = connection.dialect.name, connection.connection.driver_connection
        is_new = not inspect(connection).get_table_names()
        if is_new and database in scripts:
            for statement in scripts[database].split("\0"):
                raw.execute(statement)  # type: ignore[union-attr]
        elif is_new:
            with _recorded(connection) as said:
                real(connection)
            if database == "sqlite":
                dump = raw.iterdump()  # type: ignore[union-attr]
                said = [each for each in dump if each not in {"BEGIN TRANSACTION;", "COMMIT;"}]
            scripts[database] = ("\0" if database == "sqlite" else ";").join(said)
        else:
            real(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "_upgrade", upgrade)
        yield real


@contextmanager
def _recorded(connection: Connection) -> Iterator[list[str]]:
    """Collect the statements to PostgreSQL, but for questions, with the parameters in them."""
    said: list[str] = []

    def note(_connection: Connection, cursor: Any, statement: str, parameters: Any, *_: object) -> None:
        if connection.dialect.name == "postgresql" and not statement.lstrip().startswith("SELECT"):
            said.append(psycopg.ClientCursor(cursor.connection).mogrify(statement, parameters))

    event.listen(connection, "after_cursor_execute", note)
    yield said
    event.remove(connection, "after_cursor_execute", note)
