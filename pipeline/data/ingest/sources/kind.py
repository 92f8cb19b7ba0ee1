"""The seam of sources: what ingest, adopt, the backlog and verify need of a kind of source.

Each kind is one module (`topic`, `landing`), listed in `supported`. Nothing outside this room asks which kind it has.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.data.ingest.evidence.marks import LastRecord, Mark
from pipeline.data.ingest.identity import Position, SourceObservation, SourceProblem, SourceRecord
from pipeline.data.ingest.lineage import OwnRows
from pipeline.data.ingest.sources.waiting import Waiting
from pipeline.lake.storage.location import Location
from pipeline.settings.source import Source
from pipeline.settings.tree import Ingest
from pipeline.store.sources import Identity

INPUT: Final = ("key", "value", "topic", "partition", "offset", "source_time", "headers", "source_clock")
"""The columns that every source gives for a wrapper.

A landing table gives the file as topic, its clock, and null for the rest. Missing headers are an empty list: a null
would make the hand-over to the task that lands them quadratic in the rows.
"""

HEADERS: Final = "array<struct<key:string,value:binary>>"
"""The type of headers in Spark. No headers are an empty list: Spark looks at a batch's size after each row it hands to
Python, and where a list is null, Arrow walks back over all nulls before."""

SOURCE: Final = "source"
"""A further column where a query reads several streams: the number of the stream."""

IMPOSSIBLE_TIME: Final = -(2**63)
"""Microseconds that stand for a time that no microseconds can hold; the record is refused."""

RowsOf = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Converts the stream of a source to the columns of `INPUT`, in a task."""

Ends = Mapping[str, Mapping[int, int]]
"""The number after the last: of offsets by partition, of commits under 0; by the description of a source."""

Probe = Callable[[int, int, int], bool | None]
"""Whether a partition has a committed record from one offset to another; None: unknown."""


def as_they_come(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows of a source whose stream has all columns."""
    return batches


@dataclass(frozen=True, slots=True)
class Begin:
    """Where the query begins, or began."""

    position: Position | None  # None: unknown, as the broker could not be asked; Spark reads the setting itself
    seen: SourceObservation | None
    resumes: bool  # its checkpoint holds a later place, which wins
    last: Mapping[str, Mapping[int, LastRecord]] = field(default_factory=dict)  # in bronze, of each source by partition
    owns: Mapping[str, OwnRows] = field(default_factory=dict)  # the rows of each source in bronze


@dataclass(frozen=True, slots=True)
class SampledRecord:
    """A record of a source as it stands there."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None  # None for a landing table


class Backlog(Protocol):
    """Measures how much of a source waits; keeps its connections between two measurements."""

    def look(self, offset: Mapping[str, Any] | None, begin: Position | None) -> Waiting:
        """Return the backlog behind Spark's offset, or from the beginning without one."""

    def ends(self) -> Ends | None:
        """Return where the source ends now, with what only open transactions hold back; None: it cannot be asked.

        Raises `Transient` where it does not answer, or is not the source any more that it was.
        """

    def reached(self, offset: Mapping[str, Any] | None, begin: Position | None) -> Ends | None:
        """Return up to where everything lies before Spark's offset, or before the beginning without one; None: unknown.

        Commits and markers without rows count as passed.
        """

    def close(self) -> None:
        """Close the connections."""


class Witness(Protocol):
    """Describes a source as it is now; keeps its connection between two calls."""

    def look(self, described: Collection[str]) -> Mapping[str, Mark]:
        """Return what each of these sources is, without those that are gone. Raises `Transient` without an answer."""

    def records(self, described: str, offsets: Mapping[int, int]) -> Mapping[int, LastRecord]:
        """Return the record at an offset of each partition; absent where the source has none. Raises `Transient`."""

    def onward(self, described: str, offsets: Mapping[int, int]) -> Mapping[int, LastRecord]:
        """Return the first record at or after an offset of each partition, as `records`; of a table, the commit."""

    def close(self) -> None:
        """Close the connection that reads records; the next call opens another one."""


class ArrivalTimes(Protocol):
    """The times at which a source got its files, where its rows lack them."""

    def read(self) -> Mapping[str, int]:
        """Return file name → time in microseconds of every file that may still be unread."""

    def consumed(self, oldest_source_at: float | None) -> None:
        """Forget files much older than a finished batch (Unix seconds)."""


class SourceKind(Protocol):
    """A source of one kind, by its settings."""

    @property
    def description(self) -> str:
        """One line that names the source; a new line means a new ingest generation."""

    @property
    def settings(self) -> tuple[Source, ...]:
        """The settings of each stream that Spark reads, in their order in the query."""

    @property
    def members(self) -> "tuple[SourceKind, ...]":
        """The source of each stream that Spark reads, in the same order: itself, for one."""

    @property
    def landing(self) -> Location | None:
        """The folder of a landing table; None for another kind."""

    def file_prefix(self) -> str:
        """Return what stands before names of files in bronze; nothing where a source has none."""

    def owns(self, described: str) -> bool:
        """Return whether a description is of this source, or of one of its sources."""

    @property
    def is_several(self) -> bool:
        """Whether it reads several sources together, each with an identity and a position of its own."""

    @property
    def beginning(self) -> Position:
        """The position before its first record."""

    def is_namesake(self, description: str, own: str) -> bool:
        """Return whether the description names another source, whose rows in bronze look like those of `own`."""

    def check(self) -> None:
        """Check the source before anything is read; raise `Refused` where it cannot be."""

    def observe(self, position: Position | None) -> SourceObservation | None:
        """Observe the source, with what happened from a position on; None when it cannot be asked with its options."""

    def judge(self, known: SourceRecord, position: Position, seen: SourceObservation) -> SourceProblem | None:
        """Compare the record and the position with the source; None when all of it can be read."""

    def first(self, seen: SourceObservation | None) -> Position | None:
        """Return where a first start begins; None when unknown."""

    def passed(self, offset: Mapping[str, Any] | None) -> Position | None:
        """Return the position after the last finished batch of Spark's checkpoint; None at its beginning."""

    def id_in(self, offset: Mapping[str, Any] | None) -> str | None:
        """Return the source's id where a checkpoint's offset has it."""

    def begin_behind(self, start: Position | None, seen: SourceObservation | None) -> Mapping[str, Any] | None:
        """Return Spark's offset for a beginning that does not exist yet, None where an option can name it."""

    def offset_at(self, position: Position, seen: SourceObservation) -> Mapping[str, Any]:
        """Return a position as Spark's offset."""

    def require_readable(self, position: Position, seen: SourceObservation) -> None:
        """Raise `Transient` where something open hides the position for now."""

    def end_of_bronze(
        self, bronze: Location, known: Mapping[str, Identity], seen: SourceObservation,
        checkpointed: Callable[[], Position | None],
    ) -> tuple[Position, SourceObservation]:  # fmt: skip
        """Return the position after the last record in bronze, and the source observed from there.

        `known` is what was recorded of each source by its description, absent for a new one. `checkpointed` gives the
        checkpoint's position, for a source whose rows in bronze no longer tell it.
        """

    def read(self, spark: SparkSession, ingest: Ingest, begin: Begin) -> tuple[DataFrame, RowsOf]:
        """Return the source as a stream, and the function with which a task gets its rows.

        Without a checkpoint the stream starts at `begin`. Raises `Refused` where the source cannot be read.
        """

    def poll_seconds(self, trigger_seconds: float) -> float:
        """Return how often Spark asks the stream for rows, in seconds, so that batches are `trigger_seconds` apart."""

    def backlog(self) -> Backlog:
        """Return what measures the source's backlog."""

    def read_again(
        self, spark: SparkSession, start: Mapping[str, Any] | None, end: Mapping[str, Any], begin: Begin
    ) -> DataFrame:
        """Return the records between two offsets of Spark's, where its reader fails at one; columns as `read` gives.

        Without `start` from the beginning. Raises `Refused` where another client cannot read them.
        """

    def witness(self) -> Witness | None:
        """Return what says, before each commit of a batch, which source this is; None where it cannot be asked."""

    def arrival_times(self) -> ArrivalTimes | None:
        """Return the times of files; None where each row has its own."""

    def sample(self, most: int) -> Sequence[SampledRecord]:
        """Return up to `most` of the newest records, and change nothing.

        Raises `Refused` where there is no such source, `Transient` where it does not answer.
        """

    def prober(self, described: str) -> Probe | None:
        """Return what asks one of the sources for records between two offsets; None where it cannot be asked."""
