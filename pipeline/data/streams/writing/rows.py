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
EVERY_SEQ: Final = (0, 2**63 - 1)
"""The span of all seqs: they begin with 1."""

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


class BatchRows(Rows, Protocol):
    """The rows of a micro-batch."""

    def last_seq(self) -> int | None:
        """Return the seq of the last row, None without rows."""
        ...

    @property
    def count(self) -> int | None:
        """The number of rows, None where only Spark counts them."""
        ...


@dataclass(frozen=True, slots=True)
class FrameRows:
    """The rows of a frame."""

    frame: DataFrame
    work: Split
    count: None = None

    def split(self, job: SplitJob) -> list[Any]:
        """Run the job over the frame's partitions."""
        known = self.frame.columns
        columns = [name if name in known else _nulls(name) for name in READ]
        return list(self.frame.select(*columns).mapInArrow(partial(self.work, job=job), REPORT).collect())

    def places(self, key: str, above: int) -> list[Place]:
        """Find the places with Spark."""
        of_game = self.frame.where((F.col("game_key") == key) & (F.col("seq") > above))
        return sorted((row.seq, row.pos) for row in of_game.select("seq", "pos").collect())

    def last_seq(self) -> int | None:
        """Find the last seq with Spark."""
        last: int | None = self.frame.agg(F.max("seq")).collect()[0][0]
        return last


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of seqs above `low` up to `high` in files of bronze, one task for each part."""

    spark: SparkSession
    parts: Sequence[Sequence[Piece]]
    low: int
    high: int
    work: Split
    count: int | None = None
    with_others: bool = False  # tasks read rows of other games than the job's, too, and report the last seq of all

    def split(self, job: SplitJob) -> list[Any]:
        """Run the job in one task for each part."""
        if not self.parts:
            return []
        tasks = self.spark.range(0, len(self.parts), 1, len(self.parts))
        keys = [] if self.with_others else sorted(job.cursors)
        body = partial(_split_parts, work=self.work, rows=(self.parts, self.low, self.high, keys), job=job)
        return list(tasks.mapInArrow(body, REPORT).collect())

    def places(self, key: str, above: int) -> list[Place]:
        """Find the places here, without the payload column."""
        rows = [read(part, max(self.low, above), self.high, [key], ["seq", "pos"]).to_pylist() for part in self.parts]
        return sorted((row["seq"], row["pos"]) for part in rows for row in part)

    def last_seq(self) -> int | None:
        """Find the last seq here."""
        found = (pc.max(read(part, self.low, self.high, [], ["seq"])["seq"]).as_py() for part in self.parts)
        return max((seq for seq in found if seq is not None), default=None)


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
        columns=list(columns),
        filter=None if not keys and (low, high) == EVERY_SEQ else condition,
        use_threads=False,
        batch_readahead=0,
        fragment_readahead=1,
    )


def _split_parts(
    batches: Iterator[pa.RecordBatch],
    work: Split,
    rows: tuple[Sequence[Sequence[Piece]], int, int, Sequence[str]],
    job: SplitJob,
) -> Iterator[pa.RecordBatch]:
    """Split the numbered parts: the body of a Spark task."""
    parts, low, high, keys = rows
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from work(_scanner(parts[number], low, high, keys, READ).to_batches(), job)
