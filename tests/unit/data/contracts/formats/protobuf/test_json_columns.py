"""Struct, Value and ListValue as columns of JSON text."""

import json
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import OneofDescriptorProto
from google.protobuf.struct_pb2 import Struct, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.protobuf.json_columns import number_text
from pipeline.data.contracts.formats.protobuf.reference_json import json_of
from pipeline.data.contracts.formats.supported import columns, decoder, format_of
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.schemas import PLAIN, Schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import message_class, payloads
from tests.unit.data.contracts.formats.protobuf.wire_world import SYNTAXES, Shallow, tagged

FIELDS: dict[str, Fields] = {
    "M": {
        "id": (1, "int32"),
        "settings": (2, "wkt:Struct"),
        "any": (3, "wkt:Value"),
        "list": (4, "wkt:ListValue"),
        "many": (5, "repeated wkt:Value"),
        "by": (6, "map<string, wkt:Struct>"),
        "sub": (7, "S"),
        "subs": (8, "repeated S"),
        "sub_by": (9, "map<int32, S>"),
    },
    "S": {"any": (1, "wkt:Value"), "n": (2, "int32"), "other": (3, "wkt:Value")},
}


def schema(syntax: str = "proto3", fields: dict[str, Fields] | None = None) -> Schema:
    submitted = bundle(define(fields or FIELDS, syntax=syntax))
    return Schema(1, "protobuf", "t.M", format_of("protobuf").canonical("t.M", submitted))


SCHEMAS = {syntax: schema(syntax) for syntax in SYNTAXES}
M = message_class(SCHEMAS["proto3"])


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with the entries of maps in order; parsers give them in any."""
    return [row | {name: sorted(row[name], key=repr) for name in ("by", "sub_by")} for row in rows]


def decode(*contents: bytes, syntax: str = "proto3") -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return the rows, and why others were refused; both decoders must agree."""
    of = SCHEMAS[syntax]
    ours = decoder(of).decode(payloads(*contents))
    table, refused = format_of("protobuf").reference(of, {}).decode(contents)
    assert {each.row: each.reason for each in ours.refused} == {row: why.reason for row, why in refused.items()}
    assert ours.batch.schema == columns(of)
    rows = in_order(ours.batch.to_pylist())
    assert rows == in_order(table.to_pylist())
    return rows, {each.row: each.detail for each in ours.refused}


NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)  # -0.0 becomes 0
NUMBERS |= st.integers(-(2**60), 2**60).map(float)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=4),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=12,
)


def said(value: Any) -> str:
    """Return a value in a form that tells 1 from true and has the members of a struct in order."""
    return json.dumps(value, sort_keys=True)


def read(text: str) -> str:
    """Return what a text says, in the same form."""
    return said(json.loads(text, parse_int=float))


@pytest.mark.parametrize("syntax", SYNTAXES)
@settings(max_examples=15, deadline=None)
@given(value=VALUES, other=VALUES)
def test_a_text_says_what_the_value_says(syntax: str, value: Any, other: Any) -> None:
    """Law L5: a reader of the JSON text gets the producer's values, in every place, from both decoders."""
    given = {
        "any": value,
        "many": [value, other],
        "by": {"a": {"k": value}, "b": {}},
        "sub": {"any": other},
        "subs": [{}, {"any": value}],
        "subBy": {"1": {"any": value}, "2": {"any": other}},
    }
    content = json_format.ParseDict(given, message_class(SCHEMAS[syntax])()).SerializeToString()
    ((row,), refused) = decode(content, syntax=syntax)
    assert not refused
    assert read(row["any"]) == said(value)
    assert [read(each) for each in row["many"]] == [said(value), said(other)]
    assert [read(text) for _, text in row["by"]] == [said({"k": value}), "{}"]
    assert [each["any"] for each in row["subs"]] == [None, row["any"]]
    assert [each["any"] for _, each in row["sub_by"]] == [row["any"], row["sub"]["any"]]
    assert (row["settings"], row["list"]) == (None, None)


RFC_8785 = {  # appendix B
    0.0: "0", 5e-324: "5e-324", -5e-324: "-5e-324", 1.7976931348623157e308: "1.7976931348623157e+308",
    -1.7976931348623157e308: "-1.7976931348623157e+308", 9007199254740992.0: "9007199254740992",
    -9007199254740992.0: "-9007199254740992", 295147905179352830000.0: "295147905179352830000",
    9.999999999999997e22: "9.999999999999997e+22", 1e23: "1e+23", 1.0000000000000001e23: "1.0000000000000001e+23",
    999999999999999700000.0: "999999999999999700000", 999999999999999900000.0: "999999999999999900000",
    1e21: "1e+21", 9.999999999999997e-7: "9.999999999999997e-7", 0.000001: "0.000001",
    333333333.3333332: "333333333.3333332", 333333333.33333325: "333333333.33333325",
    333333333.3333333: "333333333.3333333", 333333333.3333334: "333333333.3333334",
    333333333.33333343: "333333333.33333343", -0.0000033333333333333333: "-0.0000033333333333333333",
    1424953923781206.2: "1424953923781206.2", 1.0: "1", -7.0: "-7", 0.5: "0.5", 1e-7: "1e-7", -1.5e-9: "-1.5e-9",
    123456789012345680.0: "123456789012345680",
}  # fmt: skip


@pytest.mark.parametrize(("number", "text"), RFC_8785.items(), ids=str)
def test_numbers_have_one_form(number: float, text: str) -> None:
    """Equal numbers have equal texts, those of RFC 8785, so that texts can be compared and counted."""
    assert number_text(number) == text
    assert number_text(-number) == (f"-{text}" if number > 0 else text.removeprefix("-"))
    assert json_of(Value(number_value=number)) == text


@settings(max_examples=100, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_both_decoders_write_numbers_alike_and_exactly(number: float) -> None:
    """Law L5: no digit is lost, and the oracle's own arithmetic gives the same text."""
    assert float(number_text(number)) == number
    assert json_of(Value(number_value=number)) == number_text(number)


def test_members_are_in_order_whatever_the_producer_wrote() -> None:
    """Producers write members in any order; the text has them in the order of their UTF-16 code units."""
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\xf6", "</script>", '"\\\b\x0f']
    contents = []
    for order in (names, names[::-1]):
        entries = b"".join(Struct(fields={name: Value(bool_value=True)}).SerializeToString() for name in order)
        contents.append(tagged(2, 2, entries))
    rows, _ = decode(*contents)
    inside = ['"\\r"', '"\\"\\\\\\b\\u000f"', '"1"', '"</script>"', '"\x80"', '"\xf6"', '"\u20ac"', '"\U0001f600"']
    wanted = "{" + ",".join(f"{name}:true" for name in [*inside, '"\ufb33"']) + "}"
    assert [row["settings"] for row in rows] == [wanted, wanted]


def holding(place: str, number: float) -> bytes:
    """Return a payload that has a number in one place."""
    event = M(id=2)
    targets: dict[str, Callable[[], Any]] = {
        "settings": lambda: event.settings.fields["k"],
        "any": lambda: event.any,
        "list": event.list.values.add,
        "many": lambda: (event.many.add(bool_value=True), event.many.add())[1],
        "by": lambda: event.by["k"].fields["k"],
        "sub": lambda: event.sub.any,
        "sub, the second": lambda: event.sub.other,
        "subs": lambda: (event.subs.add(n=1), event.subs.add().any)[1],
        "sub_by": lambda: event.sub_by[7].any,
    }
    targets[place]().number_value = number
    content: bytes = event.SerializeToString()
    return content


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["settings", "any", "list", "many", "by", "sub", "sub, the second", "subs", "sub_by"])
def test_a_number_that_json_lacks_costs_its_own_row(place: str, number: float) -> None:
    """Law L6: it is never written as null or as a text; its row is refused by name, and its neighbours land."""
    bad, good = holding(place, number), holding(place, 1.0)
    rows, refused = decode(good, b"\xff", bad, b"\x08\x05", good)
    assert [row["id"] for row in rows] == [2, 5, 2]
    assert list(refused) == [1, 2]
    assert refused[2] == f"a number that JSON lacks in {place.partition(',')[0]}"


NULL, ONE, TRUE = b"\x08\x00", tagged(2, 1, b"\0\0\0\0\0\0\xf0\x3f"), b"\x20\x01"
CARELESS = {
    "a value without a kind": (tagged(3, 2, b""), {"any": "null"}),
    "null, which is not absent": (tagged(3, 2, NULL), {"any": "null"}),
    "two kinds, of which the last counts": (tagged(3, 2, ONE + TRUE), {"any": "true"}),
    "two parts, of which the last kind counts": (tagged(3, 2, ONE) + tagged(3, 2, TRUE), {"any": "true"}),
    "a list in two parts": (tagged(4, 2, tagged(1, 2, ONE)) + tagged(4, 2, tagged(1, 2, TRUE)), {"list": "[1,true]"}),
    "a struct in two parts": (
        tagged(2, 2, tagged(1, 2, b"\x0a\x01b\x12\x02\x08\x00"))
        + tagged(2, 2, tagged(1, 2, b"\x0a\x01a\x12\x02\x20\x01")),
        {"settings": '{"a":true,"b":null}'},
    ),
    "one member twice": (
        tagged(2, 2, tagged(1, 2, b"\x0a\x01a\x12\x02\x08\x00") + tagged(1, 2, b"\x0a\x01a\x12\x02\x20\x01")),
        {"settings": '{"a":true}'},
    ),
    "a member without a value": (tagged(2, 2, tagged(1, 2, b"\x0a\x01a")), {"settings": '{"a":null}'}),
    "a member without a name": (tagged(2, 2, tagged(1, 2, b"")), {"settings": '{"":null}'}),
    "an entry without a struct": (tagged(6, 2, b"\x0a\x01k"), {"by": [("k", "{}")]}),
    "an empty struct": (tagged(2, 2, b""), {"settings": "{}"}),
    "an unknown field": (tagged(3, 2, TRUE + tagged(99, 0, b"\x05")), {"any": "true"}),
    "a null of a later version": (tagged(3, 2, b"\x08\x07"), {"any": "null"}),
}  # fmt: skip


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize(("content", "wanted"), CARELESS.values(), ids=list(CARELESS))
def test_careless_bytes_have_the_value_that_protobuf_gives_them(
    syntax: str, content: bytes, wanted: dict[str, Any]
) -> None:
    """Law L5: repeated, split and incomplete messages of JSON follow protobuf's rules, as all others do."""
    rows, refused = decode(b"\x08\x05", content, b"\x08\x06", syntax=syntax)
    assert not refused
    assert [row["id"] for row in (rows[0], rows[2])] == [5, 6]
    assert {name: rows[1][name] for name in wanted} == wanted


def nested(levels: int) -> bytes:
    """Return a payload with a list in a list, and so on."""
    value = b""
    for _ in range(levels):
        value = tagged(6, 2, tagged(1, 2, value))
    return tagged(3, 2, value)


BROKEN = {
    "a text that is no UTF-8": tagged(3, 2, tagged(3, 2, b"\xff")),
    "a name that is no UTF-8": tagged(2, 2, tagged(1, 2, b"\x0a\x01\xff")),
    "a field of another wire type": tagged(3, 2, tagged(3, 0, b"\x05")),
    "the same in a struct in a list": tagged(4, 2, tagged(1, 2, tagged(5, 2, tagged(1, 0, b"\x05")))),
    "bytes that are cut": tagged(3, 2, b"\x1a\x05a"),
    "lists in lists without an end": nested(50),
    "lists in lists, many more": nested(10_000),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=list(BROKEN))
def test_broken_json_costs_its_own_row(content: bytes) -> None:
    """Law L6: what no parser reads, or would read as a default, is refused alone and by both decoders."""
    rows, refused = decode(b"\x08\x05", content, b"\x08\x06")
    assert [row["id"] for row in rows] == [5, 6]
    assert list(refused) == [1]


def test_as_deep_as_protobuf_reads() -> None:
    """Nesting up to the parser's own limit of 100 messages lands."""
    rows, refused = decode(nested(49))
    assert (rows[0]["any"], refused) == ("[" * 49 + "null" + "]" * 49, {})


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**64))
def test_whatever_the_bytes_both_decoders_agree(seed: int) -> None:
    """Law L5: fields in any order and number, padded, repeated and unknown ones, in messages of JSON at any depth."""
    decode(*(row for row in Shallow(seed).rows(M) if row))


def test_fields_beside_json_keep_their_absence() -> None:
    """Law L5: the definition that the Arrow parser reads has the presence, oneofs and lists of the given one."""
    fields: Fields = {"s": (1, "wkt:Struct"), "maybe": (2, "optional int32"), "a": (3, "int32"), "b": (4, "wkt:Value")}
    file = define({"M": {**fields, "plain": (5, "int32"), "many": (6, "repeated int32")}})
    file.message_type[0].oneof_decl.insert(0, OneofDescriptorProto(name="one"))
    file.message_type[0].field[1].oneof_index = 1
    for place in (2, 3):
        file.message_type[0].field[place].oneof_index = 0
    of = Schema(1, "protobuf", "t.M", format_of("protobuf").canonical("t.M", bundle(file)))
    contents = [b"\x28\x01", b"\x10\x00\x18\x07", b"\x18\x07\x22\x02\x08\x00\x30\x01\x30\x02"]
    rows = decoder(of).decode(payloads(*contents)).batch.to_pylist()
    assert rows == format_of("protobuf").reference(of, {}).decode(contents)[0].to_pylist()
    nothing: dict[str, Any] = {"s": None, "maybe": None, "a": None, "b": None, "plain": 0, "many": []}
    assert rows == [{**nothing, "plain": 1}, {**nothing, "maybe": 0, "a": 7}, {**nothing, "b": "null", "many": [1, 2]}]


def test_json_evolves_as_one_kind_of_its_own() -> None:
    """A struct that becomes any value, a text or a message has another kind; an unchanged one changes nothing."""
    before = schema(fields={"M": {"a": (1, "wkt:Struct"), "b": (2, "int32")}})
    assert evolve(((before, PLAIN),), before, DEFAULTS) == ((), PLAIN)
    for other in ("wkt:Value", "string", "bytes", "wkt:ListValue", "repeated wkt:Struct", "wkt:Any"):
        steps, _ = evolve(((before, PLAIN),), schema(fields={"M": {"a": (1, other), "b": (2, "int32")}}), DEFAULTS)
        assert [(step.kind, step.policy) for step in steps] == [("incompatible", "refuse")], other


def test_half_a_slice_is_read_by_its_own_places() -> None:
    """Law L5: a slice of a larger array gives its own rows."""
    contents = [json_format.ParseDict({"id": row, "many": [row, "x"]}, M()).SerializeToString() for row in range(1, 9)]
    sliced = decoder(SCHEMAS["proto3"]).decode(payloads(*contents).slice(3, 4)).batch
    assert sliced.column("many").to_pylist() == [[str(row), '"x"'] for row in range(4, 8)]
    assert isinstance(sliced.column("many"), pa.ListArray)
