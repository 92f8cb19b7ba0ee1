"""Ingest without Spark, two games, a clock, and an oracle that knows when the source took each record."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from sqlalchemy import select

from pipeline.api import through as api
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Transient
from pipeline.base.names import bronze_app_id
from pipeline.data.ingest.identity import Commits, Position, Positions
from pipeline.data.ingest.restored import heed_restores
from pipeline.data.ingest.sources.kind import Backlog
from pipeline.data.ingest.sources.landing import Landing
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.data.ingest.sources.union import UnionBacklog
from pipeline.data.ingest.through import recorder as recording
from pipeline.data.ingest.through.recorder import ThroughRecorder
from pipeline.health.verdicts.through import game_time
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.source import Source
from pipeline.store.database.tables import games
from pipeline.store.games import Game
from pipeline.store.through import through_in
from tests.tables.repair_world import CHESS, GO, World, broken, good, make_world

GAMES: Final = (CHESS, GO)
NEVER: Final = 10**9
Marks = Mapping[Hashable, int]
"""The number after the last, by partition."""


@dataclass
class StoreClock:
    """The control store's clock, and the process's, which never goes back."""

    wall: float = 1_000_000.0
    monotonic: float = 50.0

    def tick(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


class SimulatedSource(Protocol):
    """A source, what ingest has planned of it, and what an observer of it sees."""

    begin: Position

    def backlog(self) -> Backlog:
        """Return the product's observer, as a new process has it."""

    def take(self, count: int) -> list[Hashable]:
        """Take records at one moment; return their places."""

    def plan(self, most: int) -> list[Hashable]:
        """Plan the next batch with at most this number of offsets of each partition; return the places of its rows."""

    @property
    def offset(self) -> dict[str, Any]:
        """The planned place as Spark has it."""

    @property
    def passed(self) -> Marks:
        """The same for the oracle."""

    @property
    def seen(self) -> Marks:
        """The ends that the newest observation got."""


class LandingTable:
    """A landing table that takes commits."""

    begin: Position = Commits(0)

    def __init__(self, world: World, folder: Path | None = None) -> None:
        self._world = world
        self.folder = folder or Path(str(world.paths.landing))
        self._passed = 0  # the next commit to land
        self._rows: dict[int, int] = {}

    def backlog(self) -> Backlog:
        return configured_source(self._world.settings, self._world.paths).backlog()

    def take(self, count: int) -> list[Hashable]:
        values = pa.array([b"x"] * max(1, count), pa.binary())
        write_deltalake(self.folder, pa.table({"key": values, "value": values}), mode="append")
        version = self._end - 1
        self._rows[version] = count
        return [(version, number) for number in range(count)]

    def rest(self) -> None:
        """Commit to the source without a row."""
        DeltaTable(self.folder).alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})

    def plan(self, most: int) -> list[Hashable]:
        first, self._passed = self._passed, min(self._passed + most, self._end)
        versions = range(first, self._passed)
        return [(version, number) for version in versions for number in range(self._rows.get(version, 0))]

    @property
    def offset(self) -> dict[str, Any]:
        return {"reservoirVersion": self._passed, "index": -1, "isStartingVersion": False}

    @property
    def passed(self) -> Marks:
        waiting = (version for version in sorted(self._rows) if version >= self._passed)
        return {0: next(waiting, self._end)}  # a commit without a row counts as passed

    @property
    def seen(self) -> Marks:
        return {0: self._end}

    @property
    def _end(self) -> int:
        return DeltaTable(self.folder).version() + 1


class LandingTables:
    """Two landing tables as two sources, one of which may be behind."""

    def __init__(self, world: World, random: Random) -> None:
        self._random, self._landing = random, world.paths.landing
        self.tables = [LandingTable(world, Path(str(world.paths.root), f"source-{name}")) for name in "ab"]
        for each in self.tables:
            DeltaTable.create(each.folder, pa.schema([("key", pa.binary()), ("value", pa.binary())]))
        self._kinds = {
            name: Landing(Source(kind="delta", path=str(each.folder)), self._landing)
            for name, each in zip("ab", self.tables, strict=True)
        }
        self.begin: Position = Positions({each.description: Commits(0) for each in self._kinds.values()})

    def backlog(self) -> Backlog:
        return UnionBacklog(self._kinds)

    def take(self, count: int) -> list[Hashable]:
        number = self._random.choice([0, 0, 1])
        return [(number, place) for place in self.tables[number].take(count)]

    def plan(self, most: int) -> list[Hashable]:
        """Plan of both tables, or of one of them."""
        read = [0, 1] if most >= NEVER else self._random.choice([[0, 1], [0], [1]])
        return [(number, place) for number in read for place in self.tables[number].plan(most)]

    @property
    def offset(self) -> dict[str, Any]:
        return {"sources": [each.offset for each in self.tables]}

    @property
    def passed(self) -> Marks:
        return {number: each.passed[0] for number, each in enumerate(self.tables)}

    @property
    def seen(self) -> Marks:
        return {number: each.seen[0] for number, each in enumerate(self.tables)}


@dataclass(frozen=True)
class Taken:
    """A record of the source."""

    at: float
    place: Hashable
    game: Game


@dataclass
class ThroughWorld:
    """One environment, driven step by step."""

    world: World
    clock: StoreClock
    source: SimulatedSource
    records: list[Taken] = field(default_factory=list)
    seq_of: dict[Hashable, int] = field(default_factory=dict)  # by place
    looks: list[tuple[float, Marks]] = field(default_factory=list)  # the oracle's: time and the source's ends
    pairs: list[tuple[int, float]] = field(default_factory=list)  # the oracle's: seq and time
    beaten_at: tuple[float, float] | None = None  # both clocks at this process's last beat

    def __post_init__(self) -> None:
        world = self.world
        self.environment = OpenEnvironment(world.settings, world.paths, world.engine)
        world.register(GO)
        self.produce(*GAMES)
        self.land(NEVER)
        self.start()

    def start(self) -> None:
        """Let another process of ingest go on."""
        world, source = self.world, self.source.backlog()
        bronze = CursorTable.open(world.paths.bronze, bronze_app_id(world.environment))
        assert bronze is not None
        heed_restores(bronze)

        def head() -> int:
            bronze.refresh()
            return self.world.seq

        self.recorder = ThroughRecorder(world.settings, world.paths, world.engine, source, head)
        self.looks, self.beaten_at = [], None

    def produce(self, *games: Game) -> None:
        """Let the source take records at this moment."""
        places = self.source.take(len(games))
        self.records += [Taken(self.clock.wall, place, game) for place, game in zip(places, games, strict=True)]

    def land(self, most: int, *, bad: bool = False) -> None:
        """Let a micro-batch of ingest land what it plans."""
        planned = set(self.source.plan(most))
        records = [each for each in self.records if each.place in planned]
        if records:
            self.world.ingest(*((broken if bad else good_of)(each.game) for each in records))
            self.seq_of.update({each.place: self.world.seq for each in records})

    def split(self, game: Game, through: int | None = None) -> None:
        self.world.split(game, through)

    def beat(self) -> bool:
        """Let ingest's heartbeat look at the source; the oracle looks with it. False where the source refuses."""
        wall, monotonic = self.clock.wall, self.clock.monotonic
        passed = dict(self.source.passed)
        try:
            self.recorder.look(self.source.offset, self.source.begin)
        except Transient:
            return False
        floor = None
        if self.beaten_at is not None:
            least = wall - (monotonic - self.beaten_at[1])
            floor = least if least < self.beaten_at[0] - 0.05 else None
        elif any(at > wall for _, at in self.pairs):
            floor = wall
        if floor is not None:
            self.looks = [look for look in self.looks if look[0] <= floor]
            if self.beaten_at is None:
                self.pairs = [pair for pair in self.pairs if pair[1] <= floor]
            self.pairs = [(seq, min(at, floor)) for seq, at in self.pairs]
        self.beaten_at = wall, monotonic
        seen = dict(self.source.seen)
        if any(seen.get(number, 0) < end for number, end in passed.items()):  # it saw less than ingest has read
            self.looks.clear()
            return True
        if self.looks:  # what it missed counts as the next one sees it
            at, ends = self.looks[-1]
            self.looks[-1] = at, {**seen, **ends}
        done = [at for at, ends in self.looks if all(passed.get(number, 0) >= end for number, end in ends.items())]
        if done:
            self.pairs.append((self.world.seq, max(done)))
        self.looks.append((wall, seen))
        return True

    def expected(self, game: Game, at: int | None = None) -> float | None:
        """Return what the oracle says of a game, or of what has this cursor of it."""
        cursor = self.cursor(game) if at is None else at
        seqs = {self.seq_of.get(each.place, 0) for each in self.records if each.game == game}
        times = [at for seq, at in self.pairs if not any(cursor < each <= seq for each in seqs)]
        return max((at for at in times if at <= self.clock.wall), default=None)

    def cursor(self, game: Game) -> int:
        return self.world.stream(game).position.cursor or 0

    def require_true(self) -> None:
        """Each game's time is the oracle's, and no record taken by then lies outside of its table and quarantine."""
        for game in GAMES:
            shown = self.shown(game)
            found = api.read(self.environment, game)
            assert found.at == pytest.approx(self.expected(game), abs=2e-6), game
            assert (shown or 0.0) <= (found.at or 0.0) + 2e-6, "pages say no later time than the logs"
            if found.at is None:
                continue
            cursor = self.cursor(game)
            for each in self.records:
                if each.game == game and each.at <= found.at:
                    assert self.seq_of.get(each.place, NEVER) <= cursor, (each, found)

    def shown(self, game: Game) -> float | None:
        """Return what pages say where the driver has reported its cursor."""
        with self.world.engine.connect() as connection:
            reading = through_in(connection)
            last_seq = connection.execute(select(games.c.last_seq).where(games.c.game_key == game.key)).scalar_one()
        return game_time(reading, last_seq, self.cursor(game), self.clock.wall)

    def waits(self, game: Game, through: float) -> bool:
        return api.wait(self.environment, game, through, 0.0).ok


def good_of(game: Game) -> Any:
    return good(1, game)


@contextmanager
def store_clock() -> Iterator[StoreClock]:
    """Give the recorder and the reader a clock of their own."""
    clock = StoreClock()
    with pytest.MonkeyPatch.context() as patch:
        for module in (recording, api):
            patch.setattr(module, "store_time", lambda _engine: clock.wall)
        patch.setattr(recording, "time", SimpleNamespace(monotonic=lambda: clock.monotonic))
        yield clock


@contextmanager
def through_world(root: Path) -> Iterator[ThroughWorld]:
    """Make an environment whose source is a landing table."""
    with store_clock() as clock:
        world = make_world(root)
        yield ThroughWorld(world, clock, LandingTable(world))
        world.engine.dispose()


def random_step(run: ThroughWorld, random: Random) -> None:
    """Do one thing at random."""
    clock, source = run.clock, run.source
    clock.tick(random.choice([0.2, 1.0, 5.0]))
    steps = ["produce", "produce", "land", "land", "split", "split", "beat", "beat", "down", "step"]
    match random.choice([*steps, "rest"] if isinstance(source, LandingTable) else steps):
        case "produce":
            run.produce(*random.choices(GAMES, weights=[5, 1], k=random.choice([1, 1, 3])))
        case "rest":
            assert isinstance(source, LandingTable)
            source.rest()
        case "land":
            run.land(random.choice([1, 2, 9]), bad=random.random() < 0.2)
        case "split":
            run.split(random.choice(GAMES), random.choice([None, None, max(1, run.world.seq - 1)]))
        case "beat":
            run.beat()
        case "down":  # another process begins; the source goes on without it
            run.start()
            clock.tick(7.0)
            run.produce(random.choice(GAMES))
        case "step":  # noticed by the next heartbeat
            run.beat()
            clock.tick(1.0)
            clock.wall -= random.choice([0.5, 3.0, 20.0])
            run.produce(random.choice(GAMES))
            run.beat()


def trial(run: ThroughWorld, random: Random) -> None:
    """Wait for two times after some random steps: `wait` says what the oracle says."""
    run.require_true()
    for moment in moments(run, random):
        game = random.choice(GAMES)
        expected = run.expected(game)
        assert run.waits(game, moment) == (expected is not None and expected + 1e-6 >= moment)


def rest(run: ThroughWorld) -> None:
    """Let all rest: then each game is complete through the last heartbeat but one."""
    run.land(NEVER)
    for game in GAMES:
        run.split(game)
    at = run.clock.wall
    for _ in range(2):
        assert run.beat()
    run.require_true()
    for game in GAMES:
        assert run.waits(game, at - 1e-3), "an idle source passes at once"
        assert run.shown(game) == pytest.approx(run.expected(game), abs=2e-6), "pages say the same of a level game"


def moments(run: ThroughWorld, random: Random) -> Sequence[float]:
    """Return times to wait for: of records, of pairs, and between."""
    known = [each.at for each in run.records] + [at for _, at in run.pairs] + [run.clock.wall]
    return [random.choice(known) + random.choice([-0.113, -0.013, 0.013, 0.113]) for _ in range(2)]
