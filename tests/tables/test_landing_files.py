"""Landing files are known by their place in the table: files of several partitions may have one name."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from pipeline.data.ingest.adopt import adopt
from pipeline.data.ingest.identity import Commits
from pipeline.data.ingest.sources.landing_log import file_name, files_by_commit, files_now
from pipeline.data.verify import sources
from pipeline.data.verify.balance import verify
from pipeline.lake.storage.places import located
from tests.tables.ingest_world import Rows, World, batch_of, start


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///env/landing/day%3D1/part-0.parquet", "day=1/part-0.parquet"),
        ("file:/env/landing/a=1%20b.parquet", "a=1 b.parquet"),
        ("k@v,1%202.parquet", "k@v,1 2.parquet"),
        ("day=x%2520y/a+b.parquet", "day=x%20y/a+b.parquet"),
        ("dbfs:/env/landing/%C3%A9 b.parquet", "é b.parquet"),
        ("s3://other/landing/c.parquet", "c.parquet"),
        ("/elsewhere/d.parquet", "d.parquet"),
    ],
)
@pytest.mark.proves("G13")
def test_a_file_has_one_name_however_it_is_written(uri: str, name: str) -> None:
    """Law L1: bronze, the log and Spark's URI give one name, and it is the last part only for a file elsewhere."""
    assert file_name(uri, located(Path("/env/landing"))) == name


def partitioned(env: Path, name: str, days: int) -> World:
    """Make an environment whose landing table has a partition with a file of two rows for each day."""
    world = World(env)
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("day", pa.int32())])
    write_deltalake(Path(world.paths.landing), schema.empty_table(), partition_by=["day"])
    for day in range(1, days + 1):
        place = f"day={day}/{name.format(day)}"
        file = world.paths.landing / place
        Path(file.parent).mkdir()
        pq.write_table(pa.table({"key": pa.nulls(2, pa.binary()), "value": pa.array([b"x"] * 2)}), file)
        add = AddAction(place, Path(file).stat().st_size, {"day": str(day)}, 1, True, json.dumps({"numRecords": 2}))
        table = DeltaTable(world.paths.landing)
        table.create_write_transaction([add], mode="append", schema=table.schema(), partition_by=["day"])
    return world


def land(world: World, *uris: str) -> None:
    """Land two rows of each file, each as a micro-batch."""
    ingest = world.ingest()
    start(world, ingest)
    for batch, uri in enumerate(uris):
        rows = batch_of([("Chess", 40)] * 2, 0, ["x"] * 2)
        place = rows.schema.get_field_index("topic")
        landed: Any = Rows([rows.set_column(place, "topic", pa.array([uri] * 2))])
        ingest._batch(landed, batch)


@pytest.mark.proves("G13")
def test_files_of_one_name_in_two_partitions_are_two(tmp_path: Path) -> None:
    """Law L1: verify takes them for no duplicates, and an adoption goes on with the first that is not in bronze."""
    world = partitioned(tmp_path / "env", "part-0.parquet", 3)
    land(world, *(f"file://{world.paths.landing}/day%3D{day}/part-0.parquet" for day in (1, 2)))
    known = sources.observe(world.settings, world.paths, world.engine)
    assert verify(world.paths, world.settings.environment, known=known).totals.source_duplicates == 0
    assert adopt(world.settings, world.paths, world.engine, accept_loss=False).position == Commits(3)
    assert files_now(world.paths.landing) == {f"day={day}/part-0.parquet" for day in (1, 2, 3)}
    assert files_by_commit(world.paths.landing)[2] == ("day=2/part-0.parquet",)
