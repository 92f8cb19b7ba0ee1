"""What waits in the source and is not in bronze yet: how old and how much it is, and what follows for every stream.

Pure. Nobody knows which games the unread records belong to, so the age of the oldest is a floor of each stream's lag.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from listeners.status import Status
from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.quiet import FEW_SECONDS, Quiet, usual_gap
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.rows import CLOCK_BOUND_SECONDS, START_LIMIT_SECONDS, NamedBacklog, SourceGap, SourceReading

SILENT_SOURCE_SECONDS: Final = FEW_SECONDS
"""Seconds without a bronze commit before an alert says that nothing arrives, and the headline, if no gap is usual."""

_NOTED_SHARE: Final = 0.25  # of what is late, from which on the headline speaks of it
_SECONDS_UNTIL, _MINUTES_UNTIL = 120.0, 7200.0  # longer times are told in the next unit


@dataclass(frozen=True, slots=True)
class SourceState:
    """What may be said of the source now; a number that is not known is None."""

    condition: Literal["level", "behind", "late", "unknown"]
    sentence: str
    age_seconds: float | None = None
    rows: int | None = None
    since: float | None = None
    sources: tuple[NamedBacklog, ...] = ()  # of each of several, where they were measured just now
    is_starting: bool = False  # ingest has just started: it is unknown, or rows that waited for it are being read
    quiet: Quiet | None = None  # how long nothing has come; None: something waits, or nobody knows
    quiet_at: float | None = None  # when that was measured

    @property
    def silent_after(self) -> float | None:
        """After how many seconds without a row it is silent; None: rows wait, or nobody knows."""
        usual = None if self.quiet is None else self.quiet.usual
        return None if usual is None else usual.limit

    @property
    def is_problem(self) -> bool:
        """Whether a person should look."""
        return not (self.may_be_level or self.is_starting)

    @property
    def may_be_level(self) -> bool:
        """Whether a stream that has all of bronze may be called level."""
        return self.condition in {"level", "behind"} and not self.is_starting

    @property
    def status(self) -> Status:
        """The status of a stream that has all of bronze, where it may not be called level."""
        if self.is_starting:
            return Status.STARTING
        return Status.LAGGING if self.condition == "late" else Status.UNKNOWN

    def lag(self, own_seconds: float | None) -> float | None:
        """Return how old the oldest row is that a stream may lack, wherever it waits; `own_seconds` waits in bronze."""
        if own_seconds is None or self.age_seconds is None:
            return None
        return max(own_seconds, self.age_seconds)


NOT_KNOWN: Final = SourceState("unknown", "what waits in the source is unknown")


def judge_source(reading: SourceReading | None, ingest: Liveness, now: float, limit: float) -> SourceState:
    """Judge what waits; `limit` is after how many seconds without a measurement one no longer counts.

    A number is known only while ingest runs and has measured it in its present run, a moment ago.
    """
    if not ingest.is_live:
        why = (ingest.reason or ingest.state).split("\n")[0]
        return SourceState("unknown", f"ingest {why}, so what waits in its source is unknown", since=ingest.since)
    if reading is None or reading.measured_at < (ingest.since or 0.0):
        unknown = _unknown("ingest was started and has not measured it yet", ingest.since)
        return replace(unknown, is_starting=_is_young(ingest, now))
    quiet = now - reading.measured_at
    if quiet < -CLOCK_BOUND_SECONDS:
        return _unknown(f"it was measured {-quiet:.0f} s in the future: a clock is wrong", None)
    if quiet > limit:
        return _unknown(f"ingest beats, but has not measured it for {quiet:.0f} s", reading.measured_at)
    age = reading.age_seconds
    if age is None:
        unknown = _unknown(reading.reason or "ingest could not measure it", None)
        return replace(unknown, sources=reading.sources)
    peak = max(age, reading.peak_seconds or 0.0)
    starts = age > 0 and reading.peak_seconds is None and _is_young(ingest, now)
    if peak > reading.limit_seconds:
        return SourceState("late", _behind(peak, age, reading.rows), age, reading.rows, None, reading.sources, starts)
    if starts or peak > _NOTED_SHARE * reading.limit_seconds:
        return SourceState("behind", _behind(peak, age, reading.rows), age, reading.rows, None, reading.sources, starts)
    nothing = "nothing waits in the source" if reading.rows == 0 else _behind(age, age, reading.rows)
    return SourceState("level", nothing, age, reading.rows, None, reading.sources)


def judge_quiet(
    reading: SourceReading | None,
    source: SourceState,
    gaps: Sequence[SourceGap],
    ingest: Liveness,
    heartbeat_seconds: float,
    newest_bronze_at: float | None = None,
) -> Quiet | None:
    """Return how long nothing has arrived in a judged source; None while something waits, or nobody knows.

    Bronze's newest commit began it, also one since ingest measured, and what ingest measured last ends it. An ingest
    that was started again gets its time.
    """
    if reading is None or not source.may_be_level or reading.rows != 0 or reading.quiet_since is None:
        return None
    seconds = reading.measured_at - max(reading.quiet_since, newest_bronze_at or 0.0, ingest.since or 0.0)
    return Quiet(max(0.0, seconds), usual_gap(gaps, reading.quiet_since, heartbeat_seconds))


def source_notes(source: SourceState, newest_bronze_at: float | None, ingest: Liveness, now: float) -> list[str]:
    """Return what the headline says of the source while ingest runs.

    That nothing arrives is no problem of ours, since nobody here knows whether a source may be silent: so it is said,
    and no more. Where it is not known what is usual, it takes five minutes. A restarted ingest gets its time.
    """
    notes = [] if source.condition == "level" else [source.sentence]
    since = quiet_since(source, newest_bronze_at, ingest, now)
    if since is None:
        return notes
    if source.quiet is not None and source.quiet.usual is not None:
        return [*notes, f"nothing has arrived for {duration(source.quiet.seconds)}, {source.quiet.usual.text}"]
    return [*notes, f"nothing has arrived for {(now - since) / 60:.0f} min"]


def quiet_since(source: SourceState, newest_bronze_at: float | None, ingest: Liveness, now: float) -> float | None:
    """Return when the last row arrived where that is too long ago; None while ingest is away or has just started."""
    if source.quiet is not None and source.quiet_at is not None and source.quiet.usual is not None:
        return source.quiet_at - source.quiet.seconds if source.quiet.is_silent else None
    if newest_bronze_at is None or not ingest.is_live:
        return None
    since = max(newest_bronze_at, ingest.since or 0.0)
    return since if now - since > SILENT_SOURCE_SECONDS else None


def _is_young(ingest: Liveness, now: float) -> bool:
    age = None if ingest.since is None else now - ingest.since
    return age is not None and -CLOCK_BOUND_SECONDS <= age <= START_LIMIT_SECONDS


def _unknown(why: str, since: float | None) -> SourceState:
    return SourceState("unknown", f"what waits in the source is unknown: {why}", since=since)


def _behind(peak: float, age: float, rows: int | None) -> str:
    waits = (
        "an unknown number of rows waits" if rows is None else f"{rows:,} {'row waits' if rows == 1 else 'rows wait'}"
    )
    if peak > age:
        return f"ingest was {_span(peak)} behind its source within the last minute: {waits} now"
    return f"ingest is {_span(age)} behind its source: {waits}"


def _span(seconds: float) -> str:
    if seconds < _SECONDS_UNTIL:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < _MINUTES_UNTIL else f"{seconds / 3600:.0f} h"
