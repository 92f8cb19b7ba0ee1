"""An environment of many games whose drivers report as real ones do, without Spark.

Heartbeats come every two seconds and minutes at their end, by the writers of the product. Some games lag for a while.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import insert, update

from listeners.metrics_table import MetricsTables
from listeners.sample import LATENCY_EDGES_SECONDS, IngestMinute, StreamMinute
from pipeline.base.names import game_key
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.reports import source_backlog
from tests.browser.seed import Seeded, seed

_BEAT_SECONDS: Final = 2.0
_HISTORY: Final = 60  # minutes
_SCORES: Final = (0.0, 0.0, 0.6, 0.3, 0.1)
_IN_TURN: Final = 15  # beats until other games lag
_LAGGING: Final = 3


class Ticking:
    """The drivers of all groups, and ingest."""

    def __init__(self, folder: Path, games: int, groups: int) -> None:
        """Fill a folder: the control store, and an hour of minutes."""
        self._rng = random.Random(36)
        self._groups = [f"g{number}" for number in range(groups)]
        fleet = [Seeded(f"Game number {number:04}", self._groups[number % groups], {}) for number in range(games)]
        self._members = [(str(game_key(game.name)), game.group or "") for game in fleet]
        now = time.time()
        ages = dict.fromkeys(["ingest", *self._groups], 0.0)
        seed(folder, fleet, now=now, heartbeat_ages=ages, history=False)
        self._store = open_store(Settings(), Paths(folder))
        self._writers = {name: MetricsTables(Paths(folder).metrics, f"group-{name}") for name in self._groups}
        self._ingest = MetricsTables(Paths(folder).metrics, "ingest-main")
        self._reported = now - now % 60 - 60 * _HISTORY
        self.report_minutes(now)

    def report_minutes(self, now: float) -> None:
        """Report all minutes that have ended and are not reported yet.

        Raises:
            AssertionError: the disk is full, say.
        """
        while self._reported + 60 <= now:
            for key, group in self._members:
                self._writers[group].add(self._minute(key, group))
            self._ingest.add(IngestMinute(self._reported, 100_000, 10, 30, 0.5))
            self._reported += 60
        if not all(writer.flush() for writer in (*self._writers.values(), self._ingest)):
            raise AssertionError("minutes could not be written")

    def beat(self, number: int) -> None:
        """Report the state of all drivers and streams as of now."""
        now, streams = time.time(), tables.streams
        lagging = self._lagging(number)
        with self._store.begin() as connection:
            connection.execute(update(tables.drivers).values(heartbeat_at=now))
            connection.execute(update(source_backlog).values(measured_at=now))
            usual = {"updated_at": now, "last_commit_at": now - 1.5, "cursor_seq": 838 + number}
            connection.execute(update(streams).values(usual))
            connection.execute(update(tables.games).values(last_seq=838 + number))
            connection.execute(
                insert(tables.bronze_commits).values(
                    seq=841 + number, rows=5_000, refused=3, oldest_source_at=now - 3, committed_at=now - 1
                )
            )
            if number % _IN_TURN == 0:
                well = {"status": "RUNNING", "status_since": now - 3_600, "backlog_age_seconds": 1.0}
                connection.execute(update(streams).where(streams.c.status == "LAGGING").values(well))
                late = {"status": "LAGGING", "status_since": now - 5, "backlog_age_seconds": 130.0}
                connection.execute(update(streams).where(streams.c.game_key.in_(lagging)).values(late))

    def close(self) -> None:
        """Close the store."""
        self._store.dispose()

    def _lagging(self, number: int) -> list[str]:
        first = number // _IN_TURN * 7 % len(self._members)
        return [key for key, _ in (*self._members, *self._members)[first : first + _LAGGING]]

    def _minute(self, key: str, group: str) -> StreamMinute:
        rows = self._rng.randrange(2_000)
        counts = [int(rows * share) for share in _SCORES] + [0] * (len(LATENCY_EDGES_SECONDS) + 1 - len(_SCORES))
        age = round(self._rng.uniform(0, 9), 1)
        status = "LAGGING" if self._rng.random() < 0.003 else "RUNNING"
        return StreamMinute(
            self._reported, key, group, sum(counts), 0, self._rng.randrange(3), 12, tuple(counts) if rows else (), age,
            status,
        )  # fmt: skip


@contextmanager
def ticking(folder: Path, games: int, groups: int) -> Iterator[Sequence[str]]:
    """Fill a folder and let its drivers report while the block runs; yield what went wrong there, so far nothing."""
    world, stop, problems = Ticking(folder, games, groups), threading.Event(), list[str]()

    def keep() -> None:
        number = 0
        while not stop.wait(_BEAT_SECONDS):
            number += 1
            try:
                world.beat(number)
                world.report_minutes(time.time())
            except Exception as error:  # noqa: BLE001 - the measurement names it and fails
                problems.append(repr(error))

    thread = threading.Thread(target=keep, name="drivers")
    thread.start()
    try:
        yield problems
    finally:
        stop.set()
        thread.join()
        world.close()
