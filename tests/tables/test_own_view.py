"""A plain table's log as a driver reads it at its start, without delta-rs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.lake.delta.checkpoint import checkpoint_file, write_checkpoint
from pipeline.lake.delta.log import commit_file
from pipeline.lake.delta.metadata import EXPIRY, NEVER, set_properties
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.own_view import OwnView, own_view
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located

SCHEMA = pa.schema([pa.field("_seq", pa.int64()), pa.field("name", pa.string())])
APP = "turnout/local/chess/1"


@pytest.fixture
def table(tmp_path: Path) -> Location:
    """A table with a cursor, other transactions and a property, at version 4."""
    made = CursorTable.create(located(tmp_path / "table"), SCHEMA, APP)
    made.commit([], None, 1)
    made.commit([], 1, 2, also={"turnout/local/chess/gap": 7})
    set_properties(made.path, {EXPIRY: NEVER}, "kept")
    made.refresh()
    made.commit([], 2, 3)
    return made.path


def compare(table: Location) -> None:
    """Compare each answer with that of delta-rs."""
    own: Any = own_view(table)
    other = open_table(table)
    assert isinstance(own, OwnView)
    assert own.version() == other.version()
    assert own.schema().to_json() == other.schema().to_json()
    assert own.metadata().id == str(other.metadata().id)
    assert own.metadata().configuration == other.metadata().configuration
    assert own.metadata().partition_columns == other.metadata().partition_columns
    assert own.protocol().min_writer_version == other.protocol().min_writer_version
    for app in (APP, "turnout/local/chess/gap", "turnout/local/chess/2", ""):
        assert own.transaction_version(app) == other.transaction_version(app), app


@pytest.mark.parametrize("checkpoint", [None, 2, 4])
def test_a_view_says_what_delta_rs_says(table: Location, checkpoint: int | None) -> None:
    """A cursor is the same whoever reads the log, also where a cleanup has cut it behind a checkpoint."""
    if checkpoint is not None:
        write_checkpoint(table, checkpoint)
        for version in range(checkpoint):
            commit_file(table, version).delete()
    compare(table)


def test_a_driver_s_table_is_such_a_view(table: Location) -> None:
    """A start opens no table by delta-rs, and commits go on from the cursor."""
    opened = CursorTable.open(table, APP)
    assert opened is not None
    held: Any = opened._table
    assert isinstance(held, OwnView)
    opened.commit([], 3, 4)
    compare(table)


def damage_commit(table: Location) -> None:
    Path(commit_file(table, 4)).write_text("{", "utf-8")


def remove_commit(table: Location) -> None:
    commit_file(table, 2).delete()


def damage_checkpoint(table: Location) -> None:
    write_checkpoint(table, 2)
    Path(checkpoint_file(table, 2)).write_bytes(b"PAR1")


def let_expire(table: Location) -> None:
    set_properties(table, {EXPIRY: "interval 1 hours"}, "by another writer")


def bring_features(table: Location) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}
    Path(commit_file(table, 5)).write_text(json.dumps({"protocol": protocol}), "utf-8")


def add_parts(table: Location) -> None:
    Path(table / "_delta_log/00000000000000000004.checkpoint.0000000001.0000000002.parquet").write_bytes(b"")


def remove_all(table: Location) -> None:
    table.clear()


@pytest.mark.parametrize(
    "change",
    [damage_commit, remove_commit, damage_checkpoint, let_expire, bring_features, add_parts, remove_all],
)
def test_delta_rs_decides_about_all_other_logs(table: Location, change: Callable[[Location], None]) -> None:
    """Damage, gaps, expiry, features and foreign checkpoints are met by the reader that knows them all."""
    change(table)
    assert own_view(table) is None
