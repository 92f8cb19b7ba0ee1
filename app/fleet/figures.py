"""The seven figures of the Fleet page: events, rows, latency, backlog, refusals, alerts, operations.

Pure. What is not known is a dash with its reason, never 0; a sparkline has a gap where no driver reported.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from app import formatting
from app.fleet.signals import Signals
from app.look.lines import gapped, per_second
from app.look.parts import Figure
from app.look.tokens import Tone
from listeners.quantile import quantile
from listeners.series import FloatArray, Series
from listeners.status import Status
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
from pipeline.api.operations import Operation, OperationState
from pipeline.health.facts.fleet import GameRow

_NOTED_REFUSALS: Final = 0.001  # share of the events of a minute from which on refusals have a colour
_WHOLE_MINUTES: Final = 3  # the newest of them, of which a share of the events is taken
_CATCHES_UP: Final = 1.05  # share of the events above which rows of earlier minutes land
_SECONDS: Final = 60
_BEHIND: Final = frozenset({Status.CATCHING_UP, Status.BACKFILLING, Status.LAGGING, Status.AT_RISK})
_QUIET_SHARE: Final = 0.5  # of the usual events, below which a figure of events has a colour
_LONGEST_NOTE: Final = 48  # characters


def figures(signals: Signals) -> list[Figure]:
    """Return the figures in the order of the page."""
    return [
        _events(signals),
        _landed(signals),
        _latency(signals),
        _backlog(signals),
        _refused(signals),
        _alerts(signals),
        _operations(signals),
    ]


def _events(signals: Signals) -> Figure:
    series, recent = signals.series, signals.recent
    points = [] if series is None else per_second(series, series.events)
    slot = newest_slot(recent)
    now = None if recent is None else value_at(per_second(recent, recent.events), slot)
    usual = _median(points)
    if now is None or recent is None or slot is None:
        return _unknown("Events in", _why(signals, slot), points)
    if recent.partial_events is not None and recent.partial_events[slot]:
        return Figure("Events in", f"≥ {formatting.rate(now)}", "/s", IN_PART, points, "plain")
    note = "" if usual is None else f"usual {formatting.rate(usual)}"
    tone: Tone = "late" if usual and now < _QUIET_SHARE * usual else "plain"
    return Figure("Events in", formatting.rate(now), "/s", note, points, tone)


def _landed(signals: Signals) -> Figure:
    series, recent = signals.series, signals.recent
    points = [] if series is None else per_second(series, series.total("rows"))
    slot = newest_slot(recent)
    now = None if recent is None else value_at(per_second(recent, recent.total("rows")), slot)
    if now is None and (reported := _reported_rate(signals.fleet.rows)) is not None:
        return Figure("Rows landed", formatting.rate(reported), "/s", "as the drivers report", points, "plain")
    if now is None or recent is None or slot is None:
        return _unknown("Rows landed", _why(signals, slot), points)
    if recent.is_partial()[slot]:
        return Figure("Rows landed", f"≥ {formatting.rate(now)}", "/s", IN_PART, points, "plain")
    share, span = _of_events(recent, per_second(recent, recent.total("rows")), slot)
    note = "" if share is None else f"{formatting.count(100 * share)} % of events{span}"
    if share is not None and share > _CATCHES_UP:
        note = f"more than came in{span}{': catching up' if _is_behind(signals) else ''}"
    return Figure("Rows landed", formatting.rate(now), "/s", note, points, "plain")


def _is_behind(signals: Signals) -> bool:
    """Return whether anything is behind at this moment: what landed in the last minutes is no judgement of now."""
    source = signals.fleet.judgement.source
    return source.condition == "late" or any(row.verdict.status in _BEHIND for row in signals.fleet.rows)


def _latency(signals: Signals) -> Figure:
    series, recent, objective = signals.series, signals.recent, signals.objective_seconds
    points = [] if series is None else gapped(series.latency(0.99))
    note = f"objective {formatting.age(objective)}"
    slot = newest_slot(recent)
    if recent is None or slot is None:
        return _unknown("Latency p99", _why(signals, slot), points, objective)
    is_partial = bool(recent.is_partial()[slot])
    note = MAY_LACK if is_partial else note
    p99 = quantile([int(count) for count in recent.counts[:, slot, :].sum(axis=0)], 0.99)
    if p99 is None:
        caught_up = int(recent.caught_up[:, slot].sum()) > 0
        why = ONLY_CAUGHT_UP if caught_up else NO_ROW
        return _unknown("Latency p99", MAY_LACK if is_partial else why, points, objective)
    tone: Tone = "bad" if p99 > objective else "plain"
    return Figure("Latency p99", formatting.duration(p99), "", note, points, tone, objective)


def _backlog(signals: Signals) -> Figure:
    """Show the oldest row that waits for a stream which should run; the streams of which nobody knows are named."""
    series, fleet, objective = signals.series, signals.fleet, signals.objective_seconds
    points = [] if series is None else gapped(_largest(series, fleet.rows))
    running = [row for row in fleet.rows if row.verdict.status != Status.PAUSED]
    known = [(row.lag_seconds, row) for row in running if row.lag_seconds is not None]
    unknown = len(running) - len(known)
    if not known:
        return _unknown("Oldest backlog", "of no stream known" if running else "no stream runs", points)
    oldest, worst = max(known, key=lambda pair: pair[0])
    late = oldest > objective or any(row.in_trouble for row in running)
    note = formatting.shown(worst.game, 24) if late else "" if unknown else "no stream late"
    note += f"{'; ' if note else ''}that of {formatting.count(unknown)} unknown" if unknown else ""
    tone: Tone = "bad" if oldest > objective else "plain"
    return Figure("Oldest backlog", formatting.duration(oldest), "", note, points, tone, floor=BACKLOG_FLOOR)


def _refused(signals: Signals) -> Figure:
    series, recent = signals.series, signals.recent
    points = [] if series is None else _refusals(series)
    slot = newest_slot(recent)
    now = None if recent is None else value_at(_refusals(recent), slot)
    if now is None or recent is None or slot is None:
        return _unknown("Rows refused", _why(signals, slot), points)
    share, span = _of_events(recent, _refusals(recent), slot)
    note = "" if share is None else f"{_share(share)} of events{span}"
    tone: Tone = "late" if share is not None and share >= _NOTED_REFUSALS else "plain"
    if recent.is_partial()[slot]:
        return Figure("Rows refused", f"≥ {formatting.rate(now)}", "/s", IN_PART, points, tone, floor=REFUSED_FLOOR)
    return Figure("Rows refused", formatting.rate(now), "/s", note, points, tone, floor=REFUSED_FLOOR)


def _alerts(signals: Signals) -> Figure:
    firing = signals.firing
    if firing is None:
        return _unknown("Alerts firing", signals.whys.get("alerts", "not read"), [])
    note = ", ".join(sorted({name.removeprefix("Turnout") for name in firing}))
    shown = formatting.shown(note, _LONGEST_NOTE) if note else "none"
    return Figure("Alerts firing", formatting.count(len(firing)), "", shown, [], "bad" if firing else "plain")


def _operations(signals: Signals) -> Figure:
    listed = signals.operations
    if listed is None:
        return _unknown("Operations open", signals.whys.get("operations", "not read"), [])
    opened = [each for each in listed.operations if each.is_open]
    stuck = sum(each.is_stuck for each in opened)
    if stuck:
        note = f"{stuck} {'needs' if stuck == 1 else 'need'} a person"
    else:
        note = _kinds(opened) or _last_ended(listed.operations, signals.fleet.read_at)
    points = [] if signals.series is None else _open_over_time(listed.operations, signals.series)
    tone: Tone = "late" if stuck else "plain"
    return Figure("Operations open", formatting.count(len(opened)), "", note, points, tone)


def _of_events(recent: Series, counted: Sequence[float | None], newest: int) -> tuple[float | None, str]:
    """Return the share of the events of the last minutes, and these minutes, where they are not the rate's alone.

    The rate beside it is of the newest one: without that, or where nothing came, there is no share (None). Of each
    ingest and drivers reported all; the first minute that anybody reported is a part of one.
    """
    events, seconds = per_second(recent, recent.events), recent.seconds
    partial = recent.is_partial()
    if recent.partial_events is not None:
        partial = partial | recent.partial_events
    whole = {
        place: (some, of)
        for place, (some, of) in enumerate(zip(counted, events, strict=True))
        if some is not None and of is not None and seconds[place] == recent.slot_seconds
        and place > 0 and events[place - 1] is not None and counted[place - 1] is not None
        and newest - _WHOLE_MINUTES < place <= newest and not partial[place]
    }  # fmt: skip
    came = sum(of for _, of in whole.values())
    if newest not in whole or not came:
        return None, ""
    minutes = len(whole) * recent.slot_seconds / _SECONDS
    return sum(some for some, _ in whole.values()) / came, "" if len(whole) == 1 else f" over {minutes:.0f} min"


def _why(signals: Signals, slot: int | None) -> str:
    """Return why a figure of the minutes has no value."""
    if slot is not None:
        return NOT_REPORTED
    if signals.recent is None:
        return signals.whys.get("series", NOT_READ)
    reports = any(row.live is not None for row in signals.fleet.rows)
    return signals.whys.get("series", NO_MINUTE_YET if reports else "no driver reported lately")


def _unknown(label: str, why: str, points: Sequence[float | None], objective: float | None = None) -> Figure:
    note = formatting.shown(why, _LONGEST_NOTE)
    return Figure(label, formatting.UNKNOWN_VALUE, "", note, points, "blind", objective)


def _reported_rate(rows: Sequence[GameRow]) -> float | None:
    """Return what the drivers report of the last minute, for an hour that has no closed minute yet; None if unknown."""
    running = [row.live for row in rows if row.verdict.status != Status.PAUSED]
    rates = [live.rows_per_second for live in running if live is not None and live.rows_per_second is not None]
    return sum(rates) if rates and len(rates) == len(running) else None


def _median(points: Sequence[float | None]) -> float | None:
    known = [value for value in points if value is not None]
    return float(np.median(known)) if known else None


def _largest(series: Series, rows: Sequence[GameRow]) -> FloatArray:
    """Return the oldest backlog of each slot among the games that should run; nan where nobody knows one."""
    idle = {row.game_key for row in rows if row.verdict.status == Status.PAUSED}
    return series.total("backlog", [key for key in series.games if key not in idle])


def _refusals(series: Series) -> list[float | None]:
    """Return refused rows a second, those that ingest refused included where it reported."""
    early = np.nan_to_num(series.refused_early, nan=0.0)
    return per_second(series, series.total("refused") + early)


def _share(share: float) -> str:
    percent = 100 * share
    return f"{percent:.2f} %" if percent < 1 else f"{percent:.0f} %"


def _kinds(opened: Sequence[Operation]) -> str:
    counted = Counter(formatting.shown(each.kind, 20) for each in opened)
    return ", ".join(f"{amount} {kind}" for kind, amount in counted.most_common(2))


def _last_ended(operations: Sequence[Operation], now: float) -> str:
    ended = [each for each in operations if each.ended_at is not None]
    if not ended:
        return "none yet"
    last = max(ended, key=lambda each: each.ended_at or 0.0)
    failed = ", failed" if last.state == OperationState.FAILED else ""
    return f"last {formatting.age(now - (last.ended_at or now))} ago{failed}"


def _open_over_time(operations: Sequence[Operation], series: Series) -> list[float | None]:
    """Return how many were open at some time of each slot."""
    starts = series.since + series.slot_seconds * np.arange(series.slots)
    opened = np.zeros(series.slots)
    for each in operations:
        until = np.inf if each.ended_at is None else each.ended_at
        opened += (each.requested_at < starts + series.slot_seconds) & (until >= starts)
    return [float(value) for value in opened]
