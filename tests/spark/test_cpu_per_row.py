"""The cost of rows that Spark hands to Python tasks: processor time of this process, its JVM and workers; memory."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from bench import cpu
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.query import Ingest
from pipeline.data.ingest.sources import topic
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.streams.writing.job import SplitJob
from pipeline.data.streams.writing.rows import FrameRows
from pipeline.data.streams.writing.split import split
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.source import Source
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.spark.conftest import World
from tests.tables.repair_world import CHESS, FIRST

FEW, MANY = 10_000, 40_000
SIZES = (FEW, MANY)
MAX = 5.0  # times the processor time, for four times the rows
ROUNDS = 3  # of each the cheapest counts: a first one, and whatever else the JVM does, is dearer

RECORD = pa.schema(
    [
        *(("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32())),
        *(("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("timestampType", pa.int32())),
        BRONZE.field("headers"),
    ]
)
"""A record of a topic, as Spark gives it."""

Act = Callable[[], object]


def cpu_seconds(act: Act) -> float:
    """Return what the cheapest of some rounds used."""
    used = []
    for _ in range(ROUNDS):
        before = cpu.total(cpu.tree(cpu.read_all(), os.getpid())).cpu_seconds
        act()
        used.append(cpu.total(cpu.tree(cpu.read_all(), os.getpid())).cpu_seconds - before)
    return min(used)


def require_linear(cost: Mapping[int, float]) -> None:
    reported = ", ".join(f"{rows} rows {seconds * 1e6 / rows:.1f} ms per 1,000" for rows, seconds in cost.items())
    assert cost[MANY] <= MAX * cost[FEW], reported


def wrapper(world: World) -> bytes:
    schema_id = LocalRegistry(world.engine).register(CHESS.name, "t.M", FIRST.descriptor_set).schema_id
    return Wrapper(game=CHESS.name, schema_id=schema_id, payload=FIRST.payload(points=7)).SerializeToString()


def table(rows: int, schema: pa.Schema, **given: Any) -> pa.Table:
    """Return equal rows; an array is taken as it is, a column that is not given is null."""
    columns = {name: each if isinstance(each, pa.Array) else pa.repeat(each, rows) for name, each in given.items()}
    return pa.table([columns.get(field.name, pa.nulls(rows)).cast(field.type) for field in schema], schema=schema)


def frame(world: World, rows: pa.Table) -> DataFrame:
    """Return the rows as Spark reads them from one file."""
    file = world.paths.root / f"{rows.num_rows}.parquet"
    pq.write_table(rows, file)
    return world.spark.read.parquet(str(file))


def test_ingest_from_a_topic_is_linear_in_the_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger micro-batch costs no more per record, or ingest that is a little behind never comes back."""
    monkeypatch.setattr(topic.Topic, "check", lambda _: None)  # no broker is there
    world.settings = replace(world.settings, source=Source(kind="kafka"))
    value, cost = wrapper(world), dict[int, float]()
    ingest, batch_ids = world.ingest_query(), iter(range(100))
    for rows in SIZES:
        given = {"value": value, "topic": "t", "partition": 0, "offset": pa.array(range(rows)), "timestampType": 1}
        records = topic.of_topic(frame(world, table(rows, RECORD, timestamp=pa.scalar(0), **given)))
        cost[rows] = cpu_seconds(lambda records=records: ingest._batch(records, next(batch_ids)))  # type: ignore[misc]
    require_linear(cost)


def test_ingest_from_landing_is_linear_in_the_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger micro-batch costs no more per row, or ingest that is a little behind never comes back."""
    value, sizes, cost = wrapper(world), iter(SIZES), dict[int, float]()
    landing = CursorTable.create(world.paths.landing, LANDING, "producer")
    for rows in SIZES:
        landing.append([write_file(table(rows, LANDING, value=value), world.paths.landing, [])])
    world.settings = replace(world.settings, ingest=replace(world.settings.ingest, max_bytes="1b"))  # a file each
    land, batch_ids = Ingest._batch, iter(range(100))

    def land_often(self: Ingest, batch: DataFrame, _: int) -> None:
        cost[next(sizes)] = cpu_seconds(lambda: land(self, batch, next(batch_ids)))

    monkeypatch.setattr(Ingest, "_batch", land_often)
    world.ingest()
    assert [ROUNDS * rows for rows in SIZES] == [
        sum(each.rows for each in world.landed[at : at + ROUNDS]) for at in range(0, len(SIZES) * ROUNDS, ROUNDS)
    ]
    require_linear(cost)


def test_a_pass_is_linear_in_the_rows(world: World) -> None:
    """A larger pass costs no more per row, or a group that is a little behind never comes back."""
    raw, cost = wrapper(world), dict[int, float]()
    job = SplitJob({CHESS.key: 0}, LocalRegistry(world.engine).snapshot(), located(world.paths.root))
    for rows in SIZES:
        given = {"game_key": CHESS.key, "game": CHESS.name, "schema_id": 1, "seq": 1, "prev_seq": 0, "raw": raw}
        bronze = FrameRows(frame(world, table(rows, BRONZE, pos=pa.array(range(rows)), **given)), split)
        cost[rows] = cpu_seconds(lambda bronze=bronze: bronze.split(job))  # type: ignore[misc]
    require_linear(cost)


def bytes_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict(
            {"bytes": [batch.nbytes], "largest": [pc.max(pc.binary_length(batch["value"]))]}
        )


def test_a_task_never_gets_much_more_than_the_limit_at_once(world: World) -> None:
    """Law L1: rows that are large, also among small ones, are cut by their bytes: an Arrow column ends at 2 GiB."""
    limit = 64 * 1024 * 1024
    values = pa.array([bytes(9_000_000 if number % 40 == 7 else 30) for number in range(1_000)])
    records = topic.of_topic(frame(world, table(len(values), RECORD, value=values)))
    given = records.coalesce(1).mapInArrow(bytes_of, "bytes long, largest int").collect()
    assert sum(each.bytes for each in given) > 3 * limit
    assert all(each.bytes < limit + each.largest for each in given)
