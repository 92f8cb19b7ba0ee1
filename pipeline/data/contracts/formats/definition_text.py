"""Definitions that are JSON: read strictly, and no deeper than the parser's own recursion can bear. Pure."""

import json
import math
import re
from typing import Any, Final

_PARTS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


def read_json(text: str, most_levels: int) -> Any:
    """Return a definition's JSON.

    Raises:
        ValueError: it is not JSON, has a key twice, or nests deeper.
    """
    if json_depth(text) > most_levels:  # before the parser: its recursion ends at the interpreter's stack
        raise ValueError(f"it is nested deeper than {most_levels} levels")
    return json.loads(text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_each_once)


def json_depth(text: str) -> int:
    """Return how deeply brackets nest outside of strings."""
    depth = deepest = 0
    for part in _PARTS.finditer(text):
        first = text[part.start()]
        if first in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in "]}":
            depth -= 1
    return deepest


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text[:40])


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found
