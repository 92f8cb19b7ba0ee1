"""When a backlog that falls will be level: an estimate with a band, or silence. Pure.

The age of a backlog is taken for a random walk with a drift. The band is meant to hold in 80 of 100 outages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isfinite, sqrt
from typing import Final

from pipeline.health.incidents.evidence import Point

RECENT_SECONDS: Final = 300.0
"""Seconds of history that the drift is computed over: an older rate says little about the next minutes."""

_LEAST_SECONDS: Final = 60.0
_BLOCK_SECONDS: Final = 15.0  # falls of neighbouring looks depend on each other, those of blocks hardly
_LEAST_BLOCKS: Final = 4
_LOOK_SECONDS: Final = 5.0  # the most by which a look is early or late
_SURE: Final = 1.36  # standard deviations: 80 of 100, as few blocks tell the deviation badly
_LONGEST_SECONDS: Final = 6 * 3600.0
_WIDEST: Final = 4.0  # a band whose end is a larger multiple of its beginning says nothing


@dataclass(frozen=True, slots=True)
class Outlook:
    """Seconds until a backlog is level."""

    seconds: float
    soonest: float
    latest: float

    def sentence(self) -> str:
        """Return it for people."""
        about, soonest, latest = (_minutes(each) for each in (self.seconds, self.soonest, self.latest))
        if self.latest < 60:
            return "level in less than a minute at this rate"
        span = "" if soonest == latest else f" ({soonest} to {latest})"
        return f"level in about {about} min at this rate{span}"


def look_ahead(trend: Sequence[Point]) -> Outlook | None:
    """Estimate when a backlog is level; None where nobody can know: it does not fall, or not steadily enough."""
    recent = _recent(trend)
    if len(recent) <= _LEAST_BLOCKS:
        return None
    steps = [(late[0] - early[0], early[1] - late[1]) for early, late in pairwise(recent)]
    age, whole = recent[-1][1], recent[-1][0] - recent[0][0]
    rate = (recent[0][1] - age) / whole
    if rate <= 0 or whole < _LEAST_SECONDS:
        return None
    # How much the fall varies about its drift, per second; the drift's own error is that of `whole` seconds.
    variance = sum((fall - rate * seconds) ** 2 / seconds for seconds, fall in steps) / (len(steps) - 1)
    seconds = age / rate
    spread = sqrt(variance * seconds * (1 + seconds / whole) / rate**2 + _LOOK_SECONDS**2) * _SURE
    found = Outlook(seconds, max(seconds - spread, 0.0), seconds + spread)
    is_useful = found.latest <= _WIDEST * max(found.soonest, _LEAST_SECONDS)
    return found if isfinite(found.latest) and is_useful and seconds <= _LONGEST_SECONDS else None


def _recent(trend: Sequence[Point]) -> list[tuple[float, float]]:
    """Return the fall since the highest age as ages (at, seconds) a block apart, the newest included."""
    found: list[tuple[float, float]] = []
    for point in reversed(trend):
        if point.backlog_seconds is None or (found and found[0][0] - point.at > RECENT_SECONDS):
            break
        if not found or found[-1][0] - point.at >= _BLOCK_SECONDS:
            found.append((point.at, point.backlog_seconds))
    highest = max(range(len(found)), key=lambda at: found[at][1], default=0)
    return found[highest::-1]


def _minutes(seconds: float) -> int:
    return max(1, ceil(seconds / 60 - 0.5))
