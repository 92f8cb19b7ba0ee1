"""The control store beside the tables of a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    store = open_store(*load(tmp_path, {}))
    yield store
    store.dispose()
