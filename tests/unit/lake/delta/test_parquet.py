"""Files as tasks write them."""

import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.lake.delta import parquet
from pipeline.lake.storage.places import located


def _rows(count: int) -> pa.Table:
    texts = pa.array([f"name {each}" for each in range(count)], pa.string())
    return pa.table({"number": pa.array(range(count), pa.int64()), "name": texts})


@pytest.mark.parametrize("count", [0, 3, 999, 1_000, 50_000])
def test_the_size_of_a_file_is_what_the_disk_has(tmp_path: Path, count: int) -> None:
    """Readers find the end of a file by its size in the log."""
    file = tmp_path / "part.parquet"
    size = parquet.write(_rows(count), located(file), "snappy")
    assert (file.stat().st_size, pq.read_table(file)) == (size, _rows(count))


@pytest.mark.parametrize(("count", "has_dictionaries"), [(27, False), (20_000, True)])
def test_only_columns_of_many_rows_have_dictionaries(tmp_path: Path, count: int, *, has_dictionaries: bool) -> None:
    """A task writes hundreds of files with few rows, and a dictionary for each column takes its time."""
    parquet.write(_rows(count), located(tmp_path / "part.parquet"), "snappy")
    columns = parquet.metadata(tmp_path.joinpath("part.parquet").as_posix()).row_group(0)
    assert {columns.column(each).has_dictionary_page for each in range(2)} == {has_dictionaries}


@pytest.mark.parametrize("count", [27, 50_000])
def test_a_disk_that_is_full_keeps_no_part_of_a_file(tmp_path: Path, count: int) -> None:
    """A game whose disk is full is tried again and again: each try would leave a part that nothing names."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            parquet.write(_rows(count), located(tmp_path / "part.parquet"), "snappy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
