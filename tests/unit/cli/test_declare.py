"""`turnout schemas declare` gives the JSON Schema of an event type, as a file or printed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.data.contracts.formats.json.gathering import gathered
from pipeline.data.contracts.formats.json.stored_supersets import dumps
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared_format import UNDECLARED
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
    """The command prints a JSON document with every key, as in the file, and no character that a terminal obeys."""
    done = declare(tmp_path)
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    assert set(printed["properties"]) == set(KEYS)
    assert done.stdout.replace("\n", "").isprintable()
    declare(tmp_path, "--out", str(tmp_path / "move.json"))
    assert json.loads((tmp_path / "move.json").read_bytes()) == printed


def test_a_file_that_cannot_be_written_is_one_sentence(store: Engine, tmp_path: Path) -> None:
    """The command names the file."""
    with pytest.raises(Refused, match=r"missing/move\.json cannot be written"):
        declare(tmp_path, "--out", str(tmp_path / "missing" / "move.json"))
