"""Keeps a table's log and folder from growing for ever: checkpoints, log entries, data files nobody needs.

Each deletion concerns what no version within its retention refers to; it may be cut short anywhere and repeated.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipeline.delta_log import commits_after, is_plain
from pipeline.delta_rewrite import table_files
from pipeline.failpoints import hit
from pipeline.maintenance import plan
from pipeline.maintenance.report import TableReport

_CHECKPOINT_COMMITS: Final = 100  # the hot path writes its own far more often; this is for tables it does not tend
_EXPIRY: Final = "delta.setTransactionRetentionDuration"
_NEVER: Final = "interval 36500 days"


def keep_transactions(path: Path, report: TableReport) -> None:
    """Neutralise the property that lets transactions expire: without its cursor a table would be written again."""
    table = DeltaTable(path)
    found = table.metadata().configuration.get(_EXPIRY)
    if found is None or found == _NEVER:
        return
    table.alter.set_table_properties({_EXPIRY: _NEVER})
    report.notes.append(
        f"{_EXPIRY} was set to {found!r}: cursors could expire and rows be written twice. It is {_NEVER!r} now. "
        "Find out who set it, and run turnout verify."
    )


def checkpoint(path: Path, report: TableReport) -> None:
    """Write a checkpoint where the log since the last one is long or was just rewritten."""
    table = DeltaTable(path)
    last = plan.checkpoint_version(_entries(path))
    since = table.version() - (-1 if last is None else last)
    if since >= _CHECKPOINT_COMMITS or (report.files_merged and since > 0):
        table.create_checkpoint()
        report.checkpoint = True


def clean_log(path: Path, now: float, retention_seconds: float, report: TableReport) -> None:
    """Delete log entries that lie behind a checkpoint older than the retention.

    Whoever still needs one of them finds a gap and fails; Delta readers never skip a missing version.
    """
    entries = _entries(path)
    doomed = plan.expendable_log(entries, now - retention_seconds)
    if not doomed:
        return
    base = plan.oldest_checkpoint(entries.keys() - set(doomed))
    if base is not None:
        pq.read_metadata(_checkpoint_file(path, base))  # raises where it is damaged, and nothing is deleted
    for name in doomed:
        (path / "_delta_log" / name).unlink(missing_ok=True)
        report.log_entries_deleted += 1


def clean_files(path: Path, now: float, retention_seconds: float, report: TableReport) -> None:
    """Delete data files that left the table, or were written and never committed, longer ago than the retention."""
    found = dict(_data_files(path))  # before the table is looked at: what is committed in between is in the table
    table = DeltaTable(path)
    cutoff = now - retention_seconds
    if not is_plain(table):
        hours = int(retention_seconds // 3600)
        report.files_deleted += len(table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=False))
        return
    living = {spelled for file in table_files(table) for spelled in (file.path, unquote(file.path))}
    removed_at = _removed(path, table.version())
    if removed_at is None:
        report.notes.append("its log has a gap, so it is not known when files left it: none was deleted")
        return
    doomed = plan.expendable_files({name: at for name, (at, _) in found.items()}, living, removed_at, cutoff)
    if doomed:
        hit("in_maintenance")
    for name in doomed:
        with suppress(FileNotFoundError):
            (path / name).unlink()
            report.files_deleted += 1
            report.bytes_deleted += found[name][1]


def _entries(path: Path) -> dict[str, float]:
    found = {}
    for entry in os.scandir(path / "_delta_log"):
        with suppress(FileNotFoundError):  # a draft that became a commit meanwhile
            if entry.is_file():
                found[entry.name] = entry.stat().st_mtime
    return found


def _data_files(path: Path) -> Iterator[tuple[str, tuple[float, int]]]:
    """Yield the Parquet files below a table with the time of the last change and the size."""
    for folder, below, names in os.walk(path):
        below[:] = [name for name in below if not name.startswith(("_", "."))]
        for name in names:
            if name.endswith(".parquet") and not name.startswith(("_", ".")):
                file = Path(folder, name)
                with suppress(FileNotFoundError):
                    stat = file.stat()
                    yield str(file.relative_to(path)), (stat.st_mtime, stat.st_size)


def _removed(path: Path, version: int) -> Mapping[str, float] | None:
    """Return when files left the table (Unix seconds), as its last checkpoint and the log since tell.

    None when what can be read does not reach from a checkpoint to this version.
    """
    seen = plan.checkpoint_version(_entries(path))
    removes: list[Mapping[str, Any]] = []
    if seen is not None:
        rows = pq.read_table(_checkpoint_file(path, seen), columns=["remove"]).column("remove").to_pylist()
        removes += [row for row in rows if row is not None]
    for after, actions in commits_after(path, -1 if seen is None else seen):
        seen = after
        removes += [action["remove"] for action in actions if "remove" in action]
    if seen is None or seen < version:
        return None
    # A removal without a time may have been a moment ago.
    return {unquote(each["path"]): (each.get("deletionTimestamp") or time.time() * 1000) / 1000 for each in removes}


def _checkpoint_file(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020}.checkpoint.parquet"
