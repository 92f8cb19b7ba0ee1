"""Event types: which schemas are versions of each other, and what becomes of those that are not."""

import json
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.plans import render_plan
from pipeline.data.contracts.policies import DEFAULTS, parse_policies
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import FieldPlacement
from tests.unit.data.contracts.history_world import grown, reported
from tests.unit.data.contracts.registering_world import KEY, from_a_registry, proto, record, registration

JOINED = "message Joined { string player = 1; int64 session_seconds = 2; }"
SOLD = "message Sold { string item = 1; int64 price = 2; }"


@pytest.fixture
def registry(engine: Engine) -> LocalRegistry:
    return LocalRegistry(engine)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Joined", "Joined"),
        ("acme.Joined", "acme.Joined"),
        ("acme.v1.Joined", "acme.Joined"),
        ("acme.v2.Joined", "acme.Joined"),
        ("acme.v2beta1.Joined", "acme.Joined"),
        ("acme.v1alpha.Joined", "acme.Joined"),
        ("acme.v1p1beta1.Joined", "acme.Joined"),
        ("acme.v1test.Joined", "acme.Joined"),
        ("v3.acme.v10.events.Joined", "acme.events.Joined"),
        ("acme.v1.Joined.Inner", "acme.Joined.Inner"),
        ("acme.v1", "acme.v1"),
        ("acme.v1.v2", "acme.v2"),
        ("acme.V1.Joined", "acme.V1.Joined"),
        ("acme.v0.Joined", "acme.v0.Joined"),
        ("acme.value.v.v1x.Joined", "acme.value.v.v1x.Joined"),
    ],
)
def test_a_type_is_the_full_name_without_versions_of_its_package(name: str, expected: str) -> None:
    """Segments that buf takes for a version count for nothing; the message's own name is never one."""
    assert event_type(name) == expected


def test_versions_with_different_full_names_meet_by_name_never_by_number() -> None:
    """A new package is where protobuf's numbers begin again: number 1 of v2 is no rename of number 1 of v1."""
    held = grown(proto(JOINED, "acme.v1"))
    new = proto("message Joined { string team = 1; int64 session_seconds = 9; string player = 2; }", "acme.v2")
    steps, placement = evolve(held, new, DEFAULTS)
    assert placement == FieldPlacement()
    assert reported(steps) == [
        ("team", "add: add", "team"),
        ("player", "format: keep", "player"),
        ("session_seconds", "format: keep", "session_seconds"),
    ]
    assert str(steps[1]) == "player: continues the column of acme.v1.Joined in acme.v2.Joined"


def test_a_field_that_the_next_package_lacks_is_removed_and_its_number_free() -> None:
    """Reserved numbers and enum values, too, mean something within one full name only."""
    enum = "enum Kind {{ ZERO = 0; {} }}"
    held = grown(proto(f"message M {{ Kind kind = 1; int32 gone = 2; {enum.format('RED = 1; BLUE = 2;')} }}", "a.v1"))
    new = f"message M {{ reserved 1; string mana = 2; Kind kind = 3; {enum.format('BLUE = 1; RED = 2;')} }}"
    steps, placement = evolve(held, proto(new, "a.v2"), DEFAULTS)
    assert placement == FieldPlacement()
    assert [str(step) for step in steps] == [
        "mana: is new",
        "kind: continues the column of a.v1.M in a.v2.M",
        "gone: is a field of a.v1.M, not of a.v2.M",
    ]


def test_an_inner_message_may_change_its_name() -> None:
    """Within one full name fields go by number, also those of inner messages whose type is named otherwise now."""
    one, two = ("message M {{ {0} pos = 1; message {0} {{ int32 {1} = 1; }} }}".format(*each) for each in ("Px", "Qy"))
    assert reported(evolve(grown(proto(one)), proto(two), DEFAULTS)[0]) == [("pos.y", "rename: keep", "pos.x")]


def test_a_person_cannot_register_another_type(registry: LocalRegistry) -> None:
    """Two message types of one game share no columns: the refusal names both and the way out, in one sentence."""
    registry.register_many([registration(proto(JOINED))])
    for act in (registry.plan, lambda each: registry.register_many([each])):
        with pytest.raises(
            Refused, match=r"'acme.Sold' is another event type than acme.Joined.*--continues acme\.Joined"
        ):
            act(registration(proto(SOLD)))
    assert len(registry.snapshot().games[KEY]) == 1


@pytest.mark.proves("G240")
def test_another_type_from_a_registry_waits_and_takes_no_columns(engine: Engine, registry: LocalRegistry) -> None:
    """`player` is never an item: rows of another type wait, whichever subject or registry their schema comes from."""
    joined, sold = from_a_registry(engine, proto(JOINED), proto(SOLD))
    assert (joined, sold.other_type, sold.reason, sold.names) == (FieldPlacement(), True, "other_type", ())
    assert "acme.Sold is another event type than acme.Joined" in str(sold.quarantined)
    (other,) = from_a_registry(engine, record("acme.Sold", item="string"))
    assert other.other_type
    (later,) = from_a_registry(engine, record("acme.v7.Joined", player="string"))
    assert later == FieldPlacement()
    assert from_a_registry(engine, proto(SOLD)) == [sold]  # asked for again, it is the same


def test_a_rename_that_a_person_confirms_lets_the_waiting_versions_in(engine: Engine, registry: LocalRegistry) -> None:
    """The plan shows the rename and what comes with it; its hash is another one than without, and it is kept."""
    longer = proto("message Sold { string item = 1; int64 price = 2; string player = 3; }")
    from_a_registry(engine, proto(JOINED), proto(SOLD), longer)
    given = registration(longer, continues="acme.v1.Joined", actor="ann")
    plan = registry.plan(given)
    assert list(render_plan(plan))[1:3] == [
        "! acme.Sold: continues acme.Joined under a new name; its version(s) 2, which waited as another type, with it",
        "      type: continue",
    ]
    registry.register_many([replace(given, plan_hash=plan.hash)])
    held = registry.snapshot()
    assert [held.placement(KEY, each).quarantined for each in held.games[KEY]] == [None, None, None]
    assert [held.placement(KEY, each).continues for each in held.games[KEY]] == [None, None, "acme.Joined"]
    (next_one,) = from_a_registry(engine, proto("message Sold { string item = 1; }"))
    assert next_one.quarantined is None
    assert not registry.register_many([given])[0].new
    again = registration(proto("message Left { string player = 1; }"), continues="acme.Kicked")
    with pytest.raises(Refused, match=r"has the event type acme.Sold, so nothing continues 'acme.Kicked'"):
        registry.plan(again)


def test_a_waiting_version_that_the_table_cannot_take_waits_for_its_policy(
    engine: Engine, registry: LocalRegistry
) -> None:
    """A confirmed rename does not choose a policy for other versions: such a one waits as a quarantined schema."""
    from_a_registry(engine, proto(JOINED), proto("message Sold { string session_seconds = 5; }"))
    registry.register_many([registration(proto(SOLD), continues="acme.Joined", actor="ann")])
    held = registry.snapshot()
    assert [held.placement(KEY, each).reason for each in held.games[KEY]][1] == "quarantined_schema"
    assert "needs a person" in str(held.placement(KEY, held.games[KEY][1]).quarantined)


def test_an_alias_of_the_record_is_a_rename(engine: Engine) -> None:
    """A record that names the old one as its alias continues it, from a registry too."""
    new = record("acme.v2.Entered", "acme.Joined", player="string")
    held = from_a_registry(engine, record("acme.Joined", player="string"), new)
    assert held == [FieldPlacement(), FieldPlacement(continues="acme.Joined")]
    assert from_a_registry(engine, record("acme.Entered", player="string", team="string")) == [FieldPlacement()]


def test_the_first_schema_decides_also_where_it_waits(engine: Engine, registry: LocalRegistry) -> None:
    """A first schema that a person must decide about keeps its type, also once it is registered again."""
    first = proto("message Joined { string _player = 1; }")
    (waits,) = from_a_registry(engine, first)
    assert (waits.quarantined is not None, waits.other_type) == (True, False)
    from_a_registry(engine, proto(SOLD))
    again = replace(registration(first), policies=parse_policies(["name=side-column"]))
    registry.register_many([again])
    with pytest.raises(Refused, match=r"'acme.Sold' is another event type than acme.Joined"):
        registry.plan(registration(proto(SOLD)))
    assert registry.plan(registration(proto(JOINED))).new


def test_an_alias_counts_in_either_order(engine: Engine) -> None:
    """The record of the new name may come first: rows of the old name are of the same type then, too."""
    held = from_a_registry(
        engine, record("acme.v2.Entered", "acme.Joined", player="string"), record("acme.Joined", player="string")
    )
    assert held == [FieldPlacement(), FieldPlacement()]


def test_an_alias_lets_in_what_waited_under_it(engine: Engine, registry: LocalRegistry) -> None:
    """A later schema of the game's type may say which names it had: their waiting versions land from then on."""
    waits = [record("acme.Joined", player="string", age="int"), record("acme.Came", "acme.Joined", player="string")]
    held = from_a_registry(engine, record("acme.Entered", player="string"), *waits, proto(SOLD))
    assert [each.other_type for each in held] == [False, True, True, True]
    from_a_registry(engine, record("acme.Entered", "acme.Came", player="string", team="string"))
    now = registry.snapshot()
    assert {now.schemas[each].message: now.placement(KEY, each).other_type for each in now.games[KEY]} == {
        "acme.Sold": True, "acme.Joined": False, "acme.Came": False, "acme.Entered": False,
    }  # fmt: skip
    assert from_a_registry(engine, *waits) == [FieldPlacement(), FieldPlacement()]


@pytest.mark.proves("G75")
def test_what_comes_with_a_rename_is_in_its_plan(engine: Engine, registry: LocalRegistry) -> None:
    """The confirmed plan says what becomes of each version that waited, and they are planned in their order."""
    text = "message Sold {{ string player = 1; string {} = 2; {} price = 3; }}"
    versions = [proto(text.format(*each)) for each in (("buyer", "uint32"), ("vendor", "uint64"), ("seller", "int32"))]
    from_a_registry(engine, proto("message Joined { string player = 1; }"), *versions)
    given = registration(
        versions[1], continues="acme.Joined", actor="ann", policies=parse_policies(["incompatible=side-column"])
    )
    plan = registry.plan(given)
    assert [(each.version, each.placement.names) for each in plan.with_it] == [
        (5, ()), (7, (("seller", "buyer"),))
    ]  # fmt: skip
    assert (plan.version, plan.placement.names) == (6, (("price", "price__v2"), ("vendor", "buyer")))
    lines = list(render_plan(plan))
    assert " with it 'acme.Sold', which waited as another type, as version 5" in lines
    assert "  price: is new" in lines
    other = registry.plan(replace(given, policies=parse_policies(["rename=add", "incompatible=side-column"])))
    assert (plan.hash, plan.with_it) != (other.hash, other.with_it)
    registry.register_many([replace(given, plan_hash=plan.hash)])
    held = registry.snapshot()
    each = sorted([plan, *plan.with_it], key=lambda one: one.version)
    assert [held.placement(KEY, one) for one in (2, 3, 4)] == [one.placement for one in each]
    assert [held.schemas[one].message for one in held.games[KEY]] == ["acme.Joined", *["acme.Sold"] * 3]


def test_a_version_that_waits_on_is_shown_and_is_breaking(engine: Engine, registry: LocalRegistry) -> None:
    """A plan says beforehand that rows of a version go to quarantine although its type is the game's now."""
    from_a_registry(engine, proto(JOINED), proto("message Sold { string session_seconds = 5; }"))
    plan = registry.plan(registration(proto(SOLD), continues="acme.Joined", actor="ann"))
    (waits,) = plan.with_it
    assert "needs a person" in str(waits.placement.quarantined)
    assert set(waits.steps) & set(plan.breaking)
    assert "  all rows of this schema go to quarantine; the table stays unchanged" in list(render_plan(plan))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("message M { uint32 n = 1; }", "message M { uint64 n = 1; }"),
        ("message M { N n = 1; message N {} }", "message M { N n = 1; message N { int32 x = 1; } }"),
        ("message M { int32 n = 1; }", "message M { int64 n = 1; }"),
        ("message M { int32 n = 1; }", "message M { string n = 1; }"),
    ],
)
def test_a_next_package_widens_as_a_next_version_does(one: str, two: str) -> None:
    """What follows without a person within one full name does so from acme.v1 to acme.v2, too."""
    each = [evolve(grown(proto(one, "acme.v1")), proto(two, package), DEFAULTS) for package in ("acme.v1", "acme.v2")]
    assert each[0][1] == each[1][1]
    kinds = [
        [(step.kind, step.policy, step.column) for step in steps if step.kind not in {"format", "remove"}]
        for steps, _ in each
    ]
    assert kinds[0] == kinds[1]


def test_a_known_name_meets_no_column_by_its_alias() -> None:
    """A retyped field that the format knows never lands in another field's column that only its alias names."""
    other = proto("message M { string c = 2; int64 x = 5; }")
    avro = [record("acme.M", c="string"), record("acme.M", c="long")]
    given = json.loads(avro[1].definition)
    given["fields"][0]["aliases"] = ["x"]
    avro[1] = replace(avro[1], definition=format_of("avro").canonical("acme.M", json.dumps(given).encode()))
    held = grown(avro[0], other)
    assert reported(evolve(held, avro[1], parse_policies(["incompatible=side-column"]))[0]) == [
        ("c", "incompatible: side-column", "c__v2")
    ]
