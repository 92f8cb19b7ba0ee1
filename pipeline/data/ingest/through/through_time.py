"""How far a game's table is complete: every record that the source had taken by a time is landed or refused there.

Read from the logs alone: the pairs of `through`, bronze's rows of the game above its table's cursor, and the cursor.
Changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from pipeline.base.names import GameKey, bronze_app_id, stream_app_id
from pipeline.data.ingest.bronze_progress import last_seq
from pipeline.data.ingest.last_seqs import read_snapshot
from pipeline.data.ingest.restored import snapshot_file, taken_back_at
from pipeline.lake.delta import generation, lost_seqs
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.files import files_with, read_file
from pipeline.lake.delta.lost_seqs import LostSeqs
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.through import ThroughPair, read_pairs
from pipeline.settings.tree import Paths

_END: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class GameThrough:
    """How far one game's table is complete, and what it waits for."""

    at: float | None  # Unix seconds by the control store's clock; None: no time is known
    bronze_at: float | None  # the same of bronze
    cursor: int | None  # of the game's table; None where it has none yet
    next_seq: int | None  # the first seq with a row above the cursor; None: the table has all of bronze
    pairs: tuple[ThroughPair, ...] = ()  # those that count, the oldest first


def through_time(paths: Paths, environment: str, key: GameKey, known_generation: int, now: float) -> GameThrough:
    """Return how far a game's table is complete.

    Args:
        paths: of the environment.
        environment: its name.
        key: the game's key.
        known_generation: of its table, as the control store has it.
        now: by the control store's clock, Unix seconds.
    """
    pairs = read_pairs(paths.through)  # first: bronze and the table have no less than at that moment
    return through_of(paths, environment, key, pairs, _cursor(paths, environment, key, known_generation), now)


def through_of(
    paths: Paths, environment: str, key: GameKey, pairs: Sequence[ThroughPair], cursor: int | None, now: float
) -> GameThrough:
    """Return how far what has a cursor of a game is complete, by pairs that were read before that cursor.

    A pair counts where bronze's rows of the game up to its seq are below the cursor. A pair above bronze's end, among
    the seqs that bronze lost, or later than `now` does not count: a restore, or a clock that went back, made it void.
    So did `RESTORE TABLE` those above the rows that it left.
    """
    try:
        bronze = open_table(paths.bronze)
    except TableNotFoundError:
        return GameThrough(None, None, None, None)
    head = _head(bronze, paths, environment, pairs)
    losses = lost_of(bronze, environment)
    following = first_above(bronze, paths, environment, key, cursor or 0)
    valid = tuple(
        pair for pair in pairs
        if pair.seq <= head and pair.at <= now and not any(pair.seq in lost for lost in losses)
    )  # fmt: skip
    reached = [pair.at for pair in valid if following is None or pair.seq < following]
    known = max((pair.at for pair in valid), default=None)
    return GameThrough(max(reached, default=None), known, cursor, following, valid)


def _head(bronze: DeltaTable, paths: Paths, environment: str, pairs: Sequence[ThroughPair]) -> float:
    """Return bronze's last seq: what its transaction says, or where `RESTORE TABLE` removed rows, that of the rows."""
    head = bronze.transaction_version(bronze_app_id(environment)) or 0
    newest = max((pair.seq for pair in pairs if pair.seq <= head), default=0)
    top = last_seq(paths.bronze, bronze.version()) if newest else 0
    if newest > top and taken_back_at(paths.bronze, newest) is not None:
        return top
    return head


def lost_of(bronze: DeltaTable, environment: str) -> tuple[LostSeqs, ...]:
    """Return the seqs that bronze lost."""
    return lost_seqs.read(bronze.transaction_version, environment)


def first_above(bronze: DeltaTable, paths: Paths, environment: str, key: str, cursor: int) -> int | None:
    """Return the first seq above a cursor in which a game has rows in this version of bronze, None without any.

    Ingest's snapshot of last seqs spares reading what lies before it, where it is of this bronze.
    """
    low = max(cursor, _read_before(bronze, paths, environment, key, cursor))
    done: set[str] = set()
    found = None
    for file in files_with(bronze, paths.bronze, "seq", range(low + 1, _END), [key]):  # by their first seq
        done.add(file)
        found = _first_in(file, key, low)
        if found is not None:
            break
    if found is None:
        return None
    # Runs of maintenance overlap: another file may begin later and have an earlier row of the game.
    others = set(files_with(bronze, paths.bronze, "seq", range(low + 1, found), [key])) - done
    seqs = [seq for file in others if (seq := _first_in(file, key, low)) is not None]
    return min([found, *seqs])


def _read_before(bronze: DeltaTable, paths: Paths, environment: str, key: str, cursor: int) -> int:
    """Return a seq up to which bronze is known to have no row of the game above its cursor, 0 where none is."""
    kept = read_snapshot(snapshot_file(paths))
    if kept is None or kept.table_id != str(bronze.metadata().id) or kept.last_seqs.get(key, 0) > cursor:
        return 0
    is_lost = any(kept.seq in lost for lost in lost_of(bronze, environment))
    return 0 if is_lost or kept.seq > (bronze.transaction_version(bronze_app_id(environment)) or 0) else kept.seq


def _first_in(file: str, key: str, low: int) -> int | None:
    rows = read_file(file, ["seq", "game_key"])
    own = rows.filter((pc.field("seq") > low) & (pc.field("game_key") == key))
    return int(pc.min(own.column("seq")).as_py()) if own.num_rows else None


def _cursor(paths: Paths, environment: str, key: GameKey, known: int) -> int | None:
    try:
        table = open_table(paths.table(key))
    except TableNotFoundError:
        return None
    newest = generation.newest(table.transaction_version, environment, key, known)
    return table.transaction_version(stream_app_id(environment, key, newest))
