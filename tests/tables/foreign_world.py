"""A world whose bronze has rows of a foreign registry."""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.base.names import GameKey
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.schemas import SchemaSet, Writer
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.demux import DemuxContext
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.stream import Stream
from pipeline.data.streams.writing.job import READ, Place, SplitJob
from pipeline.data.streams.writing.rows import Rows
from pipeline.data.streams.writing.split import split
from pipeline.data.verify.balance import Balance, verify
from pipeline.data.verify.values import Wanted
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.store.games import Game, generations, register_group
from tests.game_streams import LocalBronze
from tests.tables.repair_world import CHESS, FIRST, GO, Event, World, make_world

CONFLUENT = 7
"""The number of a profile whose records are payloads with Confluent's framing, without an envelope."""
SEVEN = b"\0\0\0\0\7"
EIGHT = b"\0\0\0\0\10"
PROFILES = {CONFLUENT: SourceProfile("none", "topic", "confluent", "main")}


class ForeignWorld(World):
    """A world whose bronze has rows of a foreign registry beside turnout's own."""

    writers: dict[tuple[str, bytes], Writer]
    profiles: dict[int, SourceProfile]
    wanted: list[Collection[Stream]]  # what registries were asked for
    reads: list[tuple[int, int, frozenset[str]]]  # of catch-up: above and up to which seq, of which games

    def schemas(self) -> SchemaSet:
        return replace(self.registry.snapshot(), writers=self.writers, profiles=self.profiles)

    def values(self) -> Balance:
        return verify(self.paths, self.environment, generations(self.engine), wanted=Wanted(self.schemas()))

    def _placed(self, event: Event, pos: int, known: bool) -> dict[str, Any]:
        row = super()._placed(event, pos, known)
        if isinstance(event, Foreign):
            row |= {"schema_id": None, "profile": event.profile, "registry": "main", "writer": event.writer}
            row["raw"] = event.raw
        return row


class Foreign(Event):
    """A record of a topic that somebody else writes."""

    profile: int
    writer: bytes

    @property
    def raw(self) -> bytes:
        return self.writer + self.payload


def foreign(number: int, writer: bytes = SEVEN, game: Game = CHESS, payload: bytes | None = None) -> Foreign:
    made = Foreign(game, 0, FIRST.payload(points=number) if payload is None else payload)
    object.__setattr__(made, "writer", writer)
    object.__setattr__(made, "profile", CONFLUENT)
    return made


class BronzeRows:
    """Bronze's rows of seqs above `low` up to `high`, split by one task."""

    def __init__(self, world: World, low: int = 0, high: int = 1000, slice_bytes: int = 10_000_000) -> None:
        self._world, self._low, self._high, self._slice_bytes = world, low, high, slice_bytes

    def split(self, job: SplitJob) -> list[Any]:
        rows = DeltaTable(self._world.paths.bronze).to_pyarrow_table(columns=list(READ)).sort_by("seq")
        rows = rows.filter([self._low < seq <= self._high for seq in rows["seq"].to_pylist()]).combine_chunks()
        done = split(iter(rows.to_batches()), replace(job, slice_bytes=self._slice_bytes))
        columns = ("report", "rejects")
        return [SimpleNamespace(**{name: each.column(name)[0].as_py() for name in columns}) for each in done]

    def places(self, key: str, above: int) -> list[Place]:
        raise AssertionError(key, above)


@pytest.fixture
def world(tmp_path: Path) -> ForeignWorld:
    made = make_world(tmp_path)
    held = ForeignWorld(made.paths, made.settings, made.engine)
    held.writers, held.profiles = {}, dict(PROFILES)
    held.last_seqs = made.last_seqs
    register_group(held.engine, "a", placing())
    held.register(GO)
    return held


@pytest.fixture
def passes(world: World) -> Iterator[Passes]:
    with ThreadPoolExecutor(2) as pool:
        quarantine = CursorTable.create(world.paths.quarantine, QUARANTINE, "test")
        yield Passes(world.paths.tables, quarantine, pool, ActiveGames(world.paths.root / "checkpoint", "shared"))


def points(world: World, game: Game = CHESS) -> list[int]:
    return [row["points"] for row in world.contents(game)]


def catch_up_by(driver: DemuxContext, world: ForeignWorld, passes: Passes, slice_bytes: int = 10_000_000) -> CatchUp:
    """Return catch-up that splits here what tasks would."""

    def rows(low: int, high: int, keys: Collection[GameKey]) -> Rows:
        world.reads.append((low, high, frozenset(keys)))
        return BronzeRows(world, low, high, slice_bytes)

    world.reads = []
    bronze = LocalBronze(driver.settings, world.paths, world.engine, rows)
    return CatchUp(driver, world.paths.root / "checkpoint", bronze, passes)


def read_all(catch_up: CatchUp) -> None:
    while catch_up.step(lambda _: 9, lambda _: 9):
        pass
