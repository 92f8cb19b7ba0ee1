"""A fleet that steering acts on, without Spark: the real store, rosters, leases and controller, and what befalls them.

A process is a call. It may be killed before any of its statements, and stand still before any of its transactions while
others go on.
"""

import itertools
import shutil
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from listeners.sample import StreamState
from pipeline.control.controller import KINDS
from pipeline.control.engine import World, tick
from pipeline.errors import Refused
from pipeline.settings import Paths, Settings, load
from pipeline.store.drivers import beat, start_driver, write_streams
from pipeline.store.engine import open_store
from pipeline.store.games import record_seen, register_group
from pipeline.store.leases import Lease, LeaseLost
from pipeline.streams import lanes
from pipeline.streams.roster import Roster
from tests.unit.leases_world import SECONDS, StoreClock, elsewhere

GROUPS = ("a", "b", "c")
GAMES = ("g1", "g2", "g3", "g4")
LAST_SEQ = 9


class Killed(BaseException):
    """SIGKILL: nothing of the process runs on; what it had not committed is rolled back."""


@dataclass
class Fate:
    """What befalls a process that runs now."""

    statements: int | None = None  # it is killed before the one after so many
    transactions: int | None = None  # it stands still before the one after so many
    meanwhile: Callable[[], None] = lambda: None  # what others do then


UNHURT = Fate()


@cache
def _template() -> Path:
    """Make a store with groups and games, once."""
    folder = Path(tempfile.mkdtemp(prefix="turnout-model-"))
    settings, paths = load(folder, {})
    engine = open_store(settings, paths)
    for name in GROUPS:
        register_group(engine, name)
    record_seen(engine, {key: key.upper() for key in GAMES}, LAST_SEQ)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return paths.control_db


class Fleet:
    """Three groups with four games between them, and the store that all processes share."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="turnout-model-")
        self.settings, self.paths = load(Path(self._folder.name), {})
        self.paths.root.mkdir(parents=True, exist_ok=True)
        shutil.copy(_template(), self.paths.control_db)
        self.engine = open_store(self.settings, self.paths)
        event.listen(self.engine, "connect", _hasten)
        event.listen(self.engine, "before_cursor_execute", self._before_statement)
        event.listen(self.engine, "engine_connect", self._before_transaction)
        self.clock = StoreClock(self.engine)  # opens all connections anew
        self.world = World(Settings(), self.engine, self.paths)
        self._running: list[Fate] = []
        self._locker: sqlite3.Connection | None = None
        numbers = itertools.count(1)  # ids decide the order of what was asked at once: a replay must give the same ones
        self._ids = patch("uuid.uuid4", lambda: uuid.UUID(int=next(numbers) << 96))
        self._ids.start()
        self.pids = 0
        self.drivers = {name: Driver(self, name) for name in GROUPS}
        for each in self.drivers.values():
            each.start()

    def close(self) -> None:
        self._ids.stop()
        self.unlock()
        self.engine.dispose()
        self._folder.cleanup()

    def run(self, act: Callable[[], Any], fate: Fate = UNHURT) -> bool:
        """Let a process do something; tell whether it lived to its end."""
        self._running.append(Fate(fate.statements, fate.transactions, fate.meanwhile))
        try:
            act()
        except Killed:
            return False
        finally:
            self._running.pop()
        return True

    def tick(self, fate: Fate = UNHURT) -> None:
        """Let a controller look once; where the store does not answer it looks again later."""

        def look() -> None:
            try:
                tick(self.world, KINDS)
            except OperationalError:
                assert self.locked, "the store was there"

        self.run(look, fate)

    @property
    def locked(self) -> bool:
        return self._locker is not None

    def lock(self) -> None:
        """Let somebody hold the store, so that nobody else can write."""
        if self._locker is None:
            self._locker = sqlite3.connect(self.paths.control_db, isolation_level=None, check_same_thread=False)
            self._locker.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        if self._locker is not None:
            self._locker.execute("ROLLBACK")
            self._locker.close()
            self._locker = None

    def _before_statement(self, *_arguments: object) -> None:
        fate = self._running[-1] if self._running else UNHURT
        if fate.statements is None:
            return
        fate.statements -= 1
        if fate.statements < 0:
            raise Killed

    def _before_transaction(self, _connection: object) -> None:
        fate = self._running[-1] if self._running else UNHURT
        if fate.transactions is None:
            return
        fate.transactions -= 1
        if fate.transactions < 0:
            fate.transactions = None
            self._running.append(Fate())
            try:
                fate.meanwhile()
            finally:
                self._running.pop()


def _hasten(connection: Any, _record: object) -> None:
    """Nothing outlives the test, so nothing is written through; and nobody waits for a lock that a test holds."""
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA busy_timeout=0")


class Driver:
    """A group's driver: a lease and a roster, as its process has them, and a pass that is always running."""

    def __init__(self, fleet: Fleet, group: str) -> None:
        self.fleet, self.group = fleet, group
        self.lease: Lease | None = None
        self.roster: Roster | None = None
        self.until = 0.0  # by the store's clock; up to then it may take itself for the owner of its games
        self.lapsed: frozenset[str] = frozenset()  # of the running pass; its lease had run out, others may have them
        self.wall = 0.0  # how far its machine's clock is ahead
        self.cut_off = False  # it does not reach the store

    @property
    def alive(self) -> bool:
        return self.lease is not None

    def start(self) -> None:
        """Start where no other driver has the lease."""
        if self.alive or self.cut_off or self.fleet.locked:
            return
        self.fleet.pids += 1
        lease = Lease(self.fleet.engine, "group", self.group, SECONDS, elsewhere(self.fleet.pids))
        try:
            lease.acquire()
        except Refused:
            return
        self.lease, self.until = lease, self.fleet.clock.now + SECONDS
        start_driver(self.fleet.engine, "group", self.group, None)
        beat(self.fleet.engine, "group", self.group, "running", 0)
        self.roster = Roster(Settings(), Paths(self.fleet.paths.root), self.fleet.engine, self.group, lease)
        self.roster.for_pass(LAST_SEQ)

    def crash(self) -> None:
        """End at once; the lease runs out by itself."""
        self.lease = self.roster = None
        self.until = 0.0

    def stop(self) -> None:
        """End in order: the pass ends, then the lease."""
        if self.lease is not None and not self.cut_off and not self.fleet.locked:
            self.lease.release()
            self.crash()

    def act(self, *, boundary: bool, fate: Fate = UNHURT) -> None:
        """Renew, look which games are ours, and tell of them; at a boundary a pass ends first and the next begins."""
        if not self.fleet.run(lambda: self._act(boundary=boundary), fate):
            self.crash()

    def reads(self) -> set[str]:
        """Which games it would write to now."""
        if self.roster is None or self.until <= self.fleet.clock.now:
            return set()
        return set(self.roster.streams) | (self._passing() - self.lapsed)

    def _passing(self) -> frozenset[str]:
        return frozenset() if self.roster is None else self.roster._in_pass.get(None, frozenset())

    def _act(self, *, boundary: bool) -> None:
        if self.lease is None or self.roster is None:
            return
        if boundary:
            self.roster.end_pass()
            self.lapsed = frozenset()
        if not self.cut_off:
            try:
                self._meet_store(self.lease, self.roster)
            except LeaseLost:
                self.crash()
                return
            except OperationalError:
                assert self.fleet.locked, "the store was there"
        if boundary:
            self.roster.for_pass(LAST_SEQ)

    def _meet_store(self, lease: Lease, roster: Roster) -> None:
        lease.renew()
        if self.until <= self.fleet.clock.now:
            self.lapsed = self._passing()
        self.until = self.fleet.clock.now + SECONDS
        roster.sync()
        wall = self.fleet.clock.now + self.wall
        for stream in roster.streams.values():
            if lanes.may_run(stream.decision, time.time()):
                stream.complete_through, stream.behind = stream.last_seq, False
        write_streams(
            self.fleet.engine,
            [
                StreamState(
                    game_key=key, group=self.group, lane=stream.lane, status="HEALTHY", status_since=0.0,
                    cursor_seq=stream.complete_through, last_commit_at=None, backlog_age_seconds=None,
                    rows_per_second=None, latency_p95_seconds=None, rows_total=0, rejects_total=0, last_error=None,
                    updated_at=wall,
                )
                for key, stream in roster.streams.items()
            ],
        )  # fmt: skip
