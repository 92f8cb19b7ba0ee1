import copy
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.contracts.evolution import MAX_COLUMNS, MAX_DEPTH, Additive, Breaking, Same, compare, defects
from tests.unit.test_contracts_messages import Fields, message

ENUMS = {"E": {"ZERO": 0, "ONE": 1}}
BASE: dict[str, dict[str, tuple[int, str]]] = {
    "M": {
        "id": (1, "uint64"),
        "tags": (2, "repeated string"),
        "pos": (3, "Pos"),
        "hits": (4, "repeated Pos"),
        "by_name": (5, "map<string, Pos>"),
        "kind": (6, "E"),
        "at": (7, "wkt:Timestamp"),
        "maybe": (8, "optional int32"),
    },
    "Pos": {"x": (1, "float"), "y": (2, "float")},
}


def changed(edits: Mapping[str, Mapping[str, tuple[int, str] | None]]) -> dict[str, dict[str, tuple[int, str]]]:
    """Return BASE with fields set, or removed where the edit is None."""
    result = copy.deepcopy(BASE)
    for name, fields in edits.items():
        for field, spec in fields.items():
            result.setdefault(name, {}).pop(field, None)
            if spec is not None:
                result[name][field] = spec
    return result


def test_the_same_definition_is_the_same() -> None:
    """compare(x, x) is Same, and the order of declarations does not matter."""
    shuffled: dict[str, Fields] = {name: dict(reversed(fields.items())) for name, fields in reversed(BASE.items())}
    assert compare(message(BASE, ENUMS), message(BASE, ENUMS)) == Same()
    assert compare(message(BASE, ENUMS), message(shuffled, ENUMS)) == Same()


@pytest.mark.parametrize(
    ("edits", "added"),
    [
        ({"M": {"new": (9, "string")}}, ("new",)),
        ({"M": {"new": (9, "map<string, int32>")}}, ("new",)),
        ({"Pos": {"z": (3, "float")}}, ("pos.z",)),
        ({"M": {"late": (9, "Late")}, "Late": {"q": (1, "int32")}}, ("late",)),
        ({"M": {"id": (1, "optional uint64")}}, ("id (may be absent)",)),
    ],
)
def test_additions_are_named_by_path(edits: Mapping[str, Fields], added: tuple[str, ...]) -> None:
    """A new field with a new number, at any depth, is additive, and its path is told."""
    assert compare(message(BASE, ENUMS), message(changed(edits), ENUMS)) == Additive(added)


def test_a_new_enum_value_is_additive() -> None:
    """A new value needs no new column: it is one more text in it."""
    grown = {"E": {"ZERO": 0, "ONE": 1, "TWO": 2}}
    assert compare(message(BASE, ENUMS), message(BASE, grown)) == Additive(("kind=TWO",))


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"M": {"id": None}}, "id: removed (number 1)"),
        ({"M": {"id": None, "other": (1, "uint64")}}, "id: its number 1 now belongs to the name other"),
        ({"M": {"id": (20, "uint64")}}, "id: its number changed from 1 to 20"),
        ({"M": {"id": (1, "int64")}}, "id: its type changed from uint64 to int64"),
        ({"M": {"id": (1, "repeated uint64")}}, "id: its type changed from uint64 to repeated uint64"),
        ({"M": {"tags": (2, "string")}}, "tags: its type changed from repeated string to string"),
        ({"M": {"by_name": (5, "map<int32, Pos>")}}, "by_name: its type changed from map<string, message>"),
        ({"M": {"by_name": (5, "map<string, int32>")}}, "by_name: its type changed"),
        ({"M": {"by_name": (5, "repeated Pos")}}, "by_name: its type changed"),
        ({"M": {"at": (7, "Pos")}}, "at: its type changed from google.protobuf.Timestamp to message"),
        ({"M": {"kind": (6, "int32")}}, "kind: its type changed from enum to int32"),
        ({"Pos": {"x": (1, "double")}}, "pos.x: its type changed from float to double"),
        ({"Pos": {"y": None}}, "pos.y: removed (number 2)"),
        ({"M": {"ID": (9, "int32")}}, "ID: differs from id only by case"),
        ({"Pos": {"X": (9, "int32")}}, "pos.X: differs from x only by case"),
        ({"M": {"_seq": (9, "int64")}}, "_seq: names that begin with '_'"),
        ({"M": {"me": (9, "M")}}, "me: contains itself (t.M)"),
        ({"Pos": {"owner": (9, "M")}}, "pos.owner: contains itself (t.M)"),
        ({"M": {"any_json": (9, "wkt:Struct")}}, "contains itself (google.protobuf.Value)"),
    ],
)
def test_each_breaking_change_names_its_field(
    edits: Mapping[str, Mapping[str, tuple[int, str] | None]], reason: str
) -> None:
    """What would change or lose a column, or cannot be one, is breaking, with the field's path."""
    change = compare(message(BASE, ENUMS), message(changed(edits), ENUMS))
    assert isinstance(change, Breaking)
    assert any(reason in each for each in change.reasons), change.reasons


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"ZERO": 0}, "kind: its value ONE was removed (number 1); keep it"),
        ({"ZERO": 0, "UNO": 1}, "kind: its value 1 was renamed from ONE to UNO"),
        ({"ZERO": 0, "UNO": 1, "ONE": 1}, "kind: its value 1 was renamed from ONE to UNO"),
    ],
)
def test_a_value_keeps_its_name(values: Mapping[str, int], reason: str) -> None:
    """The column holds the value's name, so a rename or removal would tell one thing in two words."""
    assert compare(message(BASE, ENUMS), message(BASE, {"E": values})) == Breaking((reason,))


def test_an_alias_after_the_first_name_changes_nothing() -> None:
    """Of names that share a number the first one is written, so a later alias is harmless."""
    assert compare(message(BASE, ENUMS), message(BASE, {"E": {"ZERO": 0, "ONE": 1, "UNO": 1}})) == Same()


def test_empty_and_enormous_messages_have_no_table() -> None:
    """A payload needs a column, and may not spread into millions or nest without end; the check itself stays quick."""
    doubling: dict[str, Fields] = {"M": {"a": (1, "D0"), "b": (2, "D0")}}
    for level in range(25):
        doubling[f"D{level}"] = {"a": (1, f"D{level + 1}"), "b": (2, f"D{level + 1}")}
    doubling["D25"] = {"x": (1, "int32")}
    deep: dict[str, Fields] = {"M": {"a": (1, "D0")}, "D2000": {"x": (1, "int32")}}
    deep |= {f"D{level}": {"a": (1, f"D{level + 1}")} for level in range(2000)}
    edge: dict[str, Fields] = {"M": {"a": (1, "D1"), "b": (2, "D0")}, f"D{MAX_DEPTH}": {"x": (1, "int32")}}
    edge |= {f"D{level}": {"a": (1, f"D{level + 1}")} for level in range(MAX_DEPTH)}
    wide: Fields = {f"f{number}": (number, "int32") for number in range(1, MAX_COLUMNS + 1)}
    assert "has no field" in defects(message({"M": {}}))[0]
    assert "has no field" in defects(message({"M": {"a": (1, "wkt:Empty")}}))[0]
    assert "columns" in defects(message(doubling))[0]
    assert "deeper than" in defects(message(deep))[0]
    assert "levels deep" in defects(message(edge))[0]
    assert not defects(message({"M": wide}))
    assert "columns" in defects(message({"M": {**wide, "more": (5000, "int32")}}))[0]


FIELD_KINDS = st.sampled_from(["int32", "string", "repeated int64", "Pos", "map<string, Pos>", "optional bool", "E"])


@settings(max_examples=60, deadline=None)
@given(first=st.lists(FIELD_KINDS, max_size=4), second=st.lists(FIELD_KINDS, max_size=4), nested=st.integers(0, 2))
def test_additions_compose(first: list[str], second: list[str], nested: int) -> None:
    """If b only adds to a and c only adds to b, then c only adds to a: exactly what both steps added."""
    b = changed({"M": {f"f{index}": (50 + index, kind) for index, kind in enumerate(first)}})
    c = copy.deepcopy(b)
    c["M"] |= {f"s{index}": (80 + index, kind) for index, kind in enumerate(second)}
    c["Pos"] |= {f"n{index}": (10 + index, "int32") for index in range(nested)}
    steps = [message(each, ENUMS) for each in (BASE, b, c)]
    one, two, both = compare(steps[0], steps[1]), compare(steps[1], steps[2]), compare(steps[0], steps[2])
    told = [set(each.fields) if isinstance(each, Additive) else set() for each in (one, two, both)]
    assert not isinstance(both, Breaking)
    assert told[2] == told[0] | told[1]


@settings(max_examples=60, deadline=None)
@given(kinds=st.lists(FIELD_KINDS, min_size=1, max_size=6), gone=st.integers(0, 5))
def test_taking_back_an_addition_is_breaking(kinds: list[str], gone: int) -> None:
    """Additive is one-way: the reverse of an addition names what is missing."""
    grown = changed({"M": {f"f{index}": (50 + index, kind) for index, kind in enumerate(kinds)}})
    lost = f"f{gone % len(kinds)}"
    shrunk = copy.deepcopy(grown)
    del shrunk["M"][lost]
    change = compare(message(grown, ENUMS), message(shrunk, ENUMS))
    assert isinstance(change, Breaking)
    assert [reason.split(":")[0] for reason in change.reasons] == [lost]
