"""The second decoder of JSON documents: the oracle of tests and of `turnout verify --values`.

msgspec's own reader, one document at a time, which keeps numbers with a fraction as decimals. It takes the last of
repeated keys, so those are looked for apart. It shares nothing with the first decoder but the registered definition.
"""

import datetime as dt
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Undecodable

_MOST_LEVELS: Final = 32
_TOKENS: Final = re.compile(rb'("(?:[^"\\]|\\.)*+")([ \t\n\r]*:)?|[\[\]{}]', re.DOTALL)
_COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_TIME: Final = pa.timestamp("us", "UTC")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DATE_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)

_Convert: TypeAlias = Callable[[Any], Any]
"""Turns msgspec's value, which is not null, into the column's."""


class ReferenceDecoder:
    """Decodes documents of one schema into the columns they have in one game's table."""

    def __init__(self, definition: bytes, names: Mapping[str, str], most: int = MAX_PAYLOAD_BYTES) -> None:
        """Prepare for a registered definition.

        Args:
            definition: its canonical JSON.
            names: of properties that do not lie in the column of their name: path → column or member.
            most: bytes of the largest document.
        """
        self._names, self._most = names, most
        root = self._object(json.loads(definition), "")
        self._convert = root.convert
        self.schema = pa.schema(list(root.type) if isinstance(root.type, pa.StructType) else [])
        self._decoder = msgspec.json.Decoder(float_hook=Decimal)

    def decode(self, payloads: Sequence[bytes | None]) -> tuple[pa.Table, dict[int, Undecodable]]:
        """Return the columns of all documents that decode, in order, and by place why each other one does not."""
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
        if payload is None:
            raise Undecodable("empty_payload", "the payload is empty")
        if len(payload) > self._most:
            raise _malformed(f"{len(payload)} bytes")
        _check_levels_and_keys(payload)
        try:
            found = self._decoder.decode(payload)
        except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError) as error:
            raise _malformed(str(error)) from error
        row: dict[str, Any] = self._convert(found)
        return row

    def _value(self, given: Any, path: str) -> "_Value":
        kinds = given["type"] if isinstance(given["type"], list) else [given["type"]]
        nullable, kind = "null" in kinds, next((each for each in kinds if each != "null"), "null")
        match kind:
            case "object" if "properties" in given:
                made = self._object(given, f"{path}.")
            case "object":
                made = _map(self._value(given["additionalProperties"], path))
            case "array":
                made = _array(self._value(given["items"], path))
            case "string" if "enum" in given:
                made = _Value(pa.string(), _one_of({each for each in given["enum"] if each is not None}))
            case "string" if given.get("format") == "date-time":
                made = _Value(_TIME, _moment)
            case _:
                made = _SCALARS[kind]
        return _Value(made.type, made.convert, nullable=nullable)

    def _object(self, given: Any, prefix: str) -> "_Value":
        keys = sorted(given["properties"])
        own = dict(zip(keys, _distinct(keys), strict=True))
        values = {key: self._value(given["properties"][key], f"{prefix}{own[key]}") for key in keys}
        titles = {key: self._names.get(f"{prefix}{own[key]}", own[key]) for key in keys}
        kept = [key for key in keys if values[key].type is not None]
        required = [key for key in given.get("required", ()) if not values[key].nullable]

        def convert(found: Any) -> dict[str, Any] | bool:
            if not isinstance(found, dict):
                raise _malformed("not an object")
            if unknown := set(found) - set(keys):
                raise _malformed(f"an undeclared key: {min(unknown)}")
            if any(found.get(key) is None for key in required):
                raise _malformed("a required property is missing or null")
            row = {key: None if value is None else values[key].convert(value) for key, value in found.items()}
            made = {titles[key]: row.get(key) for key in kept}
            return made if kept or not prefix else True

        kind = pa.struct([(titles[key], values[key].type) for key in kept]) if kept else pa.bool_()
        return _Value(kind, convert)


@dataclass(frozen=True, slots=True)
class _Value:
    """How the values of a type are read."""

    type: pa.DataType | None
    convert: _Convert
    nullable: bool = False


def _malformed(detail: str) -> Undecodable:
    return Undecodable("malformed_payload", detail)


def _check_levels_and_keys(payload: bytes) -> None:
    """Refuse what nests too deep or has a key twice; whether it is JSON at all is decided elsewhere."""
    around: list[set[bytes] | set[str]] = []
    for token in _TOKENS.finditer(payload):
        text, colon = token.groups()
        if text is None and token[0] in b"{[":
            around.append(set())
            if len(around) > _MOST_LEVELS:
                raise _malformed("nested too deep")
        elif text is None and around:
            around.pop()
        elif colon and around:
            try:
                key = json.loads(text)
            except ValueError as error:
                raise _malformed("a key that is no text") from error
            if key in around[-1]:
                raise _malformed("a key twice")
            around[-1].add(key)


def _distinct(keys: list[str]) -> list[str]:
    """Return the names of columns: what no column can have, or differs by case only, gets six digits of SHA-1."""
    result: list[str] = []
    for key in keys:
        if _COLUMN.fullmatch(key) and all(key.lower() != earlier.lower() for earlier in result):
            result.append(key)
        else:
            digest = hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:6]
            letters = "".join(each if each.isascii() and (each.isalnum() or each == "_") else "_" for each in key)
            result.append(f"{letters[:235]}__j{digest}")
    return result


def _items(values: _Value, found: Any) -> Any:
    if found is None and not values.nullable:
        raise _malformed("a null among items")
    return None if found is None else values.convert(found)


def _array(items: _Value) -> _Value:
    def convert(found: Any) -> list[Any]:
        if not isinstance(found, list):
            raise _malformed("not an array")
        return [_items(items, each) for each in found]

    return _Value(pa.list_(pa.field("element", items.type)), convert)


def _map(values: _Value) -> _Value:
    def convert(found: Any) -> list[tuple[str, Any]]:
        if not isinstance(found, dict):
            raise _malformed("not an object")
        return [(key, _items(values, each)) for key, each in found.items()]

    return _Value(pa.map_(pa.string(), values.type), convert)


def _one_of(symbols: set[str]) -> _Convert:
    def convert(found: Any) -> str:
        if not isinstance(found, str) or found not in symbols:
            raise _malformed("not a symbol")
        return found

    return convert


def _typed(kind: type, what: str) -> _Convert:
    def convert(found: Any) -> Any:
        if type(found) is not kind:
            raise _malformed(f"not {what}")
        return found

    return convert


def _integer(found: Any) -> int:
    if isinstance(found, Decimal) and found.adjusted() < 20 and found == found.to_integral_value():
        found = int(found)
    if type(found) is not int or not -(1 << 63) <= found < 1 << 63:
        raise _malformed("not an integer of 64 bits")
    return found


def _number(found: Any) -> float:
    if type(found) is not int and not isinstance(found, Decimal):
        raise _malformed("not a number")
    exact = Decimal(found)
    try:
        double = float(found)
    except OverflowError as error:
        raise _malformed("beyond a double") from error
    if double in (float("inf"), float("-inf")):
        raise _malformed("beyond a double")
    if Decimal(double) == exact:
        return double or 0.0
    short = isinstance(found, Decimal) and len("".join(map(str, exact.as_tuple().digits)).strip("0")) <= 17
    if not short or not double:
        raise _malformed("digits beyond a double's")
    return double


def _moment(found: Any) -> int:
    parts = _DATE_TIME.fullmatch(found) if isinstance(found, str) else None
    if parts is None:
        raise _malformed("not a date-time")
    *date, fraction, sign, hours, minutes = parts.groups()
    zone = 0 if sign is None else int(f"{sign}1") * (int(hours) * 60 + int(minutes))
    if sign is not None and (int(hours) > 23 or int(minutes) > 59):
        raise _malformed("not a zone")
    try:
        moment = dt.datetime(*map(int, date), tzinfo=dt.timezone(dt.timedelta(minutes=zone)))  # type: ignore[arg-type, misc]
        moment = moment.astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        raise _malformed(str(error)) from error
    return (moment - _EPOCH) // dt.timedelta(seconds=1) * 1_000_000 + int((fraction or "0")[:6].ljust(6, "0"))


_SCALARS: Final[Mapping[str, _Value]] = {
    "string": _Value(pa.string(), _typed(str, "text")),
    "integer": _Value(pa.int64(), _integer),
    "number": _Value(pa.float64(), _number),
    "boolean": _Value(pa.bool_(), _typed(bool, "a boolean")),
    "null": _Value(None, _typed(type(None), "null"), nullable=True),
}
