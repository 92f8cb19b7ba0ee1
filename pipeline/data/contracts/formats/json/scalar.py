"""Decides one document at a time, strictly and slowly: those that the fast route does not take, with the reason.

Both routes take the same documents with the same values; `decoder` compares neither, its tests do.
"""

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from pipeline.base.names import shown
from pipeline.base.texts import utf8
from pipeline.data.contracts.formats.definition_text import json_depth
from pipeline.data.contracts.formats.json.columns import arrow_type, names_of
from pipeline.data.contracts.formats.json.types import JsonArray, JsonEnum, JsonMap, Nothing, Object, Scalar, Type
from pipeline.data.contracts.model import MAX_DEPTH

TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
"""A date-time of RFC 3339; which days and hours there are, the calendar says."""
MOST_DIGITS: Final = 17
"""Digits of a fraction by which any two doubles differ: with more, a double may not give all of them back."""
WHOLE: Final = 2**53
"""Up to this every whole number has a double of its own."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_MOST_SHOWN: Final = 40  # characters of a number
_MOST_EXACT_DIGITS: Final = 800  # of a double, written out in full


class Misfit(Exception):
    """A document that is not what its schema says, with a line of explanation."""

    def __init__(self, why: str, field: str = "") -> None:
        """Keep the explanation, and the path of the field that is wrong, where one is."""
        super().__init__(why)
        self.field = field


class Whole(str):
    """A number without fraction and exponent, as it was written."""

    __slots__ = ()


class Fraction(str):
    """Any other number, as it was written."""

    __slots__ = ()


Reader: TypeAlias = Callable[[Any, str], Any]
"""Turns a value that is not null into that of its column; the text is its path."""


class DocumentDecoder:
    """Decodes single documents of one schema into the values of its columns."""

    def __init__(self, root: Object) -> None:
        """Prepare for a schema."""
        self._read = _object(root)

    def decode(self, document: bytes) -> dict[str, Any]:
        """Return a document's values by column.

        Raises:
            Misfit: it is not JSON, or not what its schema says.
        """
        found = parsed(document)
        if found is None:
            raise Misfit("the document is null, not an object")
        row = self._read(found, "")
        return row if isinstance(row, dict) else {}


def parsed(document: bytes, depth: int = MAX_DEPTH) -> Any:
    """Return a document's values, with its numbers as they are written; `depth` is that of its most levels.

    Raises:
        Misfit: it is not JSON, nests too deep, or has a key twice.
    """
    try:
        text = utf8(document)
    except ValueError as error:
        raise Misfit(str(error)) from error
    try:
        if text.count("{") + text.count("[") > depth and json_depth(text) > depth:
            raise Misfit(f"it nests deeper than {depth} levels")
        return json.loads(
            text, parse_int=Whole, parse_float=Fraction, parse_constant=_constant, object_pairs_hook=_each_once
        )
    except ValueError as error:
        raise Misfit(f"not JSON: {error}") from error


def _constant(text: str) -> Any:
    raise Misfit(f"{text} is not a number of JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    raise Misfit(f"has the key {shown(twice)} twice in an object")


def _reader(of: Type) -> Reader:
    match of:
        case Nothing():
            return _nothing
        case Scalar():
            return _SCALARS[of.name]
        case JsonEnum():
            return _enum(frozenset(of.symbols))
        case JsonArray():
            return _array(of)
        case JsonMap():
            return _map(of)
        case Object():
            return _object(of)


def _object(of: Object) -> Reader:
    readers: Mapping[str, tuple[str, Reader, bool]] = {
        each.key: (name, _reader(each.type), arrow_type(each.type) is not None)
        for name, each in zip(names_of(of), of.properties, strict=True)
    }
    empty = {name: None for name, _, has_column in readers.values() if has_column}
    required = [(each.key, each.type.nullable) for each in of.properties if each.required]

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _mistyped(value, path, "an object")
        row = dict(empty)
        for key, one in value.items():
            known = readers.get(key)
            if known is None:
                where = _joined(path, key)
                raise Misfit(f"has the key {_shown(path, key)}, which its schema does not declare", where)
            if one is None:  # as if it were missing
                continue
            made = known[1](one, f"{path}.{key}" if path else key)
            if known[2]:
                row[known[0]] = made
        for key, nullable in required:
            if value.get(key) is None and not nullable:
                raise Misfit(f"{_shown(path, key)} is required, and missing or null", _joined(path, key))
        return row or True

    return read


def _array(of: JsonArray) -> Reader:
    read, nullable = _reader(of.items), of.items.nullable

    def read_all(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise _mistyped(value, path, "an array")
        return [_item(read, each, path, nullable=nullable) for each in value]

    return read_all


def _map(of: JsonMap) -> Reader:
    read, nullable = _reader(of.values), of.values.nullable

    def read_all(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _mistyped(value, path, "an object")
        return [(_text(key, path), _item(read, each, path, nullable=nullable)) for key, each in value.items()]

    return read_all


def _item(read: Reader, value: Any, path: str, *, nullable: bool) -> Any:
    if value is not None:
        return read(value, path)
    if not nullable:
        raise Misfit(f"{shown(path)} holds a null", path)
    return None


def _nothing(value: Any, path: str) -> None:
    raise _mistyped(value, path, "null")


def _text(value: Any, path: str) -> str:
    if not _is_string(value):
        raise _mistyped(value, path, "text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Misfit(f"{shown(path)} has half of a surrogate pair", path) from error
    text: str = value
    return text


def _enum(symbols: frozenset[str]) -> Reader:
    def read(value: Any, path: str) -> str:
        if (text := _text(value, path)) not in symbols:
            raise Misfit(f"{shown(path)} is {shown(text[:80])}, which is not in its enum", path)
        return text

    return read


def _boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _mistyped(value, path, "a boolean")
    return value


def _integer(value: Any, path: str) -> int:
    if isinstance(value, Whole):
        number = int(value) if len(value) <= 20 else WHOLE**2  # longer ones take the square of their length
    elif isinstance(value, Fraction):
        exact = _decimal(value, path)
        if exact and (exact.adjusted() < 0 or (exact.adjusted() < 20 and exact != exact.to_integral_value())):
            raise Misfit(f"{shown(path)} is a number with a fraction, not an integer", path)
        number = 0 if not exact else int(exact) if exact.adjusted() < 20 else WHOLE**2
    else:
        raise _mistyped(value, path, "an integer")
    if not -(2**63) <= number < 2**63:
        written = value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}..."
        raise Misfit(f"{shown(path)} is {written}, beyond the 64 bits of its column", path)
    return number


def _number(value: Any, path: str) -> float:
    if not isinstance(value, Whole | Fraction):
        raise _mistyped(value, path, "a number")
    number = float(value)
    if math.isinf(number):
        raise Misfit(f"{shown(path)} is a number beyond a double", path)
    if not is_held(value, number, whole=isinstance(value, Whole)):
        raise Misfit(f"{shown(path)} is a number of which a double does not hold every digit", path)
    return number + 0.0  # JSON has one zero


def is_held(text: str, number: float, *, whole: bool) -> bool:
    """Return whether a double holds a number as it is written: whole ones exactly, others up to 17 digits.

    So the text of every double is held, by whichever library.
    """
    if math.isinf(number):
        return False
    digits = text.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0")
    if not digits:
        return True
    if number and len(digits) <= MOST_DIGITS and (not whole or abs(number) < WHOLE):
        return True
    return len(digits) <= _MOST_EXACT_DIGITS and _decimal(text, "") == Decimal(number)


def _decimal(text: str, path: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError as error:
        raise Misfit(f"{shown(path)} is a number with an exponent that is out of range", path) from error


def _time(value: Any, path: str) -> int:
    text = _text(value, path)
    if TIME.fullmatch(text) is None:
        raise Misfit(f"{shown(path)} is {shown(text[:80])}, not a date-time of RFC 3339 with its zone", path)
    try:
        return (dt.datetime.fromisoformat(text.upper()).astimezone(dt.UTC) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError) as error:
        raise Misfit(f"{shown(path)} is {shown(text[:80])}: {error}", path) from error


_SCALARS: Final[Mapping[str, Reader]] = {
    "string": _text, "integer": _integer, "number": _number, "boolean": _boolean, "date-time": _time,
}  # fmt: skip


def _is_string(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Whole | Fraction)


def _mistyped(value: Any, path: str, wanted: str) -> Misfit:
    match value:
        case Whole() | Fraction():
            kind = "a number"
        case str():
            kind = "text"
        case bool():
            kind = "a boolean"
        case list():
            kind = "an array"
        case dict():
            kind = "an object"
        case _:
            kind = "null"
    return Misfit(f"{shown(path) if path else 'the document'} is {kind}, not {wanted}", path)


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shown(path: str, key: str) -> str:
    return shown(f"{path}.{key}"[-200:] if path else key[:200])
