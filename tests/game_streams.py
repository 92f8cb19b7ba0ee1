"""Streams of games without Spark: an environment's game tables, and bronze whose rows no task splits."""

from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import Engine

from pipeline.base.names import GameKey
from pipeline.data.streams.bronze_to_game import Bronze, GameTables
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.writing.rows import Rows
from pipeline.data.streams.writing.split import split
from pipeline.data.streams.writing.writers import DirectWriter
from pipeline.settings.tree import Paths, Settings
from pipeline.store.processes.leases import Lease

RowsOf = Callable[[int, int, Collection[GameKey]], Rows]
"""Returns bronze's rows of seqs above the first number up to the second, of these games."""


def game_tables(settings: Settings, paths: Paths) -> GameTables:
    """Return the game tables as the direct writer commits to them."""
    writer = DirectWriter(paths.tables, settings.demux.checkpoint_interval)
    return GameTables(settings.environment, writer, paths)


def roster_of(settings: Settings, paths: Paths, engine: Engine, group: str = "a", lease: Lease | None = None) -> Roster:
    """Return the roster of a group's driver that starts now."""
    return Roster(game_tables(settings, paths), engine, group, lease)


class LocalBronze(Bronze):
    """Bronze whose rows are split here, not by tasks."""

    def __init__(self, settings: Settings, paths: Paths, engine: Engine, rows_of: RowsOf) -> None:
        spark: Any = None
        super().__init__(spark, settings, paths, engine, split)
        self.rows_of = rows_of

    def between(self, low: int, high: int, keys: Collection[GameKey]) -> Rows:
        return self.rows_of(low, high, keys)
