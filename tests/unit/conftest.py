"""The control store of a test: on SQLite, and on a real PostgreSQL where a test asks for both."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from pipeline.settings import load
from pipeline.store.engine import open_store
from tests.postgres import Postgres, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Return a new control store, once in each database."""
    environ = {}
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        environ["TURNOUT_STORE__URL"] = server.url()
    settings, paths = load(tmp_path, environ)
    store = open_store(settings, paths)
    yield store
    store.dispose()
