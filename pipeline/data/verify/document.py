"""Reads fields of JSON documents by the standard library alone, one at a time: the oracle of the envelope `json`."""

import datetime as dt
import json
import re
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_END: Final = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
_START: Final = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DATE_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:[0-5]\d)", re.ASCII)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)


def document_text(text: str, path: str | None) -> str | None:
    """Return the text of the value at a path; None without one, and for null.

    Raises:
        ValueError: it is not a JSON object, has a key of the path twice, or no object where the path goes on.
    """
    start, end = 0, len(text)
    for key in () if path is None else path.split("."):
        spans = [span for name, span in _members(text[start:end]) if name == key]
        if len(spans) > 1:
            raise ValueError("a key twice")
        if not spans:
            return None
        start, end = start + spans[0][0], start + spans[0][1]
        if text[start:end] == "null":
            return None
    return None if path is None else text[start:end]


def document_name(part: str | None) -> str | None:
    """Return a text, or a whole number as it is written; None for anything else, and for an empty text."""
    if part is None:
        return None
    if part.startswith('"'):
        return json.loads(part) or None
    return part if part.removeprefix("-").isdigit() else None


def document_time(part: str | None, unit: str) -> int | None:
    """Return a time in microseconds; None outside of the years 1 to 9999."""
    if part is None:
        return None
    if unit == "rfc3339":
        return _date_time(json.loads(part)) if part.startswith('"') else None
    if _NUMBER.fullmatch(part) is None or len(part) > 40:
        return None
    seconds = Decimal(part) / _PER_SECOND[unit]
    if not -(10**12) < seconds < 10**12:
        return None
    micros = int((seconds * 10**6) // 1) - (1 if seconds < 0 and (seconds * 10**6) % 1 else 0)
    return micros if _micros(_START) <= micros <= _micros(_END) else None


def _date_time(text: str) -> int | None:
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        return None
    base, fraction, zone = found.groups()
    try:
        moment = dt.datetime.fromisoformat(f"{base}{zone}".upper())
        return _micros(moment.astimezone(dt.UTC)) + int((fraction or "0")[:6].ljust(6, "0"))
    except (ValueError, OverflowError):
        return None


def _micros(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def _members(text: str) -> list[tuple[str, tuple[int, int]]]:
    """Return the keys of an object and where their values stand."""
    at, found = _after(text, 0, "{"), []
    if text[at : at + 1] == "}":
        _at_end(text, at + 1)
        return []
    while True:
        key, at = scanstring(text, _after(text, at, '"'), True)
        start = _after(text, _spaces(text, at), ":")
        _, end = _DECODER.raw_decode(text, start)
        found.append((key, (start, end)))
        at = _spaces(text, end)
        if text[at : at + 1] == "}":
            _at_end(text, at + 1)
            return found
        at = _after(text, at, ",")


def _after(text: str, at: int, sign: str) -> int:
    at = _spaces(text, at)
    if text[at : at + 1] != sign:
        raise ValueError(f"no {sign}")
    return at + 1 if sign == '"' else _spaces(text, at + 1)


def _spaces(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _at_end(text: str, at: int) -> None:
    if _spaces(text, at) != len(text):
        raise ValueError("text after the document")
