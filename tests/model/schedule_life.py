"""One schedule: drivers, ingest and what people do, as tasks of the real code, from a seed to a verdict."""

import dataclasses
import logging
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake.exceptions import DeltaError
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from pipeline.base.errors import Refused, Transient
from pipeline.base.names import bronze_app_id
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.contracts.registries.patience import Patience
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.maintenance.compact import GAME, merge_by_age
from pipeline.data.maintenance.report import TableReport
from pipeline.data.repair import rebuild as rebuilding
from pipeline.data.repair import replay as replaying
from pipeline.data.repair import stale_quarantine
from pipeline.data.streams.group import Group
from pipeline.data.streams.passes import Passes
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Demux, Paths, Settings, Store
from pipeline.store import assignments, games, stream_control
from pipeline.store.database.tables import leases as leases_table
from pipeline.store.games import Game
from pipeline.store.processes import leases
from pipeline.wiring import _Idle
from tests.model import schedule_store, schedule_world
from tests.model.schedule_derived import Derived
from tests.model.schedule_oracle import Oracle
from tests.model.schedule_patch import Patches
from tests.model.schedule_registry import IMPATIENT, PATIENT, Asking, ForeignRegistry
from tests.model.schedule_shapes import recomputed
from tests.model.schedule_spark import ConcurrentQuery, Spark
from tests.model.schedule_strategies import Priorities, Segments, Uniform, Written
from tests.model.schedule_tasks import START, Names, Process, Scheduler, Strategy, Stuck, Task
from tests.model.schedule_types import Types
from tests.model.schedule_world import FURTHER, LATE, REGISTRY, SECOND, Beginning, Row, World

_MAX_STEPS: Final = 60_000
_REST_SECONDS: Final = 600.0  # in which everything must have landed once nobody disturbs any more
_PCT_STEPS: Final = 1_200  # about as long as a schedule is until it rests
_EXPECTED: Final = (
    Refused,
    Transient,
    DeltaError,
    rebuilding.GenerationConflict,
)  # of a repair: told to a person; nothing was done
_EAGER: Final = Maintenance(small_files=2, bronze_commits=2, bronze_age_minutes=0.0)


@dataclass
class ScheduleVerdict:
    """The result of a schedule."""

    seed: int
    problems: list[str]
    steps: int
    segments: list[tuple[str, int]] = field(repr=False)
    trace: list[tuple[str, str]] = field(repr=False)
    scenario: str = ""

    @property
    def kind(self) -> str:
        """The kind of the first problem, so that a shorter schedule is known to fail alike."""
        if not self.problems:
            return ""
        kinds = (
            "twice",
            "leave the table",
            "lost",
            "above",
            "missing",
            "its log has",
            "stuck",
            "at once",
            "judged",
            "charged",
            "other values",
            "moved",
            "computed",
            "two commits",
        )
        return next((kind for kind in kinds if kind in self.problems[0]), self.problems[0][:20])


class Schedules:
    """Runs schedules one after the other in one process."""

    def __init__(self, root: Path) -> None:
        logging.disable(logging.ERROR)
        pa.set_cpu_count(1)
        warnings.simplefilter("ignore")
        self._root = root
        self._patches = Patches()
        self._store = schedule_world.ControlStore()
        self.code: str | None = None  # what is planted into it: what other code split is not taken from memory

    def run(
        self, seed: int, segments: Segments | None = None, *, focus: Sequence[str] = (), in_memory: bool = True
    ) -> ScheduleVerdict:
        """Run the schedule of a seed, or what it is about in an order that was written down."""
        folder = self._root / f"schedule-{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        life = Life(seed, Paths(folder / "env"), self._store, segments, focus, in_memory=in_memory)
        world = life.world
        self._patches.splits.world = (world.number, world.foreign, world.typed, world.shaped, world.repeated, self.code)
        self._store.on_use(life.store_used, life.scheduler)
        patches = self._patches.installed(life.scheduler, life.disk, self._store, seed, in_memory=in_memory)
        with patches, life.watched():
            try:
                life.live()
            except Stuck as error:
                life.problems.append(f"stuck: {error}")
            finally:
                life.scheduler.end_all()
                self._store.on_use(None)
        life.problems += [f"{task.name} failed: {task.error!r}\n{task.trace}" for task in life.scheduler.failed]
        life.problems += list(life.oracle.problems())
        shutil.rmtree(folder, ignore_errors=True)
        scheduler = life.scheduler
        return ScheduleVerdict(seed, life.problems, scheduler.step, scheduler.segments, scheduler.trace, life.scenario)


class Life:
    """The plan of one seed, and its course."""

    def __init__(
        self,
        seed: int,
        paths: Paths,
        store: schedule_world.ControlStore,
        segments: Segments | None = None,
        focus: Sequence[str] = (),
        *,
        in_memory: bool = True,
    ) -> None:
        """Draw what happens; `focus` names acts that are among it."""
        self._focus = focus
        self._draw = draw = random.Random(f"life {seed}")
        self._foreign = random.Random(f"foreign {seed}")  # of its own: other schedules stay as they were
        self.world = self._world(draw.randrange(schedule_world.WORLDS), seed)
        self.paths, self._store, self._engine = paths, store, store.engine
        demux = Demux(
            catchup_seqs=draw.choice((1, 2, 200)), checkpoint_interval=draw.choice((3, 20)), trigger_seconds=0.5
        )
        self._leases = draw.random() < 0.4 or "leases" in focus
        self._settings = dataclasses.replace(Settings(), demux=demux, store=Store(leases=self._leases))
        chosen, strategy = self._strategy(draw)
        if segments is not None:
            strategy = Written(segments)
        tick = draw.choice((0.001, 0.01, 0.05))
        # A registry's threads, and silver's, come often: with fewer ticks a second somebody could always go on.
        tick = min(tick, 0.01) if self.world.foreign or self.world.shaped or self.world.repeated else tick
        self.scheduler = Scheduler(strategy, tick, _MAX_STEPS)
        self.disk = schedule_store.Disk(self.scheduler, Names(), paths.root, in_memory=in_memory)
        self._types = Types(self.world, self._engine, seed, self._versions_of)
        self.oracle = Oracle(self.world, paths, self.disk, self._settings.environment, self._types.decisions)
        self._derived = Derived(
            self.world, paths, self._engine, self._settings.environment, self.disk, self.scheduler, seed
        )
        self.problems: list[str] = []
        self._registry: ForeignRegistry | None = None
        if self.world.foreign:
            is_away = self._foreign.random() < 0.3 or "registry away" in focus
            back_at = START + self._foreign.choice((0.0, 0.0, 2.0, 10.0))
            self._registry = ForeignRegistry(self.scheduler, back_at, is_away=is_away)
        # When the registry gets the schema that it lacks, and before which seq ingest waits for that.
        self._uploads, self._late_seq = self._uploads_of(focus) if self.world.has(LATE) else ([], None)
        # The last row of a schema that is registered while a rebuild stands still: ingest waits for that before it.
        is_held = random.Random(f"held {seed}").random() < 0.03 or "schema in held rebuild" in focus
        self._held_row = self._last_row("typed" if self.world.typed else "early") if is_held else None
        self._is_registered = False
        self._spark = Spark(self.disk, seed)
        self._drivers: dict[str, list[Process]] = {}  # by group, those that run
        self._leaving: dict[int, Process] = {}  # processes that end soon, by id: held, so that no other one gets it
        self._readers: dict[str, list[Task]] = {}  # by game key
        self._judged: dict[Any, int] = {}  # batch → the schema set it was judged with
        self._expired: set[str] = set()  # groups of which a lease ran out: they renew it from then on
        self._begun = 0  # how many drivers have
        self._ending: list[Task] = []  # those that come to an end by themselves
        self._rest_by: float | None = None
        self._is_replayed, self.acts = False, list[str]()  # for the last time: what waits then is of no accepted type
        self._strategy_name = chosen

    def _world(self, number: int, seed: int) -> World:
        foreign = self._foreign.random() < 0.03 or "foreign" in self._focus
        typed = random.Random(f"typed {seed}").random() < 0.03 or "types" in self._focus
        if foreign or typed:
            return schedule_world.world(number, foreign=foreign, typed=typed)
        shaped = random.Random(f"shaped {seed}").random() < 0.03 or "shapes" in self._focus
        repeated = not shaped and (random.Random(f"derived {seed}").random() < 0.03 or "derived" in self._focus)
        return schedule_world.world(number, shaped=shaped, repeated=repeated)

    @property
    def scenario(self) -> str:
        world = f"world {self.world.number}, {len(self.world.games)} games, {len(self.world.commits)} seqs"
        registry = "" if self._registry is None else "; a foreign registry"
        registry += "; types" if self.world.typed else "; shapes" if self.world.shaped else ""
        registry += "; silver" if self.world.repeated else ""
        leases = "on" if self._leases else "off"
        return f"{world}{registry}; {self._strategy_name}; leases {leases}; {', '.join(self.acts)}"

    def _strategy(self, draw: random.Random) -> tuple[str, Strategy]:
        choices = random.Random(draw.random())
        kind = draw.choice(("uniform", "sticky", "sticky", "pct", "pct"))
        if kind == "pct":
            changes = draw.randint(1, 12)
            return f"pct {changes}", Priorities(choices, changes, _PCT_STEPS)
        stay = 0.0 if kind == "uniform" else draw.choice((0.5, 0.8, 0.95, 0.99))
        return f"{kind} {stay}", Uniform(choices, stay)

    # The course of it.

    def live(self) -> None:
        before = self._draw.choice((0, 0, 1, 2, len(self.world.commits)))
        if self._late_seq is not None:
            before = min(before, self._late_seq - 1)
        if self._held_row is not None:
            before = min(before, self._held_row.seq - 1)
        groups = ["a", "b"] if self._draw.random() < 0.6 or "two groups" in self._focus else ["a"]
        self._store.begin(Beginning(not self.world.discovered, len(groups) > 1, self.world.shaped))
        bronze = CursorTable.create(self.paths.bronze, BRONZE, bronze_app_id(self._settings.environment))
        self._ingest_some(bronze, 1, min(before, len(self.world.commits)))
        self._finite("ingest", self._ingest)
        for group in groups:
            self._begin_driver(group)
        for act in [*self._acts(groups), *self._acts_of_registry()]:
            act()
        for _ in range(self._derived.changes):
            self._finite("define", self._derived.define)
        for _ in range(self._derived.repairs):
            self._finite("repair", self._derived.repair)
        for game in self._types.games:
            if self._held_row is None or self._held_row.game != game:
                self._finite("types", partial(self._live_types, game))
        self.scheduler.run(self._at_rest)
        self._look_at_decisions()
        self.problems += self._derived.look()
        if self.world.shaped:
            self.problems += recomputed(self._engine, self.paths, self._settings.environment, self.world.games)

    def _finite(self, name: str, body: Callable[[], object], process: Process | None = None) -> Process:
        """Begin a task without whose end nothing is at rest; it begins some time later."""
        process = process or Process(name)
        begin_step = self._draw.choice((0, self._draw.randint(0, 150), self._draw.randint(0, 800)))
        begin_after = self._draw.choice((0.0, 0.0, 0.0, 0.6, 3.0))

        def run() -> None:
            self.scheduler.wait(lambda: self.scheduler.step >= begin_step or self._is_quiet(), name="begin")
            if begin_after:
                self.scheduler.sleep(begin_after)
            body()

        self._ending.append(self.scheduler.spawn(name, run, process))
        return process

    def _is_quiet(self) -> bool:
        return self.scheduler.now > START + 10

    def _acts(self, groups: list[str]) -> list[Callable[[], object]]:
        """Choose what people do and what breaks."""
        possible: list[tuple[str, Callable[[], object]]] = [
            ("own query", lambda: self._finite("own", self._own_query)),
            ("pause", lambda: self._finite("pause", self._pause)),
            ("rebuild", lambda: self._repair("rebuild", self._rebuild)),
            ("replay", lambda: self._repair("replay", self._replay)),
            ("twins", lambda: self._repair("twins", self._twins)),
            ("replays", lambda: self._finite("late", self._late_schema)),
            ("schema in rebuild", lambda: self._finite("schema", self._schema_in_rebuild)),
            ("compaction", lambda: self._repair("compact", self._compact)),
            ("schema", lambda: self._finite("schema", self._register)),
            ("crash", lambda: self._finite("crash", lambda: self._crash(groups))),
            ("restart", lambda: self._finite("restart", lambda: self._restart(groups))),
        ]
        if "b" in groups:
            possible += [("move", lambda: self._finite("move", self._move))] * 3
            possible += [("store away", lambda: self._finite("away", lambda: self._away(groups)))]
        if not self._leases:
            possible += [("rival", lambda: self._finite("rival", self._rival))]
        chosen = [self._draw.choice(possible) for _ in range(self._draw.choice((0, 1, 1, 2, 2, 3, 4)))]
        named = dict(possible)
        chosen += [(name, named[name]) for name in self._focus if name in named]
        if (held := self._held_row) is not None:
            chosen.append(("schema in held rebuild", lambda: self._finite("schema", lambda: self._hold_rebuild(held))))
        self.acts = sorted(name for name, _ in chosen)
        return [act for _, act in chosen]

    def _acts_of_registry(self) -> list[Callable[[], object]]:
        possible: dict[str, Callable[[], object]] = {
            "upload": lambda: self._finite("upload", self._upload),
            "upload in rebuild": lambda: self._finite("upload", self._upload_in_rebuild),
        }
        self.acts = sorted([*self.acts, *self._uploads])
        return [possible[name] for name in self._uploads]

    def _uploads_of(self, focus: Sequence[str]) -> tuple[list[str], int | None]:
        chosen = [name for name in ("upload", "upload in rebuild") if self._foreign.random() < 0.3 or name in focus]
        last = max(row.seq for row in self.world.rows(self._latest_game()) if row.writer == LATE)
        return chosen, last if "upload in rebuild" in chosen else None

    def _latest_game(self) -> Game:
        """Return the game that has the last row of the late schema."""
        rows = [row for commit in self.world.commits for row in commit if row.writer == LATE]
        return rows[-1].game

    def _last_row(self, kind: str) -> Row | None:
        return next((row for commit in reversed(self.world.commits) for row in commit if row.kind == kind), None)

    def _at_rest(self) -> bool:
        if any(not task.ended for task in self._ending):
            return False
        is_away = self._registry is not None and self._registry.is_away
        waiting = self.oracle.waiting(LocalRegistry(self._engine).snapshot() if is_away else None)
        waiting += self._derived.waiting()
        if not waiting and self._registry is not None and is_away:
            self._registry.is_away, self._rest_by = False, None
            return False
        if not waiting and not self._is_replayed:
            self._is_replayed = True
            for game in self._types.games:
                self._ending.append(self.scheduler.spawn("last", partial(self._replay_last, game), Process("last")))
            return not self._types.games
        if not waiting:
            return True
        if self._rest_by is None:
            self._rest_by = self.scheduler.now + (_REST_SECONDS / 10 if is_away else _REST_SECONDS)
        if self.scheduler.now > self._rest_by:
            raise Stuck(f"not everything lands: {'; '.join(waiting)}; {self._evidence()}")
        return False

    def _evidence(self) -> str:
        found = {key: each.evidence for key, each in stream_control.decided(self._engine).items() if each.evidence}
        return str(found)

    def _look_at_decisions(self) -> None:
        """Nothing failed here but processes: a stream that was charged with more was charged wrongly."""
        for key, each in stream_control.decided(self._engine).items():
            if each.failure_class in {"poison", "fatal"} or each.parked_at is not None:
                self.problems.append(f"{key} was charged though nothing of it failed: {each.evidence}")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch who applies rows of which game: one reader of a driver, one driver under leases, one set to a batch."""
        real = Passes.apply

        def apply(passes: Passes, source: Any, streams: Mapping[str, Any], schemas: Any, lane: Any, **rest: Any) -> Any:
            task = self.scheduler.current
            assert task is not None
            if lane == "RUN" and task.batch is not None:
                version = self._judged.setdefault(task.batch, schemas.version)
                if version != schemas.version:
                    self.problems.append(f"a batch was judged with the sets {version} and {schemas.version}")
            for key in streams:
                self._look_at_readers(key, task)
                self._readers.setdefault(key, []).append(task)
            try:
                return real(passes, source, streams, schemas, lane, **rest)
            finally:
                for key in streams:
                    self._readers[key].remove(task)

        Passes.apply = apply  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            Passes.apply = real  # type: ignore[method-assign]

    def _look_at_readers(self, key: str, task: Task) -> None:
        for other in self._readers.get(key, ()):
            if other.process is task.process:
                self.problems.append(f"{key} is read by {other.name} and {task.name} at once")
            elif self._leases and not self._expired:
                self.problems.append(f"{key} is held by {other.process.name} and {task.process.name} at once")

    def store_used(self) -> None:
        """Another may go on before the control store is asked, and one that is cut off from it gets no answer."""
        self.scheduler.point("store")
        task = self.scheduler.current
        if task is not None and task.process.store_is_away:
            raise OperationalError("", {}, Exception("the store is away"))

    # Ingest.

    def _ingest(self) -> None:
        bronze = CursorTable.create(self.paths.bronze, BRONZE, bronze_app_id(self._settings.environment))
        first = (bronze.cursor or 0) + 1
        pauses = [self._draw.choice((0.0, 0.0, 0.1, 0.6, 3.0)) for _ in self.world.commits]
        for seq in range(first, len(self.world.commits) + 1):
            if self._late_seq is not None and seq >= self._late_seq:
                self.scheduler.wait(self._is_uploaded, name="upload")
            if self._held_row is not None and seq >= self._held_row.seq:
                self.scheduler.wait(lambda: self._is_registered, name="registered")
            self._ingest_some(bronze, seq, seq)
            if pauses[seq - 1]:
                self.scheduler.sleep(pauses[seq - 1])

    def _is_uploaded(self) -> bool:
        return self._is_quiet() or (self._registry is not None and self._registry.has_late)

    def _ingest_some(self, bronze: CursorTable, first: int, last: int) -> None:
        for seq in range(first, last + 1):
            files = [write_file(rows, self.paths.bronze, ["seq", "game_key"]) for rows in self.world.files[seq - 1]]
            bronze.commit(files, bronze.cursor, seq)
            seen = {str(row.game.key): row.game.name for row in self.world.commits[seq - 1]}
            games.record_seen(self._engine, seen, seq, placing())

    # Drivers.

    def _begin_driver(self, group: str, after_seconds: float = 0.0, *, after_another: bool = False) -> Process:
        self._begun += 1
        process = Process(f"{group}{self._begun}")
        self._drivers.setdefault(group, []).append(process)

        def run() -> None:
            if after_seconds:
                self.scheduler.sleep(after_seconds)
            if after_another and self._leases:
                self._expire(group)  # the other one could not give it back
            self._drive(group, process)

        self.scheduler.spawn(f"{process.name}.driver", run, process)
        return process

    def _drive(self, group: str, process: Process) -> None:
        ended: list[bool] = []
        if self._derived.game is not None:
            carry = partial(self._derived.carry, process, lambda: bool(ended) or self._shall_end(process))
            self.scheduler.spawn(f"{process.name}.derived", carry)
        try:
            self._drive_group(group, process)
        finally:
            ended.append(True)

    def _drive_group(self, group: str, process: Process) -> None:
        try:
            lease = self._lease(group, process) if self._leases else None
            if self._leases and lease is None:
                return
            asking = None if self._registry is None else Asking(self._engine, self._registry, self.scheduler)
            driver = Group(self._spark, self._settings, self.paths, self._engine, group, lambda _: None, lease, asking)  # type: ignore[arg-type]
            idle = _Idle(2.0)
            query = driver.start(once=False)
            while not self._shall_end(process):
                self.scheduler.wait(lambda: self._shall_end(process), 2.0, "driver")
                if driver.trouble is not None:
                    self._trouble(driver)
                if lease is not None and group in self._expired and not process.store_is_away:
                    lease.renew()
                idle.observe(driver)
                driver.sync_queries()
                if not query.isActive:
                    self._look_at_failure(group, query.exception())
                    query = driver.start(once=False)
            driver.stop()
            if lease is not None:
                lease.release()
        except leases.LeaseLost:
            driver.stop()
        except OperationalError:
            if not process.store_is_away:
                raise
            if process in self._drivers[group]:  # it cannot begin now: whoever looks after it begins it again
                self._drivers[group].remove(process)
                self._begin_driver(group, 1.0, after_another=True)

    def _shall_end(self, process: Process) -> bool:
        return id(process) in self._leaving

    def _look_at_failure(self, group: str, error: BaseException | None) -> None:
        """A query fails here only because another works on its checkpoint."""
        if isinstance(error, OperationalError) and "store is away" in str(error):
            pass  # a driver that has not heard of any schema yet cannot begin
        elif isinstance(error, Transient) and "is damaged or missing" in str(error):
            pass  # another driver has dropped the checkpoint amid a batch of `TailBatches`
        elif not isinstance(error, ConcurrentQuery | FileNotFoundError):
            self.problems.append(f"the query of {group} failed: {type(error).__name__}: {error}")
        self.scheduler.sleep(1.0)

    def _trouble(self, driver: Group) -> None:
        """A chunk fails as a whole here only because the store is away."""
        if driver.trouble and "store is away" not in driver.trouble:
            self.problems.append(f"catch-up failed: {driver.trouble}")
        driver.trouble = None

    def _lease(self, group: str, process: Process) -> leases.Lease | None:
        """Wait for the group's lease, which another may hold for good; None when this driver is to end meanwhile."""
        lease = leases.Lease(self._engine, "group", group, 1e9, leases.Process("machine", None, 1, None))
        while not self._shall_end(process):
            try:
                lease.acquire()
                return lease
            except Refused:
                self.scheduler.sleep(1.0)
        return None

    def _expire(self, group: str) -> None:
        """Let the time of a group's lease run out."""
        self._expired.add(group)
        while True:
            try:
                with self._engine.begin() as connection:
                    connection.execute(update(leases_table).where(leases_table.c.name == group).values(expires_at=0.0))
            except OperationalError:  # who asks is cut off from the store just now
                self.scheduler.sleep(1.0)
            else:
                return

    # What breaks.

    def _crash(self, groups: list[str]) -> None:
        for _ in range(self._draw.choice((1, 1, 2, 3))):
            group = self._draw.choice(groups)
            for process in self._drivers[group]:
                self.scheduler.kill(process)
            self._drivers[group] = []
            if self._leases:
                self._expire(group)
            self._begin_driver(group, self._draw.choice((0.0, 0.0, 1.0, 5.0)))
            self._wait_a_while()

    def _restart(self, groups: list[str]) -> None:
        group = self._draw.choice(groups)
        ending, self._drivers[group] = self._drivers[group], []
        self._leaving.update((id(process), process) for process in ending)
        if self._draw.random() < 0.5:  # else the next one begins while the old one still ends
            self.scheduler.wait(lambda: all(task.ended for each in ending for task in each.tasks), name="ended")
        if self._leases:
            self._expire(group)
        self._begin_driver(group)

    def _away(self, groups: list[str]) -> None:
        """A driver hears nothing of the control store for a while, and goes on with what it knows."""
        process = next(iter(self._drivers[self._draw.choice(groups)]), None)
        if process is None:
            return
        process.store_is_away = True
        self._wait_a_while()
        if self._leases and self._draw.random() < 0.5:
            self._expire(process.name[0])
            self._wait_a_while()
        process.store_is_away = False

    def _rival(self) -> None:
        """A second driver of the same group, as may be without leases."""
        process = self._begin_driver("a")
        self._wait_a_while()
        if process in self._drivers["a"]:
            self._drivers["a"].remove(process)
        self._leaving[id(process)] = process
        self.scheduler.wait(lambda: all(task.ended for task in process.tasks), name="ended")

    def _wait_a_while(self) -> None:
        if self._draw.random() < 0.5:
            self.scheduler.sleep(self._draw.choice((0.1, 0.6, 3.0)))
        else:
            end = self.scheduler.step + self._draw.randint(0, 300)
            self.scheduler.wait(lambda: self.scheduler.step >= end or self._is_quiet(), 10.0, "while")

    # What people do.

    def _game(self) -> Game:
        return self._draw.choice(self.world.games)

    def _move(self) -> None:
        game = self._game()
        for _ in range(self._draw.choice((1, 1, 2))):
            assignment = assignments.read_assignments(self._engine).get(game.key)
            if assignment is None or assignment.group is None:
                return
            target = "b" if assignment.group == "a" else "a"
            try:
                with self._engine.begin() as connection:
                    assignments.reassign(connection, {game.key: (assignment.epoch, target)})
            except assignments.AssignmentConflict:
                continue
            self._wait_a_while()

    def _own_query(self) -> None:
        game = self._game()
        for own in (True, False) * self._draw.choice((1, 1, 2)):
            stream_control.submit_control(self._engine, game.key, "somebody", own_query=own)
            self._wait_a_while()

    def _pause(self) -> None:
        game = self._game()
        stream_control.submit_control(self._engine, game.key, "somebody", desired="paused")
        self._wait_a_while()
        stream_control.submit_control(self._engine, game.key, "somebody", desired="running")

    def _register(self) -> None:
        for game in self.world.games[: self._draw.randint(1, 4)]:
            LocalRegistry(self._engine).register(game.name, "t.M", SECOND)

    def _late_schema(self) -> None:
        """A schema is registered when rows of it are in quarantine, and two people replay them at once."""
        early = {row.game: row.seq for rows in self.world.commits for row in rows if row.kind == "early"}
        if not early:
            return
        game = self._draw.choice(sorted(early, key=lambda each: each.name))
        self.scheduler.wait(lambda: self.oracle.cursor(game) >= early[game], 30.0, "early")
        LocalRegistry(self._engine).register(game.name, "t.M", SECOND)
        for name in ("replay", "replay too"):
            self._repair(name, self._replay, game)

    def _schema_in_rebuild(self) -> None:
        """A schema is registered while a rebuild is under way, and before the stream has come to the rows of it."""
        early = {row.game: row.seq for rows in reversed(self.world.commits) for row in rows if row.kind == "early"}
        if not early:
            return
        game = self._draw.choice(sorted(early, key=lambda each: each.name))
        process, end = self._repair("rebuild", self._rebuild, game), self._draw.randint(1, 40)
        self.scheduler.wait(
            lambda: bool(process.tasks) and (process.tasks[0].steps >= end or process.tasks[0].ended), name="rebuild"
        )
        LocalRegistry(self._engine).register(game.name, "t.M", SECOND)

    def _hold_rebuild(self, row: Row) -> None:
        """A rebuild reads the schemas, and goes on once another one was registered and a row of that has landed."""
        registry, read = LocalRegistry(self._engine), []

        def schemas() -> SchemaSet:
            read.append(registry.snapshot())
            if len(read) == 1:
                self.scheduler.wait(lambda: self.oracle.cursor(row.game) >= row.seq, 20.0, "held")
            return read[-1]

        if row.further is not None:
            self._types.come(row.game, row.further)
        (task,) = self._repair("rebuild", lambda game: self._rebuild(game, schemas), row.game).tasks
        self.scheduler.wait(lambda: bool(read) or task.ended, name="rebuild")
        if row.further is not None:
            self._types.decide(row.game, FURTHER[row.further].message)
        else:
            registry.register(row.game.name, "t.M", SECOND)
        self._is_registered = True

    def _live_types(self, game: Game) -> None:
        repairs = [
            partial(self._repair, "replay", self._replay, game),
            partial(self._repair, "rebuild", self._rebuild, game),
        ]
        self._types.live(game, self._wait_a_while, repairs)

    def _replay_last(self, game: Game) -> None:
        while True:
            try:
                self._replay(game)
            except _EXPECTED:
                self._wait_a_while()
            else:
                return

    def _versions_of(self, game: Game) -> int:
        return len(self.disk.states(Path(self.paths.table(game.key))))

    def _upload(self) -> None:
        """The registry gets a schema, perhaps after rows of it were refused, and two people replay them at once."""
        game = self._foreign.choice(self.world.has(LATE))
        assert self._registry is not None
        if self._foreign.random() < 0.7:
            last = max(row.seq for row in self.world.rows(game) if row.writer == LATE)
            self.scheduler.wait(lambda: self.oracle.cursor(game) >= last, 30.0, "late")
        self._registry.has_late = True
        self._ask()
        for name in ("replay", "replay too"):
            self._repair(name, self._replay, game)

    def _upload_in_rebuild(self) -> None:
        """It gets a schema that it had denied while a rebuild is under way, perhaps before its rows come."""
        game = self._latest_game()
        assert self._registry is not None
        self._ask(IMPATIENT)  # another game may have asked for it long before
        process, end = self._repair("rebuild", self._rebuild, game), self._foreign.randint(1, 40)
        self.scheduler.wait(
            lambda: bool(process.tasks) and (process.tasks[0].steps >= end or process.tasks[0].ended), name="rebuild"
        )
        self._registry.has_late = True
        self._ask()

    def _ask(self, patience: Patience = PATIENT) -> None:
        """Have all games with rows of the late schema ask for it; drivers see to the rest."""
        assert self._registry is not None
        asking = Asking(self._engine, self._registry, self.scheduler, patience)
        asking.note((Need(game.key, game.name, REGISTRY, LATE, 1, 0) for game in self.world.has(LATE)), again=True)
        asking.step_of(REGISTRY)

    def _repair(self, name: str, body: Callable[[Game], object], game: Game | None = None) -> Process:
        """A repair in a process of its own, which may be killed anywhere and is then begun again."""
        game = game or self._game()

        patient, table = self._draw.random() < 0.7, self.paths.table(game.key)

        def run() -> None:
            for _ in range(self._draw.choice((1, 1, 2))):
                try:
                    if patient:  # else it may be about a table that is not there yet
                        self.scheduler.wait(lambda: len(self.disk.states(Path(table))) > 1, 20.0, "table")
                    body(game)
                except _EXPECTED:
                    self._wait_a_while()

        process = self._finite(name, run)
        if self._draw.random() < 0.25:
            end = self._draw.randint(0, 60)

            def kill() -> None:
                self.scheduler.wait(
                    lambda: not process.tasks or process.tasks[0].steps >= end or process.tasks[0].ended,
                    name="kill",
                )
                self.scheduler.kill(process)
                self._finite(f"{name} again", run)

            self._finite(f"kill {name}", kill)
        return process

    def _rebuild(self, game: Game, schemas: Callable[[], SchemaSet] | None = None) -> None:
        schemas = schemas or LocalRegistry(self._engine).snapshot
        rebuilding.rebuild(self.paths, self._settings.environment, self._engine, schemas, game)

    def _replay(self, game: Game) -> None:
        self.scheduler.wait(lambda: bool(self.disk.states(Path(self.paths.quarantine))), 50.0, "quarantine")
        if not self.disk.states(Path(self.paths.quarantine)):
            return
        schemas = LocalRegistry(self._engine).snapshot
        chosen = stale_quarantine.quarantined_places(open_table(self.paths.quarantine), self.paths.quarantine, game)
        replaying.Replay(self.paths, self._settings.environment, schemas, dry_run=False).run(game, chosen)

    def _twins(self, game: Game) -> None:
        stale_quarantine.remove(self.paths, self._settings.environment, game)

    def _compact(self, game: Game) -> None:
        for path, order in ((self.paths.table(game.key), GAME),):
            if not self.disk.states(Path(path)):
                continue
            table = open_table(path)
            report = TableReport(game.key)
            merge_by_age(path, table, order, _EAGER, report)
