"""A round of maintenance: visits every table of an environment once and keeps it small.

Correctness does not depend on it; it may be killed at any point.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from typing import Final

from listeners.metrics_schema import MINUTES, PROCESS_SAMPLE, TABLES, moment
from pipeline.base import names
from pipeline.base.errors import first_line
from pipeline.data.maintenance import retain
from pipeline.data.maintenance.compact import (
    CLOSED,
    GAME,
    LEDGER,
    WINDOWS,
    merge_bronze,
    merge_by_age,
    merge_by_delta_rs,
    merge_quarantine,
)
from pipeline.data.maintenance.readers import Reader, passed_seq, readers
from pipeline.data.maintenance.report import Round, TableReport
from pipeline.data.maintenance.unchanged import Unchanged
from pipeline.data.maintenance.unread import Streams, Unread, unread
from pipeline.data.repair import stale_quarantine
from pipeline.lake.delta.log import exists, is_plain
from pipeline.lake.delta.opening import DeltaTable, open_table, rows_of
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.storage.location import Location
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Paths, Settings
from pipeline.store.games import Game

_QUIET_READER_SECONDS: Final = 3600.0  # a reader that holds bronze back for longer is reported

Merge = Callable[[TableReport], None]
Said = Callable[[], Sequence[Reader]]


def one_round(
    settings: Settings,
    paths: Paths,
    now: float,
    *,
    thorough: bool,
    readers_said: Said = tuple,
    streams: Streams = tuple,
    unchanged: Unchanged | None = None,
    goes_on: Callable[[], bool] = lambda: True,
) -> Round:
    """Look at every table once; a table that fails is reported, and the others go on.

    Args:
        settings: of the environment.
        paths: where its tables are.
        now: the time by which ages are counted, Unix seconds.
        thorough: look at all of quarantine for copies and for rows that are in their game's table.
        readers_said: returns the readers of bronze that the control store knows; by default those of this machine are
            all there are.
        streams: returns the derived streams in force, for which versions of games' tables are kept; by default none.
        unchanged: the tables that rounds before had nothing to do to; this one adds to them.
        goes_on: called before each table; the round ends early when it returns False.
    """
    started, wanted = time.monotonic(), settings.maintenance
    reports: list[TableReport] = []
    unchanged = Unchanged() if unchanged is None else unchanged
    for job in _jobs(settings, paths, now, readers_said, streams, thorough=thorough):
        if not goes_on():
            return Round(reports, time.monotonic() - started, is_whole=False)
        report = (unchanged.report(job.path, job.name, now) if job.is_skipped else None) or _maintain(job, now, wanted)
        if report is not None:
            unchanged.keep(job.path, now, report)
            reports.append(report)
    return Round(reports, time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class _Job:
    path: Location
    name: str
    merge: Merge
    is_skipped: bool  # where nothing has changed
    keeps_log: bool = False
    unread: Callable[[str], Unread | None] = lambda _: None  # by the table's id


def _jobs(
    settings: Settings, paths: Paths, now: float, said: Said, streams: Streams, *, thorough: bool
) -> Iterator[_Job]:
    """Yield the steps of a round; merges of quarantine and bronze depend on the time as well."""
    yield _Job(paths.quarantine, "quarantine", _quarantine(settings, paths, thorough=thorough), is_skipped=False)
    yield _Job(paths.bronze, "bronze", _bronze(settings, paths, now, said), is_skipped=False)
    merge = _small(paths.through, (), settings.maintenance)  # it has one file, and a long log
    yield _Job(paths.through, "through", merge, is_skipped=True)
    in_force = streams()
    for folder in paths.tables.folders():
        merge, key = _small(folder, GAME, settings.maintenance), folder.name
        kept = partial(unread, in_force, settings, paths, key, now=now)
        yield _Job(folder, f"tables/{key}", merge, is_skipped=True, unread=kept)
    for folder in paths.silver.folders():
        yield _Job(folder, f"silver/{folder.name}", _small(folder, GAME, settings.maintenance), is_skipped=True)
    for folder in (*paths.gold.folders(), *paths.closings.folders()):
        name = f"{folder.parent.name}/{folder.name}"
        yield _Job(folder, name, _small(folder, WINDOWS, settings.maintenance), is_skipped=True)
    yield _Job(paths.books, "books", _small(paths.books, LEDGER, settings.maintenance), is_skipped=True)
    for folder in paths.closed_days.folders():
        merge = _small(folder, CLOSED, settings.maintenance)
        # Its commits have the ledger's records, from which a closing that was killed goes on.
        yield _Job(folder, f"closed/{folder.name}", merge, is_skipped=True, keeps_log=True)
    for table in TABLES:
        folder = paths.metrics / table.name
        merge = _small(folder, table.order, settings.maintenance)
        if table in (*MINUTES, PROCESS_SAMPLE):
            merge = _expiring(folder, moment(now).date() - timedelta(settings.maintenance.series_days), merge)
        yield _Job(folder, f"metrics/{table.name}", merge, is_skipped=True)


def _maintain(job: _Job, now: float, wanted: Maintenance) -> TableReport | None:
    path = job.path
    if not exists(path):
        return None
    report = TableReport(job.name)
    try:
        table = open_table(path)
        report.version, report.files_before = table.version(), len(table_files(table))
        retain.keep_transactions(path, report)
        job.merge(report)
        retain.checkpoint(path, now, report)
        unread = job.unread(str(table.metadata().id))
        retain.clean_files(path, now, wanted.file_retention_hours * 3600, report, unread)
        kept = replace(wanted, log_retention_hours=87_600, log_megabytes=100_000) if job.keeps_log else wanted
        retain.clean_log(path, now, kept, report, unread)  # after the search for removed files
        files = table_files(open_table(path))
        report.files_after, report.bytes = len(files), sum(file.size for file in files)
    except Exception as error:  # noqa: BLE001 - one table's failure must not stop the others
        report.error = f"{type(error).__name__}: {first_line(error)}"[:500]
    return report


def _small(path: Location, order: Sequence[str], wanted: Maintenance) -> Merge:
    def merge(report: TableReport) -> None:
        table = open_table(path)
        if is_plain(table):
            merge_by_age(path, table, order, wanted, report)
        elif path.is_far:
            report.notes.append("another writer changed its protocol: files are not merged")
        else:
            merge_by_delta_rs(path, wanted, report)

    return merge


def _expiring(path: Location, first_day: date, merge: Merge) -> Merge:
    def expire_and_merge(report: TableReport) -> None:
        retain.expire_days(path, first_day, report)
        merge(report)

    return expire_and_merge


def _quarantine(settings: Settings, paths: Paths, *, thorough: bool) -> Merge:
    def merge(report: TableReport) -> None:
        table = open_table(paths.quarantine)
        if not is_plain(table):
            report.notes.append("another writer changed its protocol: files are not merged")
            return
        merge_quarantine(paths.quarantine, table, settings.maintenance, report, thorough=thorough)
        if thorough:
            report.rows_removed += stale_quarantine.remove(
                paths, settings.environment, *_refused_games(paths.quarantine)
            )

    return merge


def _refused_games(quarantine: Location) -> list[Game]:
    """Return the games with rows in quarantine."""
    rows = rows_of(quarantine).scanner(columns=["game"]).to_batches()
    keys: set[str] = set()
    for batch in rows:
        keys.update(name for name in batch.column("game").unique().to_pylist() if name is not None)
    return [Game(names.game_key(name), name) for name in sorted(keys)]


def _bronze(settings: Settings, paths: Paths, now: float, said: Said) -> Merge:
    def merge(report: TableReport) -> None:
        table = open_table(paths.bronze)
        if not is_plain(table):
            report.notes.append("another writer changed its protocol: files are not merged")
            return
        wanted = settings.maintenance
        last_seq = _passed_by_all(settings, paths, table, now, said, report)
        last_modified_ms = (now - wanted.bronze_age_minutes * 60) * 1000
        merge_bronze(paths.bronze, table, last_seq, last_modified_ms, wanted, report)

    return merge


def _passed_by_all(
    settings: Settings, paths: Paths, table: DeltaTable, now: float, said: Said, report: TableReport
) -> float:
    """Return the last seq that no streaming reader of bronze will read again."""
    app_id = names.bronze_app_id(settings.environment)
    kept_since = now - settings.maintenance.log_retention_hours * 3600
    lowest = math.inf
    for reader in [*readers(paths.checkpoints, str(table.metadata().id)), *said()]:
        passed = passed_seq(paths.bronze, app_id, table.version(), reader)
        if passed is None or (passed < math.inf and reader.touched_at < kept_since):
            report.notes.append(
                f"maintenance does not wait for the reader {reader.name}: it is behind the log's retention"
            )
            continue
        if reader.next_version is None:
            report.notes.append(
                f"bronze is not merged: maintenance does not know the position of the reader {reader.name}"
            )
        elif passed < math.inf and reader.touched_at < now - _QUIET_READER_SECONDS:
            report.notes.append(f"seqs after {passed:.0f} wait for the reader {reader.name}")
        lowest = min(lowest, passed)
    return lowest
