import itertools
from collections.abc import Mapping, Sequence

import pytest

from pipeline.base.errors import Refused
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.protobuf.defects import defects
from pipeline.data.contracts.formats.protobuf.messages import submitted
from pipeline.data.contracts.model import MAX_COLUMNS, MAX_DEPTH
from pipeline.data.contracts.plans import Step
from pipeline.data.contracts.policies import CHOICES, DEFAULTS, Policies, parse_policies
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement
from pipeline.data.contracts.shape import table_schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define, message
from tests.unit.data.contracts.history_world import BASE, ENUMS, Edits, changed, choose, grown, reported, schema


def evolved(edits: Edits, policies: Policies = DEFAULTS) -> tuple[tuple[Step, ...], FieldPlacement]:
    """Return what edits of BASE change."""
    return evolve(grown(schema(BASE)), schema(changed(edits)), policies)


def test_the_same_definition_changes_nothing() -> None:
    """A schema that means the same has an empty plan, and the order of declarations does not matter."""
    shuffled: dict[str, Fields] = {name: dict(reversed(fields.items())) for name, fields in reversed(BASE.items())}
    assert evolve(grown(schema(BASE)), schema(BASE), DEFAULTS) == ((), PLAIN)
    assert evolve(grown(schema(BASE)), schema(shuffled), DEFAULTS) == ((), PLAIN)


@pytest.mark.parametrize(
    ("edits", "path", "type_"),
    [
        ({"M": {"new": (19, "string")}}, "new", "string"),
        ({"M": {"new": (19, "map<string, int32>")}}, "new", "map<string, long>"),
        ({"Pos": {"z": (3, "float")}}, "pos.z", "double"),
        ({"M": {"late": (19, "Late")}, "Late": {"q": (1, "int32")}}, "late", "struct<q: long>"),
        ({"M": {"id": (1, "optional uint64")}}, "id", "decimal(20, 0)"),
    ],
)
def test_additions_are_named_by_path(edits: Edits, path: str, type_: str) -> None:
    """A new field with a new number, at any depth, is added, and its path, column and type are told."""
    steps, placement = evolved(edits)
    assert (steps[0].path, steps[0].kind, steps[0].policy) == (path, "add", "add")
    assert (steps[0].column, steps[0].type) == (path, type_)
    assert placement == PLAIN
    assert {step.kind for step in steps} == {"add"}


def test_a_new_enum_value_is_added() -> None:
    """A new value needs no new column: it is one more text in it."""
    steps, placement = evolve(grown(schema(BASE)), schema(BASE, {"E": {"ZERO": 0, "ONE": 1, "TWO": 2}}), DEFAULTS)
    assert [str(step) for step in steps] == ["kind: has the new value TWO"]
    assert placement == PLAIN


@pytest.mark.parametrize(
    ("edits", "kind", "sentence"),
    [
        ({"M": {"id": None, "other": (1, "string")}}, "reuse", "other: its number 1 belonged to the name id (uint64)"),
        ({"M": {"id": (20, "uint64")}}, "reuse", "id: its number changed from 1 to 20"),
        ({"M": {"id": (1, "int64")}}, "incompatible", "id: its type changed from uint64 to int64"),
        ({"M": {"level": (9, "string")}}, "incompatible", "level: its type changed from int32 to string"),
        ({"M": {"kills": (10, "bool")}}, "incompatible", "kills: its type changed from uint32 to bool"),
        ({"M": {"kills": (10, "float")}}, "incompatible", "kills: its type changed from uint32 to float"),
        ({"M": {"kills": (10, "E")}}, "incompatible", "kills: its type changed from uint32 to enum"),
        ({"M": {"level": (9, "wkt:Duration")}}, "incompatible", "changed from int32 to google.protobuf.Duration"),
        ({"M": {"level": None, "rank": (9, "uint32")}}, "reuse", "its number 9 belonged to the name level (int32)"),
        ({"M": {"id": (1, "repeated uint64")}}, "incompatible", "id: its type changed from uint64 to repeated uint64"),
        ({"M": {"tags": (2, "string")}}, "incompatible", "tags: its type changed from repeated string to string"),
        ({"M": {"by_name": (5, "map<int32, Pos>")}}, "incompatible", "changed from map<string, message> to map<int32"),
        ({"M": {"by_name": (5, "repeated Pos")}}, "incompatible", "by_name: its type changed"),
        ({"M": {"at": (7, "Pos")}}, "incompatible", "changed from google.protobuf.Timestamp to message"),
        ({"M": {"kind": (6, "int32")}}, "incompatible", "kind: its type changed from enum to int32"),
        ({"Pos": {"x": (1, "string")}}, "incompatible", "pos.x: its type changed from float to string"),
        ({"M": {"ID": (19, "int32")}}, "name", "ID: is the name of another field of its message"),
        ({"Pos": {"X": (9, "int32")}}, "name", "hits.X: is the name of another field of its message"),
        ({"M": {"_seq": (19, "int64")}}, "name", "_seq: names that begin with '_'"),
        ({"M": {"x" * 256: (19, "int64")}}, "name", "a column needs a name of at most 255"),
    ],
)
@pytest.mark.proves("B22")
def test_what_is_refused_by_default_names_its_field(edits: Edits, kind: str, sentence: str) -> None:
    """B22: what a column cannot hold, or what would mix two fields, is refused with the field's path."""
    steps, placement = evolved(edits)
    assert any(sentence in str(step) for step in steps if (step.kind, step.policy) == (kind, "refuse"))
    assert placement == PLAIN


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"M": {"me": (19, "M")}}, "me: contains itself (t.M)"),
        ({"Pos": {"owner": (9, "M")}}, "pos.owner: contains itself (t.M)"),
    ],
)
@pytest.mark.proves("B15")
def test_a_recursive_definition_has_no_table(edits: Edits, reason: str) -> None:
    """B15: a type that contains itself is found when it is registered, before any stream sees it."""
    assert any(reason in each for each in defects(submitted("t.M", bundle(define(changed(edits), ENUMS)))))


@pytest.mark.parametrize(
    ("edits", "path"),
    [
        ({"M": {"level": (9, "int64")}}, "level"),
        ({"M": {"level": (9, "sint32")}}, "level"),
        ({"M": {"kills": (10, "fixed32")}}, "kills"),
        ({"M": {"kills": (10, "int64")}}, "kills"),
        ({"M": {"maybe": (8, "wkt:Int64Value")}}, "maybe"),
        ({"M": {"scores": (11, "repeated int64")}}, "scores"),
        ({"M": {"ranks": (12, "map<string, int64>")}}, "ranks"),
        ({"Pos": {"x": (1, "double")}}, "pos.x"),
        ({"M": {"level": (9, "uint32")}}, "level"),
        ({"M": {"kills": (10, "int32")}}, "kills"),
        ({"M": {"kills": (10, "sfixed32")}}, "kills"),
        ({"M": {"kills": (10, "wkt:Int32Value")}}, "kills"),
        ({"M": {"scores": (11, "repeated fixed32")}}, "scores"),
        ({"M": {"ranks": (12, "map<string, uint32>")}}, "ranks"),
    ],
)
@pytest.mark.proves("B23")
def test_widening_needs_no_new_column(edits: Edits, path: str) -> None:
    """B23: integers of a long and floats of a double keep their column: it holds both as they are."""
    steps, placement = evolved(edits)
    assert (path, "widen: widen", path) in reported(steps)
    assert placement == PLAIN
    held = grown(schema(BASE))
    assert table_schema(held) == table_schema((*held, (schema(changed(edits)), placement)))


INTEGERS = ("int32", "sint32", "sfixed32", "uint32", "fixed32", "int64", "sint64", "sfixed64")


@pytest.mark.parametrize("kinds", [INTEGERS, ("float", "double"), tuple(f"map<{each}, bool>" for each in INTEGERS)])
@pytest.mark.proves("B23")
def test_numbers_of_one_column_change_into_each_other(kinds: Sequence[str]) -> None:
    """B23: each row names its writer's schema, so narrower numbers and other signs share a column."""
    for old, new in itertools.permutations(kinds, 2):
        held = grown(schema({"M": {"x": (1, old)}}, {}))
        steps, placement = evolve(held, schema({"M": {"x": (1, new)}}, {}), DEFAULTS)
        assert (reported(steps), placement) == ([("x", "widen: widen", "x")], PLAIN), (old, new)
        assert not steps[0].breaks


MISREAD = "; a row that names the wrong version would have a wrong value"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("int32", "int64", ""),
        ("uint32", "int64", ""),
        ("int32", "uint32", MISREAD),
        ("int64", "int32", MISREAD),
        ("int32", "sint32", MISREAD),
        ("fixed32", "sfixed32", MISREAD),
        ("map<int32, bool>", "map<uint32, bool>", MISREAD),
        ("fixed32", "uint32", ""),  # of another wire type: such a row goes to quarantine
        ("float", "double", ""),
        ("double", "float", "; new values have a float's precision"),
    ],
)
def test_a_plan_says_what_can_change_a_value(old: str, new: str, sentence: str) -> None:
    """B23: the column is the same, and yet a person reads what the change of a type may do to values."""
    (step,) = evolve(grown(schema({"M": {"x": (1, old)}}, {})), schema({"M": {"x": (1, new)}}, {}), DEFAULTS)[0]
    assert str(step) == f"x: its type changed from {old} to {new}{sentence}"


def test_a_wide_number_goes_back_to_its_own_side_column() -> None:
    """B23: of two columns that hold a narrower number, the one that holds the wide one too is found again."""
    kinds = ("uint32", "uint64", "fixed64", "uint32", "fixed64")
    held = grown(*(schema({"M": {"x": (1, kind)}}, {}) for kind in kinds))
    assert [dict(placement.names).get("x", "x") for _, placement in held] == ["x", "x__v2", "x__v2", "x", "x__v2"]


def test_what_a_column_is_too_narrow_for_widens_beside_it() -> None:
    """B23: uint32 lies in a long, which cannot hold a uint64: the wide values get a column of their own."""
    steps, placement = evolved({"M": {"kills": (10, "uint64")}})
    assert reported(steps) == [("kills", "widen: side-column", "kills__v2")]
    assert steps[0].type == "decimal(20, 0)"
    assert placement == FieldPlacement((("kills", "kills__v2"),))


@pytest.mark.parametrize("kind", ["string", "Pos", "repeated int32", "map<string, int32>", "uint64"])
@pytest.mark.proves("G77")
def test_with_a_side_column_an_incompatible_change_lands(kind: str) -> None:
    """B22: the old column keeps its type, the new type lies beside it, and the table has both."""
    held = grown(schema(BASE))
    new = schema(changed({"M": {"level": (9, kind)}}))
    steps, placement = evolve(held, new, choose("incompatible=side-column"))
    assert reported(steps) == [("level", "incompatible: side-column", "level__v2")]
    assert [*table_schema(held), table_schema((*held, (new, placement))).field("level__v2")] == [
        *table_schema((*held, (new, placement)))
    ]


def test_a_side_column_never_takes_the_name_of_a_field() -> None:
    """Where `level__v2` is a field already, the next free number is taken."""
    base = changed({"M": {"Level__V2": (30, "bool")}})
    new = schema(changed({"M": {"level": (9, "string")}}, base))
    _, placement = evolve(grown(schema(base)), new, choose("incompatible=side-column"))
    assert placement == FieldPlacement((("level", "level__v3"),))


def test_a_member_changes_inside_its_message() -> None:
    """A change inside messages gets a member beside the old one, wherever the message is used."""
    held = grown(schema(BASE))
    new = schema(changed({"Pos": {"x": (1, "string")}}))
    _, placement = evolve(held, new, choose("incompatible=side-column"))
    assert placement.names == (("by_name.x", "x__v2"), ("hits.x", "x__v2"), ("pos.x", "x__v2"))
    assert str(table_schema((*held, (new, placement))).field("pos").type) == (
        "struct<x: double, y: double, x__v2: string>"
    )


def test_a_rename_that_widens_does_both() -> None:
    """One field may change its name and widen at once; each is told, and each may be refused."""
    edits: Edits = {"M": {"level": None, "rank": (9, "int64")}}
    steps, placement = evolved(edits)
    assert reported(steps) == [("rank", "rename: keep", "level"), ("rank", "widen: widen", "level")]
    assert placement == FieldPlacement((("rank", "level"),))
    assert [step.policy for step in evolved(edits, choose("widen=refuse"))[0]] == ["keep", "refuse"]


@pytest.mark.parametrize(
    ("field", "column"),
    [("LEVEL", "LEVEL__f30"), ("_seq", "seq__f30"), ("__", "field__f30"), ("x" * 300, "x" * 235 + "__f30")],
)
def test_a_name_no_table_can_have_is_changed_by_its_number(field: str, column: str) -> None:
    """B16: with the policy `side-column` the name is made from name and number alone, so it is the same everywhere."""
    held = grown(schema(BASE))
    new = schema(changed({"M": {"level": None, field: (30, "int32")}}))
    steps, placement = evolve(held, new, choose("name=side-column"))
    assert reported(steps)[-1] == (field, "name: side-column", column)
    assert placement == FieldPlacement(((field, column),))
    names = [name.lower() for name in table_schema((*held, (new, placement))).names]
    assert len(names) == len(set(names))


@pytest.mark.proves("B16")
def test_case_twins_of_one_schema_are_two_columns_or_none() -> None:
    """B16: also within the first version of a schema, and inside messages."""
    twins: dict[str, Fields] = {
        "M": {"a": (1, "int32"), "A": (2, "int32"), "s": (3, "S")},
        "S": {"b": (1, "bool"), "B": (2, "bool")},
    }
    assert {step.policy for step in evolve((), schema(twins), DEFAULTS)[0] if step.kind == "name"} == {"refuse"}
    _, placement = evolve((), schema(twins), choose("name=side-column"))
    assert placement == PLAIN  # the decoder itself tells twins of one schema apart
    assert table_schema(((schema(twins), placement),)).names == ["a", "A__f2", "s"]


@pytest.mark.parametrize("kind", [kind for kind in CHOICES if kind != "format"])
def test_quarantine_keeps_a_whole_schema_out_of_the_table(kind: str) -> None:
    """Every kind of change may send a schema's rows to quarantine: then neither table nor later plans know of it."""
    edits: Mapping[str, Edits] = {
        "add": {"M": {"new": (19, "string")}},
        "widen": {"M": {"level": (9, "int64")}},
        "remove": {"M": {"level": None}},
        "rename": {"M": {"level": None, "rank": (9, "int32")}},
        "incompatible": {"M": {"level": (9, "string")}},
        "name": {"M": {"LEVEL": (30, "string")}},
        "reuse": {"M": {"level": (31, "int32")}},
    }
    new = schema(BASE, {"E": {"ZERO": 0, "UNO": 1}}) if kind == "value" else schema(changed(edits[kind]))
    held = grown(schema(BASE))
    steps, placement = evolve(held, new, Policies(((kind, "quarantine"),)))
    (cause,) = [step for step in steps if step.policy == "quarantine"]
    assert placement == FieldPlacement((), str(cause))
    assert table_schema((*held, (new, placement))) == table_schema(held)


@pytest.mark.parametrize(
    ("values", "sentence", "policy"),
    [
        ({"ZERO": 0}, "kind: its value ONE was removed (number 1)", "keep"),
        ({"ZERO": 0, "UNO": 1}, "kind: its value 1 was renamed from ONE to UNO", "refuse"),
        ({"ZERO": 0, "UNO": 1, "ONE": 1}, "kind: its value 1 was renamed from ONE to UNO", "refuse"),
    ],
)
def test_a_value_keeps_its_name(values: Mapping[str, int], sentence: str, policy: str) -> None:
    """The column holds the value's name, so a rename would tell one thing in two words."""
    steps, _ = evolve(grown(schema(BASE)), schema(BASE, {"E": values}), DEFAULTS)
    assert [(str(step), step.policy) for step in steps] == [(sentence, policy)]


def test_an_alias_after_the_first_name_changes_nothing() -> None:
    """Of names that share a number the first one is written, so a later alias is harmless."""
    assert evolve(grown(schema(BASE)), schema(BASE, {"E": {"ZERO": 0, "ONE": 1, "UNO": 1}}), DEFAULTS) == ((), PLAIN)


def test_enormous_messages_have_no_table() -> None:
    """A payload may not spread into millions or nest without end; the check itself stays quick."""
    doubling: dict[str, Fields] = {"M": {"a": (1, "D0"), "b": (2, "D0")}}
    for level in range(25):
        doubling[f"D{level}"] = {"a": (1, f"D{level + 1}"), "b": (2, f"D{level + 1}")}
    hollow = {**doubling, "M": {**doubling["M"], "x": (3, "int32")}, "D25": {}}
    doubling["D25"] = {"x": (1, "int32")}
    deep: dict[str, Fields] = {"M": {"a": (1, "D0")}, "D2000": {"x": (1, "int32")}}
    deep |= {f"D{level}": {"a": (1, f"D{level + 1}")} for level in range(2000)}
    edge: dict[str, Fields] = {"M": {"a": (1, "D1"), "b": (2, "D0")}, f"D{MAX_DEPTH}": {"x": (1, "int32")}}
    edge |= {f"D{level}": {"a": (1, f"D{level + 1}")} for level in range(MAX_DEPTH)}
    wide: Fields = {f"f{number}": (number, "int32") for number in range(1, MAX_COLUMNS + 1)}
    assert "columns" in defects(message(doubling))[0]
    assert "columns" in defects(message(hollow))[0]
    assert "deeper than" in defects(message(deep))[0]
    assert "levels deep" in defects(message(edge))[0]
    assert not defects(message({"M": wide}))
    assert "columns" in defects(message({"M": {**wide, "more": (5000, "int32")}}))[0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["colour=add"], "the kinds of change are add, widen"),
        (["add"], "the policies of add are add, quarantine, refuse"),
        (["remove=side-column"], "the policies of remove are keep"),
        (["reuse=add"], "the policies of reuse are refuse, side-column, quarantine"),
        (["add=refuse", "add=add"], "add already has the policy refuse"),
    ],
)
def test_wrong_policies_are_told_all_at_once(words: list[str], sentence: str) -> None:
    """A word that is no kind, or no policy of it, is refused with what there is."""
    with pytest.raises(Refused) as refusal:
        parse_policies([*words, "nonsense=1"])
    assert sentence in str(refusal.value)
    assert "nonsense=1" in str(refusal.value)
