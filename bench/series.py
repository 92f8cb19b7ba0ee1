"""`python -m bench.series`: the cost of the dashboard's series: CPU time of a refresh, bytes in memory and on disk.

Minutes are written as drivers write them; maintenance has merged all but the newest quarter of an hour. CPU time is
that of the whole process, threads included. See docs/performance.md.
"""

import argparse
import random
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from app.state.minutes import RANGES, open_reader
from bench import machine
from bench.command import carry_out
from bench.text import milliseconds
from listeners.metrics_schema import STREAM_MINUTE
from listeners.metrics_table import MetricsTables
from listeners.minutes.reader import SeriesReader
from listeners.sample import IngestMinute, StreamMinute
from listeners.series import BUCKETS, Series
from pipeline.data.maintenance.run import one_round
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths, Settings

_BEGIN: Final = 1_767_571_200.0  # 2026-01-05, a midnight
_UNMERGED: Final = 15  # minutes since the last round of maintenance
_BUCKETS: Final = {3: 0.6, 4: 0.3, 5: 0.1}  # bucket → share of a game's rows
_NAMES: Final = {900: "15 min", 3600: "1 h", 21_600: "6 h", 86_400: "24 h"}


class Drivers:
    """Drivers of groups, and ingest, that report minutes."""

    def __init__(self, folder: Location, games: int, groups: int, busy: float) -> None:
        self._rng = random.Random(7)
        self._games, self._busy = games, busy
        self._writers = [MetricsTables(folder, f"group-{group}") for group in range(groups)]
        self._ingest = MetricsTables(folder, "ingest-main")

    def report(self, at: float) -> None:
        """Report one minute of all games."""
        for game in range(self._games):
            group = game % len(self._writers)
            self._writers[group].add(self._minute(at, game, group))
        self._ingest.add(IngestMinute(at, 100_000, 10, 30))

    def flush(self) -> None:
        """Write what was reported, a commit per driver.

        Raises:
            AssertionError: the disk is full, say.
        """
        outcomes = [writer.flush() for writer in (*self._writers, self._ingest)]
        if not all(outcomes):
            raise AssertionError("minutes could not be written")

    def _minute(self, at: float, game: int, group: int) -> StreamMinute:
        rows = self._rng.randrange(1, 2_000) if self._rng.random() < self._busy else 0
        counts = tuple(round(rows * _BUCKETS.get(place, 0)) for place in range(BUCKETS))
        return StreamMinute(
            at=at,
            game_key=f"game_{game:04}_{game * 7919 % 65_536:04x}",
            group=f"group-{group}",
            rows=sum(counts),
            caught_up_rows=0,
            refused=self._rng.randrange(3) if self._rng.random() < 0.02 else 0,
            commits=6 if rows else 0,
            latency_counts=counts if rows else (),
            backlog_age_seconds=round(self._rng.uniform(0, 12), 1) if rows else 0.0,
            status="LAGGING" if self._rng.random() < 0.01 else "RUNNING",
        )


class Readings:
    """CPU seconds of readings, by what was read."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def read(self, what: str, reader: SeriesReader, range_seconds: int, until: float) -> Series:
        """Read a range and keep the CPU time of the process."""
        slot_seconds, slots = RANGES[range_seconds]
        begun = time.process_time()
        series = reader.read(slot_seconds, slots, until, time.monotonic())
        self.seconds.setdefault(f"{_NAMES[range_seconds]}, {what}", []).append(time.process_time() - begun)
        return series


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Fill the tables, read each range for the first time and again after news; return all numbers."""
    paths, settings, readings = Paths(folder), Settings(), Readings()
    drivers = Drivers(paths.metrics, options.games, options.groups, options.busy)
    minutes = round(options.hours * 60)
    for at in range(minutes - _UNMERGED):
        drivers.report(_BEGIN + 60 * at)
        if at % 30 == 29:  # they are merged anyway, and fewer commits fill a day sooner
            drivers.flush()
    drivers.flush()
    one_round(settings, paths, _BEGIN, thorough=False)
    merged_bytes = _live_bytes(paths)
    for at in range(minutes - _UNMERGED, minutes):
        drivers.report(_BEGIN + 60 * at)
        drivers.flush()
    until = _BEGIN + 60 * minutes
    ranges = [each for each in RANGES if each <= options.hours * 3600]
    arrays = {}
    for each in ranges:
        for _ in range(options.runs):
            series = readings.read("first reading", open_reader(paths), each, until)
        parts = (series.rows, series.caught_up, series.refused, series.commits, series.backlog, series.status)
        arrays[_NAMES[each]] = series.counts.nbytes + sum(part.nbytes for part in parts)
    reader = open_reader(paths)
    for each in ranges:
        readings.read("first reading, after the other ranges", reader, each, until)
    for _ in range(options.runs):
        drivers.report(until)
        drivers.flush()
        until += 60
        for each in ranges:
            readings.read("a minute later", reader, each, until)
            readings.read("nothing new", reader, each, until)
    one_round(settings, paths, _BEGIN, thorough=False)
    for each in ranges:
        readings.read("after a merge", reader, each, until)
    return {
        "machine": machine.describe(),
        "load": machine.load_average(),
        "options": {name: getattr(options, name) for name in ("games", "groups", "hours", "busy", "runs")},
        "merged_bytes": merged_bytes,
        "bytes_per_game_and_minute": merged_bytes / options.games / (minutes - _UNMERGED),
        "array_bytes": arrays,
        "cpu_seconds": readings.seconds,
    }


def report(result: dict[str, Any]) -> str:
    """Return the numbers as text."""
    arrays = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in result["array_bytes"].items())
    return "\n".join(
        [
            milliseconds("CPU time of a reading", result["cpu_seconds"]),
            f"merged files: {result['merged_bytes'] / 1e6:.1f} MB",
            f"of one game and minute: {result['bytes_per_game_and_minute']:.1f} bytes",
            f"arrays of a series: {arrays}",
        ]
    )


def _live_bytes(paths: Paths) -> int:
    """Return the bytes of the files that the table has now."""
    return sum(file.size for file in table_files(open_table(paths.metrics / STREAM_MINUTE.name)))


def main() -> None:
    """Measure, print a table, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.series")
    parser.add_argument("--games", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--busy", type=float, default=0.5, help="share of games with rows in a minute")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    carry_out(options, partial(measure, options=options), report)


if __name__ == "__main__":
    main()
