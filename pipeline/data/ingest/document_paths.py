"""Proposes the settings of the envelope `json` from some documents, for `turnout source probe`. Pure.

A path is proposed if its key is a usual name and nearly all documents have a fit value there. Reports such paths and
counts, and no values.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeline.base.names import is_game_name

_MOST_MISSING: Final = 20  # one document in this number may lack a path
_KEY: Final = re.compile(r"[A-Za-z0-9_@-]{1,80}")  # of a path that people can read in a settings file
_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_UNITS: Final = ((10**11, "s"), (10**14, "ms"), (10**17, "us"), (10**20, "ns"))
"""Numbers below → the unit in which they are a time of these decades; the year 1973 is the first that ms can tell."""

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "game": ("game", "gameid", "gamename", "title", "titleid", "app", "appid", "product", "productid", "tenant"),
    "type": ("type", "eventtype", "event", "eventname", "kind", "name", "action"),
    "event_id": ("eventid", "id", "uuid", "messageid", "insertid"),
    "event_time": (
        "eventtime",
        "time",
        "timestamp",
        "ts",
        "at",
        "occurredat",
        "createdat",
        "datetime",
        "eventtimestamp",
    ),
    "payload": ("payload", "body", "data", "event", "properties", "params"),
}
"""Field → usual keys in letters and digits only, the likeliest first."""


@dataclass(frozen=True, slots=True)
class DocumentPaths:
    """What was found in documents."""

    fields: Mapping[str, str]  # field of the envelope → path
    unit: str | None  # of the event time
    games: int  # distinct values at the path of the game
    types: int  # and of the event type


def document_paths(documents: Sequence[Mapping[str, Any]]) -> DocumentPaths:
    """Return the paths that nearly all of these documents have."""
    found = {name: path for name in _NAMES if (path := _path(name, documents)) is not None}
    if found.get("payload") == found.get("type"):
        found.pop("payload", None)
    units = Counter(unit for each in documents if (unit := _unit(_at(each, found.get("event_time")))) is not None)
    unit = units.most_common(1)[0][0] if "event_time" in found else None
    return DocumentPaths(found, unit, *(_distinct(name, found.get(name), documents) for name in ("game", "type")))


def _distinct(name: str, path: str | None, documents: Sequence[Mapping[str, Any]]) -> int:
    return len({value for each in documents if _FIT[name](value := _at(each, path))})


def _path(name: str, documents: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the likeliest path: by its key, then outside of objects before inside."""
    counts = Counter(path for each in documents for path in _paths(each) if _FIT[name](_at(each, path)))
    often = [path for path, count in counts.items() if (len(documents) - count) * _MOST_MISSING <= len(documents)]
    ranked = [(_rank(name, path), path.count("."), path) for path in often]
    likely = [each for each in ranked if each[0] is not None]
    return min(likely)[2] if likely else None


def _rank(name: str, path: str) -> int | None:
    key = "".join(filter(str.isalnum, path.rsplit(".", 1)[-1])).lower()
    return _NAMES[name].index(key) if key in _NAMES[name] else None


def _paths(document: Mapping[str, Any]) -> list[str]:
    """Return the paths of a document's members, and of those of the objects among them."""
    outer = [key for key in document if _KEY.fullmatch(key)]
    inner = [
        f"{key}.{one}"
        for key in outer
        if isinstance(document[key], dict)
        for one in document[key]
        if _KEY.fullmatch(one)
    ]
    return [*outer, *inner]


def _at(document: Mapping[str, Any], path: str | None) -> Any:
    if path is None:
        return None
    found: Any = document
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _is_name(value: Any) -> bool:
    return is_game_name(value) if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)


def _unit(value: Any) -> str | None:
    if isinstance(value, str):
        return "rfc3339" if _RFC_3339.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None
    return next((unit for most, unit in _UNITS if value < most), None)


_FIT: Final[Mapping[str, Callable[[Any], bool]]] = {
    "game": _is_name,
    "type": lambda value: isinstance(value, str) and _is_name(value),
    "event_id": _is_name,
    "event_time": lambda value: _unit(value) is not None,
    "payload": lambda value: isinstance(value, dict),
}
