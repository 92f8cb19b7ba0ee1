"""Reads one JSON document property by property, up to the first defect, for a person. Called by the dashboard only."""

import json
from typing import Final

from pipeline.base.names import shown
from pipeline.data.contracts.decoded import MAX_EXCERPT_FIELDS, Excerpt, one_line, value_text
from pipeline.data.contracts.formats.definition_text import json_depth
from pipeline.data.contracts.formats.json.scalar import DocumentDecoder, Misfit
from pipeline.data.contracts.formats.json.types import Object
from pipeline.data.contracts.model import MAX_DEPTH

_SPACE: Final = " \t\n\r"


def excerpt(root: Object, document: bytes) -> Excerpt:
    """Return the properties of a document, up to the first defect; after it no text has a known meaning.

    What is JSON, and does not fit the schema, is shown as it is, and ends with the reason.
    """
    found: list[tuple[str, str]] = []
    text = document.decode(errors="replace")
    if json_depth(text) > MAX_DEPTH:
        return Excerpt((), f"it nests deeper than {MAX_DEPTH} levels")
    try:
        stopped = _walk(text, found) or _misfit(root, document)
    except ValueError as error:
        stopped = f"not JSON: {error}"
    return Excerpt(tuple(found), stopped if stopped is None else one_line(stopped))


def _misfit(root: Object, document: bytes) -> str | None:
    try:
        DocumentDecoder(root).decode(document)
    except Misfit as error:
        return str(error)
    return None


def _walk(text: str, found: list[tuple[str, str]]) -> str | None:
    decoder = json.JSONDecoder()
    place = _after(text, 0, "{")
    if _next(text, place) == "}":
        return _end(text, place)
    while True:
        _after(text, place, '"')
        key, place = decoder.raw_decode(text, _skipped(text, place))
        place = _skipped(text, _after(text, place, ":"))
        value, place = decoder.raw_decode(text, place)
        if _next(text, place) not in {",", "}"}:
            raise ValueError(f"the value of {shown(key[:200])} does not end")
        if len(found) == MAX_EXCERPT_FIELDS:
            return "more fields follow"
        found.append((key, value_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))))
        if _next(text, place) == "}":
            return _end(text, place)
        place = _after(text, place, ",")


def _end(text: str, place: int) -> str | None:
    left = len(text) - _skipped(text, _after(text, place, "}"))
    return f"{left} characters are left over" if left else None


def _skipped(text: str, place: int) -> int:
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place


def _next(text: str, place: int) -> str:
    place = _skipped(text, place)
    return text[place : place + 1]


def _after(text: str, place: int, wanted: str) -> int:
    place = _skipped(text, place)
    if text[place : place + 1] != wanted:
        raise ValueError(f"no {wanted} at character {place}")
    return place + 1
