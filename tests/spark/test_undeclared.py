"""Documents that nobody declared, of several event types, through the real queries and the driver's registration."""

import json
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.writer import write_deltalake

from pipeline.base.names import game_key
from pipeline.data.contracts.further_types import accepting
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.streams.group import Group
from pipeline.data.verify.balance import verify
from pipeline.data.verify.values import Wanted
from pipeline.health.facts.placing import placing
from pipeline.store.games import Game, generations, register_group
from pipeline.store.variations import read_variations
from tests.onboarding_world import give_rules, rule

TYPES = ("joined", "sold", "moved", "won", "left")
CHESS = game_key("Chess")
PATHS = {"game": "game", "type": "type", "payload": "data"}


def land(world: Any, *documents: tuple[str, dict[str, Any]]) -> None:
    values = [json.dumps({"game": "Chess", "type": name, "data": each}).encode() for name, each in documents]
    rows = pa.table({"key": [b"k"] * len(values), "value": values}, schema=LANDING)
    write_deltalake(str(world.paths.landing), rows, mode="append")


def split(world: Any) -> float:
    """Let a bounded driver read bronze; return its seconds."""
    started = time.monotonic()
    register_group(world.engine, "a", placing())
    group = Group(world.spark, world.settings, world.paths, world.engine, "a", world.passes.append)
    world.split(group)
    group.stop()
    return time.monotonic() - started


@pytest.mark.long
def test_a_game_of_five_undeclared_types_lands_whole_and_changes(world: Any) -> None:
    """Laws L5, L14: types that a rule accepts are registered as they come, and verify finds each value."""
    source = replace(world.settings.source, envelope="json", framing="type", envelope_fields=PATHS)
    world.settings = replace(world.settings, source=source)
    give_rules(world.engine, rule("Chess", event_types=("*",)))
    land(world, *((name, {"player": number, name: "x"}) for number, name in enumerate(TYPES)))
    world.ingest()
    assert split(world) < 60  # on a busy machine; of these seconds bronze stands still for ten
    land(world, ("joined", {"player": "seven", "new": {"deep": [1.5]}}), ("sold", {"player": 1, "price": 2.5}))
    world.ingest()
    split(world)
    key = game_key("Chess")
    rows = DeltaTable(world.paths.table(key)).to_pyarrow_table().sort_by([("_seq", "ascending")]).to_pylist()
    assert sorted(row["_type"] for row in rows) == sorted([*TYPES, "joined", "sold"])
    first = next(row for row in rows if row["_type"] == "joined")
    assert (first["player"], first["sold"]) == (0, None)
    assert len(read_variations(world.engine, key)) == 7
    wanted = Wanted(LocalRegistry(world.engine, world.paths.bronze).snapshot())
    balance = verify(world.paths, world.settings.environment, generations(world.engine), wanted=wanted)
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, 7)


def land_flat(world: Any, *documents: dict[str, Any]) -> None:
    values = [json.dumps({"game": "Chess", **each}).encode() for each in documents]
    landed = pa.table({"key": [b"k"] * len(values), "value": values}, schema=LANDING)
    write_deltalake(str(world.paths.landing), landed, mode="append")


def rows(world: Any) -> list[dict[str, Any]]:
    """Return the values that are not null, in order, without our own columns but the type and the id."""
    table = DeltaTable(world.paths.table(CHESS)).to_pyarrow_table()
    listed = table.sort_by([("_seq", "ascending"), ("_pos", "ascending")]).to_pylist()
    own = {"_seq", "_pos", "_source_time", "game"}
    return [{name: value for name, value in row.items() if value is not None and name not in own} for row in listed]


@pytest.mark.long
def test_a_game_that_nobody_declared_lands_typed_and_changes(world: Any) -> None:
    """Laws L5, L13, L14: an unregistered game waits for its shapes, lands typed, and changes a type without a restart.

    A rebuild gives the same rows, and a further event type lands whole once it is accepted.
    """
    flat = {"game": "game", "type": "type"}
    source = replace(world.settings.source, envelope="json", framing="type", envelope_fields=flat)
    world.settings = replace(world.settings, source=source)
    give_rules(world.engine, rule("Chess"))
    land_flat(
        world,
        {"type": "move", "x": 1, "by": {"name": "Ann"}},
        {"type": "move", "x": 2.5},
        {"type": "level-up", "to": 3},
    )
    world.ingest()
    split(world)
    assert rows(world) == [
        {"type": "move", "_type": "move", "_schema_id": 1, "x": 1.0, "by": {"name": "Ann"}},
        {"type": "move", "_type": "move", "_schema_id": 1, "x": 2.5},
    ]
    land_flat(world, {"type": "move", "x": "a"}, {"type": "move", "tags": ["b", "c"], "x": None})
    world.ingest()
    split(world)
    changed = rows(world)[2:]
    assert [{name: value for name, value in row.items() if name not in {"_schema_id", "by"}} for row in changed] == [
        {"type": "move", "_type": "move", "x__v2": "a"},
        {"type": "move", "_type": "move", "tags": ["b", "c"]},
    ]
    registry = LocalRegistry(world.engine, world.paths.bronze)
    registry.register_many(accepting(registry.snapshot(), CHESS, "Chess", ["level-up"], "ann"))
    paths, environment = world.paths, world.settings.environment
    (done,) = replay_all(paths, environment, registry.snapshot, {CHESS: "Chess"}, Selection(), dry_run=False)
    assert (done.error, done.done.landed) == (None, 1)
    landed = rows(world)
    assert [row["level_up"]["to"] for row in landed if "level_up" in row] == [3]
    rebuild(paths, environment, world.engine, registry.snapshot, Game(CHESS, "Chess"))
    assert rows(world) == landed
    wanted = Wanted(registry.snapshot)
    balance = verify(paths, environment, generations(world.engine), wanted=wanted)
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, 5)
