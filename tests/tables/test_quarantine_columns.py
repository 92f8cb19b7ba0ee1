"""A quarantine table that an earlier version made gets new columns before a file has them."""

from pathlib import Path

import pyarrow as pa

from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from tests.tables.ingest_world import World


def test_ingest_adds_columns_to_an_older_quarantine(tmp_path: Path) -> None:
    """delta-rs would take a file with a column that the table lacks, and lose the column."""
    world = World(tmp_path / "env")
    older = pa.schema([each for each in QUARANTINE if each.name not in {"event_id", "field"}])
    CursorTable.create(world.paths.quarantine, older, "test")
    world.ingest()
    assert [each.name for each in open_table(world.paths.quarantine).schema().fields] == QUARANTINE.names
    world.engine.dispose()
