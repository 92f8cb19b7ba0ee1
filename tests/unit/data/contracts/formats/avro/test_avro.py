import datetime as dt
import json
import struct
import time
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.formats import batches
from pipeline.data.contracts.formats.avro import decoder as decoding
from pipeline.data.contracts.formats.avro.scalar import Malformed
from pipeline.data.contracts.formats.supported import columns
from pipeline.data.contracts.placing import placed
from pipeline.data.contracts.schemas import FieldPlacement, Schema
from tests.unit.data.contracts.formats.avro.avro_world import (
    FORMAT,
    Chance,
    assert_sound,
    decode,
    listed,
    payloads,
    schema,
    varint,
)

EVERYTHING = {
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
    "ok": "boolean",
    "s": "string",
    "b": "bytes",
    "fixed": {"type": "fixed", "name": "F", "size": 3},
    "e": {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    "small": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "large": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3},
    "held": {"type": "fixed", "name": "G", "size": 12, "logicalType": "decimal", "precision": 20, "scale": 0},
    "day": {"type": "int", "logicalType": "date"},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "noon": {"type": "int", "logicalType": "time-millis"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "maybe": ["null", "int"],
    "either": ["null", "int", "string", {"type": "record", "name": "P", "fields": listed({"x": "int"})}],
    "list": {"type": "array", "items": ["string", "null"]},
    "map": {"type": "map", "values": "P"},
    "nothing": "null",
    "inner": {"type": "record", "name": "Q", "fields": listed({"p": "P", "many": {"type": "array", "items": "P"}})},
}
SAMPLE: dict[str, Any] = {
    "i": -(2**31), "l": 2**63 - 1, "f": 0.5, "d": -1.25, "ok": True, "s": "Zoë", "b": b"\0\xff", "fixed": b"abc",
    "e": "B",
    "small": (-123_456_789).to_bytes(4, "big", signed=True), "large": (10**38 - 1).to_bytes(17, "big", signed=True),
    "held": (-(10**19)).to_bytes(12, "big", signed=True), "day": 2_932_896, "millis": -62_135_596_800_000,
    "micros": 253_402_300_799_999_999, "noon": 43_200_005, "uuid": "00000000-0000-0000-0000-000000000007",
    "maybe": None, "either": {"x": 5}, "list": ["a", None, ""], "map": {"k": {"x": 1}, "": {"x": 2}}, "nothing": None,
    "inner": {"p": {"x": 1}, "many": [{"x": 2}, {"x": 3}]},
}  # fmt: skip
IN_COLUMNS: dict[str, Any] = {name: value for name, value in SAMPLE.items() if name != "nothing"} | {
    "small": Decimal("-1234567.89"),
    "large": Decimal("99999999999999999999999999999999999.999"),
    "held": Decimal(-(10**19)),
    "day": dt.date(9999, 12, 31),
    "millis": dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    "micros": dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    "noon": 43_200_005_000,
    "either": {"int": None, "string": None, "P": {"x": 5}},
    "map": [("k", {"x": 1}), ("", {"x": 2})],
}


def written(of: Schema, value: Any) -> bytes:
    """Return the bytes that fastavro writes; logical types are left out, or it would round."""
    plain = json.loads(of.definition, object_hook=lambda each: {k: v for k, v in each.items() if k != "logicalType"})
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, plain, value)
    return buffer.getvalue()


def test_values_are_those_that_were_written() -> None:
    """Every type of Avro keeps its value, at the ends of its range too, together with others and alone."""
    of = schema(EVERYTHING)
    payload = written(of, SAMPLE)
    for count in (1, 200):
        assert decode(of, *[payload] * count).batch.to_pylist() == [IN_COLUMNS] * count
    assert_sound(of, [payload, payload])


def agree(seed: int) -> None:
    chance = Chance(seed)
    definition = chance.record()
    whole = [chance.payload(definition) for _ in range(5)]
    assert_sound(schema(definition), whole + [chance.mutant(each) for each in whole])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_decoders_agree_on_any_bytes(seed: int) -> None:
    """Of 500 malformed payloads and 500 whole ones the decoder refuses those that the reference refuses, no others."""
    agree(seed)


@pytest.mark.long
@settings(max_examples=1_000, deadline=None)
@given(st.integers(0, 2**32))
def test_decoders_agree_on_many_bytes(seed: int) -> None:
    """The same of 5,000 malformed payloads."""
    agree(seed)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_neighbours_do_not_matter(seed: int) -> None:
    """A payload has the same verdict, detail and values alone, among others, and in a slice of an array with nulls."""
    chance = Chance(seed)
    definition = chance.record()
    contents = [chance.payload(definition) for _ in range(6)]
    contents += [chance.mutant(each) for each in contents]
    decoder = FORMAT.decoder(schema(definition))
    together = decoder.decode(payloads(None, b"", *contents, None)[1:-1])
    assert together.refused[0].reason == "malformed_payload"
    alone = [decoder.decode(payloads(each)) for each in contents]
    assert [each._replace(row=each.row - 1) for each in together.refused[1:]] == [
        each._replace(row=row) for row, one in enumerate(alone) for each in one.refused
    ]
    values = [row for one in alone for row in one.batch.to_pylist()]
    assert repr(together.batch.to_pylist()) == repr(values)


LONG_BLOCK = varint(-2) + varint(9) + varint(1) + varint(2) + varint(0)
DATE = {"type": "int", "logicalType": "date"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "local-timestamp-millis"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 2}
WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 20}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
INTS = {"type": "array", "items": "int"}
NULLS = {"type": "array", "items": "null"}
LISTS = {"type": "array", "items": NULLS}
MAP = {"type": "map", "values": "int"}
MEBI = 2**20


@pytest.mark.parametrize(
    ("kind", "content", "why"),
    [
        ("boolean", b"\x02", "x: a boolean is 2"),
        ("int", varint(2**31), "x: an int is beyond 32 bits"),
        ("int", varint(-(2**31) - 1), "x: an int is beyond 32 bits"),
        ("int", varint(1, 6), "x: a number has too many bytes"),
        ("long", varint(1, 11), "x: a number has too many bytes"),
        ("long", b"\xff" * 9 + b"\x02", "x: a number is beyond 64 bits"),
        ("long", b"\x80", "x: the payload ends too early"),
        ("double", b"\0" * 7, "x: the payload ends too early"),
        ("string", varint(-1), "x: a length is negative"),
        ("string", varint(2**62), "x: the payload ends too early"),
        ("string", varint(2**63 - 1), "x: the payload ends too early"),
        ("string", varint(1) + b"\xff", "x: a text is not UTF-8"),
        ("string", varint(3) + b"\xed\xa0\x80", "x: a text is not UTF-8"),
        ("bytes", varint(2) + b"a", "x: the payload ends too early"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "x: the payload ends too early"),
        (ENUM, varint(2), "x: an enum of 2 symbols has number 2"),
        (ENUM, varint(-1), "x: an enum of 2 symbols has number -1"),
        (["null", "int"], varint(2), "x: a union of 2 types has number 2"),
        (["null", "int"], varint(-1) + varint(1), "x: a union of 2 types has number -1"),
        (DATE, varint(2_932_897), "x: a date is outside the years 1 to 9999"),
        (DATE, varint(-719_163), "x: a date is outside the years 1 to 9999"),
        (MICROS, varint(253_402_300_800_000_000), "x: a time is outside the years 1 to 9999"),
        (MILLIS, varint(-62_135_596_800_001), "x: a time is outside the years 1 to 9999"),
        (MILLIS, varint(2**63 - 1), "x: a time is outside the years 1 to 9999"),
        (DECIMAL, varint(1) + b"\x64", "x: a decimal has more than 2 digits"),
        (DECIMAL, varint(17) + b"\x01" + b"\0" * 16, "x: a decimal has more than 2 digits"),
        (DECIMAL, varint(0), "x: a decimal has no bytes"),
        (WIDE, varint(9) + (10**20).to_bytes(9, "big"), "x: a decimal has more than 20 digits"),
        (WIDE, varint(9) + (-(10**20)).to_bytes(9, "big", signed=True), "x: a decimal has more than 20 digits"),
        (INTS, varint(2) + varint(1), "x: the payload ends too early"),
        (INTS, varint(2**62) + varint(1), "x: the payload ends too early"),
        (INTS, varint(-(2**63)) + varint(0), "x: the payload ends too early"),
        (INTS, LONG_BLOCK, "x: a block has another size than it states"),
        (INTS, varint(-1) + varint(-1) + varint(1) + varint(0), "x: a block has another size than it states"),
        (NULLS, varint(2**60) + varint(0), f"x: arrays have more than {MEBI} items without bytes"),
        (NULLS, varint(-(2**63)) + varint(0), f"x: arrays have more than {MEBI} items without bytes"),
        (LISTS, varint(2) + (varint(MEBI // 2 + 1) + varint(0)) * 2 + varint(0), "x: arrays have more than"),
        (MAP, varint(2) + (varint(1) + b"k" + varint(1)) * 2 + varint(0), "x: a map has a key twice"),
        (MAP, (varint(1) + varint(1) + b"k" + varint(1)) * 2 + varint(0), "x: a map has a key twice"),
        (MAP, varint(1) + varint(1) + b"\xff" + varint(1) + varint(0), "x: a text is not UTF-8"),
    ],
)  # fmt: skip
def test_bytes_that_no_writer_writes_are_refused(kind: Any, content: bytes, why: str) -> None:
    """Both decoders are strict where Avro's libraries are lax, and the detail names the field."""
    of = schema({"i": "int", "x": kind})
    good = varint(7) + (b"" if kind == "null" else sample_of(kind))
    bad = varint(1) + content
    for neighbours in (0, 3, 200):
        found = decode(of, *[good] * neighbours, bad, *[good] * neighbours)
        assert [(each.row, each.reason) for each in found.refused] == [(neighbours, "malformed_payload")]
        assert found.refused[0].detail.startswith(why)
        assert found.batch.column("i").to_pylist() == [7] * (2 * neighbours)
    assert_sound(of, [good, bad])


def sample_of(kind: Any) -> bytes:
    """Return bytes that are a value of a type: mostly zeros are."""
    if kind in (DECIMAL, WIDE):
        return varint(1) + b"\x05"
    return b"\0" * (8 if kind == "double" else 3 if isinstance(kind, dict) and "size" in kind else 1)


def test_left_over_bytes_are_refused() -> None:
    """A payload of another schema often begins like one of this: its length gives it away."""
    of = schema({"i": "int", "in": {"type": "record", "name": "P", "fields": listed({"s": "string"})}})
    assert_sound(of, [b"\2\2a", b"\2\2ab", b"\2\4a"])
    found = decode(of, b"\2\2a", b"\2\2ab", b"\2\4a")
    assert [each.detail for each in found.refused] == ["1 bytes are left over", "in.s: the payload ends too early"]


def test_any_form_of_numbers_and_blocks_is_read() -> None:
    """Avro allows numbers in more bytes than they need, blocks of any size, sized or not, and long decimals."""
    of = schema({"i": "int", "xs": INTS, "d": DECIMAL, "m": MAP, "n": NULLS})
    blocks = varint(-2) + varint(2) + varint(1) + varint(2) + varint(1, 10) + varint(3, 5) + varint(0)
    decimal = varint(20, 2) + (-99).to_bytes(20, "big", signed=True)
    entries = varint(-1) + varint(3) + varint(1) + b"k" + varint(4) + varint(0)
    payload = varint(-1, 5) + blocks + decimal + entries + varint(-9) + varint(0) + varint(0)
    assert decode(of, payload).batch.to_pylist() == [{"i": -1, "xs": [1, 2, 3], "d": Decimal(-99), "m": [("k", 4)]}]
    assert_sound(of, [payload] * 3)


def test_one_long_array_does_not_hold_up_its_neighbours() -> None:
    """One payload of 50,000 items among a thousand takes as long as its items do, not a step of numpy for each."""
    of = schema({"i": "int", "xs": INTS, "ps": {"type": "array", "items": {"type": "map", "values": "long"}}})
    short = varint(7) + varint(1) + varint(5) + varint(0) + varint(0)
    maps = varint(2) + varint(1) + b"a" + varint(1) + varint(1) + b"b" + varint(2) + varint(0)
    tall = varint(8) + varint(50_000) + varint(3) * 50_000 + varint(0) + varint(5_000) + maps * 5_000 + varint(0)
    before = time.process_time()
    found = decode(of, *[short] * 500, tall, *[short] * 500)
    assert time.process_time() - before < 2
    assert found.refused == []
    assert [len(each) for each in found.batch.column("xs").to_pylist()] == [1] * 500 + [50_000] + [1] * 500
    assert found.batch.column("ps")[500].as_py() == [[("a", 1), ("b", 2)]] * 5_000


def test_many_long_arrays_are_read_together() -> None:
    """Where most payloads have long arrays, each step reads many."""
    of = schema({"xs": {"type": "array", "items": "long"}})
    contents = [varint(500) + varint(row) * 500 + varint(0) for row in range(300)]
    before = time.process_time()
    assert [each["xs"] for each in decode(of, *contents).batch.to_pylist()] == [[row] * 500 for row in range(300)]
    assert time.process_time() - before < 2


def test_parts_are_put_together_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large array is decoded in parts, and payloads that are decoded alone go back to their places."""
    chance = Chance(3)
    of = schema({"i": "int", "xs": INTS})
    contents = []
    for row in range(400):
        items = chance.random.choice((0, 1, 70))
        contents.append(varint(row) + (varint(items) + varint(row) * items if items else b"") + varint(0))
    contents[37] = b""
    contents[111] = b"\x80"
    contents[222] = b"\0" * (MAX_PAYLOAD_BYTES + 1)
    whole = decode(of, *contents)
    assert [each.row for each in whole.refused] == [37, 111, 222]
    assert [row for row in range(400) if row not in {37, 111, 222}] == whole.batch.column("i").to_pylist()
    for module, name, most in (
        (batches, "_PART_ROWS", 7),
        (batches, "_PART_BYTES", 1_000),
        (decoding, "_SCALAR_BYTES", 100),
    ):
        monkeypatch.setattr(module, name, most)
        parts = decode(of, *contents)
        assert parts.refused == whole.refused
        assert parts.batch.equals(whole.batch)
        assert parts.rows.tolist() == whole.rows.tolist()


def test_nothing_decodes_to_nothing() -> None:
    """An empty array of payloads, or only refused ones, has the columns and no rows."""
    of = schema(EVERYTHING)
    for contents in ([], [None, None]):
        found = decode(of, *contents)
        assert found.batch.schema == columns(of)
        assert len(found.rows) == found.batch.num_rows == 0
        assert [each.reason for each in found.refused] == ["empty_payload"] * len(contents)


def test_reference_lays_out_as_a_game_has_it() -> None:
    """Fields outside of the column of their name lie in the same columns by both decoders, at any depth."""
    of = schema(EVERYTHING)
    names = {"i": "number", "either.P": "who", "either.P.x": "ex", "map.x": "y", "inner": "in", "inner.many.x": "z"}
    placement = FieldPlacement(tuple(sorted(names.items())))
    table, refused = FORMAT.reference(of, names).decode([written(of, SAMPLE)])
    assert refused == {}
    batch = placed(decode(of, written(of, SAMPLE)).batch, of, placement)
    assert table.schema == batch.schema
    assert table.to_pylist() == batch.to_pylist()


def test_floats_are_kept_bit_for_bit() -> None:
    """NaN, infinities and a signalling NaN pass without a warning."""
    of = schema({"f": "float", "d": "double"})
    contents = [
        struct.pack("<fd", float("nan"), float("-inf")),
        b"\x01\0\xa0\x7f" + struct.pack("<d", 5e-324),
        struct.pack("<fd", 3e38, 1e308),
    ]
    assert_sound(of, contents)


def test_malformed_names_the_path_of_the_field() -> None:
    """A person finds the field in the producer's schema, through unions and lists too."""
    of = schema(
        {"a": ["null", {"type": "array", "items": {"type": "record", "name": "P", "fields": listed({"b": "int"})}}]}
    )
    with pytest.raises(Malformed) as caught:
        FORMAT.decoder(of)._scalar.decode(varint(1) + varint(1) + b"\x80")
    assert str(caught.value) == "a.b: the payload ends too early"
