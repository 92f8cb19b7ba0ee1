"""A fleet that steering acts on, without Spark: the real store, rosters, leases and controller, and what befalls them.

A process is a call. It may be killed before any of its statements, and stand still before any of its transactions while
others go on.
"""

import itertools
import os
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from sqlalchemy import event, update
from sqlalchemy.exc import OperationalError

from listeners.sample import StreamState
from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, stream_app_id
from pipeline.control.backends.local import reference_of
from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.data.streams import lanes
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.writing.writers import DirectWriter
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.liveness import HEARTBEAT_SECONDS
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store import groups as store
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import groups
from pipeline.store.games import assign_waiting, record_seen, register_group
from pipeline.store.processes import runs as run_store
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Lease, LeaseLost, Process
from tests.game_streams import roster_of
from tests.unit.store.leases_world import SECONDS, StoreClock
from tests.unit.store.reports_world import write_streams

GROUPS = ("a", "b", "c")
GAMES = ("g1", "g2", "g3")
LAST_SEQ = 9


class Killed(BaseException):
    """SIGKILL: nothing of the process runs on; what it had not committed is rolled back."""


class Broken(BaseException):
    """A law was broken while a process stood still; no code of ours may take it for an error of its own."""


@dataclass
class Fate:
    """What befalls a process that runs now."""

    statements: int | None = None  # it is killed before the next one after these
    transactions: int | None = None  # it stands still before the next one after these
    meanwhile: Callable[[], None] | None = None  # what others do then; None: it is killed there
    after: tuple[str, int] | None = None  # or before the one after a statement like this, at its count


UNHURT = Fate()


class _Stage:
    """A store that one fleet after the other plays in; SQLAlchemy compiles each statement once for all of them."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="turnout-model-")
        self.settings, self.paths = load(Path(self._folder.name), {})
        self._fresh = self.file = Path(self._folder.name, "fresh.db")
        self._numbers = itertools.count(1)
        self.engine = open_store(self.settings, self.paths)
        for name in GROUPS:
            register_group(self.engine, name, placing())
        with self.engine.begin() as connection:
            connection.execute(update(groups).values(backend="local"))
        record_seen(self.engine, {key: key.upper() for key in GAMES}, LAST_SEQ, placing())
        _land(self.paths)
        with self.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        self.engine.dispose()
        shutil.copy(self.paths.control_db, self._fresh)
        self.fleet: Fleet | None = None
        event.listen(self.engine, "do_connect", self._connect)
        event.listen(self.engine, "connect", _hasten)
        event.listen(self.engine, "before_cursor_execute", self._before_statement)
        event.listen(self.engine, "engine_connect", self._before_transaction)
        self.clock = StoreClock(self.engine)
        self._begun = self.clock.now

    def _before_statement(self, _connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if self.fleet is not None:
            self.fleet.before_statement(statement)

    def _before_transaction(self, _connection: object) -> None:
        if self.fleet is not None:
            self.fleet.before_transaction()

    def _connect(self, _dialect: object, _record: object, arguments: list[Any], _more: object) -> None:
        arguments[0] = str(self.file)

    def begin(self, fleet: "Fleet") -> None:
        """Give it a store of its own: a process that was killed may still have connections to the one before."""
        if self.fleet is not None:
            self.fleet.close()
        self.file = Path(self._folder.name, f"{next(self._numbers)}.db")
        shutil.copy(self._fresh, self.file)
        self.fleet, self.clock.now = fleet, self._begun

    def end(self) -> None:
        self.fleet = None
        self.engine.dispose()
        for end in ("", "-wal", "-shm"):
            Path(f"{self.file}{end}").unlink(missing_ok=True)


@cache
def _stage() -> _Stage:
    return _Stage()


class Fleet:
    """Three groups with three games between them, and the store that all processes share."""

    def __init__(self) -> None:
        stage = _stage()
        self.paths, self.engine, self.clock = stage.paths, stage.engine, stage.clock
        self._running: list[Fate] = []
        stage.begin(self)
        self.store = sqlite3.connect(stage.file, isolation_level=None)  # for tests to look into
        self.world = ControlContext(Settings(), self.engine, self.paths)
        self._locker: sqlite3.Connection | None = None
        numbers = itertools.count(1)  # ids decide the order of what was asked at once: a replay must give the same ones
        self._same: list[Any] = [
            patch("uuid.uuid4", lambda: uuid.UUID(int=next(numbers) << 96)),
            patch("time.time", self._time),
        ]
        for each in self._same:
            each.start()
        self.pids = 0
        self.drivers = {name: Driver(self, name) for name in GROUPS}
        self.others = {name: Driver(self, name) for name in GROUPS}  # second processes, which wait for the leases
        self.supervise()

    @property
    def processes(self) -> list["Driver"]:
        return [*self.drivers.values(), *(each for each in self.others.values() if each.alive)]

    def close(self) -> None:
        for each in self._same:
            each.stop()
        self.unlock()
        self.store.close()
        _stage().end()

    def _time(self) -> float:
        """All machines' clocks are as the store's, but where a test says otherwise."""
        return self.clock.now

    def run(self, act: Callable[[], Any], fate: Fate = UNHURT) -> bool:
        """Let a process do something; tell whether it lived to its end."""
        self._running.append(replace(fate))
        try:
            act()
        except Killed:
            return False
        except Broken as broken:
            raise (broken.__cause__ or broken) from None
        finally:
            self._running.pop()
        return True

    def tick(self, fate: Fate = UNHURT) -> None:
        """Let a controller look once; where the store does not answer it looks again later."""

        def look() -> None:
            try:
                assign_waiting(self.engine, placing())
                tick(self.world, KINDS)
            except OperationalError:
                assert self.locked, "the store was there"

        self.run(look, fate)

    def supervise(self) -> None:
        """Begin and end drivers as is wanted of their groups; what a supervisor does with processes, without any."""
        if self.locked:
            return
        runs, driving = run_store.open_runs(self.engine), run_store.active_drivers(self.engine)
        for name, group in store.read_groups(self.engine).items():
            run, driver = runs.get(name), self.drivers[name]
            if driver.busy or self.others[name].busy:
                continue
            if run is not None and not driver.alive:
                run_store.end_run(self.engine, run.run_id, "it has ended", died=run.stop_requested_at is None)
            elif run is not None and (group.desired == "stopped" or run.stop_requested_at is not None):
                run_store.submit_stop(self.engine, run.run_id)
                driver.stop()
            elif run is None and self.others[name].alive:  # found running
                self.drivers[name], self.others[name] = self.others[name], driver
                run_store.adopt(self.engine, group, None, self.drivers[name].reference)
            elif run is None and group.desired != "stopped" and name not in driving:
                run_id = run_store.begin_run(self.engine, name)
                driver.start(run_id)
                run_store.record_process(self.engine, run_id or 0, driver.reference)

    @property
    def store_now(self) -> float:
        """The time as the store's arithmetic has it, which is not exact."""
        return ((self.clock.now / 86_400 + 2_440_587.5) - 2_440_587.5) * 86_400

    @property
    def locked(self) -> bool:
        return self._locker is not None

    def lock(self) -> None:
        """Let somebody hold the store, so that nobody else can write."""
        if self._locker is None:
            self._locker = sqlite3.connect(_stage().file, isolation_level=None, check_same_thread=False)
            self._locker.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        if self._locker is not None:
            self._locker.execute("ROLLBACK")
            self._locker.close()
            self._locker = None

    def before_statement(self, statement: str) -> None:
        fate = self._running[-1] if self._running else UNHURT
        if fate.after is not None and fate.after[0] in statement:
            text, left = fate.after
            fate.after = (text, left - 1) if left else None
            fate.transactions = fate.transactions if left else 0
        if fate.statements is None:
            return
        fate.statements -= 1
        if fate.statements < 0:
            raise Killed

    def before_transaction(self) -> None:
        fate = self._running[-1] if self._running else UNHURT
        if fate.transactions is None:
            return
        fate.transactions -= 1
        if fate.transactions < 0:
            fate.transactions = None
            if fate.meanwhile is None:
                raise Killed
            self._running.append(Fate())
            try:
                fate.meanwhile()
            except Exception as error:
                raise Broken from error
            finally:
                self._running.pop()


def _land(paths: Paths) -> None:
    """Make the games' tables, with all rows of bronze: a driver misses the table of a game that had rows."""
    writer, columns = DirectWriter(paths.tables, Settings().demux.checkpoint_interval), pa.schema({"seq": pa.int64()})
    for key in map(GameKey, GAMES):
        app_id = stream_app_id(Settings().environment, key, 1)
        writer.create(paths.table(key), columns, app_id, key).commit([], None, LAST_SEQ)


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
        self.reference = ""  # of its last process
        self.heartbeat_until = 0.0  # before then it does not tell again that it lives
        self.busy = False  # it stands still in the middle of something

    @property
    def alive(self) -> bool:
        return self.lease is not None

    def start(self, run_id: int | None = None) -> None:
        """Start where no other driver has the lease."""
        if self.alive or self.busy or self.cut_off or self.fleet.locked:
            return
        self.fleet.pids += 1
        number = self.fleet.pids
        process = Process(f"host-{number}", f"boot-{number}", os.getpid(), number)
        self.reference = reference_of(process)
        lease = Lease(self.fleet.engine, "group", self.group, SECONDS, process, run_id)
        try:
            lease.acquire()
        except Refused:
            return
        self.lease, self.until = lease, self.fleet.clock.now + SECONDS
        self.heartbeat_until = 0.0
        start_driver(self.fleet.engine, "group", self.group, None, run_id)
        heartbeat(self.fleet.engine, "group", self.group, "running", 0)
        self.roster = roster_of(Settings(), Paths(self.fleet.paths.root), self.fleet.engine, self.group, lease)
        self.roster.for_pass(LAST_SEQ)

    def crash(self) -> None:
        """End at once; the lease runs out by itself."""
        self.lease = self.roster = None
        self.until = 0.0

    def stop(self) -> None:
        """End in order: the pass ends, then the lease."""
        if self.lease is not None and not self.fleet.locked:
            if not self.cut_off:
                self.lease.release()
            self.crash()

    def act(self, *, boundary: bool, fate: Fate = UNHURT) -> None:
        """Renew, look which games are ours, and tell of them; at a boundary a pass ends first and the next begins."""
        if self.busy:
            return
        self.busy = True
        try:
            if not self.fleet.run(lambda: self._act(boundary=boundary), fate):
                self.crash()
        finally:
            self.busy = False

    def reads(self) -> set[str]:
        """Which games it would write to now."""
        if self.roster is None or self.until <= self.fleet.clock.now:
            return set()
        return set(self.roster.streams) | (self._passing() - self.lapsed)

    def _passing(self) -> frozenset[str]:
        return frozenset() if self.roster is None else frozenset(self.roster._claims)

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
        renewed_at = self.fleet.clock.now
        if self.until <= renewed_at:
            self.lapsed = self._passing()
        roster.sync()  # until then it has what it had while its lease ran before
        self.until = renewed_at + SECONDS
        wall = self.fleet.clock.now + self.wall
        for stream in roster.streams.values():
            if lanes.may_run(stream.decision, wall):
                stream.complete_through, stream.behind = stream.last_seq, False
        if self.until > self.heartbeat_until:
            self.heartbeat_until = self.until + HEARTBEAT_SECONDS
            heartbeat(self.fleet.engine, "group", self.group, "running", LAST_SEQ)
        write_streams(
            self.fleet.engine,
            [
                StreamState(
                    game_key=key, group=self.group, lane=stream.lane, status="RUNNING", status_since=0.0,
                    cursor_seq=stream.cursor, last_commit_at=None, backlog_age_seconds=None,
                    rows_per_second=None, latency_p95_seconds=None, rows_total=0, rejects_total=0, last_error=None,
                    updated_at=wall,
                )
                for key, stream in roster.streams.items()
            ],
        )  # fmt: skip
