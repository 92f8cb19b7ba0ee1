"""The six figures of a game and its health strip: backlog, rows landed and refused, latency, commit, completeness.

Pure. What is not known is a dash with its reason, never 0; a sparkline has a gap where no driver reported.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal

from app import formatting
from app.game.signals import GameSignals
from app.look import lines
from app.look.parts import Figure, StripSlot
from app.look.tokens import Tone
from listeners.series import Series
from listeners.status import STATUSES, Status
from pipeline.api.figures import (
    BACKLOG_FLOOR,
    IN_PART,
    MAY_LACK,
    NO_MINUTE_YET,
    NO_ROW,
    NOT_READ,
    NOT_REPORTED,
    ONLY_CAUGHT_UP,
    REFUSED_FLOOR,
    newest_slot,
    value_at,
)
from pipeline.base.texts import complete_through, in_utc, join_limited, short_moment

SLOTS: Final = 60
"""Most slots of a strip; more would be thinner than people can point at."""

Points = list[float | None]

_LONGEST_NOTE: Final = 120  # characters
_MOST_REASONS: Final = 2  # of refused rows, named
_HOUR: Final = 3600
_SILENT: Final = "no driver reported lately"


def figures(signals: GameSignals) -> list[Figure]:
    """Return the figures in the order of the page."""
    return [
        _backlog(signals), _landed(signals), _refused(signals), _latency(signals), _last_commit(signals),
        _complete_through(signals),
    ]  # fmt: skip


def per_second(series: Series, name: Literal["rows", "refused"]) -> Points:
    """Return counts of slots as rates; None where no driver reported, which is not the same as no row."""
    return lines.per_second(series, series.total(name))


def backlog(series: Series) -> Points:
    """Return the largest age of the oldest waiting event by slot."""
    return lines.gapped(series.total("backlog"))


def quantiles(series: Series) -> dict[str, Points]:
    """Return p50, p95 and p99 of latency by slot; None without rows."""
    return {f"p{share}": lines.gapped(series.latency(share / 100)) for share in (50, 95, 99)}


def _backlog(signals: GameSignals) -> Figure:
    row, objective = signals.row, signals.objective_seconds
    points = [] if signals.series is None else backlog(signals.series)
    is_paused = row.verdict.status == Status.PAUSED
    note = "paused" if is_paused else _behind(signals) or f"objective {formatting.age(objective)}"
    if row.lag_seconds is None:
        why = row.verdict.reason or note
        return _unknown("Oldest backlog", why, points, objective)
    tone: Tone = "bad" if row.lag_seconds > objective and row.verdict.status != Status.PAUSED else "plain"
    value, unit = _split(formatting.duration(row.lag_seconds))
    return Figure("Oldest backlog", value, unit, note, points, tone, objective, BACKLOG_FLOOR)


def _behind(signals: GameSignals) -> str:
    """Say how many of bronze's commits a stream has not read."""
    reported, last = signals.row.reported, signals.row.last_seq
    if reported is None or reported.cursor_seq is None or last <= reported.cursor_seq:
        return ""
    return f"seq {formatting.count(reported.cursor_seq)} of {formatting.count(last)}"


def _landed(signals: GameSignals) -> Figure:
    points = [] if signals.series is None else per_second(signals.series, "rows")
    now, is_partial = _of_newest(signals, "rows")
    if now is None:
        return _unknown("Rows landed", _why_no_rate(signals), points)
    if is_partial:
        return Figure("Rows landed", f"≥ {formatting.rate(now)}", "/s", IN_PART, points, "plain")
    usual = _usual(points)
    note = "" if usual is None else f"usual {formatting.rate(usual)}"
    tone: Tone = "bad" if not now and usual and signals.row.verdict.status.is_bad else "plain"
    return Figure("Rows landed", formatting.rate(now), "/s", note, points, tone)


def _of_newest(signals: GameSignals, name: Literal["rows", "refused"]) -> tuple[float | None, bool]:
    """Return the rate of the minute that the page names, and whether a report of it may be missing."""
    recent, slot = signals.recent, newest_slot(signals.recent)
    if recent is None or slot is None:
        return None, False
    return per_second(recent, name)[slot], bool(recent.is_partial(set(recent.groups))[slot])


def _refused(signals: GameSignals) -> Figure:
    points = [] if signals.series is None else per_second(signals.series, "refused")
    now, is_partial = _of_newest(signals, "refused")
    if now is None:
        return _unknown("Rows refused", _why_no_rate(signals), points)
    note = IN_PART if is_partial else _refused_for(signals)
    tone: Tone = "late" if now else "plain"
    rate = f"≥ {formatting.rate(now)}" if is_partial else formatting.rate(now)
    return Figure("Rows refused", rate, "/s", note, points, tone, None, REFUSED_FLOOR)


def _refused_for(signals: GameSignals) -> str:
    """Say why rows were refused over the range on screen, which is named: those of the minute may be others."""
    trend = signals.trend
    within = "in this time" if trend is None else f"in {span(trend.until - trend.since)}"
    if refused_rows(signals) == 0:
        series = signals.series
        is_whole = series is None or not series.is_partial(set(series.groups)).any()
        return f"none {within}" if is_whole else f"none reported {within}; a report may be missing"
    if trend is None or not trend.rejects:
        return "reasons not known"
    return f"{within}: " + join_limited(list(trend.rejects), _MOST_REASONS, lambda each: formatting.shown(each, 40))


def span(seconds: float) -> str:
    """Return the length of a range as its control says it: `15 min`, `24 h`."""
    return f"{seconds / 60:.0f} min" if seconds < _HOUR else f"{seconds / _HOUR:.0f} h"


def refused_rows(signals: GameSignals) -> int | None:
    """Return how many rows were refused at least in the range on screen; None where no driver reported.

    The series ends with the last closed minute, so that a burst of now is in what its driver counts alone.
    """
    known = [] if signals.series is None else [each for each in signals.series.total("refused") if math.isfinite(each)]
    lately = sum(signals.row.live.refused.values()) if signals.row.live is not None else 0
    return max(int(sum(known)), lately) if known or lately else None


def _latency(signals: GameSignals) -> Figure:
    """Show what the driver reported of the last minute, as commands do; else the newest minute of the series."""
    objective, recent, live = signals.objective_seconds, signals.recent, signals.row.live
    points = [] if signals.series is None else lines.gapped(signals.series.latency(0.99))
    now = live.latency_p99_last_minute_seconds if live is not None else None
    if now is None and recent is not None:
        now = value_at(lines.gapped(recent.latency(0.99)), newest_slot(recent))
    if now is None:
        return _unknown("Latency p99", _why_no_latency(signals), points, objective)
    value, unit = _split(formatting.duration(now))
    note = f"objective {formatting.age(objective)}"
    return Figure("Latency p99", value, unit, note, points, "bad" if now > objective else "plain", objective)


def _why_no_latency(signals: GameSignals) -> str:
    """Say why the minute that the page names has no latency: an unknown minute is none without rows."""
    recent, slot = signals.recent, newest_slot(signals.recent)
    if recent is None or slot is None:
        return _why(signals, "recent")
    if recent.is_partial(set(recent.groups))[slot]:
        return MAY_LACK
    if not math.isfinite(recent.total("rows")[slot]):
        return NOT_REPORTED
    return ONLY_CAUGHT_UP if recent.total("caught_up")[slot] else NO_ROW


def _last_commit(signals: GameSignals) -> Figure:
    reported = signals.row.reported
    points = [] if signals.series is None else since_commit(signals.series)
    at = reported.last_commit_at if reported is not None else None
    if at is None:
        why = "none since its driver started" if reported is not None else "not reported"
        return _unknown("Last commit", why, points)
    generation = f"generation {signals.row.generation}"
    cursor = None if reported is None or reported.cursor_seq is None else f"seq {formatting.count(reported.cursor_seq)}"
    value, unit = _split(formatting.age(max(0.0, signals.now - at)))
    note = " · ".join(filter(None, (cursor, generation)))
    return Figure("Last commit", value, f"{unit} ago".strip(), note, points, "plain", None, BACKLOG_FLOOR)


def _complete_through(signals: GameSignals) -> Figure:
    """Show up to when the table has all of the source, in UTC, and how far that is behind."""
    found = complete_through(signals.row.through_at, signals.now)
    if found is None:
        return _unknown("Complete through", "ingest has recorded no time", [])
    at, behind = found
    return Figure("Complete through", at, "", f"{behind} behind, UTC", [], "plain", None, BACKLOG_FLOOR)


def since_commit(series: Series) -> Points:
    """Return for the end of each slot how long ago the last commit within the series was; None before the first."""
    points: Points = []
    last: float | None = None
    for commits, seconds in zip(lines.gapped(series.total("commits")), series.seconds.tolist(), strict=True):
        if commits:
            last = 0.0
        elif last is not None:
            last += seconds
        points.append(None if commits is None else last)
    return points


def slots(signals: GameSignals) -> list[StripSlot]:
    """Return the health strip: the worst status of each slot, and of this moment by the control store.

    A slot in which an incident of the game was open is as late as that at least, also while its stream ran.
    """
    series, now, key = signals.series, signals.now, signals.row.game_key
    made: list[StripSlot] = []
    stood = [(each.since, each.ended_at or now) for each in signals.incidents or () if key in each.games]

    def is_in_one(at: float, seconds: float) -> bool:
        return any(since < at + seconds and until > at for since, until in stood)

    if series is not None:
        for place, code in enumerate(lines.gapped(series.total("status"))):
            at = series.since + place * series.slot_seconds
            status, is_ill = None if code is None else STATUSES[int(code)], is_in_one(at, series.slot_seconds)
            made.append(_slot(at, status, in_utc(at, "%H:%M UTC"), is_ill=is_ill))
        end = series.since + series.slots * series.slot_seconds
        while end + series.slot_seconds <= now and len(made) < 2 * SLOTS:
            made.append(_slot(end, None, in_utc(end, "%H:%M UTC")))
            end += series.slot_seconds
    is_ill = signals.situation.severity_of(signals.row) in {"bad", "late"}
    made.append(_slot(now, signals.row.verdict.status, "now", is_ill=is_ill))
    return made[-SLOTS:]


def edges(made: Sequence[StripSlot], now: float) -> tuple[str, str, str]:
    """Return the texts under the strip: its beginning, its middle and its end."""
    return short_moment(made[0].at, now), short_moment((made[0].at + now) / 2, now), "now"


def label(made: Sequence[StripSlot]) -> str:
    """Say the whole strip in a sentence, for people who do not see it."""
    bad, late = sum(each.bad > 0 for each in made), sum(each.late > 0 for each in made)
    unknown = sum(not each.known for each in made)
    return f"Status over time, {len(made)} slots: {bad} failing, {late} late or unknown, {unknown} not reported."


def _slot(at: float, status: Status | None, when: str, *, is_ill: bool = False) -> StripSlot:
    if status is None:
        return StripSlot(at, 0.0, 0.0, known=False, title=f"{when}: no driver reported")
    word = formatting.STATUS_STYLES[status].word
    if is_ill and not status.is_trouble:
        return StripSlot(at, 0.0, 1.0, known=True, title=f"{when}: in an incident, {word}")
    starting = float(status == Status.STARTING)
    return StripSlot(at, float(status.is_bad), float(status.is_late), True, f"{when}: {word}", starting)


def _unknown(label: str, why: str, points: Points, objective: float | None = None) -> Figure:
    note = formatting.shown(why, _LONGEST_NOTE)
    return Figure(label, formatting.UNKNOWN_VALUE, "", note, points, "blind", objective)


def _why_no_rate(signals: GameSignals) -> str:
    return _why(signals, "recent") if newest_slot(signals.recent) is None else NOT_REPORTED


def _why(signals: GameSignals, name: str) -> str:
    if signals.recent is None:
        return signals.whys.get(name, NOT_READ)
    return signals.whys.get(name, _SILENT if signals.row.live is None else NO_MINUTE_YET)


def _usual(points: Points) -> float | None:
    """Return the median of what is known."""
    held = sorted(value for value in points if value is not None)
    return held[len(held) // 2] if held else None


def _split(text: str) -> tuple[str, str]:
    """Return a duration as value and unit, for a large figure and a small unit."""
    value, _, unit = text.rpartition(" ")
    return (value, unit) if value and " " not in value else (text, "")
