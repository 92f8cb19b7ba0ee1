"""The streams from bronze to game tables: the one definition that a cluster group carries."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlalchemy import Engine

from pipeline.base.errors import Refused, Transient
from pipeline.base.names import GameKey, bronze_app_id
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.streams.batches.delta_batches import DeltaBatches
from pipeline.data.streams.batches.tail_batches import TailBatches, reads_tail
from pipeline.data.streams.bronze_files import files_of, parts_of
from pipeline.data.streams.definition import Batches, StreamDefinition
from pipeline.data.streams.lanes import Failure
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.data.streams.writing.columns import landing_schema
from pipeline.data.streams.writing.rows import FileRows, FrameRows, Rows, Split
from pipeline.data.streams.writing.spark_writer import Holds
from pipeline.data.streams.writing.split import split
from pipeline.data.streams.writing.writers import Writer, writer_for
from pipeline.lake.delta import lost_seqs, remade
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.environment import require_own
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths, Settings
from pipeline.store.processes.drivers import commits_between
from pipeline.store.rows import BronzeCommit
from pipeline.store.sources import bronze_id


def bronze_to_game(
    spark: SparkSession, settings: Settings, paths: Paths, engine: Engine, staging: Path, holds: Holds
) -> StreamDefinition:
    """Return the definition for one driver; `staging` and `holds` are for its writer.

    Raises:
        Refused: bronze is another environment's.
    """
    # Another environment's cursors are not found: all rows would land again.
    require_own(paths.bronze, settings.environment)
    writer = writer_for(settings.demux, paths, spark, staging, holds)
    target = GameTables(settings.environment, writer, paths)
    return StreamDefinition(partial(Bronze, spark, settings, paths, engine), split, target)


class Bronze:
    """Bronze, as one reader holds it."""

    def __init__(self, spark: SparkSession, settings: Settings, paths: Paths, engine: Engine, work: Split) -> None:
        """Open it for rows that tasks split by `work`.

        Raises:
            Refused: it is gone or was recreated; a new one's rows up to the cursors would be skipped.
        """
        self._spark, self._settings, self._engine, self._work = spark, settings, engine, work
        self._app_id = bronze_app_id(settings.environment)
        table, known = CursorTable.open(paths.bronze, self._app_id), None
        with tolerate_store_outage("bronze is assumed unchanged"):
            known = bronze_id(engine)
        if known is not None and (table is None or table.table_id != known):
            state = "is gone" if table is None else f"was deleted and recreated: its id is {table.table_id}"
            raise Refused(
                f"Bronze at {paths.bronze} {state}, ingest wrote to {known}. Put the old one back, or use another "
                f"--env-dir."
            )
        self.table = table or CursorTable.create(paths.bronze, BRONZE, self._app_id)
        self._id = self.table.table_id

    def head(self) -> int:
        """Read bronze on, and return its last seq, 0 for none.

        Raises:
            Transient: it was replaced since it was opened; a new start refuses it.
        """
        self.table.refresh()
        if self.table.table_id != self._id:
            raise Transient(f"Bronze at {self.table.path} was replaced by another table, {self.table.table_id}.")
        return self.table.cursor or 0

    def batches(self, key: str | None, query: Location, *, once: bool) -> Batches:
        """Return the micro-batches of a query; with `key` they have that game's rows only."""
        if key is None and reads_tail(self.table, self._settings.demux, once=once):
            return TailBatches(self._spark, self._settings.demux, self.table, self._work, query)
        return DeltaBatches(self._spark, self._settings.demux, self.table, self._work, key)

    def between(self, low: int, high: int, keys: Collection[GameKey]) -> Rows:
        """Return the games' rows of seqs above `low` up to `high`."""
        table = self.table
        if table.is_plain:
            files = files_of(table.path, table.version, self._app_id, low, high, keys)
            return FileRows(self._spark, parts_of(files), low, high, self._work)
        within = (F.col("seq") > low) & (F.col("seq") <= high) & F.col("game_key").isin(list(keys))
        return FrameRows(self._spark.read.format("delta").load(str(table.path)).where(within), self._work)

    def failures(self, cursors: Mapping[str, int]) -> dict[str, Failure]:
        """Return why no rows may be added to some games' tables; `cursors` by game key, read before this call.

        A row that was ingested again under such a seq would count as applied, or be added beside the lost one.
        """
        head = self.head()
        losses = lost_seqs.read(self.table.transaction_version, self._settings.environment)
        problems = {key: lost_seqs.problem(key, cursor, head, losses) for key, cursor in cursors.items()}
        return {key: Failure("poison", sentence) for key, sentence in problems.items() if sentence is not None}

    def commits(self, first: int, last: int) -> list[BronzeCommit]:
        """Return the known commits of bronze from one seq to another."""
        found: list[BronzeCommit] = []
        with tolerate_store_outage("when rows came into bronze is not known"):
            found += commits_between(self._engine, first, last)
        return found


@dataclass(frozen=True, slots=True)
class GameTables:
    """The game tables of an environment."""

    environment: str
    writer: Writer
    paths: Paths

    def path(self, key: GameKey) -> Location:
        """Return the folder of a game's table."""
        return self.paths.table(key)

    def columns(self, schemas: SchemaSet, key: GameKey) -> pa.Schema:
        """Return the columns for rows of a schema set; they carry what the game's schema ids mean."""
        return landing_schema(schemas, key)

    def description(self, name: str) -> str:
        """Return the description of a game's table."""
        return f"turnout game {name}"

    def removal(self, key: GameKey) -> Exception:
        """Return why no row lands in a table that is gone."""
        return remade.removal(self.path(key), self.paths.bronze)

    def require_source(self, key: GameKey, through: int) -> None:
        """Check that bronze reaches as far as a removed table did."""
        remade.require_bronze(self.path(key), self.paths.bronze, self.environment, through)

    def before_create(self, key: GameKey, name: str, removed_at: int) -> None:
        """Check that bronze is there; refuse the rows again that a replay had landed in the removed table."""
        if not exists(self.paths.bronze):
            raise self.removal(key)
        if removed_at:
            remade.refuse_again(self.paths.bronze, self.paths.quarantine, self.environment, key, name)
