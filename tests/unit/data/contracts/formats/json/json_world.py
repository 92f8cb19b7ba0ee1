"""JSON Schemas and documents by chance: as any library may write them, and damaged as no library does."""

import json
from random import Random
from typing import Any

from pipeline.data.contracts.formats.json.format import JsonFormat
from pipeline.data.contracts.schemas import Schema

FORMAT = JsonFormat()
KEYS = ("a", "A", "b.c", "_seq", "Zoë", "", "select", "a b", "d", "e", "f", "g")
TEXTS = (
    "",
    "x",
    "Zoë",
    "\U0001f600",
    'say "hi"',
    "back\\slash",
    "\n\t\x00\x1f",
    "0.123456789012345678901",
    "{}}",
    "x" * 300,
)
TIMES = (
    "2026-11-25T10:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-02-28t23:59:59.1234567+05:30",
    "1969-12-31 23:59:59.9999999z", "2024-02-29T00:00:00-23:59",
)  # fmt: skip
WHOLES = (
    "0",
    "-0",
    "7",
    "-1",
    "9007199254740992",
    "9223372036854775807",
    "-9223372036854775808",
    "5.0",
    "1e3",
    "12.50e1",
)
NUMBERS = (
    "0", "-0", "-0.0", "1", "0.5", "-12.25", "1e300", "5e-324", "1E+2", "0.30000000000000004", "123456789.12345678",
    "9007199254740992", "0.1000000000000000055511151231257827021181583404541015625", "2.5e-310", "0e0",
)  # fmt: skip
BAD_TEXTS = (
    b'"\xff"',
    b'"\xc0\xaf"',
    b'"\xed\xa0\x80"',
    b'"\\ud800"',
    b'"\\udc00x"',
    b'"\x01"',
    b'"\\x"',
    b"'x'",
    b'"\\u12"',
)
BAD_NUMBERS = (
    b"NaN", b"Infinity", b"-Infinity", b"-Inf", b"1e999", b"01", b"+1", b"1.", b".5", b"0x1", b"1e", b"--1", b"9" * 30,
    b"9223372036854775808", b"0.1234567890123456789", b"9007199254740993.5", b"1e-400", b"1" * 5000,
)  # fmt: skip
BAD_TIMES = (
    "2026-11-25", "2026-11-25T10:00:00", "2026-02-30T00:00:00Z", "2026-11-25T24:00:00Z", "2026-11-25T10:00:60Z",
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "2026-11-25T10:00:00+24:00",
    "2026-11-25T10:00:00+00:60", "2026-11-25 10:00:00.5-23:60",
    "2026-11-25T10:00:00.Z", "now", " 2026-11-25T10:00:00Z", "2026-11-25T10:00:00Z\n", "2026-11-25T10:00:00+0100",
    "٢026-11-25T10:00:00Z",
)  # fmt: skip


def schema(given: dict[str, Any], name: str = "t.M") -> Schema:
    """Return the schema of a definition."""
    return Schema(1, "json", name, FORMAT.canonical(name, json.dumps(given).encode()))


def obj(*required: str, **properties: Any) -> dict[str, Any]:
    """Return the JSON Schema of an object."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


class Chance:
    """Draws schemas, and documents of them as bytes. `strikes` says where to damage them, `how` how."""

    def __init__(self, seed: int, *, maps: bool = True) -> None:
        self.draw = Random(seed)
        self.armed, self.how = False, ""
        self._maps = maps

    def object(self, depth: int) -> dict[str, Any]:
        """Return the JSON Schema of an object with this many levels below it."""
        keys = self.draw.sample(KEYS, self.draw.randrange(1, 7))
        properties = {key: self._type(depth) for key in keys}
        return obj(*(key for key in keys if self.draw.random() < 0.2), **properties)

    def _type(self, depth: int) -> dict[str, Any]:
        kinds = ["string", "integer", "number", "number", "boolean", "enum", "time"]
        kinds += ["object", "array", "empty", "null"] if depth else []
        kinds += ["map"] if depth and self._maps else []
        match self.draw.choice(kinds):
            case "enum":
                made: dict[str, Any] = {"type": "string", "enum": ["ONE", "ZERO"]}
            case "time":
                made = {"type": "string", "format": "date-time"}
            case "object":
                made = self.object(depth - 1)
            case "empty":
                made = obj()
            case "array":
                made = {"type": "array", "items": self._valued(depth - 1)}
            case "map":
                made = {"type": "object", "additionalProperties": self._valued(depth - 1)}
            case "null":
                return {"type": "null"}
            case kind:
                made = {"type": kind}
        if self.draw.random() < 0.2:
            made["type"] = [made["type"], "null"]
            if "enum" in made:
                made["enum"] = [*made["enum"], None]
        return made

    def _valued(self, depth: int) -> dict[str, Any]:
        while (made := self._type(depth)) == {"type": "null"}:
            pass
        return made

    def strikes(self, how: str) -> bool:
        """Return whether to damage this place, as is more likely until something is damaged."""
        if not self.armed or self.draw.random() > (0.03 if self.how else 0.12):
            return False
        self.how = how
        return True

    def document(self, given: dict[str, Any]) -> bytes:
        """Return a document of an object's schema."""
        content = self._space() + self._object(given) + self._space()
        if self.strikes("two"):
            return content + self.draw.choice((content, b"\0", b"}", b',"x":1', b"null", b"\n{}"))
        return content

    def _object(self, given: dict[str, Any]) -> bytes:
        members = []
        for key, each in given["properties"].items():
            must = key in given["required"] and not _nullable(each)
            if not must and self.draw.random() < 0.2:
                continue
            if must and self.strikes("missing"):
                continue
            null = (
                b"null" if self.strikes("null") and must else b"null" if not must and self.draw.random() < 0.2 else None
            )
            members.append((key, null or self._value(each)))
        self.draw.shuffle(members)
        if members and self.strikes("twice"):
            members.append(self.draw.choice(members))
        if self.strikes("undeclared"):
            members.append((self.draw.choice(("zzz", "row", "$", "a\u0000")), self.draw.choice((b"1", b"null", b"{}"))))
        pairs = [self._text(key) + self._space() + b":" + self._space() + value for key, value in members]
        return b"{" + self._space() + (b"," + self._space()).join(pairs) + self._space() + b"}"

    def _value(self, given: dict[str, Any]) -> bytes:
        if self.strikes("type"):
            return self.draw.choice((b"[]", b"{}", b'"x"', b"1", b"true", b"[{}]", b'{"k":[]}', b"[" * 40 + b"]" * 40))
        kind = given["type"] if isinstance(given["type"], str) else given["type"][0]
        match kind:
            case "object" if "properties" in given:
                return self._object(given)
            case "object":
                keys = self.draw.sample(sorted({*TEXTS, *KEYS}), self.draw.randrange(4))
                pairs = [self._text(key) + b":" + self._item(given["additionalProperties"]) for key in keys]
                if pairs and self.strikes("twice"):
                    pairs.append(pairs[0])
                return b"{" + b",".join(pairs) + b"}"
            case "array":
                items = [self._item(given["items"]) for _ in range(self.draw.randrange(4))]
                return b"[" + self._space() + b", ".join(items) + b"]"
            case "string" if "enum" in given:
                return self._text("TWO" if self.strikes("symbol") else self.draw.choice(("ONE", "ZERO")))
            case "string" if "format" in given:
                return self._text(self.draw.choice(BAD_TIMES if self.strikes("time") else TIMES))
            case "string":
                return self.draw.choice(BAD_TEXTS) if self.strikes("text") else self._text(self.draw.choice(TEXTS))
            case "boolean":
                return self.draw.choice((b"true", b"false"))
            case "null":
                return b"null"
            case _:
                if self.strikes("number"):
                    return self.draw.choice(BAD_NUMBERS)
                return self.draw.choice(WHOLES if kind == "integer" else NUMBERS).encode()

    def _item(self, given: dict[str, Any]) -> bytes:
        nullable = _nullable(given)
        if (nullable and self.draw.random() < 0.2) or (not nullable and self.strikes("null")):
            return b"null"
        return self._value(given)

    def _text(self, text: str) -> bytes:
        if self.draw.random() < 0.5:
            return json.dumps(text).encode()
        if self.draw.random() < 0.3:
            return b'"' + b"".join(b"\\u%04x" % unit for unit in _units(text)) + b'"'
        return json.dumps(text, ensure_ascii=False).encode()

    def _space(self) -> bytes:
        return self.draw.choice((b"", b"", b"", b" ", b"\n", b"\r\n\t"))


def _nullable(given: dict[str, Any]) -> bool:
    return "null" in given["type"] if isinstance(given["type"], list) else given["type"] == "null"


def _units(text: str) -> list[int]:
    wide = text.encode("utf-16-be")
    return [wide[at] << 8 | wide[at + 1] for at in range(0, len(wide), 2)]
