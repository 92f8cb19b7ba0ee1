"""A field's number is its own while no version between lacks the field, in whatever order versions are registered."""

from collections.abc import Mapping
from itertools import permutations

import pytest
from sqlalchemy import Engine

from pipeline.data.contracts.ages import UNKNOWN, Ages
from pipeline.data.contracts.catalogue.differences import table_steps
from pipeline.data.contracts.catalogue.versions import read_versions
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.game_types import joined_types
from pipeline.data.contracts.layout import Registered, layout
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registries.answers import Found, Version
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema
from tests.unit.data.contracts.history_world import choose, grown
from tests.unit.data.contracts.registering_world import KEY, from_a_registry, proto, record, registration
from tests.unit.data.contracts.registries.resolution_world import EIGHT, SEVEN, World

VERSIONS: Mapping[int, Schema] = {
    1: proto("message M { int64 hp = 1; }"),
    2: proto("message M { int64 hp = 1; int64 mana = 2; }"),
    3: proto("message M { int64 hp = 1; }"),
    4: proto("message M { int64 hp = 1; int64 gold = 2; }"),
}
REUSED = "needs a person: gold: its number 2 belonged to the name mana (int64)"
RENAMED = FieldPlacement((("gold", "mana"),))
SIDE = choose("reuse=side-column")


@pytest.mark.proves("G271")
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("order", [(2, 3, 4), (3, 2, 4)])
def test_a_number_that_was_free_is_another_fields_in_any_order(
    engine: Engine, order: tuple[int, ...], known: bool
) -> None:
    """A value never lands in a removed field's column, also where the first row of an old version comes late (L5)."""
    *_, gold = from_a_registry(engine, *(VERSIONS[each] for each in order), versions=order if known else ())
    assert gold.quarantined == REUSED
    registry = LocalRegistry(engine)
    registry.register_many([registration(VERSIONS[4], policies=parse_policies(["reuse=side-column"]), actor="ann")])
    assert registry.snapshot().placement(KEY, 3) == PLAIN


def test_an_old_version_that_a_person_lets_in_is_as_old_as_before(engine: Engine) -> None:
    """A version that waited keeps its age when a person registers it again after newer ones."""
    old = proto("message M { int64 hp = 1; int64 mana = 2; string _x = 9; }")
    from_a_registry(engine, VERSIONS[2], old, VERSIONS[3])
    let_in = registration(old, policies=parse_policies(["name=side-column"]), actor="ann")
    LocalRegistry(engine).register_many([let_in])
    assert from_a_registry(engine, VERSIONS[4])[0].quarantined == REUSED


@pytest.mark.parametrize(
    ("order", "versions", "expected"),
    [
        ((1, 2, 4), (1, 2, 4), RENAMED),
        ((2, 1, 4), (2, 1, 4), RENAMED),
        ((1, 4, 2), (1, 4, 2), FieldPlacement((("mana", "gold"),))),
        ((1, 2, 4), (), FieldPlacement(quarantined=REUSED)),
        ((2, 4), (), RENAMED),
    ],
)
def test_a_rename_is_found_where_the_ages_are_known(
    engine: Engine, order: tuple[int, ...], versions: tuple[int, ...], expected: FieldPlacement
) -> None:
    """A late old version without the field removes nothing; of ages that nobody knows a person decides."""
    assert from_a_registry(engine, *(VERSIONS[each] for each in order), versions=versions)[-1] == expected


def test_people_register_in_the_order_of_age(engine: Engine) -> None:
    """A person's new version is the newest, also of versions that a registry gave before it."""
    registry = LocalRegistry(engine)
    from_a_registry(engine, VERSIONS[1], VERSIONS[2], versions=(1, 2))
    assert registry.plan(registration(VERSIONS[4])).placement == RENAMED
    registry.register_many([registration(VERSIONS[4])])
    assert registry.plan(registration(proto("message M { int64 hp = 1; int64 magic = 2; }"))).placement == (
        FieldPlacement((("magic", "mana"),))
    )


def test_a_version_whose_rows_wait_removes_a_field_too() -> None:
    """A field is removed by any version without it, also by one that the table cannot take."""
    without = proto("message M { string hp = 1; }")
    held: Registered = (*grown(VERSIONS[2]), (without, FieldPlacement(quarantined="needs a person")))
    assert evolve(held, VERSIONS[4], SIDE)[1] == PLAIN
    other = proto("message M { string hp = 1; int64 mana = 2; }")
    held = (*grown(VERSIONS[2]), (other, FieldPlacement(quarantined="needs a person")))
    assert evolve(held, VERSIONS[4], SIDE)[1] == RENAMED
    assert layout(held).columns() == layout(held[:1]).columns()


def test_a_member_is_removed_with_its_struct() -> None:
    """A version without the struct has none of its members."""
    text = "message M {{ int64 hp = 1; S s = 2; message S {{ int64 {} = 1; }} }}"
    held = grown(proto(text.format("mana")), VERSIONS[1])
    assert evolve(held, proto(text.format("gold")), SIDE)[1] == PLAIN
    assert evolve(held[:1], proto(text.format("gold")), SIDE)[1] == FieldPlacement((("s.gold", "mana"),))


def test_a_field_that_got_another_number_left_its_old_one() -> None:
    """The field's present number is that of the newest version by age, not by registration."""
    moved = proto("message M { int64 hp = 1; int64 mana = 5; }")
    held = grown(moved, VERSIONS[2], policies=SIDE)
    ages = Ages((frozenset({("v", 3)}), frozenset({("v", 2)})), frozenset({("v", 4)}))
    assert evolve(held, VERSIONS[4], SIDE, ages)[1] == PLAIN


def test_what_landed_stays_where_it_is_once_ages_are_known() -> None:
    """A layout asks no ages: a field that got a column of its own never joins another one, whatever is known later."""
    wide = proto("message M { int64 hp = 1; uint64 mana = 2; }")
    held = grown(VERSIONS[1], wide)
    gold = proto("message M { int64 hp = 1; uint64 gold = 2; }")
    nobody = Ages((UNKNOWN, UNKNOWN))
    assert evolve(held, gold, SIDE, nobody)[1] == PLAIN
    assert evolve(held, gold, SIDE)[1] == FieldPlacement((("gold", "mana"),))
    held = (*held, (gold, PLAIN))
    for ages in (None, Ages((UNKNOWN,) * 3)):
        assert evolve(held, gold, SIDE, ages) == ((), PLAIN)
        narrower = proto("message M { int64 hp = 1; uint32 gold = 2; }")
        assert evolve(held, narrower, choose("incompatible=side-column"), ages)[1] == (
            FieldPlacement((("gold", "gold__v2"),))
        )
        assert evolve(held, wide, SIDE, ages)[1] == PLAIN


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (proto("message M { uint32 n = 1; }"), proto("message M { uint64 n = 1; }")),
        (proto("message M { uint32 n = 1; }", "acme.v1"), proto("message M { uint64 n = 1; }", "acme.v2")),
        (record("acme.Joined", n="int"), record("acme.Entered", "acme.Joined", n="int", m="string")),
        (record("acme.Joined", n="int"), record("acme.v2.Entered", "acme.v1.Joined", n="int")),
    ],
)
def test_versions_that_are_found_together_go_by_age(engine: Engine, one: Schema, two: Schema) -> None:
    """The older of two versions comes first, also under another package or name of the same type."""
    answers = {
        writer: Found(each.format, each.definition, {b"": each.message}, Version("chess-value", number))
        for number, (writer, each) in enumerate([(SEVEN, one), (EIGHT, two)], start=1)
    }
    world = World(engine, {**answers})
    resolution = world.resolution()
    resolution.note([Need(KEY, "chess", "main", EIGHT, 1, 0), Need(KEY, "chess", "main", SEVEN, 1, 1)])
    world.after(resolution, 0)
    schemas = world.schemas
    assert [schemas.schemas[each].definition for each in schemas.games[KEY]] == [one.definition, two.definition]


def test_types_are_joined_by_aliases_in_any_order() -> None:
    """Two types are one where any schema says so; the rows' order still counts between types."""
    a, b, c, d = (record(f"acme.{name}", *aliases, n="int") for name, aliases in (
        ("A", ()), ("B", ("acme.A",)), ("C", ("acme.B",)), ("D", ()),
    ))  # fmt: skip
    for order in permutations([a, b, c, d]):
        joined = joined_types(order)
        assert len({joined[f"acme.{each}"] for each in "ABC"}) == 1
        assert joined["acme.D"] == "acme.D"


def test_a_version_is_shown_as_it_was_planned(engine: Engine) -> None:
    """The plan of a version follows its placement, even where its age is known later, or no longer."""
    from_a_registry(engine, VERSIONS[1], VERSIONS[2], versions=(1, 2))
    from_a_registry(engine, VERSIONS[4], policies=SIDE)
    from_a_registry(engine, proto("message M { int64 hp = 1; int64 magic = 2; }"), versions=(3,))
    found, schemas = read_versions(engine)[KEY], LocalRegistry(engine).snapshot().schemas
    told = [table_steps(found, found.version(number), schemas) for number in (2, 3, 4)]
    assert [(step.path, step.kind, step.column) for steps in told for step in steps if step.kind != "remove"] == [
        ("mana", "add", "mana"), ("gold", "reuse", "gold"), ("magic", "reuse", None)
    ]  # fmt: skip
