"""Plans maintenance: which files to merge, and which log entries and files to delete.

Pure: no clock, no disk. The modules beside it observe and apply.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from pipeline.lake.delta.checkpoint import checkpoint_version
from pipeline.lake.delta.rewrite import TableFile, replaceable

_VERSION: Final = re.compile(r"\.?(\d{20})\.")
_DRAFT: Final = re.compile(r"_(?:commit|checkpoint)_.*\.tmp|\.(?:\d{20}\.|_last_checkpoint-).*\.tmp|\..*\.tmp\.crc")
_BLOCK_BYTES: Final = 4096  # no file takes less disk space


@dataclass(frozen=True, slots=True)
class Unit:
    """Files that are merged together or not at all."""

    files: tuple[TableFile, ...]
    fresh: bool  # recently appended: merged with its neighbours whatever their sizes

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def rows(self) -> int:
        """Rows of all files whose number of rows the log has."""
        return sum(file.rows or 0 for file in self.files)


def runs(units: Sequence[Unit], fewest: int, max_bytes: int, max_rows: float = math.inf) -> list[tuple[Unit, ...]]:
    """Choose neighbours to merge: runs of at least `fewest` (and two) units, bounded in bytes and rows.

    From the newest to the oldest, a unit joins the newer ones when it is fresh or no larger than they are together. So
    a row is rewritten about as often as its table doubles, and a merged result is not merged again at once.
    """
    cut: list[list[Unit]] = [[]]
    size = rows = 0
    for unit in reversed(units):
        small = size + unit.size <= max_bytes and rows + unit.rows <= max_rows
        if cut[-1] and not (small and (unit.fresh or unit.size <= size)):
            cut.append([])
            size = rows = 0
        cut[-1].append(unit)
        size += unit.size
        rows += unit.rows
    return [tuple(reversed(run)) for run in reversed(cut) if len(run) >= max(fewest, 2)]


def by_age(files: Iterable[TableFile], fresh_bytes: int) -> list[Unit]:
    """Return each file as a unit of its own, oldest first; small ones count as fresh."""
    known = sorted((file for file in files if replaceable(file)), key=lambda file: (file.modified_ms, file.path))
    return [Unit((file,), file.size < fresh_bytes) for file in known]


def by_seq(files: Iterable[TableFile], last_seq: float, last_modified_ms: float) -> list[Unit]:
    """Return bronze's files as units of whole seqs, in order of seq, up to the first that must stay.

    Files with overlapping seqs are one unit, so that a game's rows of one seq are never divided (law L2).
    """
    known = [file for file in files if replaceable(file) and "seq" in file.low and "seq" in file.high]
    groups: list[list[TableFile]] = []
    high = -math.inf
    for file in sorted(known, key=lambda file: (file.low["seq"], file.path)):
        if file.low["seq"] > high:
            groups.append([])
        groups[-1].append(file)
        high = max(high, file.high["seq"])
    units = []
    for group in groups:
        last = max(file.high["seq"] for file in group)
        if last > last_seq or max(file.modified_ms for file in group) > last_modified_ms:
            break
        units.append(Unit(tuple(group), fresh=group[0].low["seq"] == last))
    return units


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a table's log."""

    modified: float  # Unix seconds
    size: int  # bytes

    @property
    def on_disk(self) -> int:
        """The disk space of its blocks, in bytes."""
        return -(-self.size // _BLOCK_BYTES) * _BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class LogWindow:
    """The part of a log to keep."""

    oldest: float  # versions before this time (Unix seconds) may go
    max_bytes: int  # on disk; the oldest versions beyond this go first
    recent: float  # but no version that was the newest at or after this time
    unread: float = math.inf  # nor this version or a later one


def first_kept(entries: Mapping[str, LogFile], window: LogWindow, pointed_to: int) -> int | None:
    """Return the version of the checkpoint at which the log will begin, None to keep all of it.

    It was written before the window's `recent`, so every earlier version had a successor by then.

    Args:
        entries: the log's files by name.
        window: how much is kept.
        pointed_to: the checkpoint that readers are sent to; a log never begins after it.
    """
    dated = {checkpoint_version(name): entry.modified for name, entry in entries.items()}
    checkpoints = {version: modified for version, modified in dated.items() if version is not None}
    last = min(pointed_to, window.unread)
    able = sorted(at for at, modified in checkpoints.items() if modified < window.recent and at <= last)
    aged = max((at for at in able if checkpoints[at] < window.oldest), default=None)
    sizes = sorted((version, entries[name].on_disk) for name, version in _versions(entries).items())
    sums = list(accumulate((size for _, size in sizes), initial=0))

    def fits(version: int) -> bool:
        return sums[-1] - sums[bisect_left(sizes, (version, 0))] <= window.max_bytes

    if aged is None and fits(0):
        return None
    return next((at for at in able if at >= (aged or 0) and fits(at)), max(able, default=None))


def expendable_log(entries: Mapping[str, LogFile], keep: int | None, recent: float) -> list[str]:
    """Return the names of the log files to delete, in order: all of versions before this one.

    Drafts of killed writers go when they were written before `recent` (Unix seconds).
    """
    versions = _versions(entries)
    behind = [name for name, version in versions.items() if keep is not None and version < keep]
    drafts = {name for name, entry in entries.items() if _DRAFT.fullmatch(name) and entry.modified < recent}
    return sorted(behind, key=lambda name: (versions[name], name)) + sorted(drafts.difference(behind))


def expendable_files(
    files: Mapping[str, float], living: Collection[str], removed_at: Mapping[str, float], cutoff: float
) -> list[str]:
    """Return the data files (of path → modified, Unix seconds) that no reader or writer can need any more.

    Such a file is not in the table, was written before the cutoff, and left the table, if it ever was in it, before the
    cutoff. A younger file may still be committed or read.
    """
    return sorted(
        path
        for path, modified in files.items()
        if path not in living and modified < cutoff and removed_at.get(path, modified) < cutoff
    )


def _versions(entries: Iterable[str]) -> dict[str, int]:
    return {name: int(match[1]) for name in entries if (match := _VERSION.match(name))}
