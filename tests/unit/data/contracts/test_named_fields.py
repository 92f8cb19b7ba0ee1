"""Evolution where a field is identified by its name, and of a game that changes its format."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.layout import Registered, layout
from pipeline.data.contracts.model import MAX_COLUMNS
from pipeline.data.contracts.policies import CHOICES, DEFAULTS, Policies
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema
from pipeline.data.contracts.shape import table_schema
from tests.unit.data.contracts.definition_world import Fields
from tests.unit.data.contracts.formats.avro.avro_world import schema as avro_schema
from tests.unit.data.contracts.formats.avro.definitions import avro, decimal, enum, logical, record
from tests.unit.data.contracts.history_world import BASE, ENUMS, changed, choose, grown, reported, schema


def told(held: Registered, new: Schema, policies: Policies = DEFAULTS) -> list[tuple[str, str]]:
    """Return each change in words, and what is done with it."""
    return [(str(step), f"{step.kind}: {step.policy}") for step in evolve(held, new, policies)[0]]


def test_the_order_of_named_fields_changes_nothing() -> None:
    """A record with the same fields has an empty plan, in whatever order they stand."""
    held = grown(avro(a="int", b="string"))
    assert evolve(held, avro(b="string", a="int"), DEFAULTS) == ((), PLAIN)


def test_an_alias_is_a_rename() -> None:
    """A field with an alias continues the field of that name: its column keeps its first name from then on."""
    held = grown(avro(level="int"))
    renamed = avro(rank=("int", "level"))
    steps, placement = evolve(held, renamed, DEFAULTS)
    assert reported(steps) == [("rank", "rename: keep", "level")]
    assert str(steps[0]) == "rank: its alias level is a name that it had"
    assert placement.names == (("rank", "level"),)
    held = (*held, (renamed, placement))
    for known in (avro(rank="int"), avro(level="int"), renamed):
        assert evolve(held, known, DEFAULTS)[0] == ()
    assert reported(evolve(held, avro(tier=("long", "rank")), DEFAULTS)[0]) == [
        ("tier", "rename: keep", "level"),
        ("tier", "widen: widen", "level"),
    ]
    assert table_schema(held).names == ["level"]


def test_an_alias_may_get_a_column_of_its_own() -> None:
    """With the policy `add` old and new name are two columns, and the old name finds its own again."""
    held = grown(avro(level="int"), avro(rank=("int", "level")), avro(level="int"), policies=choose("rename=add"))
    assert [placement for _, placement in held] == [PLAIN] * 3
    assert table_schema(held).names == ["level", "rank"]


def test_a_name_without_an_alias_is_another_field() -> None:
    """Nothing says that it continues the removed one; and an alias counts only where no field has that name."""
    held = grown(avro(level="int", x="int"))
    assert told(held, avro(rank="int", x="int")) == [("level: removed", "remove: keep"), ("rank: is new", "add: add")]
    assert told(held, avro(level="int", x="int", rank=("int", "level"))) == [("rank: is new", "add: add")]


@pytest.mark.parametrize(
    ("new", "sentence"),
    [
        ({"rank": "int", "level": "int"}, "level: it and rank are both the earlier field level"),
        ({"rank": "int", "tier": ("int", "level")}, "tier: it and rank are both the earlier field level"),
        ({"mana": ("int", "gone"), "rank": "int"}, "mana: its alias gone belonged to the name gone (string)"),
        ({"mana": ("boolean", "rank")}, "mana: its alias rank belonged to the name rank (int)"),
    ],
)
@pytest.mark.proves("B22")
def test_a_name_never_stands_for_two_fields(new: dict[str, Any], sentence: str) -> None:
    """A known name or alias cannot become another field: the column would mix both."""
    held = grown(avro(level="int", gone="string"), avro(rank=("int", "level")))
    assert (sentence, "reuse: refuse") in told(held, avro(**new))


@pytest.mark.parametrize(
    ("old", "new", "done", "column"),
    [
        ("int", "long", "widen: widen", "x"),
        ("float", "double", "widen: widen", "x"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, "widen: widen", "x"),
        ("int", "double", "widen: side-column", "x__v2"),
        ("long", "float", "widen: side-column", "x__v2"),
        ("long", "double", "widen: side-column", "x__v2"),
        ("string", "bytes", "widen: side-column", "x__v2"),
        ("bytes", "string", "widen: side-column", "x__v2"),
        ("long", "int", "widen: widen", "x"),
        ("double", "float", "widen: widen", "x"),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, "widen: widen", "x"),
        (["null", "long"], ["null", "int"], "widen: widen", "x"),
        (logical("string", "uuid"), "string", "widen: widen", "x"),  # taken as it is
        (logical("string", "uuid"), enum("A"), "incompatible: refuse", None),
        (logical("int", "date"), "int", "incompatible: refuse", None),
        (logical("long", "time-micros"), "long", "incompatible: refuse", None),
        ("double", "long", "incompatible: refuse", None),
        ("int", "string", "incompatible: refuse", None),
        (enum("A"), "string", "incompatible: refuse", None),
        (decimal(10, 2), decimal(12, 2), "incompatible: refuse", None),
    ],
)
@pytest.mark.proves("B23")
def test_a_promotion_of_avro_widens(old: Any, new: Any, done: str, column: str | None) -> None:
    """B23: a promotion is a widening, and so is its reverse in one column; another type of column is a side column."""
    assert reported(evolve(grown(avro(x=old)), avro(x=new), DEFAULTS)[0]) == [("x", done, column)]


def test_equal_names_are_not_said_to_differ() -> None:
    """A refusal is true of names that are equal, and of those that a table takes for equal."""
    p, q = ({"type": "record", "name": f"{each}.P", "fields": [{"name": "a", "type": "int"}]} for each in "ab")
    branches = ("x.P: is the name of another field of its message: case and '_' make no difference", "name: refuse")
    assert branches in told((), avro_schema({"x": [p, q]}))
    beside = grown(avro(x="int"), avro(x="string"), policies=choose("incompatible=side-column"))
    for named in ("x__v2", "X__V2"):
        column = (f"{named}: is the name of a column of name x: case makes no difference", "name: refuse")
        assert column in told(beside, avro(x="string", **{named: "int"}))


def test_symbols_are_known_by_their_names() -> None:
    """The column holds the symbol itself: its place in the enum means nothing, and a new name is a new symbol."""
    held = grown(avro(kind=enum("ONE", "TWO")))
    assert told(held, avro(kind=enum("TWO", "ONE"))) == []
    assert told(held, avro(kind=enum("NIL", "ONE"))) == [
        ("kind: its value TWO was removed", "remove: keep"),
        ("kind: has the new value NIL", "add: add"),
    ]


def test_a_union_with_null_may_be_absent() -> None:
    """A column can hold null anyway: the change is reported, and nothing else happens."""
    held = grown(avro(x="int"))
    assert told(held, avro(x=["null", "int"])) == [("x: may be absent now", "add: add")]
    assert evolve(held, avro(x=["null", "int"]), DEFAULTS)[1] == PLAIN


def test_another_format_continues_the_columns_of_the_same_kind() -> None:
    """The plan tells for each column what becomes of it; the table stays as it is, at every depth."""
    held = grown(schema(BASE))
    pos = record(x="float", y="float", z="float")
    new = avro(
        tags={"type": "array", "items": "string"},
        pos=pos,
        kind=enum("ZERO", "TWO"),
        maybe=["null", "int"],
        level="long",
        hp="int",
    )
    steps, placement = evolve(held, new, DEFAULTS)
    assert placement == PLAIN
    assert {str(step): f"{step.kind} {step.column}" for step in steps} == {
        "tags: continues the column of protobuf in avro": "format tags",
        "pos: continues the column of protobuf in avro": "format pos",
        "pos.x: continues the column of protobuf in avro": "format pos.x",
        "pos.y: continues the column of protobuf in avro": "format pos.y",
        "pos.z: is new": "add pos.z",
        "pos: is never absent now": "add pos",
        "kind: continues the column of protobuf in avro": "format kind",
        "kind: its value ONE was removed": "remove kind",
        "kind: has the new value TWO": "add kind",
        "maybe: continues the column of protobuf in avro": "format maybe",
        "level: its type changed from int32 in protobuf to long in avro": "widen level",
        "level: continues the column of protobuf in avro": "format level",
        "hp: is new": "add hp",
        **{
            f"{name}: is a field of protobuf, not of avro": f"remove {name}"
            for name in ("id", "hits", "by_name", "at", "kills", "scores", "ranks")
        },
    }
    held = (*held, (new, placement))
    assert evolve(held, new, DEFAULTS) == ((), PLAIN)
    assert evolve(held, schema(BASE), DEFAULTS) == ((), PLAIN)  # each format is compared with its own versions


def test_another_format_lies_beside_what_it_does_not_fit() -> None:
    """The old column keeps its type, by the policy of an incompatible change; and each format goes back to its own."""
    held = grown(schema(BASE))
    new = avro(level="string", tags="string", id="int")
    assert {step.policy for step in evolve(held, new, DEFAULTS)[0] if step.kind == "incompatible"} == {"refuse"}
    policies = choose("incompatible=side-column")
    steps, placement = evolve(held, new, policies)
    assert placement.names == (("id", "id__v2"), ("level", "level__v2"), ("tags", "tags__v2"))
    assert str(steps[0]) == "level: its type changed from int32 in protobuf to string in avro"
    held = (*held, (new, placement))
    assert evolve(held, schema(BASE), policies) == ((), PLAIN)
    assert evolve(held, new, policies) == ((), placement)
    data = schema(changed({"M": {"level": (9, "bytes")}}))
    assert reported(evolve(held, data, policies)[0]) == [("level", "incompatible: side-column", "level__v3")]


def test_another_formats_numbers_lie_in_one_column() -> None:
    """ADR 18: each row names its schema, so Avro's int may follow protobuf's int64, and no value depends on luck."""
    held = grown(schema({"M": {"n": (1, "int64"), "u": (2, "uint32"), "d": (3, "double")}}, {}))
    new = avro(n="int", u="int", d="float")
    steps, placement = evolve(held, new, DEFAULTS)
    assert placement == PLAIN
    assert [done for done in reported(steps) if done[1] != "format: keep"] == [
        ("n", "widen: widen", "n"),
        ("u", "widen: widen", "u"),
        ("d", "widen: widen", "d"),
    ]


@pytest.mark.proves("B22")
def test_an_incompatible_change_finds_the_column_of_its_kind() -> None:
    """A column of the other format saves a third one; the policy of the change holds all the same."""
    policies = choose("incompatible=side-column")
    held = grown(schema(BASE), avro(level="string"), policies=policies)
    text, number = schema(changed({"M": {"level": (9, "string")}})), avro(level="int")
    for new, column in ((text, "level__v2"), (number, "level")):
        assert reported(evolve(held, new, policies)[0]) == [
            ("level", "incompatible: side-column", column),
            ("level", "format: keep", column),
        ]
        assert "incompatible: refuse" in {done for _, done in told(held, new)}
    assert evolve(held, text, policies)[1].names == (("level", "level__v2"),)
    assert evolve(held, number, policies)[1] == PLAIN


def test_a_field_meets_the_side_column_of_its_kind() -> None:
    """Of all columns that the other format's field has had, the one of the same kind is continued."""
    held = grown(
        schema(BASE), schema(changed({"M": {"level": (9, "string")}})), policies=choose("incompatible=side-column")
    )
    steps, placement = evolve(held, avro(level="string"), DEFAULTS)
    assert reported(steps)[0] == ("level", "format: keep", "level__v2")
    assert placement.names == (("level", "level__v2"),)


def test_two_fields_never_share_a_column() -> None:
    """A column of another format has room for one field of this format, now and in later versions."""
    held = grown(
        schema(BASE), schema(changed({"M": {"level": (9, "string")}})), policies=choose("incompatible=side-column")
    )
    done = evolve(held, avro(level="string", level__v2="string"), DEFAULTS)[0]
    assert ("level__v2", "incompatible: refuse", None) in reported(done)
    held = grown(schema(BASE), avro(rank=("int", "level")))
    for later in (avro(rank="int", level="int"), avro(level="int", rank="int")):
        assert ("level", "name: refuse", None) in reported(evolve(held, later, DEFAULTS)[0])


def test_an_alias_meets_a_column_of_another_format() -> None:
    """Teams write names otherwise in another format; an alias says which column is meant."""
    held = grown(schema(BASE))
    new = avro(byName=({"type": "map", "values": record(x="float")}, "by_name"))
    steps, placement = evolve(held, new, DEFAULTS)
    assert reported(steps)[:2] == [("byName", "rename: keep", "by_name"), ("byName", "format: keep", "by_name")]
    assert placement.names == (("byName", "by_name"),)
    steps, placement = evolve(held, new, choose("rename=add"))
    assert (reported(steps)[0], placement) == (("byName", "add: add", "byName"), PLAIN)


def test_a_format_does_not_reserve_for_another() -> None:
    """Numbers, names and removed fields are remembered within a format only."""
    held = grown(schema(BASE), schema(changed({"M": {"level": None}}), reserved=[9], reserved_names=["level", "hp"]))
    done = told(held, avro(level="int", hp="int"))
    assert done[:2] == [
        ("level: continues the column of protobuf in avro", "format: keep"),
        ("hp: is new", "add: add"),
    ]


def test_a_column_counts_once() -> None:
    """Two formats of one table do not halve the columns that it may have."""
    names = [f"f{number}" for number in range(1, MAX_COLUMNS + 1)]
    first = schema({"M": {name: (number, "int32") for number, name in enumerate(names, 1)}})
    second = avro(**dict.fromkeys(names, "int"))
    held = grown(first, second)
    assert layout(held).leaves() == MAX_COLUMNS == len(table_schema(held).names)
    with pytest.raises(Refused, match="would spread into 1001 columns"):
        evolve(held, avro(more="int"), DEFAULTS)


@pytest.mark.parametrize("policy", ["refuse", "quarantine"])
def test_a_change_of_format_can_be_kept_out(policy: str) -> None:
    """A person may want each game to keep its format; then the table does not know of the schema."""
    held = grown(schema(BASE))
    steps, placement = evolve(held, avro(level="int"), choose(f"format={policy}"))
    cause = "level: continues the column of protobuf in avro"
    assert [str(step) for step in steps if step.policy == policy] == [cause]
    assert placement == FieldPlacement((), cause if policy == "quarantine" else None)


NAMES = st.sampled_from(["a", "b", "A", "a__v2", "_seq", "c"])
PROTOBUF_KINDS = st.sampled_from(["int32", "int64", "float", "string", "E", "S", "repeated S", "map<string, S>"])
AVRO_KINDS = st.sampled_from(["int", "long", "float", "double", "string", "bytes", "E", "S", "array", "map"])
PROTOBUF_FIELDS = st.dictionaries(st.integers(1, 4), st.tuples(NAMES, PROTOBUF_KINDS), min_size=1, max_size=4)
AVRO_FIELDS = st.dictionaries(NAMES, st.tuples(AVRO_KINDS, st.sets(NAMES, max_size=2)), min_size=1, max_size=4)
ANYTHING = Policies(
    tuple((kind, next(each for each in ("side-column", "add", *CHOICES[kind]) if each in CHOICES[kind]))
          for kind in sorted(CHOICES))
)  # fmt: skip


def protobuf_version(top: dict[int, tuple[str, str]], inner: dict[int, tuple[str, str]]) -> Schema:
    messages: dict[str, Fields] = {
        "M": {name: (number, kind) for number, (name, kind) in top.items()},
        "S": {name: (number, "bool" if "S" in kind else kind) for number, (name, kind) in inner.items()},
    }
    return schema(messages, ENUMS)


def avro_version(top: dict[str, tuple[str, set[str]]], inner: dict[str, tuple[str, set[str]]]) -> Schema:
    def fields(given: dict[str, tuple[str, set[str]]], kinds: dict[str, Any]) -> dict[str, Any]:
        spelled: dict[str, str] = {}  # twins of one schema are the format's own affair
        for name in given:
            spelled.setdefault(name.lower(), name)
        return {name: (kinds.get(given[name][0], given[name][0]), *sorted(given[name][1])) for name in spelled.values()}

    plain = {"E": enum("ZERO", "ONE"), "S": "boolean", "array": "boolean", "map": "boolean"}
    one = record(**fields(inner, plain))
    nested = {"S": one, "array": {"type": "array", "items": one}, "map": {"type": "map", "values": one}}
    return avro(**fields(top, {**plain, **nested}))


VERSIONS = st.one_of(
    st.builds(protobuf_version, PROTOBUF_FIELDS, PROTOBUF_FIELDS), st.builds(avro_version, AVRO_FIELDS, AVRO_FIELDS)
)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(2, 6), st.sampled_from([DEFAULTS, ANYTHING, ANYTHING]))
@pytest.mark.proves("G73")
def test_whatever_two_formats_land_fits_into_one_table(data: st.DataObject, count: int, policies: Policies) -> None:
    """Any history of two formats gives one table: no column changes its type, none is lost, none is counted twice."""
    held: Registered = ()
    for _ in range(count):
        try:
            new = data.draw(VERSIONS)
        except Refused:
            continue  # two maps whose names differ by case only: no protobuf at all
        steps, placement = evolve(held, new, policies)
        if any(step.policy == "refuse" for step in steps):
            continue
        before = table_schema(held)
        held = (*held, (new, placement))
        after = table_schema(held)  # raises where two versions disagree on a column's type
        assert after.names[: len(before.names)] == before.names
        assert len({name.lower() for name in after.names}) == len(after.names)
        assert evolve(held, new, policies)[1] == placement
        assert not any(name.startswith("_") for name in after.names)
        assert set(after.names) == set(layout(held).columns())
