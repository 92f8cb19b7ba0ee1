"""A game with several event types: one table, a struct column for each further type, and rows that wait until then."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.schemas import Schema
from pipeline.data.maintenance.rewrite import columns_of, packed
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.data.verify.balance import verify
from pipeline.data.verify.values import Wanted
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.rewrite import table_files
from pipeline.store.games import generations
from pipeline.store.onboarding_rules import ALL_TYPES
from tests.onboarding_world import give_rules, rule
from tests.tables.repair_world import CHESS, Event, World, good, make_world
from tests.tables.replay_laws import run
from tests.tables.types_world import LEFT, SALE, SOLD, SOLD_LATER, accept, come, event, withdraw


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def payloads(world: World) -> list[dict[str, object]]:
    own = {"_seq", "_pos", "_schema_id", "_event_time", "_event_id", "_source_time"}
    return [
        {name: value for name, value in row.items() if name not in own and value is not None}
        for row in world.contents()
    ]


def require_right(world: World, *, refused: int = 0) -> None:
    """All rows are in the table or in quarantine once, with the values that bronze has."""
    wanted, waiting = Wanted(world.registry.snapshot()), world.refused() if world.paths.quarantine.is_folder() else []
    balance = verify(world.paths, world.environment, generations(world.engine), wanted=wanted)
    assert balance.problems == ()
    assert balance.values is not None
    assert (balance.values.mismatches, len(waiting)) == (0, refused)


def test_a_pass_reports_rows_by_event_type(world: World) -> None:
    """A report tells what landed and what was refused of each type; rows without a known schema are of none."""
    (sold,) = come(world, SOLD)
    world.ingest(
        good(1), event(sold, item="sword"), event(sold, price=2), Event(CHESS, 77, b""), Event(CHESS, 1, b"\xff")
    )

    def reported() -> dict[str, list[int]]:
        rows = open_table(world.paths.bronze).to_pyarrow_table(columns=list(READ)).combine_chunks()
        job = SplitJob({CHESS.key: 0}, world.registry.snapshot(), world.paths.tables)
        (done,) = split(iter(rows.to_batches()), job)
        return json.loads(done.column("report")[0].as_py())["games"][CHESS.key]["types"]  # type: ignore[no-any-return]

    assert reported() == {"t.M": [1, 1], "acme.Sold": [0, 2]}
    accept(world, "Sold")
    assert reported() == {"t.M": [1, 1], "acme.Sold": [2, 0]}


def test_a_rule_accepts_types_as_they_come(world: World) -> None:
    """A type of the game's rule has its column with its first schema and waits for nobody; another one waits."""
    give_rules(world.engine, rule(CHESS.name, event_types=("Sold",)))
    sold, left = come(world, SOLD, LEFT)
    world.ingest(good(1), event(sold, item="sword", price=5), event(left))
    world.split()
    require_right(world, refused=1)
    assert payloads(world)[1] == {"_type": "acme.Sold", "sold": {"item": "sword", "price": 5}}
    states = [(each.name, each.state) for each in game_types(world.registry.snapshot(), CHESS.key)]
    assert states == [("t.M", "first"), ("acme.Sold", "accepted"), ("acme.Left", "waits")]


def test_a_rule_never_accepts_what_a_person_withdrew(world: World) -> None:
    """A new version of a withdrawn type waits with the others, whatever the rule says."""
    give_rules(world.engine, rule(CHESS.name, event_types=(ALL_TYPES,)))
    come(world, SOLD)
    withdraw(world, "Sold")
    come(world, SOLD_LATER)
    assert [each.state for each in game_types(world.registry.snapshot(), CHESS.key)] == ["first", "withdrawn"]


@pytest.mark.proves("G240")
def test_an_accepted_type_lands_whole_in_a_column_of_its_own(world: World) -> None:
    """Rows of another type wait, land by a replay, and share no column with the first type; a rebuild says the same."""
    (sold,) = come(world, SOLD)
    world.ingest(good(1), event(sold, item="sword", price=5))
    world.split()
    require_right(world, refused=1)
    accept(world, "Sold")
    assert {each.landed for each in run(world).values()} == {1}
    world.ingest(event(sold, item="bow"), good(2), good(3))
    world.split()
    first = [{"_type": "t.M", "points": number} for number in (1, 2, 3)]
    sales = [
        {"_type": "acme.Sold", "sold": {"item": item, "price": price}} for item, price in (("sword", 5), ("bow", 0))
    ]
    assert payloads(world) == [first[0], sales[0], sales[1], *first[1:]]
    require_right(world)
    before = world.contents()
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert world.contents() == before
    require_right(world)


def test_a_file_has_the_columns_of_its_types_only(world: World) -> None:
    """300 types cost a file nothing that has rows of one of them."""
    (sold,) = come(world, SOLD)
    accept(world, "acme.Sold")
    for events in ([good(1)], [event(sold, item="bow")], [good(2), event(sold, item="axe")]):
        world.ingest(*events)
        world.split()
    folder = Path(str(world.paths.table(CHESS.key)))
    files = [pq.read_schema(each).names[6:] for each in folder.glob("*.parquet")]
    assert sorted(files) == [["_type", "points"], ["_type", "points", "sold"], ["_type", "sold"]]


def test_merged_files_have_the_columns_of_their_types_only(world: World) -> None:
    """A compaction writes no column of a type without rows in its files; the table has it all the same."""
    (sold,) = come(world, SOLD)
    accept(world, "acme.Sold")
    world.ingest(event(sold, item="bow"))
    world.split()
    path = world.paths.table(CHESS.key)
    before = table_files(open_table(path))
    for number in (1, 2):
        world.ingest(good(number))
        world.split()
    table = open_table(path)
    added = [each for each in table_files(table) if each.path not in {one.path for one in before}]
    (merged,) = packed(path, columns_of(table), added, ["_seq", "_pos"], [])
    assert "sold" in columns_of(table).names
    assert pq.read_schema(Path(str(path), merged.path)).names[6:] == ["_type", "points"]


def test_a_type_evolves_by_itself(world: World) -> None:
    """A later version of a further type adds to its struct, and needs nobody; the first type's columns stay."""
    (sold,) = come(world, SOLD)
    accept(world, "Sold")
    (later,) = come(world, SOLD_LATER)
    world.ingest(good(1), event(sold, item="bow"), event(later, item="axe", gift=True))
    world.split()
    assert [row.get("sold") for row in payloads(world)] == [
        None, {"item": "bow", "price": 0, "gift": None}, {"item": "axe", "price": 0, "gift": True},
    ]  # fmt: skip
    require_right(world)


@pytest.mark.proves("G240")
def test_a_withdrawn_type_waits_again_and_keeps_what_landed(world: World) -> None:
    """Acceptance can be undone: nothing that landed is lost, and accepted again the type has its old column."""
    sold, left = come(world, SOLD, LEFT)
    accept(world, "Sold", "Left")
    world.ingest(event(sold, item="bow"), event(left))
    world.split()
    withdraw(world, "Sold")
    world.ingest(event(sold, item="axe"), good(1), event(left))
    world.split()
    assert [row["_type"] for row in payloads(world)] == ["acme.Sold", "acme.Left", "t.M", "acme.Left"]
    require_right(world, refused=1)
    accept(world, "Sold")
    assert {each.landed for each in run(world).values()} == {1}
    assert [row["sold"]["item"] for row in payloads(world) if "sold" in row] == ["bow", "axe"]  # type: ignore[index]
    require_right(world)


def test_a_withdrawn_type_is_accepted_again_with_what_came_meanwhile(world: World) -> None:
    """A version that came after the withdrawal is of the same type, which one name accepts as a whole."""
    (sold,) = come(world, SOLD)
    accept(world, "Sold")
    withdraw(world, "Sold")
    (later,) = come(world, SOLD_LATER)
    world.ingest(event(sold, item="bow"), event(later, item="axe", gift=True))
    world.split()
    require_right(world, refused=2)
    assert [each.state for each in game_types(world.registry.snapshot(), CHESS.key)] == ["first", "withdrawn"]
    accept(world, "Sold")
    assert {each.landed for each in run(world).values()} == {2}
    require_right(world)


def test_a_renamed_type_is_accepted_again_under_both_names(world: World) -> None:
    """The inverse of a withdrawal accepts what was withdrawn, whatever it was called."""
    come(world, SOLD)
    accept(world, "Sold")
    renamed = Registration(CHESS.name, SALE.message, SALE.definition, actor="ann", continues="acme.Sold")
    world.registry.register_many([renamed])
    before = game_types(world.registry.snapshot(), CHESS.key)
    withdraw(world, "Sold")
    accept(world, "Sold")
    after = game_types(world.registry.snapshot(), CHESS.key)
    marked = [  # that rows landed by its schemas before a withdrawal stays known
        replace(each, schemas=tuple((schema, replace(at, landed=at.struct is not None)) for schema, at in each.schemas))
        for each in before
    ]
    assert after == marked


def test_only_what_waits_can_be_accepted(world: World) -> None:
    """A plan names what there is to decide about."""
    come(world, SOLD)
    with pytest.raises(Refused, match=r"'Bought'.*acme\.Sold"):
        accept(world, "Bought")
    with pytest.raises(Refused, match="no type"):
        withdraw(world, "Sold")


def _sale(schema: Schema, number: int, **more: bool) -> Event:
    return event(schema, price=number, **more)


KINDS = st.lists(st.sampled_from(["M", "Sold", "later", "Left"]), min_size=1, max_size=8)


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(kinds=KINDS, cuts=st.sets(st.integers(1, 7)))
def test_a_batch_lands_as_its_rows_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], cuts: set[int]
) -> None:
    """However rows of several types are cut into batches, the table has the same values of each (L5)."""

    def contents(starts: list[int]) -> list[dict[str, object]]:
        world = make_world(tmp_path_factory.mktemp("cut"))
        sold, left = come(world, SOLD, LEFT)
        accept(world, "Sold", "Left")
        (later,) = come(world, SOLD_LATER)
        made: dict[str, Callable[[int], Event]] = {
            "M": good,
            "Sold": partial(_sale, sold),
            "later": partial(_sale, later, gift=True),
            "Left": lambda _: event(left),
        }
        events = [made[kind](number) for number, kind in enumerate(kinds)]
        for start, end in pairwise([*starts, len(events)]):
            world.ingest(*events[start:end])
            world.split()
        return payloads(world)

    starts = sorted({0, *(each for each in cuts if each < len(kinds))})
    assert contents(starts) == contents(list(range(len(kinds)))) == contents([0])
