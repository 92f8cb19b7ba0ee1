"""Lists, ages, numbers and moments in words, and foreign names as people may read them. Pure.

What is unknown is a dash, never 0.
"""

import hashlib
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, TypeVar

_T = TypeVar("_T")

UNKNOWN_VALUE: Final = "\u2013"
"""Text for what is not known."""

NO_DATE: Final = "no date"
"""Text for a number outside of all calendar years."""

_LONGEST_TEXT: Final = 300
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400  # seconds
_LEAST_RATE: Final = 0.1  # a trickle is not nothing
_FINE_BELOW: Final = 10  # below this a decimal tells something
_LEAST_CORES: Final = 0.001  # below it a load is not worth a number
_NO_CORES: Final = 1e-9  # what sums of the same numbers in another order differ by
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})  # Unicode categories


def utf8(content: bytes) -> str:
    """Return bytes as text.

    Raises:
        ValueError: they are not UTF-8; it says from which byte on.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error


def join_limited(items: Sequence[_T], most: int = 5, text: Callable[[_T], str] = str) -> str:
    """Return the first items in one line and the number of the others; `text` renders an item."""
    named, left = ", ".join(map(text, items[:most])), len(items) - most
    return f"{named} and {left:,} more" if left > 0 else named


def some_are(some: int, count: int, noun: str) -> str:
    """Return `2 of its 3 neighbours are`, `all its 3 neighbours are` or `its only neighbour is`; `some` is above 0."""
    if count == 1:
        return f"its only {noun} is"
    are = "is" if some == 1 else "are"
    return f"all its {count:,} {noun}s are" if some >= count else f"{some:,} of its {count:,} {noun}s {are}"


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


def clock(at: float | None) -> str:
    """Return a Unix time as UTC time of day with seconds; a dash when unknown."""
    return UNKNOWN_VALUE if at is None else in_utc(at, "%H:%M:%S UTC")


def moment(at: float | None) -> str:
    """Return a Unix time as UTC date and time with seconds; a dash when unknown."""
    return UNKNOWN_VALUE if at is None else in_utc(at, "%Y-%m-%d %H:%M:%S UTC")


def short_moment(at: float, now: float) -> str:
    """Return a moment as people say it: `15:38` on the same day (UTC), else `12 Nov 09:14`."""
    same_day = in_utc(at, "%Y-%m-%d") == in_utc(now, "%Y-%m-%d")
    return in_utc(at, "%H:%M" if same_day else "%-d %b %H:%M")


def complete_through(at: float | None, now: float) -> tuple[str, str] | None:
    """Return a time to the second, `12:03:10` or `28 Nov 12:03:10`, and how long ago it was; None when unknown."""
    if at is None:
        return None
    same_day = in_utc(at, "%Y-%m-%d") == in_utc(now, "%Y-%m-%d")
    return in_utc(at, "%H:%M:%S" if same_day else "%-d %b %H:%M:%S"), age(now - at)


def age(seconds: float | None) -> str:
    """Return an age for people: `8 s`, `3 min`, `5 h 10 min`, `3 d 2 h`; a dash when unknown."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN_VALUE
    whole = max(0, int(seconds))  # clocks of two machines may disagree by a little
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def duration(seconds: float | None) -> str:
    """Return a measured time: one decimal below ten seconds, an age above; a dash when unknown."""
    if seconds is None or not 0 <= seconds < _FINE_BELOW:
        return age(seconds)
    return f"{seconds:.1f} s"


def count(value: float | None) -> str:
    """Return a number of things with thin groups of three; a dash when unknown."""
    return UNKNOWN_VALUE if value is None or not math.isfinite(value) else f"{value:,.0f}".replace(",", "\u202f")


def rate(value: float | None) -> str:
    """Return rows per second; a dash when unknown."""
    if value is None:
        return UNKNOWN_VALUE
    if 0 < value < _LEAST_RATE:
        return f"<{_LEAST_RATE}"
    return f"{value:.1f}" if 0 < value < _FINE_BELOW else count(value)


def cores(value: float | None, unit: str = " cores") -> str:
    """Return processor cores with two digits and their unit: `0.13 cores`; a dash when unknown.

    What rounding leaves of a sum is 0, and a trickle is `<0.001 cores`.
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN_VALUE
    size = abs(value)
    if size < _NO_CORES:
        return f"0{unit}"
    sign = "-" if value < 0 else ""
    if size < _LEAST_CORES:
        return f"{sign}<{_LEAST_CORES}{unit}"
    said = count(size) if size >= _FINE_BELOW else f"{float(f'{size:.2g}'):g}"
    return f"{sign}{said}{unit}"


def visible(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return a foreign text on one line without invisible, control and direction-changing characters, cut to fit."""
    kept = text
    if not text.isprintable():  # of what is printable the only space is the common one, and nothing is invisible
        spaced = "".join(" " if character.isspace() else character for character in text)
        kept = "".join(character for character in spaced if unicodedata.category(character) not in _INVISIBLE)
    kept = kept.strip() or "(nothing visible)"
    return kept if len(kept) <= longest else f"{kept[: longest - 1]}…"


def exact(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return a foreign text that a person decides about: whole as it is, or quoted with escapes where letters hide."""
    if visible(text, len(text) + 1) == text and "  " not in text:
        return visible(text, longest)
    quoted = repr(text)
    return quoted if len(quoted) <= longest else f"{quoted[: longest - 2]}…{quoted[-1]}"


def game_text(key: str, name: str) -> str:
    """Return a game's name with its key, which tells apart names that look alike."""
    return f"{visible(name, 60)} · {key}"


def principal_text(name: str) -> str:
    """Return a principal's name, with a mark if it cannot be shown as it is, so that nobody mistakes it for another."""
    seen = visible(name, 80)
    return seen if seen == name else f"{seen} (spelled oddly, {hashlib.sha256(name.encode()).hexdigest()[:6]})"
