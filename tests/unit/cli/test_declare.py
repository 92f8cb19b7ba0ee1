"""`turnout schemas declare` gives the JSON Schema of an event type, printed or in a preview."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from pipeline.cli.main import cli
from pipeline.data.contracts.formats.json.gathering import gathered
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.stored_supersets import dumps
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store

KEYS = ("x", "é", "\u202eevil", "\U000e0041tag")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    """Return a store with Chess, whose moves nobody declared."""
    engine = open_store(*load(tmp_path))
    superset = gathered(Superset(), [json.dumps({key: 1}).encode() for key in KEYS])
    LocalRegistry(engine).register_many([Registration("Chess", "move", dumps(superset), format=UNDECLARED)])
    yield engine
    engine.dispose()


def declare(folder: Path, *words: str) -> Result:
    given = ["schemas", "declare", "Chess", "--type", "move", *words, "--env-dir", str(folder)]
    return CliRunner().invoke(cli, given, catch_exceptions=False)


def test_a_printed_schema_is_a_json_file(store: Engine, tmp_path: Path) -> None:
    """The command prints a JSON document with every key, and no character that a terminal obeys."""
    done = declare(tmp_path, "--print")
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    assert set(printed["properties"]) == set(KEYS)
    assert done.stdout.replace("\n", "").isprintable()


def test_a_preview_obeys_no_key(store: Engine, tmp_path: Path) -> None:
    """The preview has the schema with its keys, and no character that a terminal obeys."""
    done = declare(tmp_path, "--dry-run")
    assert done.exit_code == 0
    assert '"x": {' in done.stdout
    assert done.stdout.replace("\n", "").isprintable()
