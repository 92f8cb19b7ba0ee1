"""Through which time a silver table is complete: what its game's table was at the version that silver has read.

Read from the logs alone, as `pipeline.data.ingest.through.through_time`. Changes nothing.
"""

from dataclasses import dataclass

from pipeline.base.names import silver_key, stream_app_id
from pipeline.data.derived.definitions import SilverDefinition
from pipeline.data.derived.source_log import commit_number, number_of
from pipeline.data.ingest.through.through_time import through_of
from pipeline.lake.delta import generation
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.through import ThroughPair, read_pairs
from pipeline.settings.tree import Paths


@dataclass(frozen=True, slots=True)
class SilverThrough:
    """How far one silver table is complete."""

    at: float | None  # Unix seconds by the control store's clock; None: no time is known
    pairs: tuple[ThroughPair, ...]  # those that count, the oldest first; `closing_seq` of them is that of a window
    version: int | None  # of the silver table, which is complete through `at`; None: there is no table
    generation: int | None  # of its rows; None: it has none yet
    position: int | None  # the version of the game's table that it has read


def silver_through(paths: Paths, environment: str, definition: SilverDefinition, now: float) -> SilverThrough:
    """Return through which time a silver table is complete.

    Each record that the source had taken by then is in it, is left out as a second one, or is no row of its type.

    No time is known where the table was made by another definition or from another table, or where the game's log no
    longer has the version that silver has read: then silver begins a new generation.

    Args:
        paths: of the environment.
        environment: its name.
        definition: of the silver table.
        now: by the control store's clock, Unix seconds.
    """
    pairs = read_pairs(paths.through)  # first: the tables have no less than at that moment
    try:
        silver = open_table(paths.silver / definition.name)
    except TableNotFoundError:
        return SilverThrough(None, (), None, None, None)
    key = silver_key(definition.name)
    number = generation.newest(silver.transaction_version, environment, key)
    app = stream_app_id(environment, key, number)
    position = silver.transaction_version(app)
    if position is None:
        return SilverThrough(None, (), silver.version(), None, None)
    game = _read_by(silver, app, paths, definition, position)
    if game is None:
        return SilverThrough(None, (), silver.version(), number, position)
    newest = generation.newest(game.transaction_version, environment, definition.game_key)
    cursor = game.transaction_version(stream_app_id(environment, definition.game_key, newest))
    found = through_of(paths, environment, definition.game_key, pairs, cursor, now)
    return SilverThrough(found.at, found.pairs, silver.version(), number, position)


def silver_read(paths: Paths, environment: str, definition: SilverDefinition, table_id: str) -> int | None:
    """Return the version of its game's table behind which a silver table reads on; None for a new generation.

    `table_id` is that of the game's table.

    Raises:
        DeltaError: the silver table's log is damaged, or storage does not give it now.
    """
    try:
        silver = open_table(paths.silver / definition.name)
    except TableNotFoundError:
        return None
    key = silver_key(definition.name)
    app = stream_app_id(environment, key, generation.newest(silver.transaction_version, environment, key))
    counts_in = number_of(table_id, definition.digest)
    return silver.transaction_version(app) if silver.transaction_version(f"{app}/source") == counts_in else None


def _read_by(
    silver: DeltaTable, app: str, paths: Paths, definition: SilverDefinition, position: int
) -> DeltaTable | None:
    """Return the game's table at the version that silver has read; None where it is not known to be the same."""
    place = paths.table(definition.game_key)
    try:
        game = open_table(place, position)
        commit = commit_number(place, position)
    except DeltaError:  # the log no longer has the version
        return None
    counts_in = number_of(str(game.metadata().id), definition.digest)
    is_same = silver.transaction_version(f"{app}/source") == counts_in
    return game if is_same and commit in {0, silver.transaction_version(f"{app}/commit") or 0} else None
