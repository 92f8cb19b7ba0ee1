"""Payloads as bytes that no careful producer writes, but that protobuf gives a meaning; theirs must be ours."""

import datetime as dt
import decimal
import math
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FeatureSet, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.contracts.formats.protobuf.decoder import Decoder
from pipeline.contracts.formats.protobuf.fields import entry_of, value_names
from pipeline.contracts.formats.protobuf.messages import canonical
from pipeline.contracts.schemas import Schema
from tests.unit.test_contracts_decode import message_class, payloads
from tests.unit.test_contracts_messages import Fields, bundle, define

SCALARS = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
    "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
BOXES = (
    "Timestamp", "Duration", "BoolValue", "BytesValue", "DoubleValue", "FloatValue", "Int32Value", "Int64Value",
    "StringValue", "UInt32Value", "UInt64Value",
)  # fmt: skip
KEYS = ("int32", "int64", "uint32", "uint64", "bool", "string", "sint64", "fixed64", "sfixed32")


def every_kind(enum: str) -> dict[str, Fields]:
    """Return messages with a field of every kind, in every shape, and messages in messages."""
    values = [*SCALARS, enum, *(f"wkt:{box}" for box in BOXES), "S"]
    fields: dict[str, tuple[int, str]] = {}
    for number, kind in enumerate(values, 1):
        fields[f"one_{number}"] = (number, kind)
        fields[f"many_{number}"] = (100 + number, f"repeated {kind}")
    mapped = [kind if kind != enum else "E" for kind in values]
    for number, kind in enumerate(mapped, 1):
        fields[f"by_{number}"] = (200 + number, f"map<{KEYS[number % len(KEYS)]}, {kind}>")
    inner: Fields = {
        "n": (1, "int32"),
        "many": (2, "repeated sint32"),
        "kind": (3, enum),
        "kinds": (4, f"repeated {enum}"),
        "at": (5, "wkt:Timestamp"),
        "by": (6, "map<int32, T>"),
        "t": (7, "T"),
    }
    return {"M": fields, "S": inner, "T": {"a": (1, "int64"), "b": (2, "string"), "c": (3, "repeated fixed32")}}


def schema(syntax: str) -> Schema:
    """Return a schema with everything; in proto2 and the edition its enum is closed and begins with 1."""
    enums = {"E": {"ZERO": 0, "ONE": 1, "UNO": 1, "MINUS": -1}, "F": {"FIRST": 1, "SECOND": 2}}
    if syntax == "proto3":
        del enums["F"]
    file = define(every_kind("E" if syntax == "proto3" else "F"), enums, syntax=syntax)
    if syntax == "editions":
        mix_features(file)
    for message in file.message_type[1:]:
        message.oneof_decl.add(name="one_of")
    for message, numbers in ((file.message_type[1], (1, 5, 7)), (file.message_type[2], (1, 2))):
        for field in message.field:
            if field.number in numbers:
                field.oneof_index = 0
    return Schema(1, "protobuf", "t.M", canonical("t.M", bundle(file)))


def mix_features(file: FileDescriptorProto) -> None:
    """Give every second number no presence and every third list the other encoding; close one enum."""
    file.options.features.enum_type = FeatureSet.OPEN
    file.enum_type[1].options.features.enum_type = FeatureSet.CLOSED
    for field in (each for message in file.message_type[:1] for each in message.field):
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            if field.number % 3 == 0 and field.type not in {9, 11, 12}:
                field.options.features.repeated_field_encoding = FeatureSet.EXPANDED
        elif field.number % 2 == 0 and field.type not in {11, 14}:
            field.options.features.field_presence = FeatureSet.IMPLICIT


SYNTAXES = ("proto2", "proto3", "editions")
SCHEMAS = {syntax: schema(syntax) for syntax in SYNTAXES}
DECODERS = {syntax: Decoder(each) for syntax, each in SCHEMAS.items()}
CLASSES = {syntax: message_class(each) for syntax, each in SCHEMAS.items()}


def varint(number: int, padding: int = 0) -> bytes:
    """Return a number as a varint, with as many bytes more than it needs as the format allows of these."""
    parts = []
    while True:
        parts.append(number & 0x7F)
        number >>= 7
        if not number:
            break
    parts += [0] * min(padding, 10 - len(parts))
    return bytes([*(part | 0x80 for part in parts[:-1]), parts[-1]])


def tagged(number: int, wire_type: int, content: bytes, padding: int = 0) -> bytes:
    """Return a field; one of wire type 2 gets its length."""
    length = varint(len(content), min(padding, 1)) if wire_type == 2 else b""
    return varint(number << 3 | wire_type, min(padding, 2)) + length + content


NUMBERS = (0, 1, 2, 7, 256, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
FLOATS = (b"\0\0\0\x80", b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\x01\0\x80\x7f", b"\0\0\0\0", b"\xcd\xcc\x4c\x3e")
DOUBLES = (b"\0\0\0\0\0\0\0\x80", b"\0\0\0\0\0\0\xf8\x7f", b"\0\0\0\0\0\0\xf0\xff", b"\xff" * 8, b"\0" * 8)
MOMENTS = {"google.protobuf.Timestamp", "google.protobuf.Duration"}
WIRE_TYPES = {**dict.fromkeys((2, 7, 15), 5), **dict.fromkeys((1, 6, 16), 1), **dict.fromkeys((9, 11, 12), 2)}


class Producer:
    """Writes messages as the format allows: fields in any order and number, padded, packed or not, unknown ones."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def rows(self, message: Any) -> list[bytes]:
        """Return some messages, of which some are as a careful producer would write them."""
        rows = [self.message(message.DESCRIPTOR, 8) for _ in range(self.draw.randint(1, 12))]
        return [row if self.draw.random() < 0.6 else message.FromString(row).SerializeToString() for row in rows]

    def message(self, message: Descriptor, most: int) -> bytes:
        fields = [self.draw.choice(message.fields) for _ in range(self.draw.randint(0, most))]
        if fields:  # the same one again, or there would rarely be two of one oneof, key or message
            fields += self.draw.choices(fields, k=self.draw.randint(0, 2))
        if message.full_name in MOMENTS:
            parts = [self.moment(each.number) for each in fields]
        else:
            parts = [self.field(each) for each in fields]
        if self.draw.random() < 0.2:
            parts.insert(self.draw.randint(0, len(parts)), self.unknown())
        if message.GetOptions().map_entry and self.draw.random() < 0.1:  # of an entry no parser tells what it left out
            parts.append(tagged(self.draw.randint(1, 2), 5, b"four"))
        return b"".join(parts)

    def field(self, field: FieldDescriptor) -> bytes:
        wire_type = WIRE_TYPES.get(field.type, 0)
        content = b"".join(self.values(field))
        if field.is_repeated and wire_type != 2 and self.draw.random() < 0.5:
            wire_type, content = 2, content + b"".join(self.values(field))
        return tagged(field.number, wire_type, content, self.padding())

    def values(self, field: FieldDescriptor) -> list[bytes]:
        if field.message_type is not None:
            return [self.message(field.message_type, 4)]
        wire_type = WIRE_TYPES.get(field.type, 0)
        if wire_type == 2:
            return [self.draw.choice(["", "a", "key", "\N{SNOWMAN}"]).encode()]
        if wire_type:
            size, known = (8, DOUBLES) if wire_type == 1 else (4, FLOATS)
            return [self.draw.choice([*known, self.draw.randbytes(size)])]
        return [varint(self.draw.choice([*NUMBERS, self.draw.getrandbits(64)]), self.padding())]

    def moment(self, number: int) -> bytes:
        drawn = self.draw.randint(-(10**9), 10**9) if number == 1 else self.draw.randint(-(2**31), 2**31 - 1)
        return tagged(number, 0, varint(drawn % 2**64))

    def unknown(self) -> bytes:
        group = tagged(905, 3, tagged(1, 0, b"\x05") + tagged(906, 3, b"") + tagged(906, 4, b"")) + tagged(905, 4, b"")
        return self.draw.choice(
            [
                group,
                tagged(900, 0, b"\x05"),
                tagged(901, 2, b"text"),
                tagged(902, 1, b"\0" * 8),
                tagged(903, 5, b"four"),
            ]
        )

    def padding(self) -> int:
        return self.draw.choice([0, 0, 0, 1, 9])


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


def comparable(value: Any) -> Any:
    """Return a value as it comes out of Arrow in a form that tells -0.0 from 0.0 and equals itself."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(((comparable(key), comparable(item)) for key, item in value), key=repr)
    return [comparable(each) for each in value] if isinstance(value, list) else value


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


def fields(name: str, *contents: bytes) -> bytes:
    """Return a field of M several times, with wire type 2."""
    number = CLASSES["proto3"].DESCRIPTOR.fields_by_name[name].number
    return b"".join(tagged(number, 2, content) for content in contents)


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
