"""Payloads as bytes that no careful producer writes, but that protobuf gives a meaning; theirs must be ours."""

import decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.formats.protobuf.fields import entry_of, value_names
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import payloads
from tests.unit.data.contracts.formats.protobuf.wire_world import (
    BOXES,
    CLASSES,
    SCALARS,
    SCHEMAS,
    SYNTAXES,
    Producer,
    comparable,
    fields,
    tagged,
)

DECODERS = {syntax: Decoder(each) for syntax, each in SCHEMAS.items()}


def expected(message: Any) -> dict[str, Any]:
    """Return what google.protobuf says of a message, in the table's types."""
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        held = getattr(message, field.name)
        if (entry := entry_of(field)) is not None:
            key, item = entry.fields_by_name["key"], entry.fields_by_name["value"]
            pairs = [(value_of(key, each), value_of(item, held[each])) for each in held]
            values[field.name] = sorted(pairs, key=repr)
        elif field.is_repeated:
            values[field.name] = [value_of(field, each) for each in held]
        elif field.has_presence and not message.HasField(field.name):
            values[field.name] = None
        else:
            values[field.name] = value_of(field, held)
    return values


def value_of(field: FieldDescriptor, value: Any) -> Any:
    """Return a single value in the table's types; numbers that compare badly as text."""
    if field.message_type is not None:
        name = field.message_type.name
        if name in {"Timestamp", "Duration"}:
            return value.seconds * 1_000_000 + int(value.nanos / 1000)
        return value_of(field.message_type.fields_by_name["value"], value.value) if name in BOXES else expected(value)
    if field.enum_type is not None:
        return value_names(field.enum_type).get(value, str(value))
    return comparable(decimal.Decimal(value) if field.type in {4, 6} else value)


def plain(syntax: str, content: bytes) -> Any:
    """Return the message of the plain parser, None where it refuses the bytes."""
    try:
        return CLASSES[syntax].FromString(content)
    except DecodeError:
        return None


@pytest.mark.parametrize("syntax", SYNTAXES)
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**64))
@pytest.mark.proves("B28", "G79")
def test_values_are_what_protobuf_says_whatever_the_bytes(syntax: str, seed: int) -> None:
    """Law L5: a row's values follow from its bytes by protobuf's own rules, whatever other rows it stands beside."""
    check(syntax, [row for row in Producer(seed).rows(CLASSES[syntax]) if row])


def name_of(kind: str, shape: str = "one") -> str:
    """Return the field of M with a kind of values."""
    values = [*SCALARS, "E", *(f"wkt:{box}" for box in BOXES), "S"]
    return f"{shape}_{values.index(kind) + 1}"


NAMED = {
    "one key twice": fields(name_of("int32", "by"), b"\x0a\x01k\x10\x02", b"\x0a\x01k\x10\x03"),
    "one key twice, with messages": fields(name_of("S", "by"), b"\x12\x02\x08\x05", b"\x12\x02\x12\x00"),
    "an entry without a message": fields(name_of("S", "by"), b""),
    "an entry without a time": fields(name_of("wkt:Timestamp", "by"), b""),
    "an entry without a boxed value": fields(name_of("wkt:StringValue", "by"), b""),
    "a time in two parts": fields(name_of("wkt:Timestamp"), b"\x08\x05", b"\x10\xe8\x07"),
    "a duration in two parts": fields(name_of("wkt:Duration"), b"\x08\x05", b""),
    "a boxed value in two parts": fields(name_of("wkt:UInt64Value"), b"\x08\x05", b""),
    "a message in two parts": fields(name_of("S"), b"\x12\x01\x01", b"\x12\x01\x03"),
    "two members of a oneof": fields(name_of("S"), b"\x08\x05\x2a\x00"),
    "two members of a oneof in two parts": fields(name_of("S"), b"\x08\x05", b"\x3a\x00"),
    "a number no enum has": tagged(16, 0, b"\x09"),
    "a number no enum has after one it has": tagged(16, 0, b"\x01") + tagged(16, 0, b"\x09"),
    "numbers no enum has among others": fields(name_of("E", "many"), b"\x01\x09\x01") + tagged(116, 0, b"\x08"),
    "a number no enum has in a map": fields(name_of("E", "by"), b"\x10\x09"),
}


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("content", NAMED.values(), ids=list(NAMED))
@pytest.mark.proves("B28", "G79")
def test_a_careless_producers_row_has_the_values_protobuf_gives_it(syntax: str, content: bytes) -> None:
    """B28, law L5: each way in which a fast parser may take bytes for another value than protobuf does, by its name."""
    check(syntax, [b"\x28\x05", content, b"\x28\x06"])


@pytest.mark.proves("B28")
def test_a_map_with_one_key_twice_can_be_read_from_the_file(tmp_path: Path) -> None:
    """B28: a column that holds a key twice stops readers that keep the rule; ours can be read by DuckDB."""
    content = NAMED["one key twice"]
    decoded = DECODERS["proto3"].decode(payloads(content, content))
    pq.write_table(pa.Table.from_batches([decoded.batch]), tmp_path / "rows.parquet")
    query = f"SELECT {name_of('int32', 'by')} FROM read_parquet(?)"
    with duckdb.connect() as database:
        found = database.execute(query, [str(tmp_path / "rows.parquet")]).fetchall()
    assert found == [({"k": 3},), ({"k": 3},)]


def check(syntax: str, contents: list[bytes]) -> None:
    """Decode the rows together and compare every value of each with what google.protobuf says."""
    decoded = DECODERS[syntax].decode(payloads(*contents))
    messages = [plain(syntax, content) for content in contents]
    assert [row for row, message in enumerate(messages) if message is not None] == decoded.rows.tolist()
    assert {each.reason for each in decoded.refused} <= {"malformed_payload"}
    wanted = [expected(message) for message in messages if message is not None]
    for ours, theirs in zip(decoded.batch.to_pylist(), wanted, strict=True):
        assert comparable(ours) == theirs


def test_a_key_that_is_no_text_beside_an_unknown_field_is_refused_alone() -> None:
    """Law L6: proto2 does not look at texts, and a map of messages with such a key stopped all games of its schema."""
    file = define({"M": {"n": (1, "int32"), "by": (2, "map<string, S>")}, "S": {"x": (1, "int32")}}, syntax="proto2")
    decoder = Decoder(Schema(1, "protobuf", "t.M", canonical("t.M", bundle(file))))
    good, odd = b"\x08\x01", tagged(2, 2, tagged(1, 2, b"\xff") + tagged(2, 2, b"")) + tagged(900, 0, b"\x05")
    decoded = decoder.decode(pa.array([good, odd, good], pa.binary()))
    assert decoded.rows.tolist() == [0, 2]
    assert [(each.row, each.reason) for each in decoded.refused] == [(1, "malformed_payload")]
