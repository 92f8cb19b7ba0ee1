"""The rows of a pass or chunk: of bronze they are a frame that Spark reads, or files that tasks read themselves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from operator import and_
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

Keys = tuple[str | None, str | None]
"""Game keys from one on and before another; None where there is no limit."""

_EVERY_KEY: Final[Keys] = (None, None)
_SHARE_ROWS: Final = 2_000  # at least of one task, where several read the same files
_SHARE_GAMES: Final = 50  # the same: most of a task is a file for each game

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
    """The rows of seqs above `low` up to `high` in files of bronze, one task for each part.

    Where that leaves cores without work, several tasks read a part, and each splits the games of a range of keys.
    """

    spark: SparkSession
    parts: Sequence[Sequence[Piece]]
    low: int
    high: int
    work: Split
    count: int | None = None
    with_others: bool = False  # tasks read rows of other games than the job's, too, and report the last seq of all
    cores: int = 1  # that wait for tasks

    def split(self, job: SplitJob) -> list[Any]:
        """Run the job in one task for each part, or several."""
        if not self.parts:
            return []
        keys, spans = sorted(job.cursors), [_EVERY_KEY]
        if self.with_others:
            keys, spans = [], spans_of(keys, self._shares(len(keys)))
        work = [(part, span) for part in self.parts for span in spans]
        tasks = self.spark.range(0, len(work), 1, len(work))
        body = partial(_split_parts, work=self.work, rows=(work, self.low, self.high, keys), job=job)
        return list(tasks.mapInArrow(body, REPORT).collect())

    def _shares(self, games: int) -> int:
        """Return how many tasks read a part; a row more to read costs less than its share of a game's file."""
        of_rows = (self.count or 0) // _SHARE_ROWS
        return max(1, min(self.cores // len(self.parts), of_rows, games // _SHARE_GAMES))

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


def spans_of(keys: Sequence[str], shares: int) -> list[Keys]:
    """Cut all keys, others too, into ranges with as many of these sorted ones each, one more or fewer."""
    cuts = [None, *(keys[len(keys) * number // shares] for number in range(1, shares)), None]
    return list(pairwise(cuts))


def _nulls(name: str) -> Column:
    """Return a column that bronze, which is older, does not have yet."""
    return F.lit(None).cast(_SPARK_TYPES[BRONZE.field(name).type]).alias(name)


def _scanner(
    part: Sequence[Piece], low: int, high: int, keys: Sequence[str], columns: Sequence[str], span: Keys = _EVERY_KEY
) -> Scanner:
    first, end = span
    wanted = [] if (low, high) == EVERY_SEQ else [pc.field("seq") > low, pc.field("seq") <= high]
    wanted += [text("game_key").isin(pa.array(keys, pa.string()))] if keys else []
    wanted += [text("game_key") >= first] if first is not None else []
    wanted += [text("game_key") < end] if end is not None else []
    return parquet.pieces([(piece.path, piece.groups) for piece in part], _READ).scanner(
        columns=list(columns),
        filter=reduce(and_, wanted) if wanted else None,
        use_threads=False,
        batch_readahead=0,
        fragment_readahead=1,
    )


def _split_parts(
    batches: Iterator[pa.RecordBatch],
    work: Split,
    rows: tuple[Sequence[tuple[Sequence[Piece], Keys]], int, int, Sequence[str]],
    job: SplitJob,
) -> Iterator[pa.RecordBatch]:
    """Split the numbered pieces of work: the body of a Spark task."""
    each, low, high, keys = rows
    for batch in batches:
        for number in batch.column("id").to_pylist():
            part, span = each[number]
            yield from work(_scanner(part, low, high, keys, READ, span).to_batches(), job)
