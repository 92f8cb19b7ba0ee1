"""Payloads as the bytes of the wire."""

import datetime as dt
import math
import random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FeatureSet, FieldDescriptorProto, FileDescriptorProto

from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import message_class

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


def fields(name: str, *contents: bytes) -> bytes:
    """Return a field of M several times, with wire type 2."""
    number = CLASSES["proto3"].DESCRIPTOR.fields_by_name[name].number
    return b"".join(tagged(number, 2, content) for content in contents)


class Shallow(Producer):
    """A producer of careless bytes whose messages of JSON come to an end."""

    depth = 0

    def message(self, message: Descriptor, most: int) -> bytes:
        if not message.fields:
            return b""
        self.depth += 1
        content = super().message(message, most if self.depth < 4 else 1 if self.depth < 8 else 0)
        self.depth -= 1
        return content
