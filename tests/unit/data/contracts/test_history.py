import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.layout import Registered
from pipeline.data.contracts.policies import CHOICES, DEFAULTS, Policies
from pipeline.data.contracts.schemas import PLAIN
from pipeline.data.contracts.shape import table_schema
from tests.unit.data.contracts.definition_world import Fields
from tests.unit.data.contracts.history_world import BASE, changed, choose, grown, reported, schema


def test_types_that_come_and_go_find_their_columns_again() -> None:
    """A third type gets a third column, and a type that was there before goes back to its own: no growth for ever."""
    kinds = ["int32", "string", "bool", "int32", "string", "int64", "bytes"]
    versions = [schema(changed({"M": {"level": (9, kind)}})) for kind in kinds]
    held = grown(*versions, policies=choose("incompatible=side-column"))
    columns = [dict(placement.names).get("level", "level") for _, placement in held]
    assert columns == ["level", "level__v2", "level__v3", "level", "level__v2", "level", "level__v4"]
    assert [str(step) for step in evolve(held[:3], versions[6], DEFAULTS)[0]] == [
        "level: its type changed from bool to bytes"  # from what came last
    ]


def test_a_removed_field_keeps_its_column_and_its_number() -> None:
    """The column stays, null from then on; the number comes back only for the same name and type."""
    held = grown(schema(BASE))
    gone = schema(changed({"M": {"level": None}}))
    steps, placement = evolve(held, gone, DEFAULTS)
    assert reported(steps) == [("level", "remove: keep", "level")]
    held = (*held, (gone, placement))
    assert "level" in table_schema(held).names
    back, _ = evolve(held, schema(BASE), DEFAULTS)
    assert reported(back) == [("level", "add: add", "level")]
    for fields in (
        {"level": None, "mana": (9, "int32")},
        {"level": (31, "int32")},
        {"level": None, "mana": (9, "bool")},
    ):
        steps, _ = evolve(held, schema(changed({"M": fields})), DEFAULTS)
        assert [(step.kind, step.policy) for step in steps] == [("reuse", "refuse")], fields


def test_what_was_reserved_stays_reserved() -> None:
    """A number or a name that any version reserved is refused for another field, also when it never had a column."""
    held = grown(
        schema(BASE), schema(changed({"M": {"level": None}}), reserved=[9, 40], reserved_names=["level", "hp"])
    )
    assert "not reserved" not in str(evolve(held[:1], held[1][0], DEFAULTS)[0][0])
    gone = changed({"M": {"level": None}})
    for fields, sentence in (
        ({"mana": (40, "int32")}, "mana: its number 40 was reserved"),
        ({"hp": (41, "int32")}, "hp: its name was reserved"),
        ({"level": (9, "int32")}, "level: its number 9 was reserved"),
    ):
        steps, _ = evolve(held, schema(changed({"M": fields}, gone)), DEFAULTS)
        assert [str(step) for step in steps if step.kind == "reuse"] == [sentence]


def test_a_renamed_field_keeps_its_column() -> None:
    """The number is what a field is: by default the column keeps its first name, whatever the field is called later."""
    names = ["level", "rank", "tier", "level", "rank"]
    versions = [schema(changed({"M": {"level": None, name: (9, "int32")}})) for name in names]
    held = grown(*versions)
    assert [dict(placement.names) for _, placement in held] == [
        {},
        {"rank": "level"},
        {"tier": "level"},
        {},
        {"rank": "level"},
    ]
    assert table_schema(held) == table_schema(held[:1])
    assert reported(evolve(held[:1], versions[1], DEFAULTS)[0]) == [("rank", "rename: keep", "level")]
    assert evolve(held[:2], versions[0], DEFAULTS)[0] == ()  # a name that is known already is no change


def test_a_renamed_field_may_get_a_column_of_its_own() -> None:
    """With the policy `add` old and new name are two columns, and the old name finds its own again."""
    names = ["level", "rank", "level", "rank"]
    versions = [schema(changed({"M": {"level": None, name: (9, "int32")}})) for name in names]
    held = grown(*versions, policies=choose("rename=add"))
    assert [placement for _, placement in held] == [PLAIN] * 4
    assert {"level", "rank"} <= set(table_schema(held).names)


def test_a_removed_value_keeps_its_number() -> None:
    """A number that once had a name is not given to another one, also after a version without it."""
    held = grown(schema(BASE), schema(BASE, {"E": {"ZERO": 0}}))
    steps, _ = evolve(held, schema(BASE, {"E": {"ZERO": 0, "TWO": 1}}), DEFAULTS)
    assert [(str(step), step.policy) for step in steps] == [("kind: its value 1 was renamed from ONE to TWO", "refuse")]


def test_many_versions_cannot_make_an_enormous_table() -> None:
    """The limit of columns holds for the table of all versions, not only for each schema alone."""
    first: Fields = {f"f{number}": (number, "int32") for number in range(1, 801)}
    second: Fields = {f"f{number}": (number, "int32") for number in range(601, 1202)}
    held = grown(schema({"M": first}))
    with pytest.raises(Refused, match="would spread into 1201 columns"):
        evolve(held, schema({"M": second}), DEFAULTS)


FIELD_KINDS = st.sampled_from(["int32", "string", "repeated int64", "Pos", "map<string, Pos>", "optional bool", "E"])


@settings(max_examples=30, deadline=None)
@given(first=st.lists(FIELD_KINDS, max_size=4), second=st.lists(FIELD_KINDS, max_size=4), nested=st.integers(0, 2))
def test_additions_compose(first: list[str], second: list[str], nested: int) -> None:
    """Two steps of additions add the same as one step over both, and rename no column."""
    b = changed({"M": {f"f{index}": (50 + index, kind) for index, kind in enumerate(first)}})
    c = copy.deepcopy(b)
    c["M"] |= {f"s{index}": (80 + index, kind) for index, kind in enumerate(second)}
    c["Pos"] |= {f"n{index}": (10 + index, "int32") for index in range(nested)}
    held = grown(schema(BASE), schema(b))
    one = {step.path for step in evolve(held[:1], schema(b), DEFAULTS)[0]}
    two, placement = evolve(held, schema(c), DEFAULTS)
    both = {step.path for step in evolve(held[:1], schema(c), DEFAULTS)[0]}
    new = {f"f{index}" for index in range(len(first))}
    assert both == one | {step.path for step in two if step.path.partition(".")[0] not in new}
    assert placement == PLAIN


CHANGES = st.dictionaries(
    st.integers(1, 5),
    st.tuples(
        st.sampled_from(["a", "A", "b", "a__v2", "_seq", "c"]),
        st.sampled_from(["int32", "int64", "uint64", "string", "repeated int32", "S", "repeated S", "map<string, S>"]),
    ),
    min_size=1,
    max_size=4,
)


ANYTHING = Policies(
    tuple(sorted({kind: next(each for each in ("side-column", "add", *CHOICES[kind]) if each in CHOICES[kind])
                  for kind in CHOICES}.items()))
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(CHANGES, CHANGES), min_size=1, max_size=5), st.sampled_from([DEFAULTS, ANYTHING]))
@pytest.mark.proves("G73")
def test_whatever_is_not_refused_fits_into_one_table(
    versions: list[tuple[dict[int, tuple[str, str]], dict[int, tuple[str, str]]]], policies: Policies
) -> None:
    """Any history of changes gives one table: no column changes its type, none is lost, no two differ by case only."""
    held: Registered = ()
    for top, inner in versions:
        messages: dict[str, Fields] = {
            "M": {name: (number, kind) for number, (name, kind) in top.items()},
            "S": {name: (number, kind.replace("S", "bool")) for number, (name, kind) in inner.items()},
        }
        try:
            new = schema(messages, {})
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
