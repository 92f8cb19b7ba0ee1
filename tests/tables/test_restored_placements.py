"""A control store that is an older copy, where a registry gives schemas: columns stay what they were."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import Refused
from pipeline.control.registering.lost_schemas import accept_loss, propose
from pipeline.data.contracts.given_ids import StoreAge
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registry import Registration
from pipeline.data.contracts.schemas import Schema
from pipeline.store import audit
from tests.tables.repair_world import CHESS
from tests.tables.restored_world import RestoredWorld, empty_world, proto, resolve, sent

ONE = proto("M { int64 points = 1; }")
TWO = proto("M { int64 points = 1; string player = 2; }")
RENAMED = proto("M { int64 points = 1; string hero = 2; }")
OTHER = proto("M { int64 points = 1; string sword = 2; }")


@pytest.fixture
def world(tmp_path: Path) -> RestoredWorld:
    return empty_world(tmp_path)


def rows(world: RestoredWorld, *columns: str) -> dict[int, tuple[Any, ...]]:
    return {row["points"]: tuple(row.get(each) for each in columns) for row in world.contents()}


def by_hand(world: RestoredWorld, schema: Schema) -> int:
    """Register a schema for chess as a person does."""
    return world.registry.register(CHESS.name, schema.message, schema.definition).schema_id


def require_clean(world: RestoredWorld) -> None:
    found = world.values()
    assert found.values is not None
    assert (found.complete, found.values.mismatches) == (True, 0)


@pytest.mark.proves("G260")
def test_a_lost_schema_does_not_follow_one_that_came_after_the_restore(world: RestoredWorld) -> None:
    """The old producer's rows never land in the column of another field, although no person decides."""
    (one,) = resolve(world, ONE)
    world.ingest(sent(ONE, one, points=1))
    world.split()
    world.back_up()
    (two,) = resolve(world, TWO)
    world.restore()
    world.streams.clear()
    (other,) = resolve(world, OTHER)
    world.ingest(sent(OTHER, other, points=3, sword="sword"))
    world.split()
    assert resolve(world, TWO) == [two]
    world.ingest(sent(TWO, two, points=2, player="ann"))
    world.split()
    assert (one, two, other) == (1, 2, 3)
    assert rows(world, "player", "sword") == {1: (None, None), 2: ("ann", None)}
    (why,) = world.details()
    assert why == (
        "needs a person: the control store has lost schema 2 ('acme.M') of the game 'Chess', so the columns of a "
        "further one are not known: restore its newest copy, or register the lost again, then this one. If nobody has "
        "them, run `turnout schemas accept-loss` for the game first"
    )
    require_clean(world)


@pytest.mark.proves("G260")
def test_lost_schemas_keep_their_columns_in_any_order(world: RestoredWorld) -> None:
    """A schema id has one placement for ever, also where the registry gives the later schema first."""
    one = by_hand(world, ONE)
    world.ingest(sent(ONE, one, points=1))
    world.split()
    world.back_up()
    two, renamed = by_hand(world, TWO), by_hand(world, RENAMED)
    world.ingest(sent(TWO, two, points=2, player="p2"), sent(RENAMED, renamed, points=3, hero="h3"))
    world.split()
    world.restore()
    world.streams.clear()
    assert resolve(world, RENAMED) == [renamed]
    world.ingest(sent(RENAMED, renamed, points=4, hero="h4"))
    world.split()
    assert resolve(world, TWO) == [two]
    world.ingest(sent(TWO, two, points=5, player="p5"))
    world.split()
    assert rows(world, "player", "hero") == {
        1: (None, None), 2: ("p2", None), 3: ("h3", None), 4: ("h4", None), 5: ("p5", None),
    }  # fmt: skip
    assert StoreAge(world.engine, world.paths.bronze).trouble() is None
    require_clean(world)


@pytest.mark.proves("G260")
def test_a_lost_schema_keeps_its_side_column(world: RestoredWorld) -> None:
    """A side column has the type that it had, so the game goes on."""
    kinds = parse_policies(["incompatible=side-column"])
    each = [proto(f"M {{ int64 points = 1; {kind} level = 2; }}") for kind in ("int32", "string", "bool")]
    (first,) = resolve(world, each[0], policies=kinds)
    world.ingest(sent(each[0], first, points=1, level=7))
    world.split()
    world.back_up()
    second, third = resolve(world, *each[1:], policies=kinds)
    world.ingest(sent(each[1], second, points=2, level="p2"), sent(each[2], third, points=3, level=True))
    world.split()
    world.restore()
    world.streams.clear()
    assert resolve(world, each[2], policies=kinds) == [third]
    world.ingest(sent(each[2], third, points=4, level=True))
    world.split()
    assert rows(world, "level", "level__v2", "level__v3")[4] == (None, None, True)
    assert resolve(world, each[1], policies=kinds) == [second]
    require_clean(world)


@pytest.mark.proves("G260")
def test_a_game_keeps_its_event_type(world: RestoredWorld) -> None:
    """Another type waits as it did before, also where it comes first after a restore."""
    world.registry.register("Other game", "acme.X", proto("X { int64 a = 1; }").definition)
    world.back_up()
    joined = proto("Joined { string player = 1; int64 points = 2; }")
    sold = proto("Sold { string player = 1; int64 points = 2; string item = 3; }")
    first, second = resolve(world, joined, sold)
    world.ingest(sent(joined, first, player="ann", points=5), sent(sold, second, player="bob", points=1))
    world.split()
    world.restore()
    world.streams.clear()
    assert resolve(world, sold) == [second]
    assert resolve(world, joined) == [first]
    world.ingest(sent(sold, second, player="eve", points=9, item="sword"), sent(joined, first, player="dan", points=6))
    world.split()
    assert rows(world, "player") == {5: ("ann",), 6: ("dan",)}
    assert resolve(world, proto("Joined { string player = 1; int64 points = 2; bool won = 3; }")) == [4]
    assert world.registry.snapshot().placement(CHESS.key, 4).quarantined is None
    require_clean(world)


@pytest.mark.proves("G260")
def test_a_person_is_named_what_the_store_has_lost(world: RestoredWorld) -> None:
    """A person registers the lost schemas first, in the columns that they had, then a new one on top of them."""
    by_hand(world, ONE)
    world.back_up()
    by_hand(world, TWO)
    by_hand(world, RENAMED)
    world.restore()
    new = Registration(CHESS.name, OTHER.message, OTHER.definition)
    with pytest.raises(Refused, match=r"Nothing was registered: .* lost schema 2 \('acme.M'\), 3 \('acme.M'\) of"):
        world.registry.plan(new)
    with pytest.raises(Refused, match="lost schema 2"):
        world.registry.register_many([new])
    again = Registration(CHESS.name, RENAMED.message, RENAMED.definition)
    plan = world.registry.plan(again)
    assert plan.placement.names == (("hero", "player"),)
    assert any("keeps its columns" in each for each in plan.remarks)
    world.registry.register_many([again])
    with pytest.raises(Refused, match=r"lost schema 2 \('acme.M'\) of"):
        world.registry.register_many([new])
    world.registry.register(CHESS.name, TWO.message, TWO.definition)
    world.registry.plan(new)


@pytest.mark.proves("G260")
def test_a_person_accepts_that_schemas_are_lost_for_good(world: RestoredWorld) -> None:
    """Without their definitions the game's further schemas need a person's word, once; a lost one keeps its columns."""
    by_hand(world, ONE)
    world.back_up()
    by_hand(world, TWO)
    world.restore()
    with pytest.raises(Refused, match="accept-loss"):
        by_hand(world, OTHER)
    place = world.paths.bronze
    proposal = propose(world.engine, place, CHESS.name)
    with pytest.raises(Refused, match="reason"):
        accept_loss(world.settings, world.engine, place, proposal, "ann", "")
    accept_loss(world.settings, world.engine, place, proposal, "ann", "the producer's team is gone")
    with pytest.raises(Refused, match="has lost no schema"):
        propose(world.engine, place, CHESS.name)
    assert by_hand(world, OTHER) == 3
    assert resolve(world, TWO) == [2]
    assert world.registry.snapshot().placement(CHESS.key, 2).quarantined is None
    (act,) = [each for each in audit.entries(world.engine) if each.action == "accept lost schemas"][-1:]
    assert act.detail["schemas"] == [2]
