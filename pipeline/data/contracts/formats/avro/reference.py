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
from itertools import count
from typing import Any, Final, TypeAlias

import pyarrow as pa
from fastavro import parse_schema
from fastavro._read_py import read_data

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Undecodable
from pipeline.data.contracts.formats.avro.reference_bytes import StrictBytes, malformed

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
            raise malformed(f"{len(payload)} bytes")
        decoder = StrictBytes(payload)
        try:
            found = read_data(decoder, self._avro, {"writer": {}, "reader": {}})
        except (EOFError, IndexError, UnicodeDecodeError) as error:
            raise malformed(str(error) or type(error).__name__) from error
        if decoder.place() != len(payload):
            raise malformed("left-over bytes")
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
    rewriting, decoder = _Rewriting({}), StrictBytes(payload, most_weightless)
    rewriting.learn(given)
    for each in given["fields"]:
        value, start = rewriting.value(each["type"], each["name"]), decoder.place()
        try:
            read = read_data(decoder, parse_schema(value.avro), {"writer": {}, "reader": {}})
            text = None if value.long is None else value.long[1](read)
            found = value.convert(read) if text is None else text
        except (EOFError, IndexError, UnicodeDecodeError, Undecodable) as error:
            why = str(error) or type(error).__name__
            raise malformed(f"{each['name']} does not read: {why}, at byte {start}") from error
        yield each["name"], value.type if text is None else pa.string(), found
    if left := len(payload) - decoder.place():
        raise malformed(f"{left} bytes are left over")


@dataclass(frozen=True, slots=True)
class _Value:
    """How the values of a type are read: by fastavro, and from its values for a column."""

    avro: Any  # the schema without names, maps, logical types and bare unions
    type: pa.DataType | None
    convert: _Convert
    weightless: bool = False  # a value has no bytes
    long: tuple[_Convert, _Convert] | None = None
    """Converters for a decimal that may have more digits than its column: value and text beside it, one is None."""


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
        columns = _columns(names, [f"f{index}" for index in range(len(values))], values)
        titles = [(self.names.get(f"{prefix}{each.name}", each.name), each) for each in columns]
        kept = [(name, each.type) for name, each in titles if each.type is not None]

        def convert(found: Any) -> dict[str, Any] | bool:
            row = {name: each.convert(found[each.key]) for name, each in titles}  # each, for what it refuses
            return {name: row[name] for name, _ in kept} or True

        kind = pa.struct(kept) if kept else pa.bool_()
        weightless = all(each.weightless for each in values)
        return _Value({"type": "record", "name": self._name(), "fields": fields}, kind, convert, weightless)

    def _map(self, values: _Value) -> _Value:
        entry = [{"name": "key", "type": "string"}, {"name": "value", "type": values.avro}]
        avro = {"type": "array", "items": {"type": "record", "name": self._name(), "fields": entry}}

        def convert(found: Any) -> list[tuple[str, Any]]:
            if len({each["key"] for each in found}) != len(found):
                raise malformed("a repeated key")
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
        keyed = {
            f"b{index}": each for index, (name, each) in enumerate(zip(full, branches, strict=True)) if name in titles
        }
        if not several:
            return _or_null(avro, next(iter(keyed.values()), None))
        held = [
            (self.names.get(f"{path}.{each.name}", each.name), each)
            for each in _columns(list(titles.values()), list(keyed), list(keyed.values()))
        ]
        kinds = [(name, each.type) for name, each in held if each.type is not None]

        def convert(found: Any) -> Any:
            ((key, value),) = found.items()
            members = {name: each.convert(value) for name, each in held if each.key == key}
            return {name: members[name] for name, _ in kinds if name in members} if key in keyed else None

        return _Value(avro, pa.struct(kinds) if kinds else None, convert)

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


@dataclass(frozen=True, slots=True)
class _Column:
    """A field's column, or that of its texts, before it gets the name of a placement."""

    name: str
    key: str  # of fastavro's value
    type: pa.DataType | None
    convert: _Convert


def _columns(names: list[str], keys: list[str], values: list[_Value]) -> list[_Column]:
    """Return the columns of a record's fields or a union's branches, then those of texts of long decimals."""
    listed = list(zip(names, keys, values, strict=True))
    columns = [_Column(name, key, each.type, each.long[0] if each.long else each.convert) for name, key, each in listed]
    long = [(name, key, each.long[1]) for name, key, each in listed if each.long]
    texts = _distinct([*names, *(f"{name[:235]}__text" for name, _, _ in long)], [*names, *(each[0] for each in long)])
    for text, (_, key, convert) in zip(texts[len(names) :], long, strict=True):
        columns.append(_Column(text, key, pa.string(), convert))
    return columns


def _or_null(avro: Any, one: _Value | None) -> _Value:
    """Return how a union of one type and null is read, None for null alone."""
    if one is None:
        return _Value(avro, None, _same)

    def opened(convert: _Convert) -> _Convert:
        def convert_branch(found: Any) -> Any:
            ((_, value),) = found.items()
            return None if value is None else convert(value)

        return convert_branch

    long = None if one.long is None else (opened(one.long[0]), opened(one.long[1]))
    return _Value(avro, one.type, opened(one.convert), long=long)


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
        return _decimals(avro, given["precision"], given["scale"])
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


def _decimals(avro: Any, precision: int, scale: int) -> _Value:
    """Return how decimals are read: a column has 38 digits at most, a text beside it 4300."""
    column, text = min(precision, 38), min(precision, 4300)

    def number(found: bytes) -> Decimal | None:
        value = _decimal(found, text, scale)
        return value if len(value.as_tuple().digits) <= column else None

    def words(found: bytes) -> str | None:
        return None if number(found) is not None else format(_decimal(found, text, scale), "f")

    kind = pa.decimal128(column, scale)
    return _Value(
        avro, kind, lambda found: _decimal(found, column, scale), long=None if text == column else (number, words)
    )


def _decimal(found: bytes, precision: int, scale: int) -> Decimal:
    if not found:
        raise malformed("a decimal without bytes")
    number = int.from_bytes(found, "big", signed=True)
    if abs(number) >= 10**precision:
        raise malformed("a decimal beyond its precision")
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _moment(found: int, unit: str) -> int:
    micros = {"millis": found * 1000, "micros": found, "nanos": found // 1000}[unit]
    try:
        _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError as error:
        raise malformed(f"a time out of range: {found}") from error
    return micros


def _day(found: int) -> dt.date:
    try:
        return dt.date.fromordinal(found + dt.date(1970, 1, 1).toordinal())
    except (ValueError, OverflowError) as error:
        raise malformed(f"a date out of range: {found}") from error


def _duration(found: bytes) -> dict[str, int]:
    parts = (int.from_bytes(found[start : start + 4], "little") for start in (0, 4, 8))
    return dict(zip(("months", "days", "millis"), parts, strict=True))


def _uuid_parts(found: bytes) -> list[bytes]:
    return [found[start:end] for start, end in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 16))]
