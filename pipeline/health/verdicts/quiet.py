"""Is the source silent: how long nothing has come, against how long it usually brings nothing. Pure.

Ingest measures how long nothing waits after a commit, so what waits for a slow or stopped ingest is no gap.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.health.verdicts.upkeep import duration
from pipeline.store.rows import SourceGap

GAP_TIMES: Final = 3.0
LEAST_SECONDS: Final = 10.0
"""A source is silent after three times its longest usual gap, and not before 10 s or two measurements."""

LEAST_GAPS: Final = 20
"""The fewest gaps that say what is usual: of 20 random ones the next is three times the longest in 1 of 1,500."""

FEW_SECONDS: Final = 300.0
"""Seconds before which a source of which fewer gaps are known, or none, is not silent: some bring a file a day."""

DAYS: Final = 7

_DAY, _HOUR = 86_400.0, 3_600.0
_AROUND: Final = 1_800.0  # gaps of other days that began within half an hour of this time of day
_AFTER: Final = 600.0


@dataclass(frozen=True, slots=True)
class UsualGap:
    """The longest gap that is usual now."""

    seconds: float
    basis: str  # among which gaps it is the longest, as an adverb: "within the last hour"
    limit: float  # seconds after which the source is silent

    @property
    def text(self) -> str:
        """The gap and its basis, as a clause."""
        return f"its longest gap {self.basis} was {'below 1 s' if self.seconds < 1 else duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Quiet:
    """How long nothing has arrived, measured while nothing waits in the source."""

    seconds: float
    usual: UsualGap | None  # None: no gap is known

    @property
    def is_silent(self) -> bool:
        """Whether the source has been without a row for longer than it ever is."""
        return self.usual is not None and self.seconds > self.usual.limit


def usual_gap(gaps: Sequence[SourceGap], since: float, heartbeat_seconds: float) -> UsualGap | None:
    """Return what is usual of a gap that began at `since` (Unix seconds), None where no gap is known.

    Usual are gaps that began on one of seven days within half an hour of the same time of day, or lasted at it, those
    that began within the last hour, and one that has just ended: a row at night does not end the night. Where no day
    tells, or these are too few, usual are those that ended within the last hour, and the twenty last ones.
    """
    before = sorted((each for each in gaps if each.began_at < since), reverse=True)
    by_day = [set(_at(since - day * _DAY, before)) for day in range(1, DAYS + 1)]
    days = sum(bool(each) for each in by_day)
    usual = {each for each in before if each.began_at >= since - _HOUR or _ended_at(each) >= since - _AFTER}
    usual = usual.union(*by_day)
    basis = f"at this time of day on {days} of the last {DAYS} days"
    if not days or _count(usual) < LEAST_GAPS:
        newest = _newest(before, since)
        usual |= newest
        is_older = min(map(_ended_at, newest), default=since) < since - _HOUR
        recent = f"of its last {_count(newest)}" if is_older else "within the last hour"
        basis = f"{basis} and {recent}" if days else recent
    if not usual:
        return None
    few = FEW_SECONDS if _count(usual) < LEAST_GAPS else 0.0
    longest = max(each.seconds for each in usual)
    limit = max(LEAST_SECONDS, few, 2 * heartbeat_seconds, GAP_TIMES * longest)
    return UsualGap(longest, basis, limit)


def _at(moment: float, gaps: Iterable[SourceGap]) -> Iterator[SourceGap]:
    """Yield the gaps that began around a moment, or lasted at it; of the latter one of those that were counted."""
    for each in gaps:
        if abs(each.began_at - moment) <= _AROUND:
            yield each
        elif each.began_at <= moment <= _ended_at(each):
            yield each._replace(number=1)


def _newest(gaps: Sequence[SourceGap], since: float) -> set[SourceGap]:
    """Return those that ended within the last hour, and as many before them as make twenty; `gaps` are newest first."""
    found: set[SourceGap] = set()
    for each in gaps:
        if _ended_at(each) < since - _HOUR and _count(found) >= LEAST_GAPS:
            break
        found.add(each)
    return found


def _ended_at(gap: SourceGap) -> float:
    return gap.began_at + gap.seconds


def _count(gaps: Collection[SourceGap]) -> int:
    return sum(each.number for each in gaps)
