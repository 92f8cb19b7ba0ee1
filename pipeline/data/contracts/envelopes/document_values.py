"""Turns the texts of JSON values into columns: null stays null, and becomes what the column cannot hold. Pure."""

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_FLOOR, Decimal
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.envelopes.envelope import COLUMNS

_PLAIN: Final = r'^"[^"\\]*"$'
_WHOLE: Final = r"^-?[0-9]+$"
_SHORT: Final = r"^-?[0-9]{1,18}$"  # int64 holds each of them
_USUAL: Final = (
    r'^"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-9]|2[0-3]):[0-5][0-9])"$'
)
_RFC_3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST: Final = -62_135_596_800_000_000  # microseconds: the year 1
_LAST: Final = 253_402_300_799_999_999  # microseconds: the end of the year 9999
_TIME: Final = COLUMNS.field("event_time").type
_LONGEST: Final = 40  # bytes of a number that may be a time
_MOST_PLACES: Final = 18  # digits of microseconds beyond which no year lies
_DIGITS: Final = tuple(bytes([each]) for each in b"-0123456789")
_PLACES: Final[Mapping[str, int]] = MappingProxyType({"s": 6, "ms": 3, "us": 0, "ns": -3})
"""Unit → the power of ten by which it is microseconds."""
_QUICK: Final[Mapping[str, str]] = MappingProxyType(
    {"s": r"^-?[0-9]{1,12}$", "ms": r"^-?[0-9]{1,15}$", "us": _SHORT, "ns": r"^-?([0-9]{1,18}|[1-8][0-9]{18})$"}
)
"""Unit → numbers of which int64 holds the microseconds."""


def texts(parts: pa.BinaryArray) -> pa.StringArray:
    """Return texts, and whole numbers as they are written; an empty text is null."""
    written = parts.cast(pa.string())  # documents are UTF-8
    plain, whole = pc.match_substring_regex(written, _PLAIN), pc.match_substring_regex(written, _WHOLE)
    found = pc.if_else(plain, pc.binary_slice(parts, 1, -1).cast(pa.string()), written)
    found = pc.if_else(pc.and_(pc.or_(plain, whole), pc.not_equal(found, "")), found, pa.scalar(None, pa.string()))
    return _slowly(found, parts, pc.or_(plain, whole), _text)


def numbers(parts: pa.BinaryArray) -> pa.Int64Array:
    """Return whole numbers of int64; one with a fraction or an exponent is not whole by its text."""
    short = pc.match_substring_regex(parts, _SHORT)
    return _slowly(_longs(parts, short), parts, short, _long)


def sequences(parts: pa.BinaryArray) -> pa.Int64Array:
    """Return sequences; they start at 1, as in wrappers."""
    found = numbers(parts)
    return pc.if_else(pc.greater(found, 0), found, pa.scalar(None, pa.int64()))


def times(parts: pa.BinaryArray, unit: str) -> pa.TimestampArray:
    """Return times in a unit since 1970, or of RFC 3339, cut to microseconds; of the years 1 to 9999."""
    found = _written(parts) if unit == "rfc3339" else _counted(parts, unit)
    real = pc.and_(pc.greater_equal(found, _FIRST), pc.less_equal(found, _LAST))
    return pc.if_else(real, found, pa.scalar(None, pa.int64())).cast(_TIME)


def _written(parts: pa.BinaryArray) -> pa.Int64Array:
    usual = pc.match_substring_regex(parts, _USUAL)
    try:
        found = pc.binary_slice(_only(parts, usual), 1, -1).cast(pa.string()).cast(_TIME).cast(pa.int64())
    except pa.ArrowInvalid:  # one of them is no day or no hour
        usual, found = pa.array([False] * len(parts), pa.bool_()), pa.nulls(len(parts), pa.int64())
    return _slowly(found, parts, usual, _moment)


def _counted(parts: pa.BinaryArray, unit: str) -> pa.Int64Array:
    quick, places = pc.match_substring_regex(parts, _QUICK[unit]), _PLACES[unit]
    found = _longs(parts, quick)
    if places < 0:  # Arrow cuts towards zero
        found = pc.divide(pc.subtract(found, pc.if_else(pc.less(found, 0), 999, 0)), 1000)
    else:
        found = pc.multiply(found, 10**places)
    return _slowly(found, parts, quick, lambda part: _microseconds(part, places))


def _slowly(
    found: pa.Array, parts: pa.BinaryArray, quick: pa.BooleanArray, convert: Callable[[bytes], Any]
) -> pa.Array:
    """Return the values, with those of the rows that are not quick by a function of the text."""
    slow = pc.fill_null(pc.invert(quick), False)
    if not slow.true_count:
        return found
    spelled = parts.filter(slow).dictionary_encode()
    values = pa.array([convert(each) for each in spelled.dictionary.to_pylist()], found.type).take(spelled.indices)
    return pc.replace_with_mask(found, slow, values)


def _only(parts: pa.BinaryArray, which: pa.BooleanArray) -> pa.BinaryArray:
    return pc.if_else(which, parts, pa.scalar(None, pa.binary()))


def _longs(parts: pa.BinaryArray, which: pa.BooleanArray) -> pa.Int64Array:
    return _only(parts, which).cast(pa.string()).cast(pa.int64())


def _text(part: bytes) -> str | None:
    value = json.loads(part) if part.startswith(b'"') else None
    return value or None


def _long(part: bytes) -> int | None:
    if re.fullmatch(rb"-?[0-9]{19}", part) is None:  # JSON has no leading zeros
        return None
    value = int(part)
    return value if -(2**63) <= value < 2**63 else None


def _moment(part: bytes) -> int | None:
    text = _text(part)
    if text is None or _RFC_3339.fullmatch(text) is None:
        return None
    try:
        return (dt.datetime.fromisoformat(text.upper()).astimezone(dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None


def _microseconds(part: bytes, places: int) -> int | None:
    if len(part) > _LONGEST or part[:1] not in _DIGITS:
        return None
    value = Decimal(part.decode())
    if value.adjusted() + places > _MOST_PLACES:  # no year that there is; as digits it may not fit into memory
        return None
    return int(value.scaleb(places).to_integral_value(ROUND_FLOOR))
