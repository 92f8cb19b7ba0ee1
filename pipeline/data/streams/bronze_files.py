"""The bronze files of a catch-up chunk or a micro-batch, and their distribution over tasks.

Tasks read these files themselves: Spark's own scan passes every row of every game through the JVM, which took as long
as decoding the wanted rows.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from pipeline.base.names import GameKey
from pipeline.data.log_tail import AddedFile
from pipeline.lake.delta import parquet
from pipeline.lake.delta.files import files_with
from pipeline.lake.delta.log import read_commit
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located

_MAX_COMMITS: Final = 64  # of the log's end; beyond that a snapshot is cheaper
_PART_BYTES: Final = 16 * 1024 * 1024  # as spark.sql.files.maxPartitionBytes


@dataclass(frozen=True, slots=True)
class Piece:
    """Some row groups of a file, or all of them."""

    path: str
    groups: tuple[int, ...] | None = None


def files_of(bronze: Location, version: int, app_id: str, low: int, high: int, keys: Collection[GameKey]) -> list[str]:
    """Return the files that may hold rows of these games, of seqs above `low` up to `high`.

    Files that begin with the same game are adjacent: ingest distributes rows by game, so they have the same games, and
    a task that reads several of them writes fewer and larger files.

    Args:
        bronze: the table's folder.
        version: the version to look at, whose commits hold all seqs up to `high`.
        app_id: the application id under which ingest counts its seqs.
        low: the seq before the first wanted.
        high: the last wanted seq.
        keys: the games' keys.
    """
    recent = _recent(bronze, version, app_id, low, high)
    if recent is not None:
        return recent
    return files_with(open_table(bronze, version), bronze, "seq", range(low + 1, high + 1), list(keys), by_game=True)


def files_of_batch(bronze: Location, added: Sequence[AddedFile]) -> dict[str, int]:
    """Return the files of a micro-batch, and their bytes; those that begin with the same game are adjacent."""
    ordered = sorted(added, key=lambda each: str(_bound({"stats": each.stats}, "minValues", "game_key") or ""))
    return {str(bronze / unquote(each.path)): each.size for each in ordered}


def rows_of_batch(added: Sequence[AddedFile]) -> int | None:
    """Return the number of rows in files by the log, None where it does not say."""
    counts = [json.loads(each.stats or "{}").get("numRecords") for each in added]
    return None if None in counts else sum(map(int, counts))


def parts_of(
    files: Sequence[str], part_bytes: int = _PART_BYTES, sizes: Mapping[str, int] | None = None
) -> list[list[Piece]]:
    """Distribute files, in their order, to tasks of about `part_bytes`; a larger file is cut at its row groups.

    `sizes` are those that are known, in bytes.
    """
    parts: list[list[Piece]] = []
    room = 0
    for file in files:
        for piece, size in _pieces(file, (sizes or {}).get(file), part_bytes):
            if size > room:
                parts.append([])
                room = part_bytes
            parts[-1].append(piece)
            room -= size
    return parts


def _pieces(file: str, known: int | None, part_bytes: int) -> list[tuple[Piece, int]]:
    size = located(file).size() if known is None else known
    if size <= part_bytes:
        return [(Piece(file), size)]
    groups = parquet.metadata(file).num_row_groups
    each = max(1, groups * part_bytes // size)
    return [
        (Piece(file, tuple(range(first, min(first + each, groups)))), size * each // groups)
        for first in range(0, groups, each)
    ]


def _recent(bronze: Location, version: int, app_id: str, low: int, high: int) -> list[str] | None:
    """Return the files that the newest commits added with these seqs; None where the end of the log is not enough."""
    files: list[dict[str, Any]] = []
    for at in range(version, max(version - _MAX_COMMITS, -1), -1):
        actions = read_commit(bronze, at)
        if actions is None or any("remove" in action for action in actions):
            return None  # log cleanup, compaction or a person was here: the earlier files are gone
        seqs = [int(action["txn"]["version"]) for action in actions if action.get("txn", {}).get("appId") == app_id]
        added = [action["add"] for action in actions if "add" in action]
        files += [each for each in added if _may_hold(each, low, high)]
        # A batch without rows repeats the seq of the commit before, which has its rows.
        if seqs and max(seqs) <= low + bool(added):
            break
    else:
        if version >= _MAX_COMMITS:
            return None
    ordered = sorted(files, key=lambda each: str(_bound(each, "minValues", "game_key") or ""))
    return [str(bronze / unquote(each["path"])) for each in ordered]


def _may_hold(file: dict[str, Any], low: int, high: int) -> bool:
    first, last = (_bound(file, end, "seq") for end in ("minValues", "maxValues"))
    return first is None or last is None or (first <= high and last > low)


def _bound(file: dict[str, Any], end: str, column: str) -> Any:
    return json.loads(file.get("stats") or "{}").get(end, {}).get(column)
