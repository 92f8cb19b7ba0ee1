"""Payloads and frames by chance that no writer writes, for schemas by chance: one world for each format of payloads.

Some are damaged where it hurts, inside of an encoding whose outer lengths are right; others are damaged as bytes.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple, Protocol

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.formats.protobuf.messages import canonical, describe
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.avro import avro_world
from tests.unit.data.contracts.formats.json import json_world
from tests.unit.data.contracts.formats.protobuf import wire_world
from tests.unit.data.contracts.formats.protobuf.wire_world import BOXES, KEYS, SCALARS, WIRE_TYPES, tagged

BAD_TEXTS = (b"\xff", b"a\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")
HUGE = (2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1)
UNENDING = (b"\x80" * 10 + b"\x01", b"\xff" * 11, b"\x80" * 9 + b"\x02", b"\xff" * 9 + b"\x7f", b"\x80" * 20)
_ARMED = 0.15  # of the places where a payload may be damaged


class Mutant(NamedTuple):
    """A payload that was damaged."""

    how: str
    content: bytes


class World(Protocol):
    """One schema, and payloads of it."""

    schema: Schema

    def whole(self) -> bytes:
        """Return a payload as a writer of any library may write it."""
        ...

    def spoiled(self) -> Mutant:
        """Return one in which some values are encoded as no writer does it; `how` names the last of them."""
        ...


def mutant(world: World, draw: Random) -> Mutant:
    """Return a payload that was damaged in one way or the other."""
    if draw.random() < 0.6:
        return world.spoiled()
    content = world.whole()
    changed = bytearray(content)
    match draw.randrange(4):
        case 0:
            return Mutant("cut", content[: draw.randrange(max(1, len(content)))])
        case 1:
            return Mutant("grown", content + draw.randbytes(draw.randrange(1, 9)))
        case 2 if content:
            for _ in range(draw.randrange(1, 4)):
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
            return Mutant("flipped", bytes(changed))
        case _:
            return Mutant("noise", draw.randbytes(draw.randrange(1, len(content) + 8)))


class _Spoiling:
    """Remembers how a payload was damaged; `armed` while one is made that shall be."""

    def __init__(self) -> None:
        self.armed = False
        self.how = ""

    def strikes(self, draw: Random, how: str) -> bool:
        """Return whether to damage this place, as is more likely as long as nothing is damaged."""
        if not self.armed or draw.random() > (_ARMED if self.how else 3 * _ARMED):
            return False
        self.how = how
        return True

    def spoiled(self, make: Callable[[], bytes], draw: Random) -> Mutant:
        self.armed, self.how = True, ""
        content = make()
        self.armed = False
        return Mutant(self.how, content) if self.how else Mutant("grown", content + draw.randbytes(2))


# ------------------------------------------------------------------------------------------------------------- frames

ID = b"\0\0\0\0\7"
GUID = b"\1" + bytes(range(16))
UUID = b"\3" + bytes(range(16))
"""The writers of good frames: Confluent's by number and by GUID, and Glue's."""


def framed(framing: str, content: bytes, draw: Random) -> bytes:
    """Return a payload as its framing's clients write it, or damaged on the way."""
    whole = (_glue if framing == "glue" else _confluent)(content, draw)
    match draw.randrange(8):
        case 0:
            return whole[: draw.choice((4, 5, 16, 17, 18, draw.randrange(25)))]
        case 1:
            changed = bytearray(whole)
            changed[draw.randrange(min(len(whole), 24))] ^= 1 << draw.randrange(8)
            return bytes(changed)
        case 2:
            return whole + draw.randbytes(draw.randrange(1, 4))
        case 3:
            return draw.randbytes(draw.randrange(40))
        case _:
            return whole


def _confluent(content: bytes, draw: Random) -> bytes:
    return draw.choice((ID, ID, GUID, b"\0\0\0\1\7", b"\2" + ID[1:])) + content


def _glue(content: bytes, draw: Random) -> bytes:
    match draw.randrange(5):
        case 0 | 1:
            return b"\3\0" + UUID[1:] + content
        case 2:
            return b"\3\5" + UUID[1:] + zlib.compress(content)
        case 3:
            return b"\3\5" + UUID[1:] + BOMB
        case _:
            return draw.choice((b"\3\1", b"\2\5", b"\3\5")) + UUID[1:] + content


BOMB = zlib.compress(bytes(MAX_PAYLOAD_BYTES + 1))
PATHS = (b"\0", b"\0", b"\0", b"\2\2", b"\1", b"\x7e", b"\2\x80\x80\x80\x80\x80", b"")
"""Index paths before payloads of protobuf: of the first message, of another, and of none."""


# --------------------------------------------------------------------------------------------------------------- avro


class _AvroChance(avro_world.Chance):
    """Payloads of Avro in which numbers, texts and booleans may be wrong."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.spoiling = _Spoiling()

    def number(self, number: int, most: int = 10) -> bytes:
        wrong: dict[str, Callable[[], bytes]] = {
            "huge": lambda: avro_world.varint(self.random.choice(HUGE)),
            "negative": lambda: avro_world.varint(self.random.choice((-number - 1, -1, -(2**31) - 1, -(2**63)))),
            "unending": lambda: self.random.choice(UNENDING),
            "off by one": lambda: avro_world.varint(number + 1),
        }
        how = self.random.choice(list(wrong))
        return wrong[how]() if self.spoiling.strikes(self.random, how) else super().number(number, most)

    def sized(self, content: bytes) -> bytes:
        if self.spoiling.strikes(self.random, "text"):
            content += self.random.choice(BAD_TEXTS)
        return super().sized(content)

    def simple(self, full: dict[str, Any]) -> bytes:
        if full["type"] == "boolean" and self.spoiling.strikes(self.random, "boolean"):
            return self.random.choice((b"\2", b"\x80", b"\xff"))
        return super().simple(full)

    def blocks(self, item: Any) -> bytes:
        if self.spoiling.strikes(self.random, "blocks"):
            part: bytes = item()
            stated = avro_world.varint(self.random.choice((0, len(part) + 1, -1, 2**40)))
            return avro_world.varint(-1) + stated + part + b"\0"
        return super().blocks(item)


class AvroWorld:
    """A record of Avro."""

    def __init__(self, seed: int) -> None:
        self._chance = _AvroChance(seed)
        self._record = self._chance.record()
        self.schema = avro_world.schema(self._record)

    def whole(self) -> bytes:
        return self._chance.payload(self._record)

    def spoiled(self) -> Mutant:
        return self._chance.spoiling.spoiled(self.whole, self._chance.random)


# ----------------------------------------------------------------------------------------------------------- protobuf


class _Producer(wire_world.Producer):
    """Payloads of protobuf in which fields may be wrong, at any depth."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.spoiling = _Spoiling()

    def message(self, message: Descriptor, most: int) -> bytes:
        return super().message(message, most) if len(message.fields) else b""

    def field(self, field: FieldDescriptor) -> bytes:
        wrong: dict[str, Callable[[FieldDescriptor], bytes]] = {
            "wire type": self._other_type,
            "length": self._length,
            "unending": lambda each: _tag(each.number, 0) + self.draw.choice(UNENDING),
            "tag": lambda _: self.draw.choice(
                (b"\0\5", _tag(2**29, 0) + b"\5", b"\xff" * 5 + b"\5", b"\xff" * 9 + b"\1\5")
            ),
            "group": self._group,
            "text": lambda each: tagged(each.number, 2, self.draw.choice(BAD_TEXTS)),
            "packed": lambda each: tagged(each.number, 2, b"\x80" * self.draw.choice((1, 3, 7, 11))),
        }
        how = self.draw.choice(list(wrong))
        return wrong[how](field) if self.spoiling.strikes(self.draw, how) else super().field(field)

    def _other_type(self, field: FieldDescriptor) -> bytes:
        kind = self.draw.choice([each for each in range(8) if each != WIRE_TYPES.get(field.type, 0)])
        content = {0: b"\5", 1: struct.pack("<d", 1.5), 2: b"\1a", 5: struct.pack("<f", 1.5)}
        return _tag(field.number, kind) + content.get(kind, b"")

    def _length(self, field: FieldDescriptor) -> bytes:
        size = wire_world.varint(self.draw.choice((4, 127, *HUGE, 2**64 - 1)))
        return _tag(field.number, 2) + size + b"abc"

    def _group(self, field: FieldDescriptor) -> bytes:
        number = self.draw.choice((field.number, 905))
        open_, close = _tag(number, 3), _tag(number, 4)
        return self.draw.choice((open_, close, open_ + _tag(number + 1, 4), open_ * 120 + close * 120, open_ + close))


def _tag(number: int, kind: int) -> bytes:
    return wire_world.varint(number << 3 | kind)


class ProtobufWorld:
    """A message of protobuf, with others in it."""

    def __init__(self, seed: int) -> None:
        self._draw = Random(seed)
        self._producer = _Producer(seed)
        syntax = self._draw.choice(("proto2", "proto3"))
        messages = {"T": self._fields([]), "S": self._fields(["T"]), "M": self._fields(["S", "T"])}
        file = define(messages, {"E": {"ZERO": 0, "ONE": 1, "UNO": 1, "MINUS": -1}}, syntax=syntax)
        for message in file.message_type:
            alone = [each for each in message.field if each.label == FieldDescriptorProto.LABEL_OPTIONAL]
            together = alone[: self._draw.randrange(len(alone) + 1)]
            if together and self._draw.random() < 0.5:
                message.oneof_decl.add(name="one_of")
                for each in together:
                    each.oneof_index = 0
            elif syntax == "proto2" and alone and self._draw.random() < 0.2:
                alone[0].label = FieldDescriptorProto.LABEL_REQUIRED
        self.schema = Schema(1, "protobuf", "t.M", canonical("t.M", bundle(file)))
        self._message = describe("t.M", self.schema.definition)

    def _fields(self, inner: list[str]) -> Fields:
        kinds = [*SCALARS, "E", *(f"wkt:{box}" for box in (*BOXES, "Any", "Empty", "FieldMask")), *inner * 4]
        fields: dict[str, tuple[int, str]] = {"last": (17, "int32")}
        for index in range(self._draw.randrange(1, 7)):
            kind = self._draw.choice(kinds)
            shape = self._draw.choice(("{}", "{}", "repeated {}", f"map<{self._draw.choice(KEYS)}, {{}}>"))
            fields[f"f{index}"] = (index + 1, shape.format(kind))
        return fields

    def whole(self) -> bytes:
        return self._producer.message(self._message, 8)

    def spoiled(self) -> Mutant:
        return self._producer.spoiling.spoiled(self.whole, self._draw)


# --------------------------------------------------------------------------------------------------------------- json


class JsonWorld:
    """An object of JSON, with others in it; every other schema has maps, whose documents are decoded one by one."""

    def __init__(self, seed: int) -> None:
        self._chance = json_world.Chance(seed, maps=seed % 2 == 0)
        self._given = self._chance.object(3)
        while "_seq" in self._given["properties"]:  # only a placement gives it a column beside a table's own
            self._given = self._chance.object(3)
        self.schema = json_world.schema(self._given)

    def whole(self) -> bytes:
        self._chance.armed, self._chance.how = False, ""
        return self._chance.document(self._given)

    def spoiled(self) -> Mutant:
        self._chance.armed, self._chance.how = True, ""
        while not self._chance.how:
            content = self._chance.document(self._given)
        return Mutant(self._chance.how, content)


WORLDS: Mapping[str, Callable[[int], World]] = {"avro": AvroWorld, "json": JsonWorld, "protobuf": ProtobufWorld}


def comparable(value: Any) -> Any:
    """Return a value in which columns and the entries of a map have an order: protobuf's have none."""
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in sorted(value.items())}
    if not isinstance(value, list):
        return value
    entries = [tuple(map(comparable, each)) if isinstance(each, tuple) else comparable(each) for each in value]
    return sorted(entries, key=repr) if entries and isinstance(entries[0], tuple) else entries
