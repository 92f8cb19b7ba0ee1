"""Shortens lists for people: the first few items, and the number of the others. Pure."""

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def join_limited(items: Sequence[_T], most: int = 5, text: Callable[[_T], str] = str) -> str:
    """Return the first items in one line and the number of the others; `text` renders an item."""
    named, left = ", ".join(map(text, items[:most])), len(items) - most
    return f"{named} and {left:,} more" if left > 0 else named


def first_lines(items: Sequence[_T], most: int = 12, text: Callable[[_T], str] = str) -> list[str]:
    """Return a line for each of the first items, and one with the number of the others."""
    left = len(items) - most
    return [*map(text, items[:most]), *([f"and {left:,} more"] if left > 0 else [])]
