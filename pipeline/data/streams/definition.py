"""What a kind of stream consists of: the log that its rows come from, the work of tasks, and the tables they land in.

All kinds share one protocol: cursor in the target's log, compare-and-set, chain, pins and lanes (laws L3 to L7). Demux,
passes, catch-up, roster and stream know a kind by its definition only.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.base.names import GameKey
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.streams.lanes import Failure
from pipeline.data.streams.writing.rows import BatchRows, Rows, Split
from pipeline.data.streams.writing.writers import Writer
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.store.rows import BronzeCommit


class Batches(Protocol):
    """The micro-batches of one query over a source, from one start of the query to its end."""

    @property
    def poll_seconds(self) -> float:
        """Seconds between two looks of Spark for the next one."""

    def frame(self) -> DataFrame:
        """Return the streaming frame; without a checkpoint it begins at the source's version last read."""

    def rows(self, frame: DataFrame, batch_id: int) -> BatchRows:
        """Return the rows of the micro-batch with this number; `frame` is what Spark hands over for it."""


class StreamSource(Protocol):
    """A log of rows, each with its stream's key, its seq, and the seq of the stream's rows before it (`prev_seq`).

    Each query and catch-up opens its own. All rows of a stream with one seq are in one file (law L2).
    """

    @property
    def table(self) -> CursorTable:
        """The log, as last read."""

    def head(self) -> int:
        """Read the log on, and return its last seq, 0 for none."""

    def batches(self, key: str | None, query: Location, *, once: bool) -> Batches:
        """Return the micro-batches of a query with this checkpoint; with `key` they have that stream's rows only.

        With `once` it ends when everything that was in the log at its start has passed.
        """

    def between(self, low: int, high: int, keys: Collection[GameKey]) -> Rows:
        """Return these streams' rows of seqs above `low` up to `high`, none of which is above the last `head`."""

    def failures(self, cursors: Mapping[str, int]) -> dict[str, Failure]:
        """Return why no rows may be added to some tables, as they hold rows that the log lacks.

        `cursors` are by key, and were read before this call.
        """

    def commits(self, first: int, last: int) -> Sequence[BronzeCommit]:
        """Return the known commits from one seq to another; only for measurements."""


class StreamTarget(Protocol):
    """The tables of one kind of stream. A stream's key names its table and its cursor's application ids."""

    @property
    def environment(self) -> str:
        """The first part of the application ids."""

    @property
    def writer(self) -> Writer:
        """Opens, creates and commits to the tables."""

    def path(self, key: GameKey) -> Location:
        """Return the folder of a stream's table."""

    def columns(self, schemas: SchemaSet, key: GameKey) -> pa.Schema:
        """Return the columns of rows that were split with this schema set."""

    def description(self, name: str) -> str:
        """Return what a new table's log says that it is."""

    def removal(self, key: GameKey) -> Exception:
        """Return why no row lands in a table that is gone: it was removed, or no disk of theirs is mounted."""

    def require_source(self, key: GameKey, through: int) -> None:
        """Check that the source can fill a table again that was removed and had all rows up to a seq.

        Raises:
            TableGone, Transient: it cannot.
        """

    def before_create(self, key: GameKey, name: str, removed_at: int) -> None:
        """Prepare for a new table, in whose place a removed one had all rows up to `removed_at`, 0 without one.

        Raises:
            TableGone, Transient: it must not be made.
        """


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """One kind of stream."""

    source: Callable[[Split], StreamSource]  # opens it; raises Refused if it is not the log that filled the tables
    split: Split  # a pure function of rows, cursors and schema set (law L5)
    target: StreamTarget

    def open(self) -> StreamSource:
        """Open the source for one reader, whose rows this kind's split takes."""
        return self.source(self.split)
