"""A landing table, ingest without Spark, two games, a clock, and an oracle that knows when each record was taken."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.api import through as api
from pipeline.api.environment import OpenEnvironment
from pipeline.data.ingest.identity import Commits
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.data.ingest.through import recorder as recording
from pipeline.data.ingest.through.recorder import ThroughRecorder
from pipeline.store.games import Game
from tests.tables.repair_world import CHESS, GO, World, broken, good, make_world

GAMES: Final = (CHESS, GO)
BEGIN: Final = Commits(0)


@dataclass
class StoreClock:
    """The control store's clock, and the process's, which never goes back."""

    wall: float = 1_000_000.0
    monotonic: float = 50.0

    def tick(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@dataclass(frozen=True)
class Taken:
    """A record of the source."""

    at: float
    version: int
    game: Game


@dataclass
class ThroughWorld:
    """One environment, driven step by step."""

    world: World
    clock: StoreClock
    passed: int = 0  # the next commit of the landing table to land
    records: list[Taken] = field(default_factory=list)
    seq_of: dict[int, int] = field(default_factory=dict)  # by commit: the seq of its rows
    looks: list[tuple[float, int]] = field(default_factory=list)  # the oracle's: time and the source's end
    pairs: list[tuple[int, float]] = field(default_factory=list)  # the oracle's: seq and time
    beaten_at: tuple[float, float] | None = None  # both clocks at this process's last beat

    def __post_init__(self) -> None:
        world, settings, paths = self.world, self.world.settings, self.world.paths
        self.landing = Path(str(paths.landing))
        self.environment = OpenEnvironment(settings, paths, world.engine)
        if not self.landing.exists():
            world.register(GO)
            self.produce(*GAMES)
            self.land(1)
        self.start()

    @property
    def end(self) -> int:
        return DeltaTable(self.landing).version() + 1

    def start(self) -> None:
        """Let another process of ingest go on."""
        world = self.world
        source = configured_source(world.settings, world.paths).backlog()
        self.recorder = ThroughRecorder(world.settings, world.paths, world.engine, source, lambda: self.world.seq)
        self.looks, self.beaten_at = [], None

    def produce(self, *games: Game) -> None:
        """Let the source take records in one commit, at this moment."""
        values = pa.array([b"x"] * max(1, len(games)), pa.binary())
        write_deltalake(self.landing, pa.table({"key": values, "value": values}), mode="append")
        self.records += [Taken(self.clock.wall, self.end - 1, game) for game in games]

    def rest(self) -> None:
        """Commit to the source without a row."""
        DeltaTable(self.landing).alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})

    def land(self, commits: int, *, bad: bool = False) -> None:
        """Let a micro-batch of ingest land the next commits."""
        last = min(self.passed + commits, self.end)
        records = [each for each in self.records if self.passed <= each.version < last]
        if records:
            self.world.ingest(*((broken if bad else good_of)(each.game) for each in records))
            self.seq_of.update({each.version: self.world.seq for each in records})
        self.passed = last

    def split(self, game: Game, through: int | None = None) -> None:
        self.world.split(game, through)

    def beat(self) -> None:
        """Let ingest's heartbeat look at the source; the oracle looks with it."""
        offset: dict[str, Any] = {"reservoirVersion": self.passed, "index": -1, "isStartingVersion": False}
        self.recorder.look(offset, BEGIN)
        clock, floor = self.clock, None
        if self.beaten_at is not None:
            least = clock.wall - (clock.monotonic - self.beaten_at[1])
            floor = least if least < self.beaten_at[0] - 0.05 else None
        elif any(at > clock.wall for _, at in self.pairs):
            floor = clock.wall
        if floor is not None:
            self.looks = [look for look in self.looks if look[0] <= floor]
            self.pairs = [pair for pair in self.pairs if pair[1] <= floor]
        self.beaten_at = clock.wall, clock.monotonic
        done = [at for at, end in self.looks if end <= self.passed]
        if done:
            self.pairs.append((self.world.seq, max(done)))
        self.looks.append((clock.wall, self.end))

    def expected(self, game: Game) -> float | None:
        """Return what the oracle says of a game."""
        cursor = self.cursor(game)
        seqs = {self.seq_of.get(each.version, 0) for each in self.records if each.game == game}
        times = [at for seq, at in self.pairs if not any(cursor < each <= seq for each in seqs)]
        return max((at for at in times if at <= self.clock.wall), default=None)

    def cursor(self, game: Game) -> int:
        return self.world.stream(game).position.cursor or 0

    def require_true(self) -> None:
        """Each game's time is the oracle's, and no record taken by then lies outside of its table and quarantine."""
        for game in GAMES:
            found = api.read(self.environment, game)
            assert found.at == pytest.approx(self.expected(game), abs=2e-6), game
            if found.at is None:
                continue
            cursor = self.cursor(game)
            for each in self.records:
                if each.game == game and each.at <= found.at:
                    assert self.seq_of.get(each.version, 10**9) <= cursor, (each, found)

    def waits(self, game: Game, through: float) -> bool:
        return api.wait(self.environment, game, through, 0.0).ok


def good_of(game: Game) -> Any:
    return good(1, game)


@contextmanager
def through_world(root: Path) -> Iterator[ThroughWorld]:
    """Make an environment with a clock of its own."""
    clock = StoreClock()
    with pytest.MonkeyPatch.context() as patch:
        for module in (recording, api):
            patch.setattr(module, "store_time", lambda _engine: clock.wall)
        patch.setattr(recording, "time", SimpleNamespace(monotonic=lambda: clock.monotonic))
        world = make_world(root)
        yield ThroughWorld(world, clock)
        world.engine.dispose()


def random_step(run: ThroughWorld, random: Random) -> None:
    """Do one thing at random."""
    clock = run.clock
    clock.tick(random.choice([0.2, 1.0, 5.0]))
    match random.choice(
        ["produce", "produce", "rest", "land", "land", "split", "split", "beat", "beat", "down", "step"]
    ):
        case "produce":
            run.produce(*random.choices(GAMES, weights=[5, 1], k=random.choice([1, 1, 3])))
        case "rest":
            run.rest()
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


def moments(run: ThroughWorld, random: Random) -> Sequence[float]:
    """Return times to wait for: of records, of pairs, and between."""
    known = [each.at for each in run.records] + [at for _, at in run.pairs] + [run.clock.wall]
    return [random.choice(known) + random.choice([-0.113, -0.013, 0.013, 0.113]) for _ in range(2)]
