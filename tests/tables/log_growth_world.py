"""A game that commits again and again for days of a simulated clock, with rounds of maintenance between."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline.data.maintenance import plan, removals, run
from pipeline.lake.delta import checkpoint as delta_checkpoint
from pipeline.lake.delta import rewrite as delta_rewrite
from pipeline.lake.delta import table as delta_table
from pipeline.lake.delta.checkpoint import checkpoint_file
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.lake.delta.log import commit_file, read_commit
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths, Settings
from tests.tables.maintenance_world import APP, CHESS, ROWS, game_rows

BEGIN = 1_600_000_000.0  # long ago, so that a time of the real clock is seen to be one


class Clock:
    """Stands in for the module `time` in what is simulated."""

    def __init__(self) -> None:
        self.now = BEGIN

    def time(self) -> float:
        return self.now


@dataclass
class Peak:
    """The most that was seen, at the ends of rounds' intervals, when logs are largest."""

    log_bytes: int = 0
    log_on_disk: int = 0
    log_files: int = 0
    checkpoint_bytes: int = 0
    commit_bytes: int = 0
    data_files: int = 0

    def take(self, other: "Peak") -> None:
        for name in vars(self):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))


@dataclass
class Game:
    """One game's table, committed to at a fixed rate of a simulated clock."""

    settings: Settings
    paths: Paths
    clock: Clock
    seconds_between: float
    table: CursorTable = field(init=False)
    seq: int = 0
    _dated: int = -1
    _template: bytes = b""

    def __post_init__(self) -> None:
        self.table = CursorTable.create(located(self.path), ROWS, APP, self.settings.demux.checkpoint_interval)
        one = write_file(game_rows(1), located(self.path), ["_seq"])
        self._template = (self.path / one.path).read_bytes()
        (self.path / one.path).unlink()
        self._stamp()

    @property
    def path(self) -> Path:
        return Path(self.paths.table(CHESS))

    def live(self, seconds: float) -> None:
        """Commit until the given time has gone by."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += self.seconds_between
            self.seq += 1
            file = self.path / f"part-{uuid.uuid4()}.parquet"
            file.write_bytes(self._template)
            os.utime(file, (self.clock.now, self.clock.now))
            stats = f'{{"numRecords": 1, "minValues": {{"_seq": {self.seq}}}, "maxValues": {{"_seq": {self.seq}}}}}'
            self.table.commit([DataFile(file.name, len(self._template), 1, stats)], self.table.cursor, self.seq)
            self._date(self.table.version)
            self._dated = self.table.version

    def round(self) -> None:
        """Let maintenance look at the table once."""
        done = run.one_round(self.settings, self.paths, self.clock.now, thorough=False)
        assert [(report.error, report.notes) for report in done.tables if report.error or report.notes] == []
        self.table.refresh()
        self._stamp()

    def _stamp(self) -> None:
        """Give files that maintenance wrote by the real clock the time of the simulated one."""
        for version in range(self._dated + 1, self.table.version + 1):
            for action in read_commit(located(self.path), version) or []:
                if "add" in action and (self.path / action["add"]["path"]).stat().st_mtime > self.clock.now:
                    os.utime(self.path / action["add"]["path"], (self.clock.now, self.clock.now))
            self._date(version)
        self._dated = self.table.version

    def _date(self, version: int) -> None:
        os.utime(commit_file(located(self.path), version), (self.clock.now, self.clock.now))
        with suppress(FileNotFoundError):
            os.utime(checkpoint_file(located(self.path), version), (self.clock.now, self.clock.now))

    def measured(self) -> Peak:
        entries = self._log()
        return Peak(
            log_bytes=sum(entries.values()),
            log_on_disk=sum(plan.LogFile(0, size).on_disk for size in entries.values()),
            log_files=len(entries),
            checkpoint_bytes=max((size for name, size in entries.items() if "checkpoint.p" in name), default=0),
            commit_bytes=Path(commit_file(located(self.path), self.table.version)).stat().st_size,
            data_files=sum(1 for _ in os.scandir(self.path)),
        )

    def _log(self) -> dict[str, int]:
        return {entry.name: entry.stat().st_size for entry in os.scandir(self.path / "_delta_log")}

    def first_version(self) -> int:
        return min(int(name[:20]) for name in self._log() if name[:1] == "0")

    def check(self) -> None:
        """Every row and the cursor are there, and what the last hour has seen can be read: slow readers' window."""
        table = DeltaTable(self.path)
        assert sum(pa.table(table.get_add_actions()).column("num_records").to_pylist()) == self.seq
        assert table.transaction_version(APP) == self.seq
        first = self.first_version()
        hour_ago = table.version() - int(3600 / self.seconds_between)
        assert first <= max(hour_ago, 0), "a version of the last hour is gone"
        assert all(commit_file(located(self.path), at).exists() for at in range(max(first, 1), table.version() + 1))
        assert DeltaTable(self.path, version=first).version() == first
        assert (first == 0) or checkpoint_file(located(self.path), first).exists()


@contextmanager
def simulated(folder: Path, settings: Settings, seconds_between: float) -> Iterator[Game]:
    """Give a game whose clock is simulated, in turnout and in the times of files."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        for module in (delta_table, delta_checkpoint, delta_rewrite, removals):
            patch.setattr(module, "time", clock)
        yield Game(settings, Paths(folder), clock, seconds_between)


def bytes_of_a_checkpoint(seconds_between: float, round_seconds: float, other_files: int) -> float:
    """Return how large a checkpoint becomes at most: what docs/maintenance.md says of it, as a formula."""
    files = round_seconds / seconds_between + other_files
    merged = (3600 + round_seconds) / seconds_between + other_files * 5
    return 6_000 + 60 * files + 24 * merged


def bytes_of_a_log(game: Game, max_bytes: int, round_seconds: float, peak: Peak) -> float:
    """Return what a log fills of a disk at most: its bound, or an hour; and what comes until the next round."""
    block = 4096
    # A commit itself, and its share of checkpoints: as many bytes, or those of a small one every few commits.
    every = game.settings.demux.checkpoint_interval
    commits = block + max(peak.commit_bytes, min(peak.checkpoint_bytes, 32_768) / every) + block / every
    rounds = (
        2 * (peak.checkpoint_bytes + block) + 300 * round_seconds / game.seconds_between
    )  # their checkpoints, merges
    an_hour = 3600 / game.seconds_between * commits + 3600 / round_seconds * rounds
    apart = 2 * (peak.checkpoint_bytes + max(peak.checkpoint_bytes / max(peak.commit_bytes, 1), 20) * block)
    return max(max_bytes, an_hour + apart) + round_seconds / game.seconds_between * commits + rounds
