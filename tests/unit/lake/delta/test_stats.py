"""Bounds of columns in a table's log."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.opening import rows_of
from pipeline.lake.delta.stats import stats_of
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located

FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize("at", [FIRST, LAST, datetime(999, 2, 3, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC)])
def test_readers_that_filter_find_each_time(tmp_path: Path, at: datetime) -> None:
    """L8: a row with the first or the last time that a table can have is found by readers that skip files by bounds."""
    place = located(tmp_path / "times")
    table = CursorTable.create(place, SCHEMA, "times")
    for number, each in enumerate([at, datetime(2026, 1, 1, tzinfo=UTC)]):
        one = pa.table({"at": [each]}, schema=SCHEMA)
        table.commit([replace(write_file(one, place), stats=stats_of(one, ["at"]))], number or None, number + 1)
    same = ds.field("at") == pa.scalar(at, SCHEMA.types[0])
    for found in (
        rows_of(place).to_table(filter=same),
        DeltaTable(str(place)).to_pyarrow_dataset().to_table(filter=same),
    ):
        assert found.num_rows == 1


def test_bounds_of_times_have_years_of_four_digits() -> None:
    """L8: a time before the year 1000 is written as other writers write it, as readers compare bounds as texts."""
    stats = json.loads(stats_of(pa.table({"at": [FIRST, LAST]}, schema=SCHEMA), ["at"]))
    assert stats["minValues"]["at"] == "0001-01-01T00:00:00.000Z"
    assert stats["maxValues"]["at"] == "9999-12-31T23:59:59.999Z"
