"""Avro schemas and payloads by chance; the encoder writes numbers and blocks in any way that Avro allows."""

import json
import struct
from random import Random
from typing import Any

import pyarrow as pa

from pipeline.data.contracts.decoded import Decoded
from pipeline.data.contracts.formats.avro.format import AvroFormat
from pipeline.data.contracts.formats.supported import columns
from pipeline.data.contracts.schemas import Schema

FORMAT = AvroFormat()
LOGICAL: tuple[Any, ...] = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 6},
)
LONG_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def schema(fields: dict[str, Any] | Any, schema_id: int = 1) -> Schema:
    """Register a record `t.R`: of these fields, or this whole definition."""
    given = fields if "fields" in fields else {"type": "record", "name": "t.R", "fields": listed(fields)}
    return Schema(schema_id, "avro", "t.R", FORMAT.canonical("t.R", json.dumps(given).encode()))


def listed(fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind} for name, kind in fields.items()]


def payloads(*contents: bytes | None) -> pa.BinaryArray:
    return pa.array(list(contents), pa.binary())


def decode(of: Schema, *contents: bytes | None) -> Decoded:
    found = FORMAT.decoder(of).decode(payloads(*contents))
    found.batch.validate(full=True)
    return found


def assert_sound(of: Schema, contents: list[bytes]) -> None:
    """Demand that the decoder, its scalar decoder and the reference say the same of every payload."""
    decoder, reference = FORMAT.decoder(of), FORMAT.reference(of, {})
    assert decoder.arrow_schema == reference.schema == columns(of)
    found = decode(of, *contents)
    expected, refused = reference.decode(contents)
    assert [(each.row, each.reason) for each in found.refused] == [(row, why.reason) for row, why in refused.items()]
    assert found.rows.tolist() == [row for row in range(len(contents)) if row not in refused]
    assert repr(found.batch.to_pylist()) == repr(expected.to_pylist())  # NaN equals itself in text
    one_by_one = decoder._batch([decoder._scalar.decode(contents[row]) for row in found.rows.tolist()])
    assert repr(one_by_one.to_pylist()) == repr(expected.to_pylist())


class Chance:
    """Schemas and bytes by chance; with `long_decimals` a third of the types are decimals beyond a column's digits."""

    def __init__(self, seed: int, *, long_decimals: bool = False) -> None:
        self.random = Random(seed)
        self.names = 0
        self.long_decimals = long_decimals

    def record(self) -> dict[str, Any]:
        """Return the definition of `t.R`, with at least one column."""
        fields = {f"f{index}": self.type(3) for index in range(self.random.randrange(1, 6))} | {"last": "int"}
        return {"type": "record", "name": "t.R", "fields": listed(fields)}

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def type(self, depth: int) -> Any:
        if self.long_decimals and self.random.random() < 0.35:
            fixed = {**LONG_DECIMAL, "type": "fixed", "name": self.name("D"), "size": self.random.choice((27, 30))}
            return self.random.choice((LONG_DECIMAL, ["null", LONG_DECIMAL], fixed))
        kind = self.random.randrange(12 if depth else 7)
        match kind:
            case 0 | 1 | 2 | 3:
                return self.random.choice(PRIMITIVES)
            case 4:
                return self.random.choice(LOGICAL)
            case 5:
                symbols = [f"S{index}" for index in range(self.random.randrange(1, 5))]
                return {"type": "enum", "name": self.name("E"), "symbols": symbols}
            case 6:
                return self.fixed()
            case 7 | 8:
                return self.union(depth - 1)
            case 9:
                return {"type": "array", "items": self.type(depth - 1)}
            case 10:
                return {"type": "map", "values": self.type(depth - 1)}
            case _:
                fields = {f"g{index}": self.type(depth - 1) for index in range(self.random.randrange(4))}
                return {"type": "record", "name": self.name("R"), "fields": listed(fields)}

    def fixed(self) -> Any:
        given = {"type": "fixed", "name": self.name("F")}
        extra: list[dict[str, Any]] = [
            {"size": self.random.randrange(1, 20)},
            {"size": 12, "logicalType": "duration"},
            {"size": 16, "logicalType": "uuid"},
            {"size": self.random.choice((3, 8, 9, 16, 20)), "logicalType": "decimal", "precision": 6, "scale": 1},
        ]
        return given | self.random.choice(extra)

    def union(self, depth: int) -> Any:
        branches, names = [], set()
        for _ in range(self.random.randrange(1, 5)):
            branch = "null" if self.random.random() < 0.3 else self.type(depth)
            name = branch if isinstance(branch, str) else "" if isinstance(branch, list) else branch["type"]
            name = branch.get("name", name) if isinstance(branch, dict) else name
            if name and name not in names:
                names.add(name)
                branches.append(branch)
        return branches or ["int"]

    def payload(self, given: Any) -> bytes:
        """Return bytes of this type, now and then of a value out of its range."""
        if isinstance(given, list):
            index = self.random.randrange(len(given))
            return self.number(index, 5) + self.payload(given[index])
        full: dict[str, Any] = {"type": given} if isinstance(given, str) else given
        match full["type"]:
            case "record":
                return b"".join(self.payload(each["type"]) for each in full["fields"])
            case "array":
                return self.blocks(lambda: self.payload(full["items"]))
            case "map":
                return self.blocks(
                    lambda: self.sized(self.random.randbytes(3)[:2].hex().encode()) + self.payload(full["values"])
                )
            case "enum":
                return self.number(self.random.randrange(len(full["symbols"])), 5)
            case "int" | "long":
                return self.whole(full)
            case _:
                return self.simple(full)

    def simple(self, full: dict[str, Any]) -> bytes:
        random = self.random
        match full["type"]:
            case "null":
                return b""
            case "boolean":
                return random.choice((b"\0", b"\1"))
            case "float":
                return struct.pack("<f", random.choice((0.5, -1e30, float("inf"))))
            case "double":
                return struct.pack("<d", random.random())
            case "string":
                return self.sized("".join(random.choices("aé€😀", k=random.randrange(4))).encode())
            case "bytes" | "fixed" if full.get("precision") == 64:
                most = 10 ** random.choice((1, 38, 39, 64))
                value = random.choice((random.randrange(-most, most), most, -most, 10**38 - 1, -(10**38)))
                content = value.to_bytes(full.get("size", 28), "big", signed=True)
                return content if "size" in full else self.sized(content)
            case "bytes" if "precision" in full:
                size = random.choice((2, 3, 8, 9, 16, 17))
                return self.sized(random.randrange(-9999, 9999).to_bytes(size, "big", signed=True))
            case "bytes":
                return self.sized(random.randbytes(random.randrange(5)))
            case _ if "precision" in full:
                return random.randrange(-9999, 9999).to_bytes(full["size"], "big", signed=True)
            case _:
                return random.randbytes(full["size"])

    def whole(self, full: dict[str, Any]) -> bytes:
        bits = 31 if full["type"] == "int" else 63
        if "logicalType" in full and self.random.random() < 0.9:
            bits = 20 if full["type"] == "int" else 45
        number = self.random.getrandbits(self.random.randrange(1, bits + 1))
        return self.number(self.random.choice((number, -number - 1)), 5 if full["type"] == "int" else 10)

    def number(self, number: int, most: int = 10) -> bytes:
        """Return a zigzag number, now and then in more bytes than it needs."""
        return varint(number, self.random.randrange(1, most + 1) if self.random.random() < 0.1 else 1)

    def sized(self, content: bytes) -> bytes:
        return self.number(len(content)) + content

    def blocks(self, item: Any) -> bytes:
        parts = []
        for _ in range(self.random.randrange(3)):
            items = [item() for _ in range(self.random.randrange(1, 4))]
            content = b"".join(items)
            if self.random.random() < 0.3:
                parts.append(self.number(-len(items)) + self.number(len(content)) + content)
            else:
                parts.append(self.number(len(items)) + content)
        return b"".join(parts) + self.number(0)

    def mutant(self, payload: bytes) -> bytes:
        """Return a payload cut off, extended, or with bytes changed."""
        changed = bytearray(payload)
        match self.random.randrange(4):
            case 0:
                return payload[: self.random.randrange(len(payload) + 1)]
            case 1:
                return payload + self.random.randbytes(self.random.randrange(1, 3))
            case 2:
                for _ in range(self.random.randrange(1, 4)):
                    changed[self.random.randrange(len(changed))] = self.random.choice((0, 1, 2, 127, 128, 255))
                return bytes(changed)
            case _:
                return self.random.randbytes(self.random.randrange(1, len(payload) + 8))


def varint(number: int, least: int = 1) -> bytes:
    """Return a zigzag number in at least `least` bytes."""
    rest = (number << 1) ^ (number >> 63 if number >= 0 else -1)
    parts = bytearray()
    while rest > 0x7F or len(parts) + 1 < least:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    parts.append(rest)
    return bytes(parts)
