"""For the tests of all folders: one tuned Spark session of a process, and control stores that are made quickly."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hypothesis
import psycopg
import pytest
from sqlalchemy import Connection, event, inspect
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from pipeline.failpoints import ENVIRON
from pipeline.settings import load
from pipeline.store import migrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = r" hunter2 = \u0041\ canary: #!é😀 "
HEAP_MB = 1_200
_SESSION = f"""[spark.conf]
"spark.driver.memory" = "{HEAP_MB}m"
"spark.hadoop.secret.key" = '{SECRET}'
"""
"""Settings of the tests' session, which `tests/spark/test_session.py` finds in it."""


# How long an example takes says how busy the machine is, and no test asserts it.
hypothesis.settings.register_profile("turnout", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("turnout")


class OneSession(LoadFileScheduling):
    """Gives a worker one file after another; all files that share the session and the broker go to one worker."""

    FIRST: Final = ("tests/kafka/", "tests/spark/")
    ALONE: Final = ("tests/spark/test_demo.py", "tests/spark/test_moves.py")  # their sessions are in other processes

    def _split_scope(self, nodeid: str) -> str:
        shares = nodeid.startswith(self.FIRST) and not nodeid.startswith(self.ALONE)
        return "session" if shares else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSession | None:
    """Schedule what the launcher runs."""
    return OneSession(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest begin first."""
    items.sort(key=lambda item: not item.nodeid.startswith(OneSession.FIRST))


@pytest.fixture(scope="session")
def failpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Name the fail-points' folder before the session's JVM starts, so that its Python workers inherit it."""
    folder = tmp_path_factory.mktemp("failpoints")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRON, str(folder))
        yield folder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, failpoints: Path) -> Iterator["SparkSession"]:
    from pipeline.session import spark_session  # not for those who need none: it takes a second

    folder = tmp_path_factory.mktemp("session")
    (folder / "turnout.toml").write_text(_SESSION, "utf-8")
    settings, paths = load(folder, {})
    session = spark_session(settings, paths, "turnout-tests", light=True)
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def real_upgrade() -> Iterator[Callable[[Connection], None]]:
    """Migrate the first new store of each database for real, and make every later one by the statements of that.

    Migrations take 75 ms, on PostgreSQL 200 ms, which 2,000 tests pay. What they do from any version on is tested by
    `test_store_*`; a test that needs the real ones on a new store gets them from here.
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
    """Collect what is said to PostgreSQL, but for questions, with the parameters in it."""
    said: list[str] = []

    def note(_connection: Connection, cursor: Any, statement: str, parameters: Any, *_: object) -> None:
        if connection.dialect.name == "postgresql" and not statement.lstrip().startswith("SELECT"):
            said.append(psycopg.ClientCursor(cursor.connection).mogrify(statement, parameters))

    event.listen(connection, "after_cursor_execute", note)
    yield said
    event.remove(connection, "after_cursor_execute", note)
