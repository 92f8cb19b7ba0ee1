"""The control store's tables follow its migrations, on both databases."""

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, select, text

from pipeline.errors import Refused
from pipeline.settings import load
from pipeline.store import migrate
from pipeline.store.engine import open_store, require_store
from pipeline.store.games import assigned, register_group
from pipeline.store.migrations.versions import m0001_before_migrations as first
from pipeline.store.rounds import maintenance_rounds
from pipeline.store.tables import groups, metadata, stream_control
from tests.postgres import Postgres

Upgrade = Callable[[Connection], None]
FOLDER = Path(migrate.__file__).with_name("migrations")
_OLD_GROUP = "INSERT INTO groups (name, created_at) VALUES ('a', 1)"
_OLD_GAME = (
    "INSERT INTO games (game_key, game, group_name, epoch, generation, last_seq, discovered_at) "
    "VALUES ('g', 'G', 'a', 1, 1, 7, 1)"
)
_OLD_DECISION = (
    "INSERT INTO decisions (game_key, desired, own_query, failures, retry_at, asked_by, asked_at) "
    "VALUES ('g', 'paused', 0, 0, 0, 'ann', 5)"
)


def test_migrations_make_what_the_tables_say(engine: Engine) -> None:
    """A store that was migrated has the very tables, columns and indexes that the code names, no more and no fewer."""
    assert maintenance_rounds.name in metadata.tables, "which stands in a module of its own"
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_the_newest_migration_is_the_one_the_code_knows() -> None:
    """A migration that nobody runs would be found out by no other test on a new store."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    assert ScriptDirectory.from_config(config).get_heads() == [migrate.NEWEST]


@pytest.mark.proves("D20", "G181")
def test_a_store_from_before_migrations_keeps_its_rows(engine: Engine) -> None:
    """D20: a store of an earlier version gets the tables, columns and names it lacks, and loses nothing."""
    with engine.begin() as connection:
        metadata.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
        first.metadata.create_all(connection)
        connection.execute(text("DROP TABLE leases"))  # a store from before there were any
        connection.execute(text("ALTER TABLE games DROP COLUMN held_by"))
        connection.execute(text(_OLD_GROUP))
        connection.execute(text(_OLD_GAME))
        connection.execute(text(_OLD_DECISION))
    migrate.migrate(engine)
    assert [each.last_seq for each in assigned(engine, "a")] == [7]
    with engine.connect() as connection:
        decided = connection.execute(select(stream_control.c.requested_by, stream_control.c.requested_at)).all()
        assert decided == [("ann", 5.0)]
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


@pytest.mark.proves("D20")
def test_a_store_that_a_newer_turnout_migrated_is_refused(engine: Engine) -> None:
    """D20: what this version does not know it does not touch; the sentence says what to do."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Refused, match="migrated by a newer turnout: it is at 9999, this one knows up to"):
        migrate.migrate(engine)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_processes_that_start_together_make_one_store(
    database: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    real_upgrade: Upgrade,
) -> None:
    """Ingest, two groups and the dashboard may open a new store at the same moment: each finds it whole."""
    monkeypatch.setattr(migrate, "_upgrade", real_upgrade)
    environ = {}
    if database == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        environ["TURNOUT_STORE__URL"] = server.url()
    settings, paths = load(tmp_path, environ)
    together = threading.Barrier(6)

    def start(name: str) -> None:
        together.wait()
        store = open_store(settings, paths)
        register_group(store, name)
        store.dispose()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(start, "abcdef"))
    store = open_store(settings, paths)
    with store.connect() as connection:
        assert set(connection.scalars(select(groups.c.name))) == set("abcdef")
    store.dispose()


def test_who_meets_another_that_makes_the_store_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite fails at once where a new file's journal is changed while another writes: one start of ten was refused."""
    settings, paths = load(tmp_path, {})
    maker = sqlite3.connect(paths.control_db, isolation_level=None)
    maker.execute("BEGIN IMMEDIATE")
    slept: list[float] = []

    def other_is_done(seconds: float) -> None:
        slept.append(seconds)
        maker.close()

    clock = SimpleNamespace(sleep=other_is_done, monotonic=time.monotonic)  # other threads sleep as they did
    monkeypatch.setattr("pipeline.store.engine.time", clock)
    open_store(settings, paths).dispose()
    assert len(slept) == 1


def test_a_database_without_our_tables_is_no_control_store_to_what_looks(postgres: Postgres, tmp_path: Path) -> None:
    """One that was put back without them must not be filled by who looks: it would be healthy, and its log intact."""
    settings, paths = load(tmp_path, {"TURNOUT_STORE__URL": postgres.url()})
    for _ in range(2):
        with pytest.raises(Refused, match=r"is not there: the database that store\.url names has no tables of turnout"):
            require_store(settings, paths)
    open_store(settings, paths).dispose()
    require_store(settings, paths)


@pytest.mark.proves("D20", "G181")
def test_a_migration_that_fails_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A migration is there whole or not at all, on SQLite too: the next start tries it again."""
    (tmp_path / "m").mkdir()
    for file in FOLDER.glob("[es]*"):
        shutil.copy(file, tmp_path / "m")
    shutil.copytree(FOLDER / "versions", tmp_path / "m" / "versions")
    (tmp_path / "m" / "versions" / "next.py").write_text(NEXT.format(base=migrate.NEWEST))
    monkeypatch.setattr(migrate, "NEWEST", "9000")
    monkeypatch.setattr(migrate, "_FOLDER", tmp_path / "m")
    with pytest.raises(ZeroDivisionError):
        migrate.migrate(engine)
    assert not inspect(engine).has_table("half")
    monkeypatch.undo()
    migrate.migrate(engine)


NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "9000", "{base}", None, None
def upgrade():
    op.create_table("half", sa.Column("x", sa.Integer))
    1 / 0
"""
