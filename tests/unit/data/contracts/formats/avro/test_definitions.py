import json
import time
from typing import Any

import pyarrow as pa
import pytest

from pipeline.base.errors import Refused
from pipeline.data.contracts.columns import type_text
from pipeline.data.contracts.formats.avro.columns import suffix
from pipeline.data.contracts.formats.supported import columns, fingerprint, message
from pipeline.data.contracts.model import MAX_COLUMNS, MAX_DEPTH, Message
from pipeline.data.contracts.registries.avro_sources import inlined
from tests.unit.data.contracts.formats.avro.avro_world import FORMAT, Chance, listed, schema

DATE = {"type": "int", "logicalType": "date"}
DECIMAL = {"type": "bytes", "logicalType": "decimal"}
FIXED = {"type": "fixed", "name": "F"}
DURATION = "struct<months: long, days: long, millis: long>"
INT = {"type": "record", "name": "n.Int", "fields": [{"name": "a", "type": "int"}]}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}


def canonical(given: Any, name: str = "t.R") -> bytes:
    return FORMAT.canonical(name, json.dumps(given).encode())


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "t.R", "fields": list(fields)} | more


def test_equal_meanings_have_one_canonical_form() -> None:
    """Documentation, sort orders, spaces, namespaces and the order of keys and aliases have no meaning."""
    inner = {"type": "record", "name": "In", "fields": listed({"i": "int"})}
    plain = record({"name": "a", "type": inner, "aliases": ["x", "y"]}, {"name": "b", "type": "In"})
    other = {
        "namespace": "t", "name": "R", "doc": "a record", "owner": "me", "type": "record",
        "fields": [
            {"type": inner | {"namespace": "t", "doc": "in"}, "name": "a", "aliases": ["y", "x"], "order": "ignore"},
            {"name": "b", "type": {"type": "t.In"}, "doc": "again"},
        ],
    }  # fmt: skip
    form = canonical(plain)
    assert form == FORMAT.canonical("t.R", json.dumps(other, indent=4).encode())
    assert form == FORMAT.canonical("t.R", form)


@pytest.mark.parametrize(
    "changed",
    [
        record({"name": "e", "type": ENUM | {"symbols": ["B", "A"]}}),
        record({"name": "e", "type": ENUM | {"default": "B"}}),
        record({"name": "e", "type": ENUM | {"aliases": ["F"]}}),
        record({"name": "e", "type": ENUM, "aliases": ["was"]}),
        record({"name": "e", "type": ENUM, "default": "A"}),
        record({"name": "e", "type": ENUM}, aliases=["Was"]),
        record({"name": "e", "type": ["null", ENUM]}),
        record({"name": "e", "type": ENUM}, {"name": "d", "type": {"type": "int", "logicalType": "date"}}),
    ],
)
def test_each_difference_changes_the_canonical_form(changed: Any) -> None:
    """Symbols, defaults, aliases, unions and logical types matter to bytes, columns or evolution."""
    plain = canonical(record({"name": "e", "type": ENUM}))
    assert canonical(changed) != plain
    assert fingerprint("avro", "t.R", canonical(changed)) != fingerprint("avro", "t.R", plain)


def test_an_error_is_a_record() -> None:
    """Avro's `error` has a record's bytes and fields, as a payload, inside one and behind a reference."""
    inner = {"type": "record", "name": "t.In", "fields": listed({"i": "int"})}
    plain = record({"name": "a", "type": ["null", inner]}, {"name": "b", "type": "In"})
    given = record({"name": "a", "type": ["null", inner | {"type": "error"}]}, {"name": "b", "type": "In"})
    assert canonical(given | {"type": "error"}) == canonical(plain)
    referring = record({"name": "a", "type": ["null", "In"]}, {"name": "b", "type": "In"}) | {"type": "error"}
    text, name = inlined(json.dumps(referring), {"In": json.dumps(inner | {"type": "error"})})
    assert FORMAT.canonical(name, text) == canonical(plain)


def test_canonical_forms_of_chance_are_stable() -> None:
    """A canonical form is its own canonical form, and its message has its columns."""
    for seed in range(150):
        of = schema(Chance(seed).record())
        assert of.definition == FORMAT.canonical("t.R", of.definition)
        assert_same(message(of), list(columns(of)))


def assert_same(fields: Message, held: list[pa.Field]) -> None:
    valued = [each for each in fields.fields if each.kind.type is not None]
    assert [(each.name, each.type) for each in held] == [(each.name, each.kind.type) for each in valued]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"\xff", "not JSON"),
        (b"{", "not JSON"),
        (b'{"type":"record","type":"record","name":"t.R","fields":[]}', "a key twice"),
        (b'{"type":"record","name":"t.R","fields":[{"name":"a","type":"int","default":NaN}]}', "not a number of JSON"),
        (b'{"type":"record","name":"t.R","fields":[{"name":"a","type":"double","default":1e999}]}', "not a number"),
        (b'"int"', "it is 'int', and a payload is a record"),
        (b'["null","int"]', "it is 'union'"),
        ({"type": "record", "name": "Other", "fields": listed({"a": "int"})}, "its record is 'Other', not 't.R'"),
        (record({"name": "a", "type": "nope"}), "a: has the unknown type 't.nope'"),
        (record({"name": "a", "type": 5}), "a: is not a type of Avro"),
        (record({"name": "a"}), "a: is not a type of Avro"),
        (record({"name": "a", "type": ["null", "R"]}), "a: contains itself ('t.R')"),
        (record({"name": "a", "type": {"type": "array", "items": "R"}}), "a: contains itself ('t.R')"),
        (record({"name": "a", "type": []}), "a: is a union of nothing"),
        (record({"name": "a", "type": ["int", ["null"]]}), "a: is a union inside a union"),
        (record({"name": "a", "type": ["int", DATE]}), "a: is a union with a type twice"),
        (record({"name": "a-b", "type": "int"}), "the name 'a-b', which is not a name of Avro"),
        (record({"name": "a.b", "type": "int"}), "the name 'a.b', which is not a name of Avro"),
        (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "a: is there twice"),
        (record({"name": "a", "type": ENUM}, {"name": "b", "type": ENUM}), "b: defines 't.E' a second time"),
        (record({"name": "a", "type": ENUM | {"symbols": []}}), "a: is an enum without symbols"),
        (record({"name": "a", "type": ENUM | {"symbols": ["A", "A"]}}), "a: is an enum with a symbol twice"),
        (record({"name": "a", "type": ENUM | {"symbols": ["A b"]}}), "a symbol that is not a name"),
        (record({"name": "a", "type": ENUM | {"default": "C"}}), "whose default is not a symbol"),
        (record({"name": "a", "type": {"type": "fixed", "name": "F", "size": 0}}), "a fixed whose size"),
        (record({"name": "a", "type": {"type": "fixed", "name": "F", "size": 2**20 + 1}}), "a fixed whose size"),
        (record({"name": "a", "type": {"type": "fixed", "name": "F", "size": True}}), "a fixed whose size"),
        (record({"name": "a", "type": {"type": "enum", "symbols": ["A"]}}), "a: has a type without a name"),
        (record({"name": "a", "type": {"type": "fixed", "name": "F g", "size": 1}}), "which is not a name of Avro"),
        (record({"name": "a", "type": "int", "aliases": "b"}), "aliases that are not a list of names"),
        (record({"name": "a", "type": {"type": "record", "name": "S"}}), "a: is a record without a list of fields"),
        (record({"name": "a", "type": DECIMAL | {"precision": 2**31}}), "between 1 and 2147483647"),
        (record({"name": "a", "type": DECIMAL}), "between 1 and 2147483647"),
        (record({"name": "a", "type": DECIMAL | {"precision": 64, "scale": 39}}), "scale is not between 0 and 38"),
        (record({"name": "a", "type": DECIMAL | {"precision": 3, "scale": 4}}), "scale is not between 0 and 3"),
        (record({"name": "a", "type": DECIMAL | FIXED | {"size": 2, "precision": 5}}), "between 1 and 4"),
        (record({"name": "a", "type": DECIMAL | FIXED | {"size": 17, "precision": 41}}), "between 1 and 40"),
        (record(*listed({f"f{index}": "int" for index in range(MAX_COLUMNS + 1)})), "spreads into 1001 columns"),
    ],
)  # fmt: skip
def test_defects_are_refused_by_field(given: Any, why: str) -> None:
    """Each defect of a definition has a reason that names the field."""
    with pytest.raises(Refused) as caught:
        FORMAT.canonical("t.R", given if isinstance(given, bytes) else json.dumps(given).encode())
    assert why in str(caught.value)


def test_every_reason_is_given_at_once() -> None:
    """A person mends a definition in one go, and the list has an end."""
    bad = {f"f{index}": "nope" for index in range(30)}
    with pytest.raises(Refused) as caught:
        canonical(record(*listed({"self": "R", **bad})))
    for part in ("self: contains itself", "f0: has the unknown", "and 21 more"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [b"[" * 500_000, b'{"":' * 200_000, b'"' + b'\\"' * 500_000, b'"' * 10**6, b"[1" + b",1" * 500_000, b" " * 2**21],
    ids=["lists", "objects", "quotes", "texts", "numbers", "size"],
)  # fmt: skip
@pytest.mark.proves("B20")
def test_hostile_json_is_refused_in_time(given: bytes) -> None:
    """A definition comes from outside: neither depth nor length ends the process or holds it up."""
    before = time.process_time()
    with pytest.raises(Refused):
        FORMAT.canonical("t.R", given)
    assert time.process_time() - before < 5


def chain(length: int, twice: bool) -> dict[str, Any]:
    """Return a record whose types contain each the one before, by name: flat JSON."""
    types = [{"type": "record", "name": "N0", "fields": listed({"i": "int"})}]
    for index in range(1, length):
        held = {"a": f"N{index - 1}", "b": f"N{index - 1}"} if twice else {"a": f"N{index - 1}"}
        types.append({"type": "record", "name": f"N{index}", "fields": listed(held)})
    return record(*listed({f"f{index}": each for index, each in enumerate(types)}))


def test_types_that_nest_by_name_are_bounded() -> None:
    """Flat JSON may nest types by name as deep as it likes, or double them at each level."""
    with pytest.raises(Refused, match=f"nests 2001 levels deep, at most {MAX_DEPTH}"):
        canonical(chain(2000, twice=False))
    with pytest.raises(Refused, match=r"spreads into \d{8} columns"):
        canonical(chain(25, twice=True))
    assert len(canonical(chain(MAX_DEPTH - 1, twice=False))) > 0


def of_type(kind: Any) -> str:
    return type_text(columns(schema({"x": kind})).field("x").type)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("boolean", "boolean"),
        ("int", "long"),
        ("long", "long"),
        ("float", "double"),
        ("double", "double"),
        ("string", "string"),
        ("bytes", "binary"),
        ({"type": "fixed", "name": "F", "size": 3}, "binary"),
        (ENUM, "string"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9, 2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}, "decimal(38, 2)"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "long"),
        ({"type": "int", "logicalType": "time-millis"}, "long"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "string"),
        (FIXED | {"size": 12, "logicalType": "duration"}, DURATION),
        ({"type": "string", "logicalType": "date"}, "string"),
        ({"type": "long", "logicalType": "of-tomorrow"}, "long"),
        (["null", "int"], "long"),
        (["string"], "string"),
        (["null", "int", "string"], "struct<int: long, string: string>"),
        ({"type": "map", "values": ["null", "int"]}, "map<string, long>"),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, "array<array<long>>"),
        ({"type": "record", "name": "S", "fields": listed({"a": "int", "none": "null"})}, "struct<a: long>"),
        (["int", INT], f"struct<int: long, Int__{suffix('n.Int')}: struct<a: long>>"),
    ],
)  # fmt: skip
def test_types_have_the_columns_of_the_documents(kind: Any, column: str) -> None:
    """docs/data.md has the table: each type of Avro has one type of column."""
    assert column == of_type(kind)


def test_twins_get_distinct_columns() -> None:
    """Tables ignore case: the field that is declared first keeps its name, whatever the others are."""
    first = columns(schema({"id": "int", "ID": "int", "Id": "string"}))
    assert ["id", f"ID__{suffix('ID')}", f"Id__{suffix('Id')}"] == first.names
    with pytest.raises(Refused, match="columns would have one name"):
        schema({"id": "int", "ID": "int", f"ID__{suffix('ID')}": "int"})


def test_fields_are_known_by_name_for_evolution() -> None:
    """Evolution works on ids, earlier names, kinds and symbols."""
    of = schema(
        record(
            {"name": "score", "type": ["null", "double"], "aliases": ["points"]},
            {"name": "kind", "type": {"type": "array", "items": ENUM}},
            {
                "name": "who",
                "type": ["null", "int", {"type": "record", "name": "t.P", "fields": listed({"x": "long"})}],
            },
        )
    )
    score, kind, who = message(of).fields
    assert ("score", frozenset({"points"}), True) == (score.id, score.aliases, score.optional)
    assert frozenset({"int32", "int64", "float"}) == score.kind.promotes
    assert (kind.kind.text, kind.kind.shape, kind.kind.values) == ("array of enum", "repeated", "enum")
    assert kind.labels == {"A": "A", "B": "B"}
    assert who.inside is not None
    branches = [(each.id, each.name, each.optional) for each in who.inside.fields]
    assert branches == [("int", "int", True), ("t.P", "P", True)]
