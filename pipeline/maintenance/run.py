"""`turnout maintain`: looks at every table of an environment again and again, and keeps it small.

A process of its own, without Spark. Nothing in it is needed for correctness; it may be killed at any point.
"""

import fcntl
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from listeners.metrics_schema import TABLES
from pipeline import names
from pipeline.delta.log import is_plain
from pipeline.delta.opening import open_table
from pipeline.delta.rewrite import table_files
from pipeline.errors import Refused
from pipeline.maintenance import retain
from pipeline.maintenance.compact import (
    GAME,
    merge_bronze,
    merge_by_age,
    merge_by_delta_rs,
    merge_quarantine,
)
from pipeline.maintenance.readers import passed_seq, readers
from pipeline.maintenance.report import Round, TableReport, as_json, render_round
from pipeline.repair import stale_quarantine
from pipeline.settings import Maintenance, Paths, Settings
from pipeline.store.game_lookup import Game
from pipeline.terminal import say_lines

_THOROUGH_SECONDS: Final = 24 * 3600.0  # between two looks at all of quarantine
_QUIET_READER_SECONDS: Final = 3600.0  # a reader that holds bronze back for so long is reported

Merge = Callable[[TableReport], None]


def maintain(settings: Settings, paths: Paths, stop: threading.Event, *, once: bool, as_json_lines: bool) -> int:
    """Do a round every so often until a signal to stop, or one with `once`; print each and return the exit code.

    Raises:
        Refused: there is no such environment, or another maintainer works on it.
    """
    if not paths.root.is_dir():
        raise Refused(f"There is nothing to maintain: {paths.root} does not exist. Give the --env-dir of a system.")
    with alone(paths.root):
        thorough_at = -math.inf
        while True:
            now = time.time()
            thorough = now - thorough_at >= _THOROUGH_SECONDS
            done = one_round(settings, paths, now, thorough=thorough)
            thorough_at = now if thorough else thorough_at
            say_lines(as_json(done) if as_json_lines else render_round(done))
            if once:
                return 0 if done.ok else 1
            if stop.wait(settings.maintenance.interval_minutes * 60):
                return 0


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Be the only maintainer of an environment; the lock ends with its process.

    It saves work only: of two merges of the same files, one is refused by the table.

    Raises:
        Refused: there is another one.
    """
    with (root / "maintenance.lock").open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.seek(0)
            other = handle.read().strip() or "unknown"
            raise Refused(
                f"Another maintainer works on {root} (process {other}). Let it work, or stop it first."
            ) from error
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def one_round(settings: Settings, paths: Paths, now: float, *, thorough: bool) -> Round:
    """Look at every table once; a table that fails is reported, and the others go on.

    Args:
        settings: of the environment.
        paths: where its tables are.
        now: the time by which ages are counted, Unix seconds.
        thorough: look at all of quarantine for copies and for rows that are in their game's table.
    """
    started = time.monotonic()
    wanted = settings.maintenance
    reports = [
        _tend(paths.quarantine, "quarantine", now, wanted, _quarantine(settings, paths, thorough=thorough)),
        _tend(paths.bronze, "bronze", now, wanted, _bronze(settings, paths, now)),
    ]
    games = sorted(paths.tables.iterdir()) if paths.tables.is_dir() else []
    small: list[tuple[str, Path, Sequence[str]]] = [("tables", folder, GAME) for folder in games]
    small += [("metrics", paths.metrics / table.name, ()) for table in TABLES]
    reports += [
        _tend(folder, f"{place}/{folder.name}", now, wanted, _small(folder, order, wanted))
        for place, folder, order in small
    ]
    return Round([report for report in reports if report is not None], time.monotonic() - started)


def _tend(path: Path, name: str, now: float, wanted: Maintenance, merge: Merge) -> TableReport | None:
    if not DeltaTable.is_deltatable(str(path)):
        return None
    report = TableReport(name)
    try:
        report.files_before = len(table_files(open_table(path)))
        retain.keep_transactions(path, report)
        merge(report)
        retain.checkpoint(path, now, report)
        retain.clean_files(path, now, wanted.file_retention_hours * 3600, report)
        retain.clean_log(path, now, wanted, report)  # after the look through it for files that have left
        files = table_files(open_table(path))
        report.files_after, report.bytes = len(files), sum(file.size for file in files)
    except Exception as error:  # noqa: BLE001 - whatever one table does, the others are tended
        report.error = f"{type(error).__name__}: {error}".splitlines()[0][:500]
    return report


def _small(path: Path, order: Sequence[str], wanted: Maintenance) -> Merge:
    def merge(report: TableReport) -> None:
        table = open_table(path)
        if is_plain(table):
            merge_by_age(path, table, order, wanted, report)
        else:
            merge_by_delta_rs(path, wanted, report)

    return merge


def _quarantine(settings: Settings, paths: Paths, *, thorough: bool) -> Merge:
    def merge(report: TableReport) -> None:
        table = open_table(paths.quarantine)
        if not is_plain(table):
            report.notes.append("its protocol is not the one turnout gave it: files are not merged")
            return
        merge_quarantine(paths.quarantine, table, settings.maintenance, report, thorough=thorough)
        if thorough:
            report.rows_removed += stale_quarantine.remove(
                paths, settings.environment, *_refused_games(paths.quarantine)
            )

    return merge


def _refused_games(quarantine: Path) -> list[Game]:
    """Return the games that quarantine has rows of."""
    rows = open_table(quarantine).to_pyarrow_dataset().scanner(columns=["game"]).to_batches()
    keys: set[str] = set()
    for batch in rows:
        keys.update(name for name in batch.column("game").unique().to_pylist() if name is not None)
    return [Game(names.game_key(name), name) for name in sorted(keys)]


def _bronze(settings: Settings, paths: Paths, now: float) -> Merge:
    def merge(report: TableReport) -> None:
        table = open_table(paths.bronze)
        if not is_plain(table):
            report.notes.append("its protocol is not the one turnout gave it: files are not merged")
            return
        wanted = settings.maintenance
        last_seq = _passed_by_all(settings, paths, table, now, report)
        last_modified_ms = (now - wanted.bronze_age_minutes * 60) * 1000
        merge_bronze(paths.bronze, table, last_seq, last_modified_ms, wanted, report)

    return merge


def _passed_by_all(settings: Settings, paths: Paths, table: DeltaTable, now: float, report: TableReport) -> float:
    """Return the last seq that no streaming reader of bronze will read again."""
    app_id = names.bronze_app_id(settings.environment)
    kept_since = now - settings.maintenance.log_retention_hours * 3600
    lowest = math.inf
    for reader in readers(paths.checkpoints, str(table.metadata().id)):
        passed = passed_seq(paths.bronze, app_id, table.version(), reader)
        if passed is None or (passed < math.inf and reader.touched_at < kept_since):
            report.notes.append(f"the reader {reader.name} is behind what the log keeps and is not waited for")
            continue
        if passed < math.inf and reader.touched_at < now - _QUIET_READER_SECONDS:
            report.notes.append(f"what is after seq {passed:.0f} waits for the reader {reader.name}")
        lowest = min(lowest, passed)
    return lowest
