"""Commits a game's files to its table (law L10): directly (`direct`), or through Spark (`spark`).

A driver has one writer; each of its streams holds a table that the writer opened or created. Both kinds write the same
cursor under the same application id, so either can continue a table of the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.base.failpoints import effect
from pipeline.data.streams.writing.spark_writer import Holds, SparkWriter
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Demux, Paths


class GameTable(Protocol):
    """A game's table, held open between commits, with the cursor of one application id."""

    @property
    def cursor(self) -> int | None:
        """The cursor as last read, None before the first commit."""

    def transaction_version(self, app_id: str, /) -> int | None:
        """Return the transaction version of any application id as last read."""

    def refresh(self) -> None:
        """Read what others have committed."""

    def require_own(self) -> None:
        """Check that no other writer has changed the table, by commits that were read for other reasons.

        Raises:
            ForeignChange: another writer has, and no person has decided yet.
        """

    def accept_foreign(self) -> None:
        """Go on behind the foreign commits that the table has now, and none later: a person has decided so.

        Raises:
            ForeignChange: the table has a feature of another writer, or one committed at this moment.
        """

    def add_missing_columns(self, target: pa.Schema, /) -> bool:
        """Add the target's columns and struct members that the table lacks; return whether it lacked any.

        Raises:
            ForeignChange: another writer has changed the table; no column was added.
        """

    def commit(
        self, files: Sequence[DataFile], expected: int | None, cursor: int, /, *, target: pa.Schema | None = None
    ) -> None:
        """Add the files' rows and move the cursor from `expected` to `cursor` in one commit.

        The direct writer notes in it what the schema ids of the target's rows mean.

        Raises:
            OtherMeaning: the table has rows of an id with another meaning; nothing was added.
            TableConflict: the cursor is no longer `expected`; nothing was added.
        """


class Writer(Protocol):
    """Opens and creates game tables."""

    @property
    def folder(self) -> Location:
        """The folder below which tasks write: each game's files in a folder named by its key."""

    def open(self, path: Location, app_id: str) -> GameTable | None:
        """Open a table, or return None where there is none."""

    def create(self, path: Location, target: pa.Schema, app_id: str, description: str) -> GameTable:
        """Open a table, creating it with these columns where there is none."""


@dataclass(frozen=True, slots=True)
class DirectWriter:
    """Tasks write into the tables' own folders, and the driver commits without Spark."""

    folder: Location
    checkpoint_interval: int  # commits between two checkpoints of a table

    def open(self, path: Location, app_id: str) -> CursorTable | None:
        """Open a table, or return None where there is none."""
        return CursorTable.open(path, app_id, self.checkpoint_interval, guarded=True, chained=True)

    def create(self, path: Location, target: pa.Schema, app_id: str, description: str) -> CursorTable:
        """Open a table, creating it with these columns where there is none."""
        return CursorTable.create(
            path,
            target,
            app_id,
            self.checkpoint_interval,
            description=description,
            guarded=True,
            chained=True,
        )


def writer_for(demux: Demux, paths: Paths, spark: SparkSession, staging: Path, holds: Holds) -> Writer:
    """Return the writer that the settings name.

    Args:
        demux: the settings.
        paths: where the game tables are.
        spark: the driver's session.
        staging: a folder of this driver alone; files of an earlier process are deleted.
        holds: called right before each write of the `spark` writer, which has no other protection at that moment.
    """
    here = located(staging)
    if here.is_folder():
        with effect("delete_staging"):
            here.clear()
    if demux.writer == "direct":
        return DirectWriter(paths.tables, demux.checkpoint_interval)
    return SparkWriter(spark, here, demux.checkpoint_interval, holds)
