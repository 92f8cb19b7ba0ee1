"""Bounds the size of a table's log and folder: checkpoints, old log entries, unused data files.

Each deletion concerns only files outside every version within its retention; it may be interrupted and repeated.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Final
from urllib.parse import unquote

from pipeline.base.failpoints import effect, hit
from pipeline.data.maintenance import plan, removals
from pipeline.data.maintenance.report import TableReport
from pipeline.data.maintenance.unread import Unread
from pipeline.lake.delta import parquet
from pipeline.lake.delta.checkpoint import (
    checkpoint_file,
    newest_checkpoint,
    pointed_to,
    settle_checkpoint,
    write_by_delta_rs,
    write_checkpoint,
)
from pipeline.lake.delta.log import is_plain, log_folder
from pipeline.lake.delta.marks import marked
from pipeline.lake.delta.metadata import EXPIRY, NEVER, set_properties
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.delta.table import QUIET
from pipeline.lake.storage.location import Location
from pipeline.settings.maintenance import Maintenance

# The hot path writes its own far more often; this is for tables that it does not write.
_CHECKPOINT_COMMITS: Final = 100
RECENT_SECONDS: Final = 3600.0
"""No version that was the newest within this time leaves a log: a writer may still continue from it."""

_WEEK_HOURS: Final = 168  # after which a table that is not plain forgets removed files
_HIDDEN: Final = ("_", ".")  # of folders and files that are no data


def keep_transactions(path: Location, report: TableReport) -> None:
    """Neutralise the property that lets transactions expire: without cursors rows are written again."""
    retention = open_table(path).metadata().configuration.get(EXPIRY)
    if retention is None or retention == NEVER:
        return
    set_properties(path, {EXPIRY: NEVER}, "transactions kept")
    report.notes.append(
        f"{EXPIRY} was set to {retention!r}: cursors could expire and rows be written twice. Maintenance reset it to "
        f"{NEVER!r}. Find out who set it, and run turnout verify."
    )


def expire_days(path: Location, first_day: date, report: TableReport) -> None:
    """Delete the rows of days before this one: whole partitions by `event_date`, so that no file is written."""
    table, day = open_table(path), first_day.isoformat()
    old = [file for file in table_files(table) if (file.partition.get("event_date") or day) < day]
    if not old:
        return
    with effect("remove_rows"):
        table.delete(
            f"event_date < '{day}'", commit_properties=marked("old days removed"), post_commithook_properties=QUIET
        )
    report.rows_removed += sum(file.rows or 0 for file in old)


def checkpoint(path: Location, now: float, report: TableReport) -> None:
    """Write a checkpoint when the log since the last one is long or was just rewritten."""
    table = open_table(path)
    last = newest_checkpoint(path, table.version())
    since = table.version() - (-1 if last is None else last)
    if since >= _CHECKPOINT_COMMITS or (report.files_merged and since > 0):
        if is_plain(table):
            write_checkpoint(path, table.version(), now)
        else:
            write_by_delta_rs(path)
        report.checkpoint = True


def clean_log(
    path: Location, now: float, wanted: Maintenance, report: TableReport, unread: Unread | None = None
) -> None:
    """Delete the beginning of a log that is too old or too large, up to a checkpoint of more than an hour ago.

    What is kept for derived streams stays. Another reader that still needs an entry finds a gap and fails; Delta
    readers never skip a missing version.
    """
    entries = _entries(path)
    recent = now - RECENT_SECONDS
    window = plan.LogWindow(now - wanted.log_retention_hours * 3600, wanted.log_megabytes * 1_000_000, recent)
    keep = plan.first_kept(entries, window, _pointed_to(path))
    if unread is not None and keep is not None and keep > unread.version:
        unread.note(report)
        keep = plan.first_kept(entries, replace(window, unread=unread.version), _pointed_to(path))
    if keep is not None:
        parquet.metadata(checkpoint_file(path, keep))  # raises where it is damaged, and nothing is deleted
        settle_checkpoint(path, keep)
    for name in plan.expendable_log(entries, keep, recent):
        with effect("delete_log_entry"):
            (log_folder(path) / name).delete()
        report.log_entries_deleted += 1


def clean_files(
    path: Location, now: float, retention_seconds: float, report: TableReport, unread: Unread | None = None
) -> None:
    """Delete data files that left the table, or were written and never committed, longer ago than the retention.

    The time at which a file left is its modification time, so the log need not keep it. Where the log no longer has it,
    the file counts as having left now. What is kept for derived streams stays: a file that one of its versions added
    has left the table after that version at the earliest.
    """
    if unread is not None and now - unread.since + RECENT_SECONDS > retention_seconds:  # an hour for clocks that differ
        unread.note(report)
        retention_seconds = now - unread.since + RECENT_SECONDS
    files = dict(_data_files(path))  # before the table is looked at: what is committed in between is in the table
    table = open_table(path)
    if not is_plain(table):
        hours = min(math.ceil(retention_seconds / 3600), _WEEK_HOURS)
        with effect("delete_data_file"):
            gone = table.vacuum(
                hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=False,
                commit_properties=marked("old files deleted"),
            )
        report.files_deleted += len(gone)
        return
    living = {spelled for file in table_files(table) for spelled in (file.path, unquote(file.path))}
    removed_at = removals.since_last_look(path, table)
    if removed_at is None:
        report.notes.append("its log no longer has the time of removals: removed files are kept as if they left now")
        removed_at = {name: now for name in files if name not in living}
    modified = {name: at for name, (at, _) in files.items()}
    undated = removals.mark(path, modified, removed_at)
    doomed = plan.expendable_files(modified, living, removed_at, now - retention_seconds)
    if doomed:
        hit("in_maintenance")
    for name in doomed:
        with effect("delete_data_file"):
            (path / name).delete()
        report.files_deleted += 1
        report.bytes_deleted += files[name][1]
    kept = files.keys() - set(doomed)
    removals.record_marked(path, table, {name: at for name, at in undated.items() if name in kept})


def _pointed_to(path: Location) -> int:
    """Return the checkpoint to which the log sends its readers; -1 where unknown, so that nothing is cut."""
    pointer = pointed_to(path)
    return -1 if pointer is None else pointer


def _entries(path: Location) -> dict[str, plan.LogFile]:
    return {each.name: plan.LogFile(each.modified, each.size) for each in log_folder(path).files()}


def _data_files(path: Location) -> Iterator[tuple[str, tuple[float, int]]]:
    """Yield the Parquet files below a table with the time of the last change and the size; the log is not looked at."""
    for each in path.files():
        if _is_data(each.name):
            yield each.name, (each.modified, each.size)
    for folder in path.folders():
        if not folder.name.startswith(_HIDDEN):
            for each in folder.files(deep=True):
                if _is_data(each.name):
                    yield f"{folder.name}/{each.name}", (each.modified, each.size)


def _is_data(name: str) -> bool:
    return name.endswith(".parquet") and not any(part.startswith(_HIDDEN) for part in name.split("/"))
