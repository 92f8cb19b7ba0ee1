"""Merges the small files of a table into larger ones, kind by kind, each merge one commit (see `delta.rewrite`).

A merge that conflicts with another writer is dropped; the next round tries again.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import pyarrow as pa

from pipeline.base.failpoints import effect, hit
from pipeline.data.maintenance import plan, removals
from pipeline.data.maintenance.report import TableReport
from pipeline.data.maintenance.rewrite import TooLarge, columns_of, opened, packed, queried, sorted_by_game
from pipeline.lake.delta import parquet
from pipeline.lake.delta.data_files import DataFile, discard
from pipeline.lake.delta.log import settle_commits
from pipeline.lake.delta.marks import marked
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.rewrite import RewriteConflict, TableFile, replace_files, table_files
from pipeline.lake.delta.stats import columns_with_statistics
from pipeline.lake.delta.table import QUIET
from pipeline.lake.storage.location import Location
from pipeline.settings.maintenance import Maintenance

_MEGABYTE: Final = 1_000_000
_FRESH_BYTES: Final = 1_000_000  # files below this are merged with their neighbours whatever the sizes
_MAX_VALUES: Final = 8_000_000  # of a run that is packed in memory; a small file may hold any number of rows
_OPERATION: Final = "OPTIMIZE"

Write = Callable[[Sequence[TableFile]], list[DataFile]]
"""Writes the rows of files into new ones; raises TooLarge."""

GAME: Final = ("_seq", "_pos")
WINDOWS: Final = ("window_end",)
CLOSED: Final = ("_day", "_revision", *GAME)
LEDGER: Final = ("game_key", "number")
"""The row order of a game's file; metrics have none."""

_FIRST_COPIES: Final = """
SELECT * EXCLUDE copy FROM (
    SELECT *, row_number() OVER (PARTITION BY game_key, seq, pos ORDER BY quarantined_at, reason) AS copy FROM rows
) WHERE copy = 1 ORDER BY game_key, seq, pos
"""
_COPIED: Final = """
SELECT DISTINCT __filename FROM (
    SELECT __filename, count(*) OVER (PARTITION BY game_key, seq, pos) AS copies FROM rows
) WHERE copies > 1
"""


def merge_by_age(
    path: Location, table: DeltaTable, order: Sequence[str], wanted: Maintenance, report: TableReport
) -> None:
    """Merge small files of a game's table or a metrics table, within each partition."""
    columns = columns_of(table)
    with_statistics = columns_with_statistics(table)
    max_rows = _MAX_VALUES / sum(_leaves(field.type) for field in columns)

    def write(old: Sequence[TableFile]) -> list[DataFile]:
        return packed(path, columns, old, order, with_statistics)

    for files in _partitions(table_files(table)):
        units = plan.by_age(files, _FRESH_BYTES)
        for run in plan.runs(units, wanted.small_files, wanted.file_megabytes * _MEGABYTE, max_rows):
            _merge(path, columns, run, write, report)


def merge_bronze(
    path: Location,
    table: DeltaTable,
    last_seq: float,
    last_modified_ms: float,
    wanted: Maintenance,
    report: TableReport,
) -> None:
    """Sort runs of bronze's commits by game, up to a seq and an age."""
    columns = columns_of(table)

    def write(old: Sequence[TableFile]) -> list[DataFile]:
        return sorted_by_game(path, columns, old, wanted.file_megabytes * _MEGABYTE)

    units = plan.by_seq(table_files(table), last_seq, last_modified_ms)
    for run in plan.runs(units, wanted.bronze_commits, wanted.run_megabytes * _MEGABYTE):
        _merge(path, columns, run, write, report)


def _merge(path: Location, columns: pa.Schema, run: Sequence[plan.Unit], write: Write, report: TableReport) -> None:
    """Merge a run, or each half of it where its rows are too large to hold together."""
    if len(run) < 2:
        return
    old, middle = _files(run), len(run) // 2
    try:
        new = write(old)
    except TooLarge:
        if len(run) == 2:
            report.notes.append(f"{len(old)} files stay as they are: their rows are too large to merge")
        for half in (run[:middle], run[middle:]):
            _merge(path, columns, half, write, report)
        return
    _commit(path, columns, old, new, report)


def merge_quarantine(
    path: Location, table: DeltaTable, wanted: Maintenance, report: TableReport, *, thorough: bool
) -> None:
    """Merge quarantine's small files; of the copies of a row, keep the oldest.

    Copies are searched among the merged files, and with `thorough` among all.
    """
    columns = columns_of(table)
    files = table_files(table)
    runs = plan.runs(plan.by_age(files, _FRESH_BYTES), wanted.small_files, wanted.run_megabytes * _MEGABYTE)
    merges = [_files(run) for run in runs]
    copied = _with_copies(path, columns, files) if thorough else set()
    if copied:
        chosen = copied.union(file.path for merge in merges for file in merge)
        merges = [[file for file in files if file.path in chosen]]
    for old in merges:
        new = sorted_by_game(path, columns, old, wanted.file_megabytes * _MEGABYTE, _FIRST_COPIES)
        _commit(path, columns, old, new, report, set_of_rows=True)


def merge_by_delta_rs(path: Location, wanted: Maintenance, report: TableReport) -> None:
    """Merge the files of a table that is not plain: delta-rs supports every protocol, but does not sort."""
    target = wanted.file_megabytes * _MEGABYTE
    small = [file for file in table_files(open_table(path)) if file.size < target // 2]
    if len(small) < wanted.small_files:
        return
    hit("in_maintenance")
    table = open_table(path)
    version = table.version()
    with effect("compact_by_delta_rs"):
        done = table.optimize.compact(
            target_size=target,
            max_concurrent_tasks=1,
            commit_properties=marked("small files merged"),
            post_commithook_properties=QUIET,
        )
    settle_commits(path, version)  # before the merged files may be deleted
    hit("in_maintenance")
    report.files_merged += done["numFilesRemoved"]
    report.files_written += done["numFilesAdded"]


def _commit(
    path: Location,
    columns: pa.Schema,
    old: Sequence[TableFile],
    new: Sequence[DataFile],
    report: TableReport,
    *,
    set_of_rows: bool = False,
) -> None:
    """Replace old files by new ones. Files that were written and not committed are orphans, deleted by age."""
    removed = opened(path, columns, old).count_rows() - sum(file.rows for file in new)
    if removed and not set_of_rows:
        discard(path, new)
        raise RuntimeError(f"{len(old)} files would lose {removed} rows in a merge; nothing was changed")
    hit("in_maintenance")
    removals.leaving(path, (file.path for file in old))
    try:
        replace_files(path, old, new, _OPERATION)
    except RewriteConflict as error:
        discard(path, new)
        report.notes.append(f"a merge was dropped: another writer was first ({error})")
        return
    hit("in_maintenance")
    report.files_merged += len(old)
    report.files_written += len(new)
    report.rows_removed += removed


def _with_copies(path: Location, columns: pa.Schema, files: Sequence[TableFile]) -> set[str]:
    """Return the files that hold a row with another copy."""
    keys = ["game_key", "seq", "pos", "__filename"]
    with queried(opened(path, columns, files), keys, _COPIED) as answer:
        names = answer.read_all().column("__filename").to_pylist()
    return {parquet.name_below(path, name) for name in names}


def _partitions(files: Sequence[TableFile]) -> list[list[TableFile]]:
    def values(file: TableFile) -> list[tuple[str, str]]:
        return sorted((name, value or "") for name, value in file.partition.items())

    return [list(group) for _, group in groupby(sorted(files, key=values), key=values)]


def _files(run: Sequence[plan.Unit]) -> list[TableFile]:
    return [file for unit in run for file in unit.files]


def _leaves(kind: pa.DataType) -> int:
    """Return the number of Parquet columns behind a column."""
    return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields)) if kind.num_fields else 1
