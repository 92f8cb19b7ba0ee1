"""Is maintenance done: from how its rounds went. Pure; times are Unix seconds by the store's clock.

What was never done counts from when ingest first began: before, there was nothing to maintain.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from pipeline.health.verdicts.liveness import Liveness
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.parsing import hours_of
from pipeline.store.backends import backend_kind
from pipeline.store.rows import RoundFacts

_LEAST_SECONDS: Final = 2 * 3600.0  # a round may take this long even where the time between two is shorter
_INTERVALS: Final = 4
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class UpkeepFacts:
    """What is known of maintenance."""

    limit_seconds: float | None = None  # without a round that ended well; None: turnout is not to run it
    since: float | None = None  # when ingest first began; None: it never did
    last: RoundFacts | None = None
    good: RoundFacts | None = None  # the last one that ended well

    def overdue_seconds(self, now: float) -> float:
        """Return for how long a round should have ended well by now; 0 where none is due."""
        since = self.since if self.good is None else self.good.ended_at
        return 0.0 if self.limit_seconds is None or since is None else max(0.0, now - since - self.limit_seconds)

    def judge(self, liveness: Liveness, now: float) -> tuple[Liveness, bool] | None:
        """Judge its process together with its rounds, and whether a person should look; None: nobody misses it."""
        if liveness.state == "not_started" and (self.limit_seconds is None or self.since is None):
            return None
        bad = liveness.state in {"failed", "dead", "unknown"} or self.overdue(now) is not None
        notes = (liveness.reason, None if self.last is None else describe_round(self.last, now))
        return replace(liveness, reason="; ".join(each for each in notes if each is not None) or None), bad

    def problem(self, liveness: Liveness, now: float) -> str:
        """Return what is the matter with it, and what to do where nothing does it."""
        overdue, hint = self.overdue(now), "" if liveness.is_live else ". `turnout controller run` runs it"
        return f"{'' if overdue is None else f'{overdue}; '}maintenance {liveness.reason or liveness.state}{hint}"

    def overdue(self, now: float) -> str | None:
        """Say that it is overdue, None where it is not."""
        if not self.overdue_seconds(now):
            return None
        if self.good is None:
            return "no round of maintenance has ever ended well"
        return f"no round of maintenance has ended well for {duration(now - self.good.ended_at)}"


def describe_round(done: RoundFacts, now: float) -> str:
    """Return when a round was and how it went, as a clause."""
    ago = f"the last round ended {duration(now - done.ended_at)} ago"
    files = f"{done.files_before:,} files became {done.files_after:,} in {done.tables:,} tables"
    if done.ok:
        return f"{ago}: {files}"
    return f"{ago} and failed in {done.failed_tables:,} of {done.tables:,} tables ({done.error})"


def limit_seconds(wanted: Maintenance) -> float | None:
    """Return after how long without a round that ended well a person should look; None where it is left to others."""
    if not backend_kind(wanted.backend).starts:
        return None
    first, end = hours_of(wanted.hours) or (0, 24)
    closed = 24 - ((end - first) % 24 or 24)
    return max(_LEAST_SECONDS, _INTERVALS * wanted.interval_minutes * 60) + closed * _HOUR


def in_hours(hours: tuple[int, int], at: float) -> bool:
    """Return whether a moment lies in hours of the day, in UTC; the second may be of the next day."""
    hour, (first, end) = datetime.fromtimestamp(at, UTC).hour, hours
    return first <= hour < end if first < end else hour >= first or hour < end


def duration(seconds: float) -> str:
    """Return a time span for people."""
    minutes = max(0.0, seconds) / 60
    if minutes < 1:
        return f"{max(0.0, seconds):.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


UNKNOWN: Final = UpkeepFacts()
"""The upkeep of an environment whose tables nobody asked to maintain."""
