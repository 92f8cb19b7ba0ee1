"""The rows of a pass or chunk: of bronze they are a frame that Spark reads, or files that tasks read themselves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.data.streams.bronze_files import Piece
from pipeline.data.streams.writing.job import READ, Place, SplitJob
from pipeline.data.streams.writing.reports import REPORT
from pipeline.lake.delta import parquet
from pipeline.lake.delta.bronze import BRONZE, text
from pipeline.lake.delta.parquet import Scanner

_READ: Final = pa.schema([BRONZE.field(name) for name in READ])
_SPARK_TYPES: Final = {pa.int32(): "int", pa.string(): "string", pa.binary(): "binary"}


class Split(Protocol):
    """The work of a task: a pure function of its rows and of the job (law L5), which commits nothing (law L9)."""

    def __call__(self, batches: Iterator[pa.RecordBatch], job: SplitJob) -> Iterator[pa.RecordBatch]:
        """Write files into the job's folders and yield a row of REPORT for each slice.

        The report is JSON: `seq_to`, `seconds`, `refused` (a file for quarantine with its games, or null), and in
        `games` by key `links`, `arrivals`, `files`, `rejects`, `error` and `needs`.
        """


class Rows(Protocol):
    """Rows of a source that can be split repeatedly."""

    def split(self, job: SplitJob) -> list[Any]:
        """Run the job over them; return the reports of its tasks.

        Raises:
            PySparkException, Py4JJavaError: they cannot be read, or a worker died of one.
        """
        ...

    def places(self, key: str, above: int) -> list[Place]:
        """Return the places of a game's rows above this seq, in order."""
        ...


@dataclass(frozen=True, slots=True)
class FrameRows:
    """The rows of a frame."""

    frame: DataFrame
    work: Split

    def split(self, job: SplitJob) -> list[Any]:
        """Run the job over the frame's partitions."""
        known = self.frame.columns
        columns = [name if name in known else _nulls(name) for name in READ]
        return list(self.frame.select(*columns).mapInArrow(partial(self.work, job=job), REPORT).collect())

    def places(self, key: str, above: int) -> list[Place]:
        """Find the places with Spark."""
        of_game = self.frame.where((F.col("game_key") == key) & (F.col("seq") > above))
        return sorted((row.seq, row.pos) for row in of_game.select("seq", "pos").collect())


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of seqs above `low` up to `high` in files of bronze, one task for each part."""

    spark: SparkSession
    parts: Sequence[Sequence[Piece]]
    low: int
    high: int
    work: Split

    def split(self, job: SplitJob) -> list[Any]:
        """Run the job in one task for each part."""
        if not self.parts:
            return []
        tasks = self.spark.range(0, len(self.parts), 1, len(self.parts))
        body = partial(_split_parts, work=self.work, rows=(self.parts, self.low, self.high), job=job)
        return list(tasks.mapInArrow(body, REPORT).collect())

    def places(self, key: str, above: int) -> list[Place]:
        """Find the places here, without the payload column."""
        rows = [read(part, max(self.low, above), self.high, [key], ["seq", "pos"]).to_pylist() for part in self.parts]
        return sorted((row["seq"], row["pos"]) for part in rows for row in part)


def read(part: Sequence[Piece], low: int, high: int, keys: Sequence[str], columns: Sequence[str] = READ) -> pa.Table:
    """Read a part's rows of these games, or of all games if none is given, of seqs above `low` up to `high`."""
    return _scanner(part, low, high, keys, columns).to_table()


def _nulls(name: str) -> Column:
    """Return a column that bronze, which is older, does not have yet."""
    return F.lit(None).cast(_SPARK_TYPES[BRONZE.field(name).type]).alias(name)


def _scanner(part: Sequence[Piece], low: int, high: int, keys: Sequence[str], columns: Sequence[str]) -> Scanner:
    condition = (pc.field("seq") > low) & (pc.field("seq") <= high)
    if keys:
        condition &= text("game_key").isin(pa.array(keys, pa.string()))
    return parquet.pieces([(piece.path, piece.groups) for piece in part], _READ).scanner(
        columns=list(columns), filter=condition, use_threads=False, batch_readahead=0, fragment_readahead=1
    )


def _split_parts(
    batches: Iterator[pa.RecordBatch],
    work: Split,
    rows: tuple[Sequence[Sequence[Piece]], int, int],
    job: SplitJob,
) -> Iterator[pa.RecordBatch]:
    """Split the numbered parts: the body of a Spark task."""
    parts, low, high = rows
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from work(_scanner(parts[number], low, high, sorted(job.cursors), READ).to_batches(), job)
