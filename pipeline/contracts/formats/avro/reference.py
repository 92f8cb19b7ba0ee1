"""The second decoder of Avro payloads: the oracle of tests and of `turnout verify --values`.

fastavro's own reader in Python, one payload at a time, over a decoder of bytes that is as strict as docs/data.md
promises; fastavro alone takes a boolean of 2, numbers beyond their range, negative numbers of branches and symbols,
repeated keys of a map and left-over bytes. It shares nothing with the first decoder but the registered definition.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from io import BytesIO
from itertools import count
from typing import Any, Final, TypeAlias

import pyarrow as pa
from fastavro import parse_schema
from fastavro._read_py import read_data
from fastavro.io.binary_decoder import BinaryDecoder

from pipeline.contracts.decoded import MAX_PAYLOAD_BYTES, Undecodable

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - only its range matters
_TIME: Final = pa.timestamp("us", "UTC")
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
}

_Convert: TypeAlias = Callable[[Any], Any]
"""Turns fastavro's value into the column's."""


class ReferenceDecoder:
    """Decodes payloads of one schema into the columns they have in one game's table."""

    def __init__(self, definition: bytes, names: Mapping[str, str]) -> None:
        """Prepare for a registered definition.

        Args:
            definition: its canonical JSON.
            names: of fields that do not lie in the column of their name: path → column or member.
        """
        given = json.loads(definition)
        rewriting = _Rewriting(names)
        rewriting.learn(given)
        self._columns = rewriting.record(given, "")
        self._avro = parse_schema(self._columns.avro)
        held = self._columns.type
        self.schema = pa.schema(list(held) if isinstance(held, pa.StructType) else [])

    def decode(self, payloads: Sequence[bytes | None]) -> tuple[pa.Table, dict[int, Undecodable]]:
        """Return the columns of all payloads that decode, in order, and by place why each other one does not."""
        good, refused = [], {}
        for place, payload in enumerate(payloads):
            try:
                good.append(self._one(payload))
            except Undecodable as error:
                refused[place] = error
        if not len(self.schema):  # such a table knows its number of rows only as a choice of none of its columns
            return pa.table({"": pa.nulls(len(good))}).select([]), refused
        arrays = [pa.array([row[each.name] for row in good], each.type) for each in self.schema]
        return pa.table(arrays, schema=self.schema), refused

    def _one(self, payload: bytes | None) -> dict[str, Any]:
        if payload is None and not len(self.schema):
            payload = b""  # an event without fields
        if payload is None:
            raise Undecodable("empty_payload", "the payload is empty")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise _malformed(f"{len(payload)} bytes")
        decoder = _Strict(payload)
        try:
            found = read_data(decoder, self._avro, {"writer": {}, "reader": {}})
        except (EOFError, IndexError, UnicodeDecodeError) as error:
            raise _malformed(str(error) or type(error).__name__) from error
        if decoder.place() != len(payload):
            raise _malformed("left-over bytes")
        row: dict[str, Any] = self._columns.convert(found)
        return row


def fields_in_turn(
    definition: bytes, payload: bytes, most_weightless: int
) -> Iterator[tuple[str, pa.DataType | None, Any]]:
    """Yield a payload's fields as they follow each other: name, type (None: only null) and value.

    `most_weightless` is the most items without bytes, which a short payload may claim to hold by the million.

    Raises:
        Undecodable: the next field does not read, or bytes are left over.
    """
    given = json.loads(definition)
    rewriting, decoder = _Rewriting({}), _Strict(payload, most_weightless)
    rewriting.learn(given)
    for each in given["fields"]:
        value, start = rewriting.value(each["type"], each["name"]), decoder.place()
        try:
            found = value.convert(read_data(decoder, parse_schema(value.avro), {"writer": {}, "reader": {}}))
        except (EOFError, IndexError, UnicodeDecodeError, Undecodable) as error:
            why = str(error) or type(error).__name__
            raise _malformed(f"{each['name']} does not read: {why}, at byte {start}") from error
        yield each["name"], value.type, found
    if left := len(payload) - decoder.place():
        raise _malformed(f"{left} bytes are left over")


def _malformed(detail: str) -> Undecodable:
    return Undecodable("malformed_payload", detail)


class _Strict(BinaryDecoder):
    """Reads bytes for fastavro, and refuses those that no writer of the schema writes."""

    def __init__(self, payload: bytes, most_weightless: int = MAX_PAYLOAD_BYTES) -> None:
        BinaryDecoder.__init__(self, BytesIO(payload))
        self._weightless, self._most_weightless = 0, most_weightless

    def place(self) -> int:
        return int(self.fo.tell())

    def _take(self, size: int) -> bytes:
        content: bytes = self.fo.read(size)
        if len(content) < size:
            raise EOFError("the payload ends too early")
        return content

    def _number(self, bits: int) -> int:
        """Read a zigzag number of 32 or 64 bits, in no more bytes than such a number can need."""
        result, most = 0, -(-bits // 7)
        for index in range(most):
            byte = self._take(1)[0]
            result += (byte % 128) << (7 * index)
            if byte < 128:
                break
        else:
            raise _malformed("a number of too many bytes")
        if result >= 2**bits:
            raise _malformed("a number beyond its range")
        return -(result // 2) - 1 if result % 2 else result // 2

    def read_long(self) -> int:
        return self._number(64)

    def read_int(self) -> int:
        return self._number(32)

    def read_index(self) -> int:
        number = self._number(32)
        if number < 0:
            raise _malformed("a negative index")
        return number

    def read_enum(self) -> int:
        return self.read_index()

    def read_boolean(self) -> bool:
        byte = self._take(1)[0]
        if byte not in {0, 1}:
            raise _malformed("a boolean that is neither 0 nor 1")
        return bool(byte)

    def read_bytes(self) -> bytes:
        size = self._number(64)
        if size < 0:
            raise _malformed("a negative length")
        return self._take(min(size, MAX_PAYLOAD_BYTES + 1))

    def read_array_start(self) -> None:
        pass

    def iter_array(self) -> Iterator[None]:
        while (items := self._number(64)) != 0:
            stated = None
            if items < 0:
                items, stated = -items, self._number(64)
            start = self.place()
            for index in range(items):
                before = self.place()
                yield
                if self.place() == before:
                    self._weightless += 1
                    if self._weightless + items - index - 1 > self._most_weightless:
                        raise _malformed("too many items without bytes")
            if stated is not None and self.place() - start != stated:
                raise _malformed("a block of another size than stated")


@dataclass(frozen=True, slots=True)
class _Value:
    """How the values of a type are read: by fastavro, and from its values for a column."""

    avro: Any  # the schema without names, maps, logical types and bare unions
    type: pa.DataType | None
    convert: _Convert
    weightless: bool = False  # a value has no bytes


@dataclass(slots=True)
class _Rewriting:
    """Rewrites a schema so that fastavro reads the same bytes and says all that they held.

    A map becomes an array of keys and values, which keeps repeated keys; a branch of a union becomes a record with one
    field, whose name says which branch it is. Both have the same bytes.
    """

    names: Mapping[str, str]
    known: dict[str, Any] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    def learn(self, given: Any) -> None:
        """Keep the definitions of named types."""
        if isinstance(given, list):
            for each in given:
                self.learn(each)
        elif isinstance(given, dict):
            if given.get("type") in {"record", "enum", "fixed"}:
                self.known[given["name"]] = given
            for each in given.get("fields", ()):
                self.learn(each["type"])
            self.learn(given.get("items", given.get("values")))

    def value(self, given: Any, path: str) -> _Value:
        """Return how values of a type are read; `path` leads to their field."""
        if isinstance(given, list):
            return self._union(given, path)
        if isinstance(given, str):
            return self.value(self.known.get(given, {"type": given}), path)
        match given["type"]:
            case "record":
                return self.record(given, f"{path}.")
            case "array":
                return _array(self.value(given["items"], path))
            case "map":
                return self._map(self.value(given["values"], path))
            case "enum":
                return _Value({"type": "enum", "name": self._name(), "symbols": given["symbols"]}, pa.string(), _same)
            case "fixed":
                return _logical(given, {"type": "fixed", "name": self._name(), "size": given["size"]})
            case "null":
                return _Value("null", None, _same, weightless=True)
            case kind:
                return _logical(given, kind)

    def record(self, given: Any, prefix: str) -> _Value:
        """Return how a record is read; `prefix` is the path to its fields, with a dot."""
        names = _distinct([each["name"] for each in given["fields"]])
        values = [
            self.value(each["type"], f"{prefix}{name}") for each, name in zip(given["fields"], names, strict=True)
        ]
        fields = [{"name": f"f{index}", "type": each.avro} for index, each in enumerate(values)]
        kept = [
            (self.names.get(f"{prefix}{name}", name), f"f{index}", each)
            for index, (name, each) in enumerate(zip(names, values, strict=True))
            if each.type is not None
        ]

        def convert(found: Any) -> dict[str, Any] | bool:
            return {name: each.convert(found[key]) for name, key, each in kept} if kept else True

        kind = pa.struct([(name, each.type) for name, _, each in kept]) if kept else pa.bool_()
        weightless = all(each.weightless for each in values)
        return _Value({"type": "record", "name": self._name(), "fields": fields}, kind, convert, weightless)

    def _map(self, values: _Value) -> _Value:
        entry = [{"name": "key", "type": "string"}, {"name": "value", "type": values.avro}]
        avro = {"type": "array", "items": {"type": "record", "name": self._name(), "fields": entry}}

        def convert(found: Any) -> list[tuple[str, Any]]:
            if len({each["key"] for each in found}) != len(found):
                raise _malformed("a repeated key")
            return [(each["key"], values.convert(each["value"])) for each in found]

        if values.type is None:  # no column, but its keys are checked
            return _Value(avro, None, convert)
        return _Value(avro, pa.map_(pa.string(), values.type), convert)

    def _union(self, given: list[Any], path: str) -> _Value:
        full = [each if isinstance(each, str) else each.get("name", each["type"]) for each in given]
        valued = [name for name in full if name != "null"]
        titles = dict(zip(valued, _distinct([name.split(".")[-1] for name in valued], valued), strict=True))
        several = len(valued) > 1
        branches = [
            self.value(each, f"{path}.{titles[name]}" if several and name in titles else path)
            for each, name in zip(given, full, strict=True)
        ]
        avro = [
            {"type": "record", "name": self._name(), "fields": [{"name": str(f"b{index}"), "type": each.avro}]}
            for index, each in enumerate(branches)
        ]
        by_key = {f"b{index}": (name, each) for index, (name, each) in enumerate(zip(full, branches, strict=True))}
        columns = {name: self.names.get(f"{path}.{title}", title) for name, title in titles.items()}

        def convert(found: Any) -> Any:
            ((key, value),) = found.items()
            name, branch = by_key[key]
            converted = branch.convert(value)
            if name == "null" or not several:
                return converted
            return {columns[name]: converted} if branch.type is not None else {}

        if not several:
            kinds = [each.type for each in branches if each.type is not None]
            return _Value(avro, kinds[0] if kinds else None, convert)
        held = [(columns[n], each.type) for n, each in by_key.values() if each.type is not None]
        return _Value(avro, pa.struct(held) if held else None, convert)

    def _name(self) -> str:
        return f"n{next(self.numbers)}"


def _distinct(names: list[str], full: list[str] | None = None) -> list[str]:
    """Return the names of columns: a name that differs from an earlier one by case only gets six digits of SHA-1."""
    result: list[str] = []
    for index, name in enumerate(names):
        if any(name.lower() == earlier.lower() for earlier in names[:index]):
            digest = hashlib.sha1((full or names)[index].encode(), usedforsecurity=False).hexdigest()
            result.append(f"{name}__a{digest[:6]}")
        else:
            result.append(name)
    return result


def _array(items: _Value) -> _Value:
    kind = None if items.type is None or items.weightless else pa.list_(pa.field("element", items.type))
    return _Value({"type": "array", "items": items.avro}, kind, lambda found: [items.convert(each) for each in found])


def _same(found: Any) -> Any:
    return found


def _logical(given: Any, avro: Any) -> _Value:
    """Return how a primitive or fixed is read, by its logical type."""
    base, name = given["type"], given.get("logicalType", "")
    kind, _, unit = name.rpartition("-")
    if name == "decimal":
        precision, scale = min(given["precision"], 38), given["scale"]  # a column has 38 digits at most
        return _Value(avro, pa.decimal128(precision, scale), lambda found: _decimal(found, precision, scale))
    if kind == "timestamp":
        return _Value(avro, _TIME, lambda found: _moment(found, unit))
    if kind == "local-timestamp":
        return _Value(avro, pa.int64(), lambda found: _moment(found, unit))
    if name == "date":
        return _Value(avro, pa.date32(), _day)
    if name == "time-millis":
        return _Value(avro, pa.int64(), lambda found: found * 1000)
    if name == "duration":
        parts = ("months", "days", "millis")
        return _Value(avro, pa.struct([(part, pa.int64()) for part in parts]), _duration)
    if name == "uuid" and base == "fixed":
        return _Value(avro, pa.string(), lambda found: "-".join(map(bytes.hex, _uuid_parts(found))))
    return _Value(avro, _PLAIN[base], _same)


def _decimal(found: bytes, precision: int, scale: int) -> Decimal:
    if not found:
        raise _malformed("a decimal without bytes")
    number = int.from_bytes(found, "big", signed=True)
    digits = tuple(map(int, str(abs(number)))) if abs(number) < 10**40 else (0,) * 41
    if len(digits) > precision:
        raise _malformed("a decimal beyond its precision")
    return Decimal((int(number < 0), digits, -scale))


def _moment(found: int, unit: str) -> int:
    micros = {"millis": found * 1000, "micros": found, "nanos": found // 1000}[unit]
    try:
        _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError as error:
        raise _malformed(f"a time out of range: {found}") from error
    return micros


def _day(found: int) -> dt.date:
    try:
        return dt.date.fromordinal(found + dt.date(1970, 1, 1).toordinal())
    except (ValueError, OverflowError) as error:
        raise _malformed(f"a date out of range: {found}") from error


def _duration(found: bytes) -> dict[str, int]:
    parts = (int.from_bytes(found[start : start + 4], "little") for start in (0, 4, 8))
    return dict(zip(("months", "days", "millis"), parts, strict=True))


def _uuid_parts(found: bytes) -> list[bytes]:
    return [found[start:end] for start, end in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 16))]
