"""Removes stale twins: rows in quarantine that are also in their game's table (law L5: the table wins).

A rebuild may move a row from the table to quarantine, so a removal must never run halfway through it. The quarantine's
log has a counter per game, which every rebuild moves when it has written its refused rows, and so does every removal;
the game's table has a counter that every repair moves. A removal reads the first, moves the second, finds the twins,
and commits only if the first is unchanged. A rebuild reads both, writes to quarantine while the first is unchanged, and
switches only if the second is. Of two that overlap one fails.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base import names
from pipeline.base.errors import Transient
from pipeline.data.repair import removal
from pipeline.data.repair.places import PLACES, distinct, landed
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.lake.delta.environment import require_own
from pipeline.lake.delta.files import files_with, read_file
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths
from pipeline.store.games import Game

ATTEMPTS: Final = 20
_TWINS: Final = pa.schema([("game", pa.string()), *PLACES])


def remove(paths: Paths, environment: str, *games: Game) -> int:
    """Remove games' stale twins from quarantine and return their number.

    Quarantine is read and rewritten once for all games: rows under the malformed key may belong to any of them. Safe
    beside all other writers, and may be killed at any point.

    Raises:
        Refused: bronze is another environment's.
        Transient: others repaired one of the games during all attempts; the twins do no harm.
    """
    for _ in range(ATTEMPTS):
        try:
            return _remove(paths, environment, games)
        except TableConflict as error:
            last = error
    raise Transient(f"{last}, during all {ATTEMPTS} attempts; landed rows are still in quarantine")


def _remove(paths: Paths, environment: str, games: Sequence[Game]) -> int:
    known = [game for game in games if exists(paths.table(game.key))]  # most names are no games
    if not known or not exists(paths.quarantine):
        return 0
    # An environment's counters carry its name: under another name no other repair would be seen.
    require_own(paths.bronze, environment)
    quarantine = open_table(paths.quarantine)
    held = _places_by_game(quarantine, paths.quarantine, known)
    expected: dict[str, int | None] = {}
    twins = [_TWINS.empty_table()]
    for game in (game for game in known if game.name in held):
        app, folder, places = names.repair_app_id(environment, game.key), paths.table(game.key), held[game.name]
        table = CursorTable.open(folder, app)
        if table is None or not landed(open_table(folder), folder, places).num_rows:
            continue
        expected[app] = quarantine.transaction_version(app)
        table.commit([], table.cursor, (table.cursor or 0) + 1, note={"turnout": "quarantine: remove landed rows"})
        landed_places = landed(open_table(folder), folder, places)
        twins.append(landed_places.add_column(0, "game", pa.array([game.name] * landed_places.num_rows, pa.string())))
    if not expected:
        return 0
    _delete(paths.quarantine, known, pa.concat_tables(twins), quarantine, expected)
    return sum(part.num_rows for part in twins)


def _places_by_game(quarantine: DeltaTable, folder: Location, games: Sequence[Game]) -> dict[str, pa.Table]:
    """Return the places of games' quarantined rows by the game's name, each once."""
    wanted = pa.array([game.name for game in games], pa.string())
    tables = [_TWINS.empty_table()]
    for file in files_with(quarantine, folder, "seq", range(2**62), _keys_of(games)):
        rows = read_file(file, _TWINS.names)
        tables.append(rows.filter(pc.is_in(rows.column("game"), wanted)).cast(_TWINS))
    rows = pa.concat_tables(tables).sort_by("game")
    codes = rows.column("game").combine_chunks().dictionary_encode().indices.to_numpy()
    starts = np.flatnonzero(np.diff(codes, prepend=-1)).tolist() if rows.num_rows else []
    slices = [rows.slice(start, end - start) for start, end in pairwise([*starts, rows.num_rows])]
    return {part.column("game")[0].as_py(): distinct(part.select(PLACES.names)) for part in slices}


def quarantined_places(quarantine: DeltaTable, folder: Location, game: Game, reason: str | None = None) -> pa.Table:
    """Return the places of a game's quarantined rows, each once; with `reason` only those refused for it."""
    files = files_with(quarantine, folder, "seq", range(2**62), game.bronze_keys)
    tables = [PLACES.empty_table()]
    for file in files:
        rows = read_file(file, ["game", "seq", "pos", "reason"])
        chosen = pc.field("game") == game.name
        rows = rows.filter(chosen if reason is None else chosen & (pc.field("reason") == reason))
        tables.append(rows.select(PLACES.names).cast(PLACES))
    return distinct(pa.concat_tables(tables))


def _delete(
    folder: Location, games: Sequence[Game], twins: pa.Table, quarantine: DeltaTable, expected: Mapping[str, int | None]
) -> None:
    """Rewrite the files that hold twins, and commit unless a game's counter in the log was moved meanwhile."""
    removed, added = _rewritten(quarantine, folder, games, twins)
    removal.publish(folder, removal.Removal(expected, removed, added, "remove what has landed"))


def _rewritten(
    quarantine: DeltaTable, folder: Location, games: Sequence[Game], twins: pa.Table
) -> tuple[set[str], list[DataFile]]:
    """Return the paths of the files that hold twins, and their replacements."""
    paths = {str(folder / unquote(path)): path for path in removal.file_sizes(quarantine)}
    seqs, concerned = pc.unique(twins.column("seq")).to_numpy(), pc.unique(twins.column("game"))
    removed: set[str] = set()
    added: list[DataFile] = []
    for file in files_with(quarantine, folder, "seq", seqs, _keys_of(games)):
        rows = read_file(file)
        theirs = pc.is_in(rows.column("game"), concerned)
        left = rows.filter(theirs).join(twins, _TWINS.names, join_type="left anti")
        kept = pa.concat_tables([rows.filter(pc.invert(theirs)), left.select(rows.column_names).cast(rows.schema)])
        if kept.num_rows == rows.num_rows:
            continue
        removed.add(paths[file])
        if kept.num_rows:
            added.append(write_file(kept, folder, ["seq", "game_key"]))
    return removed, added


def _keys_of(games: Sequence[Game]) -> list[str]:
    return sorted({key for game in games for key in game.bronze_keys})
