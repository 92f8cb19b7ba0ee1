"""Random histories of a small fleet in virtual time, through the real store and the real code of drivers and ingest.

Faked are the clock, the ids of processes, Spark's query and the tables: what drivers report, keep and export of it is
theirs. A history is made by its seed alone.
"""

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import delete, update
from sqlalchemy.exc import OperationalError

from listeners.events import Progressed
from listeners.join import Joiner
from listeners.metrics_table import MetricsTables
from listeners.minutes.fold import Minutes
from listeners.process_cpu import TreeCpu
from listeners.process_kinds import INGEST
from listeners.prometheus import Exposition
from listeners.sample import (
    CHUNK,
    LATENCY_EDGES_SECONDS,
    GameResult,
    GroupSample,
    Lane,
    PassResult,
    Segments,
    StatusEvent,
    StreamState,
)
from pipeline import wiring
from pipeline.base.names import game_key
from pipeline.control.incident_keeper import IncidentKeeper
from pipeline.data.streams import watchdog
from pipeline.health.facts.placing import placing
from pipeline.lake.storage.places import located
from pipeline.settings.tree import load
from pipeline.store import assignments, games
from pipeline.store.database import tables
from pipeline.store.database.checked_table import metadata
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.groups import Group, create
from pipeline.store.operations import Intent, change, submit
from pipeline.store.processes import drivers
from pipeline.store.processes.runs import begin_run, end_run, record_process
from pipeline.store.reports import record_round, write_backlog
from pipeline.telemetry import driver as telemetry
from pipeline.telemetry.driver import Telemetry
from tests.unit.store.leases_world import StoreClock

START: Final = 1_800_000_000.0  # a whole minute
OBJECTIVE: Final = 60.0
HOST: Final = "host"
_BUCKETS: Final = len(LATENCY_EDGES_SECONDS) + 1
_EVER: Final = START - 86_400.0


class Clock:
    """The store's time, and the clock and the id of the process that acts now."""

    def __init__(self) -> None:
        self.now, self.skew, self.pid = START, 0.0, 1
        self.is_store_away = False

    def time(self) -> float:
        """Unix seconds by the actor's clock."""
        return self.now + self.skew

    def monotonic(self) -> float:
        return self.now

    def getpid(self) -> int:
        return self.pid

    def gethostname(self) -> str:
        return HOST


class _AtOnce:
    """An outbox without a thread."""

    def __init__(self, publish: Callable[[Any], None]) -> None:
        self._publish, self.dropped, self.failures = publish, 0, 0

    def offer(self, item: Any) -> None:
        self._publish(item)

    def __len__(self) -> int:
        return 0


class Reporting(Telemetry):
    """A driver's telemetry without its server and threads."""

    def __init__(self, into: MetricsTables, kind: str) -> None:
        self.registry = CollectorRegistry()
        self.exposition = Exposition(self.registry)
        self._tables, self._pushers, self._joiner = into, [], Joiner(30.0)
        self._minutes, self._cpu = Minutes(), TreeCpu(lambda: None)  # of these processes no CPU time is measured
        self._has_source = kind == INGEST
        self._kind, self._name, self._process = kind, "main", "1"
        self._outbox = _AtOnce(self._publish)  # type: ignore[assignment]

    def finish(self) -> None:
        """Do what `close` does with what waits."""
        for report in self._joiner.release():
            self._publish_pass(report)
        for row in self._minutes.release():
            self._tables.add(row)


@dataclass
class Stream:
    """A stream as the watchdog sees it."""

    game_key: str
    cursor: int
    last_seq: int
    taken_at: float
    lane: Lane = Lane.RUN
    error: str | None = None
    unreadable: bool = False
    waits: Any = None
    decision: Any = field(default_factory=lambda: SimpleNamespace(desired="running"))

    @property
    def complete_through(self) -> int:
        return self.cursor

    @property
    def behind(self) -> bool:
        return self.lane != Lane.RUN


@dataclass
class Carried:
    """A group as the watchdog sees it."""

    name: str
    streams: dict[str, Stream] = field(default_factory=dict)
    frontier_seq: int = 0
    pass_since: float | None = None

    def registry_troubles(self) -> dict[str, str]:
        return {}

    def schema_sets(self) -> dict[str, int]:
        return {}


@dataclass
class Running:
    """A process of the fleet."""

    kind: str
    name: str
    pid: int
    started_at: float
    telemetry: Reporting
    driver: Any  # wiring's own
    group: Carried | None
    watchdog: watchdog.Watchdog | None
    skew: float = 0.0
    is_hung: bool = False  # its main thread stands still; its /metrics answers
    is_killed: bool = False
    is_failing: bool = False  # its query ends again and again
    was_skewed: bool = False
    run_id: int | None = None  # of the controller's record
    has_read: bool = False  # of ingest: what waited for its start
    published: dict[str, StreamState] = field(default_factory=dict)  # the last evaluation
    log: list[StreamState] = field(default_factory=list)  # all of them
    beats: int = 0

    @property
    def spark_run(self) -> str:
        return f"run-{self.pid}"


@dataclass
class Table:
    """A game's table and what waits for it in bronze."""

    name: str
    key: str
    rate: int  # rows in a bronze commit
    cursor: int = 0
    last_seq: int = 0
    waiting: list[tuple[int, int, float]] = field(default_factory=list)  # seq, rows, source time
    temper: str = "well"  # well | slow | blocked | refused | undated | unreadable | registry
    paused: bool = False
    retired: bool = False


class World:
    """One environment; `history` makes and runs a new one in it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.clock = folder, Clock()
        self.settings, self.paths = load(folder, {})
        assert self.settings.metrics.latency_objective_seconds == OBJECTIVE
        self.engine = open_store(self.settings, self.paths)
        self._store_clock = StoreClock(self.engine)
        for module in (drivers, watchdog, telemetry, wiring):
            patch.setattr(module, "time", self.clock)
        patch.setattr(drivers, "os", self.clock)
        patch.setattr(drivers, "socket", self.clock)
        real = drivers.heartbeat

        def heartbeat(*arguments: Any, **named: Any) -> None:
            if self.clock.is_store_away:
                raise OperationalError("UPDATE", {}, Exception("database is locked"))
            real(*arguments, **named)

        patch.setattr(wiring, "heartbeat", heartbeat)
        self.histories = 0
        self.metrics = self.paths.metrics
        self.tables = MetricsTables(self.metrics, "judge")

    def take_new_tables(self) -> None:
        """Let the histories from now on write into new metrics tables."""
        self.metrics = located(self.folder / f"metrics-{self.histories}")
        self.tables = MetricsTables(self.metrics, "judge")

    def history(self, seed: object) -> "History":
        """Begin a history in an empty store."""
        with self.engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
            for table in metadata.sorted_tables:
                if table.name.startswith("audit"):
                    continue  # a chain, which nobody may cut
                connection.execute(delete(table))
        self.histories += 1
        return History(self, seed, self.histories)

    def set_time(self, now: float) -> None:
        self.clock.now = self._store_clock.now = now


class History:
    """A fleet from its beginning to some moment."""

    def __init__(self, world: World, seed: object, number: int) -> None:
        self.world, self.engine, self.clock = world, world.engine, world.clock
        self.seed, self.random = seed, Random(str(seed))
        self.number, self._pids = number, number * 1_000
        self.is_regular = False  # every process reports at each tick
        self.now = START
        self.clock.is_store_away = False
        self._travel(START)
        self.seq, self.arriving, self.source_age, self.source_waits = 0, True, 0.0, 0
        self.groups = "abc"[: self.random.choice((1, 2, 2, 3))]
        self.processes: dict[tuple[str, str], Running] = {}
        self.ended: list[Running] = []
        self.tables: dict[str, Table] = {}
        self.backends = {name: self.random.choice(("none", "local")) for name in self.groups}
        for name in self.groups:
            create(self.engine, Group(name, self.backends[name]), "ann", "", placing())
        self._begin_games()
        self.keeper: IncidentKeeper | None = None
        self.has_controller = self.random.random() < 0.6
        self.start("ingest", "main")
        if self.has_controller:
            self.start("controller", "main")
        for name in self.groups:
            self.start("group", name)
        if self.random.random() < 0.8:
            record_round(self.engine, 1.0, [], tables=1, files_before=1, files_after=1)

    # ------------------------------------------------------------------------------------------------ what happens

    def run(self, ticks: int) -> Iterator[float]:
        """Let time pass; yield after each tick."""
        for _ in range(ticks):
            # No limit is met to the microsecond, where the store's clock and ours round in different ways.
            self.tick(self.random.choice((4.0, 5.0, 5.0, 6.0, 9.0, 16.0, 30.0)) + self.random.random())
            yield self.now

    def tick(self, seconds: float, chance: float = 0.5, clocks_are_right: bool = False) -> None:
        """Let time pass; with a chance something happens, which may move clocks."""
        self._travel(self.now + seconds)
        if self.random.random() < chance:
            self.random.choice(_EVENTS if not clocks_are_right else _EVENTS_OF_PROCESSES)(self)
        self.beat()

    def beat(self) -> None:
        """Let every process do its work and report; some are late with it."""
        self._ingest()
        for process in list(self.processes.values()):
            if process.kind != "group":
                if not process.is_hung and not self.clock.is_store_away:
                    with self.acting(process):
                        drivers.heartbeat(self.engine, process.kind, process.name, "running", None)
            elif self.is_regular or self.random.random() < 0.7:
                self._pass(process)
                self._report(process)

    def judge(self) -> None:
        """Let the controller look for causes, and ingest export its judgement, of what all reported last."""
        for key in (("controller", "main"), ("ingest", "main")):
            if key in self.processes:
                self._report(self.processes[key])

    def start(self, kind: str, name: str) -> None:
        """Start a process; the controller's record has it where the controller starts the group."""
        before = self.processes.pop((kind, name), None)
        if before is not None:
            self.ended.append(before)
            before.is_killed = True
        self._pids += 1
        process = self._made(kind, name, self._pids)
        self.processes[kind, name] = process
        if self.clock.is_store_away:
            return
        if kind == "group" and self.backends[name] == "local":
            process.run_id = begin_run(self.engine, name)
            if process.run_id is not None:
                record_process(self.engine, process.run_id, json.dumps({"host": HOST, "pid": process.pid}))
        with self.acting(process):
            drivers.start_driver(self.engine, kind, name, None, process.run_id)
        if kind == "controller":
            self.keeper = IncidentKeeper(self.engine, self.world.settings, "controller")

    def kill(self, process: Running) -> None:
        """End a process without a word; a controller that runs records its end."""
        process.is_killed = True
        self.ended.append(self.processes.pop((process.kind, process.name)))
        if process.run_id is not None and ("controller", "main") in self.processes and not self.clock.is_store_away:
            end_run(self.engine, process.run_id, "killed by signal 9", died=True)

    def stop(self, process: Running) -> None:
        """End a process in order."""
        if process.kind != "controller":
            self._say(process, "stopped")
        self.ended.append(self.processes.pop((process.kind, process.name)))
        process.telemetry.finish()
        if process.run_id is not None and not self.clock.is_store_away:
            end_run(self.engine, process.run_id, "stopped", died=False)

    def finish(self) -> None:
        """Let the processes that are left write what they hold back."""
        for process in self.processes.values():
            process.telemetry.finish()

    @contextmanager
    def acting(self, process: Running | None) -> Iterator[None]:
        """Act as a process: with its id and its clock."""
        clock = self.clock
        clock.pid, clock.skew = (1, 0.0) if process is None else (process.pid, process.skew)
        yield
        clock.pid, clock.skew = 1, 0.0

    # ------------------------------------------------------------------------------------------------ the fleet

    def _travel(self, now: float) -> None:
        self.now = now
        self.world.set_time(now)

    def _begin_games(self) -> None:
        for number in range(self.random.randint(1, 5)):
            name = f"Game {self.seed}-{number}"
            key = game_key(name)
            self.tables[key] = Table(name, key, self.random.choice((1, 3, 20, 400)))
            games.record_one(self.engine, key, name, 0)
            group = self.random.choice(self.groups) if self.random.random() < 0.95 else None
            if group is not None:
                with self.engine.begin() as connection:
                    assignments.reassign(connection, {key: (1, group)})

    def _made(self, kind: str, name: str, pid: int) -> Running:
        report = Reporting(self.world.tables, kind)
        duty = SimpleNamespace(
            engine=self.engine,
            kind=kind,
            name=name,
            stop=None,
            is_far=False,
            judges_fleet=kind == "ingest",
            require=lambda: None,
            stop_if_unwanted=lambda: None,
        )
        process = Running(kind, name, pid, self.now, report, None, None, None)
        attachment = SimpleNamespace(errors=0)
        if kind == "group":
            process.group = Carried(name, frontier_seq=self.seq)

            def publish(states: list[StreamState], changes: Sequence[StatusEvent], sample: GroupSample) -> None:
                process.published = {each.game_key: each for each in states}
                process.log += states
                report.states(states, changes, sample)

            carried: Any = process.group
            with self.acting(process):
                process.watchdog = watchdog.Watchdog(self.world.settings, self.engine, carried, publish)
        if kind != "controller":
            fake: Any = duty
            process.driver = wiring._Driver(self.world.settings, fake, report, attachment, process.watchdog)  # type: ignore[arg-type]
        return process

    def _ingest(self) -> None:
        ingest = self.processes.get(("ingest", "main"))
        if ingest is None or ingest.is_hung:
            self.source_age += 5.0
            self.source_waits += 10
            return
        if self.clock.is_store_away:
            return
        if self.arriving:
            self._land(ingest)
        known = self.random.random() < 0.95
        ingest.has_read = ingest.has_read or (self.arriving and known and self.source_age <= OBJECTIVE / 4)
        with self.acting(ingest):
            write_backlog(
                self.engine, age_seconds=self.source_age if known else None,
                peak_seconds=self.source_age if known and ingest.has_read else None,
                rows=self.source_waits if known else None, limit_seconds=OBJECTIVE,
                reason=None if known else "the broker does not answer",
            )  # fmt: skip
        if self.random.random() < 0.7:
            self.source_age, self.source_waits = 0.0, 0

    def _land(self, ingest: Running) -> None:
        self.seq += 1
        rows = 0
        for table in self.tables.values():
            if self.random.random() < 0.8:
                amount = self.random.randint(1, table.rate)
                late = self.random.choice((0.2, 0.2, 1.5, 4.0, 40.0))
                table.waiting.append((self.seq, amount, self.now - late))
                table.last_seq = self.seq
                rows += amount
        refused = self.random.choice((0, 0, 0, 1))
        with self.acting(ingest):
            drivers.record_commit(self.engine, self.seq, rows + refused, refused, None)
            landed: Any = SimpleNamespace(
                seq=self.seq, rows=rows + refused, refused={"malformed_wrapper": refused} if refused else {},
                committed_at=self.clock.time(), clocks={"broker": rows + refused},
            )  # fmt: skip
            wiring._publish_landed(ingest.telemetry, landed)
        with self.engine.begin() as connection:
            keys = [table.key for table in self.tables.values() if table.last_seq == self.seq]
            connection.execute(update(tables.games).where(tables.games.c.game_key.in_(keys)).values(last_seq=self.seq))

    def _sync(self, process: Running) -> None:
        """Take on the games that are assigned to the group, and let go of the others."""
        group = process.group
        assert group is not None
        wanted = {each.game_key for each in games.assigned(self.engine, process.name)}
        for key in group.streams.keys() - wanted:
            del group.streams[key]
        for key in sorted(wanted - group.streams.keys()):
            table = self.tables[key]
            group.streams[key] = Stream(key, table.cursor, table.last_seq, self.now, Lane.CATCHUP)

    def _pass(self, process: Running) -> None:
        """Let a group's driver read what waits; a new process takes its games on first."""
        group, look = process.group, process.watchdog
        assert group is not None
        assert look is not None
        if process.is_hung:
            return
        if not self.clock.is_store_away:
            self._sync(process)
        if process.is_failing:
            return
        if process.beats == 0:
            return  # Spark loads
        results = [result for stream in group.streams.values() if (result := self._read(stream, process)) is not None]
        group.frontier_seq = max(self.seq, group.frontier_seq)
        is_chunk = self.random.random() < 0.3
        process.beats += 1
        batch = CHUNK if is_chunk else process.beats
        finished = self.now + process.skew
        made = PassResult(
            process.name, process.spark_run, batch, finished - 1.0, finished, group.frontier_seq, tuple(results),
            {"split": 0.5, "commit": 0.2},
        )  # fmt: skip
        with self.acting(process):
            look.passed(made)
            if is_chunk:
                process.telemetry.caught_up(made)
            else:
                process.telemetry.event(Progressed(_progress(process, batch)))
                process.telemetry.passed(made)

    def _read(self, stream: Stream, process: Running) -> GameResult | None:
        table = self.tables[stream.game_key]
        stream.last_seq = table.last_seq
        stream.unreadable = table.temper == "unreadable"
        stream.decision = SimpleNamespace(desired="paused" if table.paused else "running")
        if table.paused:
            stream.lane, stream.error = Lane.PAUSED, None
            return None
        stream.waits = SimpleNamespace(sentence=lambda _troubles: _WAITS) if table.temper == "registry" else None
        if table.temper in {"blocked", "registry", "unreadable"}:
            stream.lane = Lane.CATCHUP
            if table.temper == "registry":
                stream.error = None
                return None
            stream.error = "OSError: No space left on device"
            return GameResult(
                stream.game_key, Lane.CATCHUP, stream.cursor + 1, max(stream.cursor + 1, table.last_seq), 0, {}, 0, 0,
                None, 0.0, (0,) * _BUCKETS, stream.error,
            )  # fmt: skip
        stream.error = None
        taken = table.waiting if table.temper != "slow" else table.waiting[: len(table.waiting) // 3]
        table.waiting = table.waiting[len(taken) :]
        stream.lane = Lane.CATCHUP if table.waiting else Lane.RUN
        if not taken:
            return None
        return self._commit(stream, table, taken, process)

    def _commit(
        self, stream: Stream, table: Table, taken: Sequence[tuple[int, int, float]], process: Running
    ) -> GameResult:
        """Return a commit of rows; those of before the driver began count as caught up."""
        now, seq = self.now + process.skew, taken[-1][0]
        counts, caught_up = [0] * _BUCKETS, 0
        rows = sum(amount for _, amount, _ in taken)
        refused = rows // 2 if table.temper == "refused" else 0
        landed = rows - refused
        left = landed
        for _, amount, at in taken:
            part = min(amount, left)
            left -= part
            if at < process.started_at or at < stream.taken_at:
                caught_up += part
            elif table.temper != "undated":
                counts[next((n for n, edge in enumerate(LATENCY_EDGES_SECONDS) if self.now - at <= edge), -1)] += part
        stream.cursor = table.cursor = seq
        rejects = {"unknown_schema": refused} if refused else {}
        return GameResult(
            stream.game_key, stream.lane, taken[0][0], seq, landed, rejects, 1, 100 * landed, now, 0.1, tuple(counts),
            None, caught_up, Segments(1.0, 0.5, 0.1) if any(counts) else None,
        )  # fmt: skip

    def _report(self, process: Running) -> None:
        if process.is_hung:
            return
        if process.kind == "controller":
            if not self.clock.is_store_away:
                with self.acting(process):
                    drivers.heartbeat(self.engine, "controller", "main", "running", None)
                    assert self.keeper is not None
                    self.keeper.look()
            return
        if process.beats == 0 and process.kind == "group":
            process.beats = 1  # the first report comes with the first pass
            if self.now - process.started_at < 20.0:
                return
        self._say(process, "failed" if process.is_failing else "running")

    def _say(self, process: Running, state: str) -> None:
        """Send a heartbeat as the driver does."""
        frontier = 0 if process.group is None else process.group.frontier_seq
        error = "java.lang.IllegalStateException: closed" if state == "failed" else None
        with self.acting(process):
            if error is not None and process.watchdog is not None:
                process.watchdog.failed(error)
            process.driver._heartbeat(state, frontier, active=state == "running", error=error, now=True)


_WAITS: Final = "waits for schema 7 of registry main"


def _progress(process: Running, batch: int) -> str:
    return json.dumps(
        {
            "id": "q", "runId": process.spark_run, "name": f"demux-{process.name}", "batchId": batch,
            "timestamp": "2027-01-15T08:00:00.000Z", "numInputRows": 10, "durationMs": {"addBatch": 700},
        }
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ events


def _any_process(history: History, *kinds: str) -> Running | None:
    found = [each for each in history.processes.values() if not kinds or each.kind in kinds]
    return history.random.choice(found) if found else None


def _any_table(history: History) -> Table:
    return history.random.choice(list(history.tables.values()))


def _kill(history: History) -> None:
    if (process := _any_process(history)) is not None:
        history.kill(process)


def _start(history: History) -> None:
    wanted = [("ingest", "main"), *(("group", name) for name in history.groups)]
    missing = [each for each in wanted if each not in history.processes]
    if missing and not history.clock.is_store_away:
        history.start(*history.random.choice(missing))


def _hang(history: History) -> None:
    if (process := _any_process(history)) is not None:
        process.is_hung = not process.is_hung


def _stop(history: History) -> None:
    if (process := _any_process(history, "group", "ingest")) is not None and not history.clock.is_store_away:
        history.stop(process)
        if process.kind == "group" and history.random.random() < 0.7:
            with history.engine.begin() as connection:
                own = tables.groups.c.name == process.name
                connection.execute(update(tables.groups).where(own).values(desired="stopped"))


def _skew(history: History) -> None:
    if (process := _any_process(history, "group")) is not None:
        process.skew, process.was_skewed = history.random.choice((0.0, -3.0, 30.0, -45.0)), True


def _fail(history: History) -> None:
    if (process := _any_process(history, "group")) is not None:
        process.is_failing = not process.is_failing
        if not process.is_failing and process.watchdog is not None:
            with history.acting(process):
                process.watchdog.started()


def _sicken(history: History) -> None:
    _any_table(history).temper = history.random.choice(
        ("well", "well", "slow", "blocked", "refused", "undated", "unreadable", "registry")
    )


def _pause(history: History) -> None:
    table = _any_table(history)
    table.paused = not table.paused


def _move(history: History) -> None:
    table = _any_table(history)
    known = assignments.read_assignments(history.engine).get(table.key)
    if known is not None and not table.retired:
        with history.engine.begin() as connection:
            assignments.reassign(connection, {table.key: (known.epoch, history.random.choice(history.groups))})


def _retire(history: History) -> None:
    table = _any_table(history)
    known = assignments.read_assignments(history.engine).get(table.key)
    if known is not None and not table.retired and history.random.random() < 0.3:
        with history.engine.begin() as connection:
            assignments.retire(connection, {table.key: known.epoch})
        table.retired = True


def _silence(history: History) -> None:
    history.arriving = not history.arriving


def _pile_up(history: History) -> None:
    history.source_age, history.source_waits = history.random.choice((10.0, 40.0, 90.0)), 500


def _lose_store(history: History) -> None:
    history.clock.is_store_away = not history.clock.is_store_away


def _operate(history: History) -> None:
    number = history.random.randint(0, 10**9)
    asked = submit(history.engine, Intent("pause", (f"game:{number}",), "ann"))
    if history.random.random() < 0.5:
        change(history.engine, asked, OperationState.NEEDS_HUMAN, "look")


def _jump(history: History) -> None:
    history._travel(history.now + history.random.choice((70.0, 130.0, 400.0)))


def _set_back(history: History) -> None:
    history._travel(history.now - history.random.choice((3.0, 40.0)))
    for process in history.processes.values():
        process.was_skewed = True


_EVENTS_OF_PROCESSES: Final = (
    _kill, _kill, _start, _start, _start, _hang, _stop, _fail, _sicken, _sicken, _sicken, _pause, _move, _retire,
    _silence, _pile_up, _lose_store, _lose_store, _operate,
)  # fmt: skip
_EVENTS: Final = (*_EVENTS_OF_PROCESSES, _skew, _jump, _set_back)


@contextmanager
def world() -> Iterator[World]:
    """Give a world in memory, with its clock in our hand."""
    memory = Path("/dev/shm")
    folder = (memory if memory.is_dir() else Path("/tmp")) / f"turnout-judge-{time.time_ns()}"
    with pytest.MonkeyPatch.context() as patch:
        folder.mkdir()
        made = World(folder, patch)
        logging.disable(logging.WARNING)  # outages are a part of histories
        try:
            yield made
        finally:
            logging.disable(logging.NOTSET)
            made.engine.dispose()
            shutil.rmtree(folder)
