"""Decodes one payload, value by value: what the readers of many payloads leave over, and why a payload is refused.

Strict: every number has its range and at most the bytes that it may need, a boolean is 0 or 1, a text is UTF-8, a map
has each key once, a block that states its size has it, and no bytes are left over.
"""

import struct
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.formats.avro.columns import DURATION, arrow_type, branch_names, field_names, text_names
from pipeline.data.contracts.formats.avro.types import (
    MAX_TEXT_DIGITS,
    Array,
    Enum,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    is_weightless,
    kind_name,
)
from pipeline.data.contracts.times import FIRST_DAY, FIRST_TIME, LAST_DAY, LAST_TIME

_EXACT: Final = Context(prec=MAX_TEXT_DIGITS)
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_DURATION: Final = struct.Struct("<III")


PRESENT: Final = ""
"""The column of a record without columns, in a decoder; the table has none."""


class Malformed(Exception):
    """Bytes that are not what their schema says."""

    def __init__(self, why: str) -> None:
        """Keep the reason; the path of the field grows while it is raised."""
        super().__init__(why)
        self.path: list[str] = []

    @property
    def field(self) -> str:
        """The field's path, empty where no field is known."""
        return ".".join(reversed(self.path))

    def __str__(self) -> str:
        return f"{self.field}: {self.args[0]}" if self.path else str(self.args[0])


class _Payload:
    """The bytes of a payload and a position in it."""

    __slots__ = ("at", "data", "weightless")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.weightless = 0  # items without bytes so far

    def varint(self, most: int) -> int:
        """Read a zigzag number of at most `most` bytes."""
        data, at = self.data, self.at
        if at >= len(data):
            raise Malformed("the payload ends too early")
        byte = data[at]
        number, shift, last = byte & 0x7F, 7, min(at + most, len(data)) - 1
        while byte > 0x7F:
            at += 1
            if at > last:
                raise Malformed("the payload ends too early" if at == len(data) else "a number has too many bytes")
            byte = data[at]
            number |= (byte & 0x7F) << shift
            shift += 7
        self.at = at + 1
        if number >> 64:
            raise Malformed("a number is beyond 64 bits")
        return (number >> 1) ^ -(number & 1)

    def small(self) -> int:
        """Read an int."""
        number = self.varint(5)
        if not -(2**31) <= number < 2**31:
            raise Malformed(f"an int is beyond 32 bits: {number}")
        return number

    def take(self, size: int) -> bytes:
        """Read `size` bytes."""
        end = self.at + size
        if size < 0:
            raise Malformed(f"a length is negative: {size}")
        if end > len(self.data):
            raise Malformed("the payload ends too early")
        found = self.data[self.at : end]
        self.at = end
        return found


_Read: TypeAlias = Callable[[_Payload], Any]


class ScalarDecoder:
    """Decodes one payload of a record at a time, into values for Arrow's types of its columns."""

    def __init__(self, record: Record) -> None:
        """Prepare for a record."""
        self._read = _record(record)

    def decode(self, content: bytes) -> dict[str, Any]:
        """Return the values by column, of a record without columns true by PRESENT.

        Raises:
            Malformed: the bytes are not what the schema says.
        """
        payload = _Payload(content)
        values: dict[str, Any] | bool = self._read(payload)
        if payload.at != len(content):
            raise Malformed(f"{len(content) - payload.at} bytes are left over")
        return values if isinstance(values, dict) else {PRESENT: values}


def _reader(of: Type, *, beside: bool = False) -> _Read:
    """Return how a value is read; with `beside` a decimal with more digits than its column is read as text."""
    match of:
        case Primitive():
            return _primitive(of, beside=beside)
        case Fixed():
            return _fixed(of, beside=beside)
        case Enum():
            return _enum(of)
        case Array():
            return _array(of)
        case Map():
            return _map(of)
        case Union():
            return _union(of, beside=beside)
        case Record():
            return _record(of)


def _primitive(of: Primitive, *, beside: bool) -> _Read:
    match of.name:
        case "null":
            return lambda _payload: None
        case "boolean":
            return _boolean
        case "int":
            return _whole(_Payload.small, of.logical)
        case "long":
            return _whole(lambda payload: payload.varint(10), of.logical)
        case "float":
            return lambda payload: _FLOAT.unpack(payload.take(4))[0]
        case "double":
            return lambda payload: _DOUBLE.unpack(payload.take(8))[0]
        case "string":
            return _text
    if of.logical.name == "decimal":
        return lambda payload: _decimal(_sized(payload), of.logical, beside=beside)
    return _sized


def _boolean(payload: _Payload) -> bool:
    byte = payload.take(1)[0]
    if byte > 1:
        raise Malformed(f"a boolean is {byte}")
    return byte == 1


def _sized(payload: _Payload) -> bytes:
    return payload.take(payload.varint(10))


def _text(payload: _Payload) -> str:
    try:
        return _sized(payload).decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None


def _whole(read: Callable[[_Payload], int], logical: Logical) -> _Read:
    kind, _, unit = logical.name.rpartition("-")
    if kind in {"timestamp", "local-timestamp"}:
        return lambda payload: _moment(read(payload), unit)
    match logical.name:
        case "date":
            return lambda payload: _day(read(payload))
        case "time-millis":
            return lambda payload: read(payload) * 1000
        case _:
            return read


def _day(days: int) -> int:
    if not FIRST_DAY <= days <= LAST_DAY:
        raise Malformed(f"a date is outside the years 1 to 9999: {days} days")
    return days


def _moment(given: int, unit: str) -> int:
    micros = given // 1000 if unit == "nanos" else given * 1000 if unit == "millis" else given
    if not FIRST_TIME <= micros <= LAST_TIME:
        raise Malformed(f"a time is outside the years 1 to 9999: {given} {unit}")
    return micros


def _fixed(of: Fixed, *, beside: bool) -> _Read:
    match of.logical.name:
        case "decimal":
            return lambda payload: _decimal(payload.take(of.size), of.logical, beside=beside)
        case "duration":
            names = DURATION.names
            return lambda payload: dict(zip(names, _DURATION.unpack(payload.take(12)), strict=True))
        case "uuid":
            return lambda payload: str(UUID(bytes=payload.take(16)))
        case _:
            return lambda payload: payload.take(of.size)


def _decimal(content: bytes, logical: Logical, *, beside: bool) -> Decimal | str:
    if not content:
        raise Malformed("a decimal has no bytes")
    number = int.from_bytes(content, "big", signed=True)
    most = min(logical.precision, MAX_TEXT_DIGITS) if beside else logical.digits
    if abs(number) >= 10**most:
        where = "" if most == logical.precision else ", the most of a text" if beside else ", the most of a column"
        raise Malformed(f"a decimal has more than {most} digits{where}")
    value = Decimal(number).scaleb(-logical.scale, _EXACT)
    return value if abs(number) < 10**logical.digits else f"{value:f}"


def _enum(of: Enum) -> _Read:
    symbols = of.symbols

    def read(payload: _Payload) -> str:
        number = payload.small()
        if not 0 <= number < len(symbols):
            raise Malformed(f"an enum of {len(symbols)} symbols has number {number}")
        return symbols[number]

    return read


def _record(of: Record) -> _Read:
    names = field_names(of)
    texts = text_names(names, [each.type for each in of.fields])
    fields = [
        (
            each.name,
            name if arrow_type(each.type) is not None else None,
            texts.get(name),
            _reader(each.type, beside=True),
        )
        for each, name in zip(of.fields, names, strict=True)
    ]
    hollow = all(name is None for _, name, _, _ in fields)

    def read(payload: _Payload) -> dict[str, Any] | bool:
        values: dict[str, Any] = dict.fromkeys(texts.values())
        for given, name, text, read_field in fields:
            try:
                value = read_field(payload)
            except Malformed as error:
                error.path.append(given)
                raise
            if text is not None and isinstance(value, str):
                values[text], value = value, None
            if name is not None:
                values[name] = value
        return hollow or values

    return read


def _union(of: Union, *, beside: bool) -> _Read:
    valued = of.valued()
    several = len(valued) > 1
    reads = [_reader(each, beside=beside or several) for each in of.branches]
    names: list[str | None] = [None] * len(reads)
    texts = dict[str, str]()
    if several:
        listed = branch_names(of)
        by_kind = dict(zip(map(kind_name, valued), listed, strict=True))
        names = [by_kind.get(kind_name(each)) for each in of.branches]
        texts = text_names(listed, valued)
    held = [arrow_type(each) is not None for each in of.branches]

    def read(payload: _Payload) -> Any:
        number = payload.small()
        if not 0 <= number < len(reads):
            raise Malformed(f"a union of {len(reads)} types has number {number}")
        value = reads[number](payload)
        name = names[number]
        if name is None:
            return value
        if name in texts and isinstance(value, str):
            name = texts[name]
        return {name: value} if held[number] else {}

    return read


def _blocks(payload: _Payload, read: Callable[[int], None]) -> None:
    """Read the blocks of an array or map; `read` reads a given number of items."""
    while (count := payload.varint(10)) != 0:
        end = None
        if count < 0:
            count, size = -count, payload.varint(10)
            end = payload.at + size
        read(count)
        if end is not None and end != payload.at:
            raise Malformed("a block has another size than it states")


def _array(of: Array) -> _Read:
    read_item = _reader(of.items)
    weightless = is_weightless(of.items)

    def read(payload: _Payload) -> list[Any]:
        values: list[Any] = []

        def read_block(count: int) -> None:
            if weightless:
                payload.weightless += count
                if payload.weightless > MAX_PAYLOAD_BYTES:
                    raise Malformed(f"arrays have more than {MAX_PAYLOAD_BYTES} items without bytes")
                return
            values.extend(read_item(payload) for _ in range(count))

        _blocks(payload, read_block)
        return values

    return read


def _map(of: Map) -> _Read:
    read_value = _reader(of.values)

    def read(payload: _Payload) -> list[tuple[str, Any]]:
        values: dict[str, Any] = {}

        def read_block(count: int) -> None:
            for _ in range(count):
                key = _text(payload)
                if key in values:
                    raise Malformed("a map has a key twice")
                values[key] = read_value(payload)

        _blocks(payload, read_block)
        return list(values.items())

    return read
