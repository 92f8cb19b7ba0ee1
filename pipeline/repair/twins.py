"""Removes stale twins: rows of quarantine that are in their game's table (law L5: the table wins).

A rebuild may take a row out of the table and leave it to quarantine alone, so a removal must never meet one halfway.
The quarantine's log has a counter per game, moved by every rebuild when it has written its refused rows and by every
removal; the game's table has one, moved by every repair. A removal reads the first, moves the second, looks which rows
are in the table, and commits only if the first is still what it read. A rebuild reads both, writes to quarantine while
the first is still what it read, and switches only if the second is. Of two that overlap one fails.
"""

from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipeline import names
from pipeline.delta_files import files_with
from pipeline.delta_table import Conflict, CursorTable, DataFile, write_file
from pipeline.errors import Transient
from pipeline.repair import removal
from pipeline.repair.game import Game, keys_of
from pipeline.repair.places import PLACES, distinct, landed, without
from pipeline.settings import Paths

ATTEMPTS: Final = 20


def remove(paths: Paths, environment: str, game: Game) -> int:
    """Remove a game's stale twins from quarantine and return how many places that were.

    Safe beside everything else that writes, and may be killed at any point.

    Raises:
        Transient: others repaired the game at each of many attempts; the twins do no harm.
    """
    for _ in range(ATTEMPTS):
        try:
            return _remove(paths, environment, game)
        except Conflict:
            continue
    raise Transient(f"others repaired {game.key} at each of {ATTEMPTS} attempts; landed rows are still in quarantine")


def _remove(paths: Paths, environment: str, game: Game) -> int:
    app, folder = names.repair_app_id(environment, game.key), paths.table(game.key)
    if not (folder / "_delta_log").exists() or not (paths.quarantine / "_delta_log").exists():
        return 0  # as it is for the many names that are no games
    quarantine = DeltaTable(paths.quarantine)
    table = CursorTable.open(folder, app)
    held = quarantined_places(quarantine, paths.quarantine, game)
    if table is None or not landed(DeltaTable(folder), folder, held).num_rows:
        return 0
    table.commit([], table.cursor, (table.cursor or 0) + 1, note={"turnout": "quarantine: remove what has landed"})
    twins = landed(DeltaTable(folder), folder, held)
    _delete(quarantine, paths.quarantine, app, game, twins)
    return int(twins.num_rows)


def quarantined_places(quarantine: DeltaTable, folder: Path, game: Game, reason: str | None = None) -> pa.Table:
    """Return the places of a game's rows in quarantine, each once; with `reason` only those refused for it."""
    files = files_with(quarantine, folder, "seq", range(2**62), keys_of(game))
    found = [PLACES.empty_table()]
    for file in files:
        rows = pq.read_table(file, columns=["game", "seq", "pos", "reason"], partitioning=None)
        chosen = pc.field("game") == game.name
        rows = rows.filter(chosen if reason is None else chosen & (pc.field("reason") == reason))
        found.append(rows.select(PLACES.names).cast(PLACES))
    return distinct(pa.concat_tables(found))


def _delete(quarantine: DeltaTable, folder: Path, app: str, game: Game, twins: pa.Table) -> None:
    """Rewrite the files that hold twins, and commit unless the game's counter in the log was moved meanwhile."""
    expected = quarantine.transaction_version(app)
    removed, added = _rewritten(quarantine, folder, game, twins)
    removal.publish(folder, removal.Removal(app, expected, removed, added, "remove what has landed"))


def _rewritten(quarantine: DeltaTable, folder: Path, game: Game, twins: pa.Table) -> tuple[set[str], list[DataFile]]:
    """Return the paths of the files that hold twins, as the log has them, and the files to take their place."""
    paths = {str(folder / unquote(path)): path for path in removal.file_sizes(quarantine)}
    removed: set[str] = set()
    added: list[DataFile] = []
    for file in files_with(quarantine, folder, "seq", pc.unique(twins.column("seq")).to_numpy(), keys_of(game)):
        rows = pq.read_table(file, partitioning=None)  # a folder called `a=b` is no column
        mine = pc.fill_null(pc.equal(rows.column("game"), game.name), fill_value=False)
        kept = pa.concat_tables([rows.filter(pc.invert(mine)), without(rows.filter(mine), twins)])
        if kept.num_rows == rows.num_rows:
            continue
        removed.add(paths[file])
        if kept.num_rows:
            added.append(write_file(kept, folder, ["seq", "game_key"]))
    return removed, added
