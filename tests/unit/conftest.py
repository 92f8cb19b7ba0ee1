"""The control store of a test: on SQLite, and where its statements matter on a real PostgreSQL too; and the pages."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine

from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from tests.lakebase import Answering, Lakebase, lakebase_on
from tests.postgres import Postgres, postgres_server

if TYPE_CHECKING:
    from tests.unit.app.app_world import Opening
    from tests.unit.grants.access_world import House

_ON_LAKEBASE = {"store.test_leases", "store.test_migrations", "store.test_writers"}
_STORING = {
    "control.test_registering",
    "data.contracts.registries.test_resolution",
    "data.contracts.test_catalogue",
    "data.streams.test_held_games",
}
_RACING = {
    "control.operations.test_moves",
    "control.operations.test_stale",
    "grants.applying.test_ledger",
    "grants.applying.test_requests",
}


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def lakebase_calls(postgres: Postgres) -> Iterator[Answering]:
    with lakebase_on(postgres) as server:
        yield server


@pytest.fixture
def lakebase(lakebase_calls: Answering) -> Lakebase:
    """An endpoint of Lakebase with a new role and schema."""
    return lakebase_calls.endpoint()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run on both databases what tests the store itself, and what races in it."""
    marked = any("engine" in each.args[0] for each in metafunc.definition.iter_markers("parametrize"))
    if "engine" in metafunc.fixturenames and not marked:
        module = metafunc.module.__name__.removeprefix("tests.unit.")
        both = module.startswith("store.") or module in _STORING | _RACING
        databases = ["sqlite", *(["postgresql"] if both else []), *(["lakebase"] if module in _ON_LAKEBASE else [])]
        metafunc.parametrize("engine", databases, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each test on PostgreSQL with its first values in the ordinary run, and few on Lakebase, which is one too.

    The part `databases` of the long tests runs the others.
    """
    seen = set()
    for item in items:
        database = (
            item.callspec.params.get("engine")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if database not in {"postgresql", "lakebase"} or not item.path.is_relative_to(Path(__file__).parent):
            continue
        key = (item.nodeid.partition("[")[0], database)
        if key in seen or (database == "lakebase" and item.path.name != "test_migrations.py"):
            item.add_marker("long")
            item.add_marker("databases")
        seen.add(key)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Return a new control store in the database that the test is run on."""
    environ = {}
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        environ["TURNOUT_STORE__URL"] = server.url()
    elif request.param == "lakebase":
        endpoint: Lakebase = request.getfixturevalue("lakebase")
        environ["TURNOUT_STORE__URL"] = endpoint.enter(request.getfixturevalue("monkeypatch"))
    settings, paths = load(tmp_path, environ)
    store = open_store(settings, paths)
    yield store
    store.dispose()


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Opening"]:
    from tests.unit.app.app_world import pages_of  # Streamlit comes with it, which few tests need

    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def house(engine: Engine, tmp_path: Path) -> Iterator["House"]:
    from tests.unit.grants.access_world import house_at  # a catalog's client comes with it

    with house_at(engine, tmp_path) as made:
        yield made


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a catalog that is away one second, not ten, for all tries of a request."""
    from grants.catalogs.rest import Rest

    monkeypatch.setattr(Rest.__init__, "__kwdefaults__", {**(Rest.__init__.__kwdefaults__ or {}), "budget_seconds": 1})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    from tests.unit.app.app_world import four_games

    with four_games(tmp_path) as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which catalogs the contract was really run against: a skip must not pass for a proof."""
    mark = "test_catalog_contract.py::"
    run, skipped = (
        {
            report.nodeid.rpartition("[")[2].rstrip("]").partition("-")[0] if "[" in report.nodeid else "embedded"
            for outcome in outcomes
            for report in terminalreporter.getreports(outcome)
            if mark in report.nodeid
        }
        & {"embedded", "unity", "databricks"}
        for outcomes in (("passed", "failed"), ("skipped",))
    )
    if run | skipped:
        terminalreporter.write_line(f"catalogs really run: {', '.join(sorted(run)) or 'none'}")
        terminalreporter.write_line(f"catalogs NOT run: {', '.join(sorted(skipped - run)) or 'none'}")
