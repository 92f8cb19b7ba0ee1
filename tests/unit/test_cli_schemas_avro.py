"""`turnout schemas plan` and `register` take both formats, by the suffix of the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from pipeline.contracts.registry import LocalRegistry
from pipeline.settings import load
from pipeline.store.database.engine import open_store


@pytest.fixture
def world(tmp_path: Path) -> Any:
    def call(command: str, *more: str, **fields: Any) -> Any:
        held = [{"name": name, "type": kind} for name, kind in fields.items()]
        path = tmp_path / "lap.avsc"
        path.write_text(json.dumps({"type": "record", "name": "acme.Lap", "fields": held}), "utf-8")
        given = ["--env-dir", str(tmp_path), "--game", "Go", "--message", "acme.Lap", *more, str(path)]
        return CliRunner().invoke(cli, ["schemas", command, *given])

    open_store(*load(tmp_path)).dispose()
    return call


def test_an_avsc_file_is_avro(world: Any, tmp_path: Path) -> None:
    """A person names no format for a file whose suffix says it; the plan shows what the table gets."""
    assert world("register", ms="int").exit_code == 0
    done = world("plan", ms="int", driver="string")
    assert (done.exit_code, "driver: is new" in done.output) == (0, True)
    engine = open_store(*load(tmp_path))
    assert [schema.format for schema in LocalRegistry(engine).snapshot().schemas.values()] == ["avro"]
    engine.dispose()


def test_a_format_that_nobody_reads_is_refused(world: Any) -> None:
    """An unknown format is one sentence with those that there are."""
    assert "this turnout reads: protobuf, avro" in str(world("plan", "--format", "json", ms="int").exception)
