"""Numbers and names that are used again: each row names its writer's schema, so columns keep the fields apart."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.data.contracts.ages import UNKNOWN, Ages
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.supported import decoder
from pipeline.data.contracts.layout import Registered
from pipeline.data.contracts.placing import pad, placed
from pipeline.data.contracts.plans import Step
from pipeline.data.contracts.policies import CHOICES, DEFAULTS, Policies
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema
from pipeline.data.contracts.shape import table_schema
from tests.unit.data.contracts.formats.avro.definitions import avro
from tests.unit.data.contracts.formats.protobuf.event_world import message_class, payloads
from tests.unit.data.contracts.history_world import choose, grown, reported, schema

REUSE = choose("reuse=side-column")


def version(**fields: tuple[int, str]) -> Schema:
    return schema({"M": fields, "S": {"n": (1, "int32")}}, {})


def told(held: Registered, new: Schema, policies: Policies = REUSE) -> list[tuple[str, str, str | None]]:
    """Return each change in words, its policy, and the column."""
    steps, _ = evolve(held, new, policies)
    return [(str(step), f"{step.kind}: {step.policy}", step.column) for step in steps]


def test_a_number_that_another_field_gets_has_a_column_of_the_new_name() -> None:
    """A number with another name and type is another field: by default refused, by a policy beside the old column."""
    held = grown(version(hSource=(2, "int32"), id=(1, "int32")))
    new = version(source=(2, "uint32"), id=(1, "int32"))
    why = "source: its number 2 belonged to the name hSource (int32)"
    assert (why, "reuse: refuse", None) in told(held, new, DEFAULTS)
    assert told(held, new) == [
        ("hSource: removed (number 2, used again)", "remove: keep", "hSource"),
        (why, "reuse: side-column", "source"),
    ]
    held = grown(held[0][0], new, policies=REUSE)
    assert held[1][1] == PLAIN
    assert [f"{each.name} {each.type}" for each in table_schema(held)] == ["id int64", "hSource int64", "source int64"]
    assert evolve(held, new, DEFAULTS) == ((), PLAIN)


def test_rows_of_both_owners_of_a_number_land_in_their_columns() -> None:
    """The same bytes are one field's value by one schema, and the other's by the other; no value is in both."""
    held = grown(version(hSource=(2, "int32")), version(source=(2, "string")), policies=REUSE)
    table = table_schema(held)
    rows = []
    for (each, placement), value in zip(held, (-7, "north"), strict=True):
        (field,) = message_class(each).DESCRIPTOR.fields
        content = message_class(each)(**{field.name: value}).SerializeToString()
        rows += pad(placed(decoder(each).decode(payloads(content)).batch, each, placement), table).to_pylist()
    assert rows == [{"hSource": -7, "source": None}, {"hSource": None, "source": "north"}]


def test_each_owner_of_a_number_keeps_its_history() -> None:
    """Later versions of either field find its own columns: retyped beside its name, renamed from its name."""
    held = grown(version(a=(1, "int32")), version(b=(1, "string")), policies=REUSE)
    assert told(held, version(a=(1, "int64"))) == [
        ("b: removed (number 1, used again)", "remove: keep", "b"),
        ("a: is back", "add: add", "a"),
        ("a: its type changed from int32 to int64", "widen: widen", "a"),
    ]
    anything = choose("reuse=side-column", "incompatible=side-column")
    assert told(held, version(b=(1, "bool")), anything) == [
        ("b: its type changed from string to bool", "incompatible: side-column", "b__v2")
    ]
    assert told(held, version(a=(1, "bool")), anything)[-1] == (
        "a: its type changed from int32 to bool", "incompatible: side-column", "a__v2"
    )  # fmt: skip
    assert told(held, version(c=(1, "string"))) == [
        ("c: its number 1 had the name b", "rename: keep", "b"),
    ]
    assert told(held, version(c=(1, "int32")))[-1] == (
        "c: its number 1 belonged to the name b (string)", "reuse: side-column", "c"
    )  # fmt: skip


def test_a_name_with_another_number_keeps_its_column_where_its_kind_fits() -> None:
    """A field that was numbered anew is its name's; with another kind it lies beside, and never in another field."""
    held = grown(version(id=(1, "uint64"), x=(2, "int32")))
    same = version(id=(20, "uint64"), x=(2, "int32"))
    assert told(held, same) == [("id: its number changed from 1 to 20", "reuse: side-column", "id")]
    assert evolve(held, same, REUSE)[1] == PLAIN
    other = version(id=(20, "string"), x=(2, "int32"))
    assert told(held, other) == [("id: its number changed from 1 to 20", "reuse: side-column", "id__v2")]
    assert told(held, version(id=(2, "uint64"), x=(1, "int32"))) == [
        ("x: its number changed from 2 to 1", "reuse: side-column", "x"),
        ("id: its number changed from 1 to 2", "reuse: side-column", "id"),
    ]
    moved = grown(held[0][0], same, policies=REUSE)
    assert evolve(moved, held[0][0], DEFAULTS) == ((), PLAIN)
    assert told(moved, version(y=(1, "uint64"), x=(2, "int32"), id=(20, "uint64"))) == [
        ("y: its number 1 belonged to the name id (uint64)", "reuse: side-column", "y")
    ]


def test_a_removed_or_reserved_number_or_name_is_used_again() -> None:
    """A removed or reserved field comes back in the column of its name, or in a column of its own."""
    held = grown(
        version(level=(9, "int32"), x=(1, "int32")),
        schema({"M": {"x": (1, "int32")}}, {}, [9, 40], ["level", "hp"]),
    )
    for fields, why, column in (
        ({"level": (9, "int32")}, "level: its number 9 was reserved", "level"),
        ({"level": (9, "string")}, "level: its number 9 was reserved", "level__v2"),
        ({"mana": (9, "int32")}, "mana: its number 9 was reserved", "mana"),
        ({"mana": (40, "int32")}, "mana: its number 40 was reserved", "mana"),
        ({"hp": (41, "int32")}, "hp: its name was reserved", "hp"),
        ({"level": (31, "int32")}, "level: its number changed from 9 to 31", "level"),
    ):
        new = schema({"M": {"x": (1, "int32"), **fields}}, {})
        assert told(held, new) == [(why, "reuse: side-column", column)]
        again = grown(*(each for each, _ in held), new, policies=REUSE)
        assert evolve(again, new, DEFAULTS)[0] == ()


def test_a_made_name_serves_where_the_new_name_is_taken() -> None:
    """Tables ignore case, and a renamed field holds the column of its first name."""
    held = grown(version(a=(1, "int32"), B=(2, "int32")), version(a=(1, "int32")))
    assert told(held, version(b=(1, "string")))[-1] == (
        "b: its number 1 belonged to the name a (int32)", "reuse: side-column", "b__f1"
    )  # fmt: skip
    held = grown(version(level=(1, "int32")), version(rank=(1, "int32")))
    assert told(held, version(rank=(1, "int32"), level=(2, "bool"))) == [
        ("level: its number changed from 1 to 2", "reuse: side-column", "level__f2")
    ]


def test_members_of_a_struct_are_used_again() -> None:
    """A number inside a message has the same rules; the new field is a member beside the old one."""
    held = grown(schema({"M": {"s": (1, "S")}, "S": {"a": (1, "int32")}}, {}))
    new = schema({"M": {"s": (1, "S")}, "S": {"b": (1, "string")}}, {})
    assert told(held, new)[-1] == (
        "s.b: its number 1 belonged to the name a (int32)", "reuse: side-column", "s.b"
    )  # fmt: skip
    assert str(table_schema(grown(held[0][0], new, policies=REUSE)).field("s").type) == "struct<a: int64, b: string>"


@pytest.mark.parametrize(
    ("new", "column"),
    [
        (avro(rank="int", level="int"), "level__aad60c5"),
        (avro(rank="int", tier=("int", "level")), "tier"),
        (avro(rank="int", mana=("int", "gone")), "mana"),
        (avro(mana=("boolean", "rank")), "mana"),
    ],
)
def test_a_name_of_avro_stands_for_two_fields_in_two_columns(new: Schema, column: str) -> None:
    """An alias that does not fit makes a field of its own, which later versions know by its name."""
    held = grown(avro(level="int", gone="string"), avro(rank=("int", "level")))
    step = next(each for each in evolve(held, new, REUSE)[0] if each.kind == "reuse")
    assert (step.policy, step.column) == ("side-column", column)
    again = grown(*(each for each, _ in held), new, policies=REUSE)
    assert evolve(again, new, DEFAULTS) == ((), again[2][1])


def test_a_field_of_a_used_number_meets_the_column_of_another_format() -> None:
    """Formats meet by name, so also a field whose number another one had."""
    held = grown(version(a=(1, "int32")), avro(a="int", b="string"))
    steps, placement = evolve(held, version(b=(1, "string")), REUSE)
    assert reported(steps)[1:] == [("b", "reuse: side-column", "b"), ("b", "format: keep", "b")]
    assert placement == PLAIN


VERSIONS = st.lists(
    st.dictionaries(
        st.integers(1, 4),
        st.tuples(
            st.sampled_from(["a", "b", "c", "A", "b__v2"]),
            st.sampled_from(["int32", "uint32", "uint64", "string", "repeated int32", "S", "double"]),
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=2,
    max_size=7,
)
LANDING = Policies(
    tuple(sorted((kind, next(each for each in ("side-column", *CHOICES[kind]) if each in CHOICES[kind]
                             and each not in {"refuse", "quarantine"})) for kind in CHOICES))
)  # fmt: skip
KNOWN = st.integers(0, 127)  # a bit for each version: whether the ages are known when it is registered
APART = Policies(tuple(sorted({**dict(LANDING.chosen), "rename": "add"}.items())))


@settings(max_examples=40, deadline=None)
@given(VERSIONS, VERSIONS, st.sampled_from([LANDING, APART, REUSE]), KNOWN)
def test_a_column_has_values_of_one_field_only(
    tops: list[Mapping[int, tuple[str, str]]],
    inners: list[Mapping[int, tuple[str, str]]],
    policies: Policies,
    known: int,
) -> None:
    """After any versions each column's earlier values came from fields of the same name, or the plan said a rename.

    And a plan that says that a number is another field's now leads to a column without earlier values of that field.
    """
    require_one_field_in_each_column(tops, inners, policies, known)


@pytest.mark.long
@settings(max_examples=2_000, deadline=None)
@given(VERSIONS, VERSIONS, st.sampled_from([LANDING, APART, REUSE]), KNOWN)
def test_a_column_has_values_of_one_field_only_in_volume(
    tops: list[Mapping[int, tuple[str, str]]],
    inners: list[Mapping[int, tuple[str, str]]],
    policies: Policies,
    known: int,
) -> None:
    """The same for many more histories."""
    require_one_field_in_each_column(tops, inners, policies, known)


def require_one_field_in_each_column(
    tops: list[Mapping[int, tuple[str, str]]],
    inners: list[Mapping[int, tuple[str, str]]],
    policies: Policies,
    known: int,
) -> None:
    held: Registered = ()
    ages = iter([bool(known >> turn & 1) for turn in range(len(tops))])
    owners: dict[str, set[str]] = defaultdict(set)  # column → names of the fields in it
    numbers: dict[str, int] = {}  # name → its last number
    before: dict[str, set[str]] = defaultdict(set)  # name → names that the field had before, as a plan said
    for top, inner in zip(tops, inners, strict=False):
        try:
            new = schema(
                {
                    "M": {name: (number, kind) for number, (name, kind) in top.items()},
                    "S": {name: (number, kind.replace("S", "bool")) for number, (name, kind) in inner.items()},
                },
                {},
            )
        except Refused:
            continue
        asked = None if next(ages) else Ages((UNKNOWN,) * len(held))
        steps, placement = evolve(held, new, policies, asked)
        if any(step.policy == "refuse" for step in steps):
            continue
        held = (*held, (new, placement))
        assert (
            evolve(held, new, policies)[1] == evolve(held, new, policies, Ages((UNKNOWN,) * len(held)))[1] == placement
        )
        table_schema(held)
        require_owners({name: number for number, (name, _) in top.items()}, placement, steps, owners, numbers, before)


def require_owners(
    fields: Mapping[str, int],
    placement: FieldPlacement,
    steps: Sequence[Step],
    owners: dict[str, set[str]],
    numbers: dict[str, int],
    before: dict[str, set[str]],
) -> None:
    """Refuse a column that a field may not continue; add each field to the owners of its column."""
    columns = dict(placement.names)
    renamed = {step.path for step in steps if step.kind == "rename"}
    apart = {step.path for step in steps if step.kind == "reuse" and " belonged to the name " in step.what}
    found, now = set[str](), dict[str, int]()
    first = {name.lower(): name for name, _ in sorted(fields.items(), key=lambda each: -each[1])}
    for own, number in fields.items():
        name = own if first[own.lower()] == own else f"{own}__f{number}"  # the decoder's name of a twin
        column = columns.get(name, name)
        assert column not in found
        found.add(column)
        earlier = owners[column]
        if name in renamed:
            for old in [old for old, last in numbers.items() if last == number]:
                before[name] |= {old} | before[old]
        same = {name} | before[name] | {other for other, old in before.items() if name in old}
        assert not earlier or earlier & same, (name, column, earlier)
        assert not (earlier and name in apart), (name, column, earlier)
        now[name] = number
        owners[column].add(name)
    numbers |= now
