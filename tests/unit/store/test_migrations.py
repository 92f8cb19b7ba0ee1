"""The control store's tables follow its migrations, on both databases."""

import hashlib
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, inspect, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from pipeline.base.errors import Refused
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.database import migrate, report_tables
from pipeline.store.database.checked_table import metadata
from pipeline.store.database.engine import open_store, require_store
from pipeline.store.database.tables import groups
from pipeline.store.games import register_group
from tests.postgres import Postgres

Upgrade = Callable[[Connection], None]
FIRST_TABLES = ("r0026", "e58fa16f3e4b1a60")
FOLDER = Path(migrate.__file__).with_name("migrations")


def test_migrations_make_what_the_tables_say(engine: Engine, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A store that was migrated has the very tables, columns, indexes and checks that the code names."""
    url = f"sqlite:///{tmp_path}/other.db"
    if engine.dialect.name == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.url()
    other = create_engine(url)
    metadata.create_all(other)
    assert _definitions(engine) == _definitions(other)
    other.dispose()
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def _definitions(engine: Engine) -> set[tuple[str, str]]:
    """Return what the database itself has of our tables: on SQLite all, on PostgreSQL the checks."""
    query = "SELECT name, sql FROM sqlite_schema WHERE tbl_name <> 'alembic_version'"
    if engine.dialect.name == "postgresql":
        query = (
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE connamespace = current_schema()::regnamespace AND conname <> 'alembic_version_pkc'"
        )
    with engine.connect() as connection:
        return {(name, str(definition)) for name, definition in connection.execute(text(query))}


def test_the_newest_migration_is_the_one_the_code_knows() -> None:
    """A migration that nobody runs would be found out by no other test on a new store."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    assert ScriptDirectory.from_config(config).get_heads() == [migrate.NEWEST]


def test_a_changed_table_raises_the_first_version() -> None:
    """Until 0.1.0 a store with other tables has a smaller number and is refused: it would fail later, in any statement.

    Where this fails a table has changed: raise `FIRST` in `migrate.py`, and replace the pair here by the new one.
    """
    assert (migrate.FIRST, _digest()) == FIRST_TABLES


def test_the_first_migration_knows_each_table() -> None:
    """It creates what two modules define; a table of a third one would be missing where nobody has imported that."""
    pipeline = FOLDER.parents[2]
    found = {path.name for path in pipeline.rglob("*.py") if "= store_table(" in path.read_text()}
    assert found == {"tables.py", "report_tables.py"}


def _digest() -> str:
    """Return a digest of all statements that create our tables, on both databases."""
    assert report_tables.incidents.metadata is metadata, "its tables count too, also where this test runs alone"
    said = []
    for dialect in (sqlite.dialect(), postgresql.dialect()):  # type: ignore[no-untyped-call]
        for table in metadata.sorted_tables:
            made: list[DDLElement] = [
                CreateTable(table),
                *(CreateIndex(each) for each in sorted(table.indexes, key=attrgetter("name"))),
            ]
            said += [" ".join(str(each.compile(dialect=dialect)).split()) for each in made]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


@pytest.mark.proves("D20")
def test_a_store_that_a_newer_turnout_migrated_is_refused(engine: Engine) -> None:
    """D20: what this version does not know it does not touch; the sentence says what to do."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'r9999'"))
    with pytest.raises(Refused, match="newer turnout migrated the control store to r9999; this version supports up to"):
        migrate.migrate(engine)


@pytest.mark.parametrize("revision", ["0001", "0012", "r0002", None])
@pytest.mark.proves("D20")
def test_a_store_of_an_unreleased_build_is_refused(engine: Engine, revision: str | None) -> None:
    """Nothing is upgraded from before the first release, nor is a table of it touched; the sentence says what to do."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision or "0001"})
        if revision is None:
            connection.execute(text("DROP TABLE alembic_version"))
    with pytest.raises(Refused, match=r"unreleased build of turnout.*Name a new environment with --env-dir"):
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
        register_group(store, name, placing())
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
    monkeypatch.setattr("pipeline.store.database.engine.time", clock)
    open_store(settings, paths).dispose()
    assert len(slept) == 1


def test_a_database_without_our_tables_is_no_control_store_to_what_looks(postgres: Postgres, tmp_path: Path) -> None:
    """One that was put back without them must not be filled by who looks: it would be healthy, and its log intact."""
    settings, paths = load(tmp_path, {"TURNOUT_STORE__URL": postgres.url()})
    for _ in range(2):
        with pytest.raises(Refused, match=r"is missing: the database of store\.url has no turnout tables"):
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
    monkeypatch.setattr(migrate, "NEWEST", "r9000")
    monkeypatch.setattr(migrate, "_FOLDER", tmp_path / "m")
    with pytest.raises(ZeroDivisionError):
        migrate.migrate(engine)
    assert not inspect(engine).has_table("half")
    monkeypatch.undo()
    migrate.migrate(engine)


def test_the_name_of_a_folder_is_no_option_of_its_store(tmp_path: Path) -> None:
    """Of `e?a=1` and `e?b=2` each has a control store of its own, and in its folder."""
    for name in ("a=1", "b=2"):
        env = tmp_path / f"e?{name}"
        open_store(*load(env, {})).dispose()
        assert (env / "control.db").is_file()
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:{folder}/x.db?uri=true&mode=rwc"])
def test_a_store_without_a_file_of_its_own_is_refused(tmp_path: Path, url: str) -> None:
    """What a command writes to memory is gone with it, and a URI would give the file another mode than ours."""
    settings, paths = load(tmp_path / "env", {"TURNOUT_STORE__URL": url.format(folder=tmp_path)})
    for opening in (open_store, require_store):
        with pytest.raises(Refused, match=r"store\.url has no file"):
            opening(settings, paths)
    assert not (tmp_path / "x.db").exists()


NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "r9000", "{base}", None, None
def upgrade():
    op.create_table("half", sa.Column("x", sa.Integer))
    1 / 0
"""
