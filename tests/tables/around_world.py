"""Two owners of a group make passes around a merge; rows arrive, and refused ones are replayed."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from listeners.sample import Lane
from pipeline.base import failpoints
from pipeline.data.contracts.formats.json.choices import REFUSED
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.repair.places import PLACES
from pipeline.data.repair.replay import Replay
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.passes import Passes
from pipeline.data.variations.registering import Registrar
from pipeline.lake.delta.columns import OtherColumns
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.store.variations import read_variations
from tests.tables.choices_world import is_clean
from tests.tables.foreign_world import BronzeRows
from tests.tables.registering_world import arrive, drive, reported, resolve
from tests.tables.repair_world import CHESS
from tests.tables.shapes_world import KEY
from tests.tables.value_world import ValueWorld

ROWS = (b'{"x":2,"y":0.5}', b'{"x":true}', b'{"x":"b","y":3}', b'{"x":[2,"c"]}', b"[1]")
NEW = (b'{"x":{"k":1,"l":"x"}}', b'{"y":9007199254740993,"late":1}')
"""Rows with something new, of which a driver asks for columns while the merge goes on."""


PHASES = 9
"""Blocks that make a round at each effect together."""


class LateRegistry(LocalRegistry):
    """The schemas as an owner knows them that hears of them one pass late."""

    heard: SchemaSet

    def snapshot(self, at_version: int | None = None) -> SchemaSet:
        """Return what was newest at the last call."""
        newest = super().snapshot(at_version)
        before, self.heard = getattr(self, "heard", newest), newest
        return before


@dataclass
class LateOwner(ValueWorld):
    """Another owner of the same streams, in the same folders."""

    late: LateRegistry = field(init=False)

    def __post_init__(self) -> None:
        self.late = LateRegistry(self.engine, self.paths.bronze)

    @property
    def registry(self) -> LocalRegistry:
        """Return the schemas of the pass before."""
        return self.late


@dataclass
class Around:
    """All that happens between two effects of a merge."""

    world: ValueWorld
    pool: Executor
    points: list[str] = field(default_factory=list)  # at which a round was made
    waited: int = 0  # passes and replays that found other columns
    replayed: int = 0
    passed: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)  # of refused rows that are right by now
    owners: list[tuple[ValueWorld, Passes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        late = LateOwner(**{name: getattr(self.world, name) for name in ("paths", "settings", "engine", "names")})
        late.profile = self.world.profile
        with_own_streams = replace(self.world, streams={})
        both = {"first": with_own_streams, "late": late}
        self.owners = [(owner, passes_of(owner, name, self.pool)) for name, owner in both.items()]
        self.places = refused_and_allowed(self.world)

    def round(self, point: str) -> None:
        """Let rows arrive, each owner pass and one refused row be replayed; no row may be accused at any time."""
        number = len(self.points)
        self.points.append(point)
        new = [NEW[number]] if number < len(NEW) else []
        arrive(self.world, [("move", each) for each in (ROWS[number % len(ROWS)], *new)])
        self.passes()
        resolve(self.world, *reported(self.world))
        self.replay(1)
        assert is_clean(self.world), point

    def passes(self) -> None:
        """Let each owner make a pass; where the table has other columns, or another owner was first, its rows wait."""
        for owner, passes in self.owners:
            streams, schemas = {str(KEY): owner.stream(CHESS)}, owner.registry.snapshot()
            done = passes.apply(BronzeRows(self.world), streams, schemas, Lane.CATCHUP, repeated=True)
            for failure in done.failures.values():
                assert failure.waits or failure.kind == "expected", failure
                self.waited += failure.waits

    def replay(self, count: int) -> None:
        """Replay some refused rows, as an operation does; where the table has other columns, they stay."""
        world, chosen = self.world, self.places[:count]
        places = pa.table([[seq for seq, _ in chosen], [pos for _, pos in chosen]], schema=PLACES)
        try:
            done = Replay(world.paths, world.environment, world.registry.snapshot, dry_run=False).run(CHESS, places)
        except OtherColumns:
            self.waited += 1
            return
        assert done.refused == {}
        self.replayed += done.landed
        del self.places[:count]

    def ended(self) -> None:
        """Let the rest land."""
        self.replay(len(self.places))
        for _ in range(2):
            arrive(self.world, [("move", b'{"new%d":1}' % self.world.offset)])
            drive(self.world)
        self.passes()


@contextmanager
def around(world: ValueWorld, phase: int) -> Iterator[Around]:
    """Make a round at each ninth effect of the block, from the `phase`-th on, unless the store is being written.

    Each round lands rows, which the block reads and `verify` compares: with a round at each effect the block would
    take the square of its effects. Nine blocks, one for each phase, have a round at each.
    """
    lock = threading.Lock()

    def hit(point: str) -> None:
        if not lock.acquire(blocking=False):
            return  # of the round itself, or of another thread meanwhile
        try:
            made.passed += 1
            if made.passed % PHASES == phase and not _is_written(world):
                made.round(point)
        finally:
            lock.release()

    with ThreadPoolExecutor(2) as pool:
        made = Around(world, pool)
        made.round("before it begins")  # the rebuild lands what no replay has landed by then
        failpoints.on_hit = hit
        try:
            yield made
        finally:
            failpoints.on_hit = None
        made.ended()


def passes_of(owner: ValueWorld, name: str, pool: Executor) -> Passes:
    """Return what an owner's driver applies its rows by."""
    quarantine = CursorTable.create(owner.paths.quarantine, QUARANTINE, name)
    active = ActiveGames(owner.paths.root / "checkpoints" / name, "shared")
    return Passes(owner.paths.tables, quarantine, pool, active)


def refused_and_allowed(world: ValueWorld, rows: int = 40) -> list[tuple[int, int]]:
    """Return the places of rows in quarantine that were refused, and that a replay lands now."""
    arrive(world, [("move", b'{"x":1,"r":1}')])
    drive(world)
    own = next(each for each in read_variations(world.engine, KEY) if "r:whole" in each.form)
    registrar = Registrar(world.engine, world.paths.bronze, world.environment)
    registrar.choose(CHESS, "move", ("refuse", own.fingerprint, own.form))
    arrive(world, [("move", b'{"x":%d,"r":1}' % number) for number in range(rows)])
    drive(world)
    registrar.choose(CHESS, "move", ("allow", own.fingerprint))
    found = open_table(world.paths.quarantine).to_pyarrow_table(columns=["seq", "pos", "reason"]).to_pylist()
    return sorted((row["seq"], row["pos"]) for row in found if row["reason"] == REFUSED)


def _is_written(world: ValueWorld) -> bool:
    """Return whether a transaction that this thread would wait for writes the control store."""
    with closing(sqlite3.connect(world.paths.control_db, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
    return False
