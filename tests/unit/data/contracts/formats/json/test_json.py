"""Declared JSON Schemas and the documents that fit them: read together, one by one, and by the oracle."""

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pipeline.base.errors import Refused
from pipeline.data.contracts.columns import type_text
from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.json import decoder as decoding
from pipeline.data.contracts.formats.json.columns import suffix
from pipeline.data.contracts.formats.json.definitions import describe
from pipeline.data.contracts.formats.json.scalar import DocumentDecoder, Misfit
from pipeline.data.contracts.formats.json.screen import Screen
from pipeline.data.contracts.formats.supported import columns, decoder, message
from pipeline.data.contracts.model import MAX_COLUMNS, remarks
from pipeline.data.contracts.placing import placed
from pipeline.data.contracts.policies import DEFAULTS, parse_policies
from pipeline.data.contracts.schemas import PLAIN, Schema
from tests.unit.data.contracts.formats.json.json_world import BAD_TIMES, FORMAT, Chance, obj, schema

NUMBER, STRING, INTEGER = ({"type": kind} for kind in ("number", "string", "integer"))
TIME = {"type": "string", "format": "date-time"}
POS = obj(x=NUMBER, y=INTEGER)
SIDE = parse_policies(["name=side-column", "incompatible=side-column"])


def nested(depth: int) -> dict[str, Any]:
    return obj(a=nested(depth - 1)) if depth else INTEGER


def both(of: Schema, *documents: bytes | None) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return the rows that both decoders read, and why others are refused by row; both must say the same."""
    decoded = decoder(of).decode(pa.array(documents, pa.binary()))
    decoded.batch.validate(full=True)
    table, refused = FORMAT.reference(of, {}).decode(documents)
    assert {each.row: each.reason for each in decoded.refused} == {row: each.reason for row, each in refused.items()}
    assert repr(decoded.batch.to_pylist()) == repr(table.to_pylist())
    return decoded.batch.to_pylist(), {each.row: each.detail for each in decoded.refused}


@pytest.mark.parametrize(
    ("given", "column"),
    [
        (STRING, "string"),
        ({"type": "string", "format": "uuid", "maxLength": 36}, "string"),
        (TIME, "timestamp"),
        (INTEGER, "long"),
        (NUMBER, "double"),
        ({"type": ["integer", "number", "null"]}, "double"),
        ({"oneOf": [INTEGER, NUMBER]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"enum": ["A", "B", None]}, "string"),
        ({"enum": [1, 2]}, "long"),
        ({"const": "A"}, "string"),
        ({"oneOf": [{"const": "A"}, {"const": "B"}]}, "string"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/definitions/Pos"}]}, "struct<x: double, y: long>"),
        ({"allOf": [{"$ref": "https://acme/lap.json#/definitions/Pos"}]}, "struct<x: double, y: long>"),
        ({"type": "array", "items": POS}, "array<struct<x: double, y: long>>"),
        ({"type": "object", "additionalProperties": INTEGER}, "map<string, long>"),
        (obj(), "boolean"),
        ({"type": "null"}, None),
    ],
)
def test_a_declared_type_gives_its_column(given: dict[str, Any], column: str | None) -> None:
    """Types, enums, times, references and unions with null give columns, as docs/data.md says."""
    of = schema({**obj(p=given), "$id": "https://acme/lap.json", "definitions": {"Pos": POS}})
    assert [type_text(each.type) for each in columns(of)] == ([] if column is None else [column])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "'p': has no type"),
        (True, "'p': has no type"),
        ({"type": "date"}, "does not know"),
        ({"type": ["string", "integer"]}, "several types (integer, string)"),
        ({"oneOf": [STRING, INTEGER]}, "one of several types"),
        ({"allOf": [POS, POS]}, "joins several schemas"),
        ({"oneOf": [{"type": "null"}, POS], "properties": {}}, "properties beside oneOf"),
        ({"type": "array"}, "array of anything"),
        ({"type": "array", "items": [STRING]}, "a schema for each item"),
        ({"type": "array", "prefixItems": [STRING]}, "prefixItems"),
        ({"type": "array", "items": {"type": "null"}}, "nothing but nulls"),
        ({"type": "object"}, "object of anything"),
        ({"type": "object", "patternProperties": {"^x": STRING}}, "patternProperties"),
        ({"type": "object", "properties": {"a": STRING}, "additionalProperties": STRING}, "both properties and"),
        ({**obj(a=STRING), "required": ["b"]}, "requires 'b'"),
        ({"$ref": "#"}, "contains itself"),
        ({"$ref": "#/definitions/Nobody"}, "does not define"),
        ({"$ref": "other.json"}, "does not define"),
        ({"type": "string", "enum": ["A", 1]}, "with another value"),
    ],
)
def test_unsupported_keywords_are_named(given: Any, why: str) -> None:
    """A plan says which part of a schema turnout cannot turn into columns, before a row comes."""
    with pytest.raises(Refused) as caught:
        schema(obj(p=given))
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        STRING,
        {"type": "array", "items": STRING},
        obj(**{f"p{index}": STRING for index in range(MAX_COLUMNS + 1)}),
        {
            "$defs": {"d0": STRING}
            | {f"d{n + 1}": obj(a={"$ref": f"#/$defs/d{n}"}, b={"$ref": f"#/$defs/d{n}"}) for n in range(30)}
        }
        | obj(a={"$ref": "#/$defs/d30"}),
        nested(33),
        obj(**{"a b": STRING, "a_b": STRING, f"A_b__{suffix('a b')}": STRING}),
        {**obj(a=STRING), "title": "t.Other"},
    ],
)
def test_schemas_without_a_possible_table_are_refused(given: dict[str, Any]) -> None:
    """No policy helps: payloads are objects, of at most 1,000 columns and 32 levels, under the title's name."""
    with pytest.raises(Refused, match="not usable; change it"):
        schema(given)


def test_equal_meanings_have_one_canonical_form() -> None:
    """The order of properties, annotations and where a type is defined have no meaning; restrictions of values have."""
    one = schema(obj("b", a={"enum": ["A", "B"]}, b={"$ref": "#/$defs/N"}) | {"$defs": {"N": NUMBER}})
    other = schema(
        {"required": ["b"], "properties": {"b": {**NUMBER, "title": "B"}, "a": {"enum": ["B", "A"], "type": "string"}}}
    )
    assert one == other
    assert schema(obj("b", a={"enum": ["A", "B"]}, b={**NUMBER, "minimum": 0})) != one
    assert json.loads(one.definition)["title"] == "t.M"


def test_keywords_that_only_restrict_values_are_named() -> None:
    """A plan says what turnout does not check, and every row lands."""
    of = schema(
        obj(a={**NUMBER, "maximum": 3}, xs={"type": "array", "items": {**STRING, "pattern": "^x"}, "minItems": 1})
    )
    assert list(remarks(message(of))) == [
        "turnout does not check maximum of 'a'",
        "turnout does not check minItems of 'xs'",
        "turnout does not check pattern of 'xs'",
    ]
    assert both(of, b'{"a":4,"xs":[]}') == ([{"a": 4.0, "xs": []}], {})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "5.0", 5), ("integer", "1e3", 1000), ("integer", "-0", 0),
        ("integer", "9223372036854775807", 2**63 - 1), ("number", "5", 5.0), ("number", "5e-324", 5e-324),
        ("number", "0.30000000000000004", 0.1 + 0.2), ("number", "0.5000000000000000000000000000000000", 0.5),
        ("number", "9007199254740992", 2.0**53),
    ],
)  # fmt: skip
def test_a_number_lands_as_it_is_written(kind: str, text: str, value: float) -> None:
    """A declared integer goes by its value, and the text of every double is held, whichever library wrote it."""
    assert both(schema(obj(n={"type": kind})), b'{"n":%s}' % text.encode()) == ([{"n": value}], {})


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("integer", "5.5", "with a fraction"), ("integer", "1e-3", "with a fraction"),
        ("integer", "1e999", "is 1e999, beyond"), ("integer", "1e19", "'n' is 1e19, beyond the 64 bits"),
        ("integer", "9223372036854775808", "beyond"), ("integer", "1e999999999999999999999", "out of range"),
        ("integer", "9" * 5000, "beyond"), ("integer", '"5"', "is text"), ("integer", "true", "is a boolean"),
        ("number", "NaN", "NaN"), ("number", "-Infinity", "-Infinity"), ("number", "1e999", "beyond a double"),
        ("number", "0.1234567890123456789", "every digit"), ("number", "9007199254740993", "every digit"),
        ("number", "1e-400", "every digit"), ("number", "123456789012345678901234567890.5", "every digit"),
        ("string", "5", "is a number"),
    ],
)  # fmt: skip
def test_a_number_that_would_change_is_refused(kind: str, text: str, why: str) -> None:
    """No digit is lost without a word: what a column cannot hold waits in quarantine, with its bytes."""
    (refused,) = both(schema(obj(n={"type": kind})), b'{"n":%s}' % text.encode())[1].values()
    assert why in refused


@pytest.mark.parametrize("text", BAD_TIMES)
@pytest.mark.parametrize("beside", ["2026-11-25T10:00:00Z", "2026-11-25 10:00:00z"])
def test_a_text_without_a_time_is_refused_by_both_decoders(text: str, beside: str) -> None:
    """Both decoders take the same times: zones end before 24:00, and their minutes before 60."""
    documents = [json.dumps({"t": each}).encode() for each in (beside, text)]
    rows, refused = both(schema(obj(t=TIME)), *documents)
    assert (len(rows), [*refused]) == (1, [1])


@pytest.mark.parametrize("document", [b'{"a":"\xff"}', b'{"\xff":1}', b'{"a":"\xed\xa0\x80"}'])
def test_bytes_that_are_not_text_are_named_by_their_place(document: bytes) -> None:
    """The sentence names the first byte outside of UTF-8."""
    (refused,) = both(schema(obj(a=STRING)), document)[1].values()
    place = next(at for at, each in enumerate(document) if each > 127)
    assert refused == f"not UTF-8 at byte {place}"


def test_null_and_missing_are_both_null() -> None:
    """A property may be null, a required one only where its type says it."""
    of = schema(obj("a", "b", a=INTEGER, b={"type": ["integer", "null"]}, c=INTEGER))
    rows, refused = both(of, b'{"a":1}', b'{"a":1,"b":null,"c":null}', b'{"b":1}', b'{"a":null}', b"{}")
    assert rows == [{"a": 1, "b": None, "c": None}] * 2
    assert list(refused) == [2, 3, 4]


def test_names_that_no_column_can_have_get_one_by_policy() -> None:
    """`_seq`, `a.b`, `A` beside `a`, and the empty key are refused, or lie in columns of their own."""
    of = schema(obj(**{"_seq": INTEGER, "a.b": INTEGER, "a": obj(b=INTEGER), "A": INTEGER, "": INTEGER}))
    assert {str(step.path) for step in evolve((), of, DEFAULTS)[0] if step.policy == "refuse"} == {
        "_seq",
        "a.b",
        "a",
        "",
    }
    placement = evolve((), of, SIDE)[1]
    batch = placed(decoder(of).decode(pa.array([b'{"_seq":1,"a.b":2,"a":{"b":3},"A":4,"":5}'])).batch, of, placement)
    (row,) = batch.to_pylist()
    assert row == {
        f"seq__{suffix('_seq')}": 1, f"a_b__{suffix('a.b')}": 2, f"a__{suffix('a')}": {"b": 3}, "A": 4,
        f"field__{suffix('')}": 5,
    }  # fmt: skip


@pytest.mark.parametrize("key", ['a"b', "a\\b", "a\tb", "\x7f", "\x00"])
@pytest.mark.parametrize("maps", [False, True])
def test_a_key_with_any_character_can_be_declared(key: str, maps: bool) -> None:
    """A key that a JSON Schema may have is decoded, also beside maps; msgspec names no field by it."""
    more = {"m": {"type": "object", "additionalProperties": INTEGER}} if maps else {}
    of = schema(obj(o=obj(**{key: INTEGER}), **more))
    rows, refused = both(of, json.dumps({"o": {key: 7}}).encode(), b'{"o":{"x":1}}')
    assert list(rows[0]["o"].values()) == [7]
    assert list(refused) == [1]


def test_a_type_that_changes_gets_a_side_column() -> None:
    """A column keeps its type for good, and a table of JSON evolves like any other."""
    first, second = schema(obj(a=STRING, n=INTEGER)), schema(obj(a=INTEGER, n=NUMBER, more=obj(x=STRING)))
    held = ((first, PLAIN),)
    assert {(step.path, step.kind, step.policy) for step in evolve(held, second, DEFAULTS)[0]} == {
        ("a", "incompatible", "refuse"), ("n", "widen", "side-column"), ("more", "add", "add"),
    }  # fmt: skip
    steps, placement = evolve(held, second, SIDE)
    assert dict(placement.names) == {"a": "a__v2", "n": "n__v2"}
    assert [step.column for step in steps] == ["a__v2", "more", "n__v2"]


def refusals(of: Schema, documents: list[bytes]) -> dict[int, str]:
    return {each.row: each.detail for each in decoder(of).decode(pa.array(documents, pa.binary())).refused}


@pytest.mark.parametrize("maps", [False, True])
def test_a_batch_is_the_table_of_its_rows_one_by_one(monkeypatch: pytest.MonkeyPatch, maps: bool) -> None:
    """Whatever else is in a batch, and wherever it is cut, a document has the same values or the same refusal."""
    monkeypatch.setattr(decoding, "_FEW", 2)
    monkeypatch.setattr(decoding, "_PIECES", 3)
    for seed in range(3):
        chance = Chance(seed, maps=maps)
        given = chance.object(2)
        of, documents = schema(given), list[bytes]()
        for row in range(40):
            chance.armed, chance.how = row % 3 == 0, ""
            documents.append(chance.document(given))
        together = decoder(of).decode(pa.array(documents, pa.binary()))
        alone = [decoder(of).decode(pa.array([each], pa.binary())) for each in documents]
        assert together.rows.tolist() == [row for row, each in enumerate(alone) if not each.refused]
        assert repr(together.batch.to_pylist()) == repr([row for each in alone for row in each.batch.to_pylist()])
        assert [each[1:] for each in together.refused] == [why[1:] for each in alone for why in each.refused]


def test_good_documents_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of them is decoded alone, with maps of scalars as well: that would be ten times as slow."""
    entries = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
    inner = obj(times={"type": "object", "additionalProperties": TIME}, x=INTEGER)
    of = schema(obj(a=STRING, by=entries, inner=inner, xs={"type": "array", "items": POS}))
    documents = [
        json.dumps(
            {"a": "x", "by": {"k": row / 7, "n": None, "": 3}, "inner": {"times": {str(row): "2026-01-01T00:00:00Z"}}}
        )
        for row in range(50)
    ]
    documents += ["{}", '{"by":null,"inner":null}', '{"by":{},"inner":{"times":{}},"xs":[{"x":1},{}]}']
    encoded = [each.encode() for each in documents]
    expected = both(of, *encoded)
    monkeypatch.delattr(DocumentDecoder, "decode")
    assert both(of, *encoded) == expected
    for odd in (
        b'{"by":{"k":1},"by":{}}',
        b'{"by":{"k":1,"k":2}}',
        b'{"by":{"k":1},"b\\u0079":{}}',
        b'{"xs":[{"x":"1"}]}',
    ):
        with pytest.raises(AttributeError):
            both(of, b"{}", odd)


def test_an_undeclared_key_is_refused_without_the_scalar_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents of a newer version cost the older schema's screen, and not its slowest reader."""
    of = schema(obj(a=STRING, inner=obj(b=INTEGER)))
    monkeypatch.delattr(DocumentDecoder, "decode")
    documents = [b'{"a":"x"}', b'{"new":1}', b'{"inner":{"b":1,"late":2}}', b'{"\\u006eew":1}']
    rows, refused = both(of, *documents)
    assert [row["a"] for row in rows] == ["x"]
    assert [refused[row].split("'")[1] for row in (1, 2, 3)] == ["new", "late", "new"]


VALUES = ('"x"', "1", "1.5", "5.0", "1e3", "-0", str(2**70), "1e999", "true", "null", "[]", "[1]", "{}", '{"b":1}')


def test_the_screen_says_what_the_scalar_decoder_says() -> None:
    """A quick refusal is the slow one: the same documents, in the same words."""
    types: list[dict[str, Any]] = [
        STRING,
        INTEGER,
        {"type": "number"},
        {"type": "boolean"},
        TIME,
        {"enum": ["x"]},
        {"type": "null"},
        obj(b=INTEGER),
    ]
    types += [{"type": "array", "items": INTEGER}, {"type": "object", "additionalProperties": INTEGER}]
    types += [
        each | {"type": [each["type"], "null"]} for each in types if "enum" not in each and each["type"] != "null"
    ]
    said = 0
    for each in types:
        root = describe("t.M", schema(obj(v=each, inner=obj(v=each))).definition)
        documents = [form % value.encode() for value in VALUES for form in (b'{"v":%s}', b'{"inner":{"v":%s}}')]
        sure = {place: why for place, why in Screen(root).misfits(pa.array(documents, pa.binary())).items() if why}
        said += len(sure)
        for place, why in sure.items():
            with pytest.raises(Misfit, match=f"^{re.escape(str(why))}$"):
                DocumentDecoder(root).decode(documents[place])
    assert said > 200


def test_the_screen_refuses_nothing_that_fits() -> None:
    """A document is never refused for what only the screen finds in it."""
    for seed in range(30):
        chance = Chance(seed)
        given = chance.object(2)
        root = describe("t.M", schema(given).definition)
        chance.armed, chance.how = True, ""
        documents = [chance.document(given) for _ in range(20)]
        for place, why in Screen(root).misfits(pa.array(documents, pa.binary())).items():
            if why is not None:
                with pytest.raises(Misfit):
                    DocumentDecoder(root).decode(documents[place])


def hostile(count: int) -> list[bytes]:
    """Return documents that fit no schema, or would hurt whoever reads them."""
    chance = Chance(1)
    kinds: list[Callable[[int], bytes]] = [
        lambda _: b'{"a":"\xff%s"}' % chance.draw.randbytes(3).hex().encode(),
        lambda _: b'{"a":"\\ud8%02x"}' % chance.draw.randrange(256),
        lambda _: b'{"n":1,"n":2}',
        lambda _: b'{"o":{"x":1,"x":1}}',
        lambda _: b'{"n":%s}' % chance.draw.choice((b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 5_000)),
        lambda _: b"[" * 10_000,
        lambda _: b'{"o":' * 10_000,
        lambda _: b'{"xs":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        lambda row: b'{"_seq":%d}' % row,
        lambda row: b'{"a.b":%d}' % row,
        lambda row: b'{"A":"x","a":"y","n":%d}' % row,
        lambda row: b'{"%064x":1}' % row,
        lambda row: json.dumps({f"k{index}": row for index in range(300)}).encode(),
        lambda _: b'{"n":1}{"n":2}',
        lambda _: b'{"n":1}}\n{"n":2',
        lambda _: b"",
        lambda _: b"null",
        lambda _: b'\xef\xbb\xbf{"n":1}',
    ]
    return [kinds[row % len(kinds)](row) for row in range(count)]


@pytest.mark.proves("B17", "B18", "B19")
@pytest.mark.parametrize("count", [250, pytest.param(5_000, marks=pytest.mark.long)])
def test_hostile_documents_are_refused_and_their_neighbours_land(count: int) -> None:
    """Law L6: among good ones and with a document of 10 MB, each is refused with a reason, and nobody waits."""
    of = schema(obj(a=STRING, n=INTEGER, o=obj(x=INTEGER), xs={"type": "array", "items": INTEGER}))
    bad = [*hostile(count - 1), b'{"a":"%s"}' % (b"x" * 10_000_000)]
    documents = [each for row, content in enumerate(bad) for each in (content, b'{"n":%d}' % row)]
    decoded = decoder(of).decode(pa.array(documents, pa.binary()))
    assert decoded.batch.column("n").to_pylist() == list(range(count))
    assert [each.row for each in decoded.refused] == list(range(0, 2 * count, 2))
    assert {each.reason for each in decoded.refused} == {"malformed_payload"}
    assert all(each.detail.isprintable() for each in decoded.refused)
    assert len(documents[-2]) > MAX_PAYLOAD_BYTES
    assert decoded.refused[-1].detail.startswith("larger than")


def test_an_excerpt_ends_with_why_a_document_does_not_fit() -> None:
    """A person sees all that reads, and the very reason of quarantine."""
    of = schema(obj(n=INTEGER))
    found = FORMAT.excerpt(of, b'{"n": 1.5, "more": ["x", {"y": null}]}')
    assert found.fields == (("n", "1.5"), ("more", '["x", {"y": null}]'))
    assert found.stopped == refusals(of, [b'{"n": 1.5, "more": ["x", {"y": null}]}'])[0]
