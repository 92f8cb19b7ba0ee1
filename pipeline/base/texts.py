"""Lists and moments in words: the first few items and the number of the others, what was meant, dates in UTC. Pure."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, TypeVar

_T = TypeVar("_T")

NO_DATE: Final = "no date"
"""Text for a number outside of all calendar years."""


def join_limited(items: Sequence[_T], most: int = 5, text: Callable[[_T], str] = str) -> str:
    """Return the first items in one line and the number of the others; `text` renders an item."""
    named, left = ", ".join(map(text, items[:most])), len(items) - most
    return f"{named} and {left:,} more" if left > 0 else named


def first_lines(items: Sequence[_T], most: int = 12, text: Callable[[_T], str] = str) -> list[str]:
    """Return a line for each of the first items, and one with the number of the others."""
    left = len(items) - most
    return [*map(text, items[:most]), *([f"and {left:,} more"] if left > 0 else [])]


def meant(text: str, known: Iterable[str]) -> str:
    """Return the question whether the nearest of the known names was meant, after a space; empty without a near one."""
    folded = {each.casefold(): each for each in known}
    near = get_close_matches(text.casefold(), folded, 1)
    return f" Did you mean {folded[near[0]]!r}?" if near else ""


def in_utc(at: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format a Unix time in UTC with `strftime`'s format, or return that it is not a date."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return NO_DATE
