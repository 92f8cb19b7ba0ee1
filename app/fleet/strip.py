"""The health strip: for each slot of time which share of the games that reported was in trouble.

Pure. A slot in which no driver reported is not known; a game that is silent in a slot after it reported counts as late,
unless its driver ended, or stood still, before it reported that slot: then nobody knows.
That a game is paused now explains its silence since its last report, and none before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.look.parts import StripSlot
from app.state.shared import once
from app.state.situations import situation
from listeners.series import IntArray, Series
from listeners.status import Status
from pipeline.base.texts import in_utc, join_limited, short_moment
from pipeline.health.facts.fleet import Fleet
from pipeline.health.headlines.standings import Situation
from pipeline.health.incidents.incidents import Incident

SLOTS: Final = 60
"""Most slots of a strip; more would be thinner than people can point at."""

_PATIENCE_SECONDS: Final = 60.0
"""Seconds after its end in which a slot may be missing: its minutes wait until all drivers can have reported."""

_LOST_SECONDS: Final = 120
"""Seconds of which a driver that ends takes the report with it: in a longer slot its silence is longer than that."""

_MOST_CAUSES: Final = 2  # named
_BAD: Final = np.array([status.severity for status in Status if status.is_bad])
_LATE: Final = np.array([status.severity for status in Status if status.is_late])


@dataclass(frozen=True, slots=True)
class Calm:
    """Since when nothing was in trouble (Unix seconds); it may be longer where the series begins then."""

    at: float
    from_the_start: bool


@dataclass(frozen=True, slots=True)
class _Stood:
    """What incidents say of a slot."""

    running: int  # games of them whose streams ran
    starting: int  # games of them whose streams started
    causes: tuple[str, ...]  # of them: their titles are of now, and may not be what was so then


@dataclass(frozen=True, slots=True)
class _Counts:
    """Games by slot: those that failed, were late, began, reported, and did not report although they should.

    Of `lost` ones the report may be missing, as the charts say.
    """

    bad: IntArray
    late: IntArray
    starting: IntArray
    reported: IntArray
    silent: IntArray
    lost: IntArray


def slots(
    series: Series,
    fleet: Fleet,
    now: float,
    stale_since: float | None = None,
    found: Sequence[Incident] | None = (),
) -> list[StripSlot]:
    """Return the slots up to now; the last one is what the control store says of this moment.

    `stale_since` is when the store last answered, where it does not: from then on no slot is known. Incidents that were
    open in a slot show in it, also those of games whose streams ran and those without games; None: nobody knows them.
    """
    counts, seconds = once(_count, series, fleet), series.slot_seconds
    begins = [series.since + place * seconds for place in range(series.slots)]
    stood = once(_stood, series, found)
    made = [
        _slot(counts, place, at, stood[place], known=stale_since is None or at + seconds <= stale_since)
        for place, at in enumerate(begins)
    ]
    end = series.since + series.slots * seconds
    while end + seconds + _PATIENCE_SECONDS <= now:
        made.append(StripSlot(end, 0.0, 0.0, known=False, title=f"{_clock(end)}: not reported yet"))
        end += seconds
    made.append(_now(situation(fleet, found), now, known=stale_since is None))
    return made[-SLOTS:]


def edges(made: list[StripSlot], now: float) -> tuple[str, str, str]:
    """Return the texts under the strip: its beginning, its middle and its end."""
    if not made:
        return "", "", "now"
    middle = (made[0].at + now) / 2
    return short_moment(made[0].at, now), short_moment(middle, now), "now"


def label(made: list[StripSlot]) -> str:
    """Say the whole strip in a sentence, for people who do not see it."""
    bad, unknown = sum(each.bad > 0 for each in made), sum(not each.known for each in made)
    late = sum(each.late > 0 and not each.bad for each in made)
    parts = [
        f"{amount} {word}" for amount, word in ((bad, "with failing streams"), (late, "with late streams")) if amount
    ]
    parts += [f"{unknown} not known"] if unknown else []
    return f"Health over time, {len(made)} slots: {', '.join(parts) or 'none with trouble'}."


def calm_since(series: Series, fleet: Fleet) -> Calm | None:
    """Return since when no game was in trouble; None where the newest slot had some, or nobody knows."""
    counts = once(_count, series, fleet)
    troubled = (counts.bad + counts.late + counts.silent + counts.lost > 0) | (counts.reported == 0)
    places = np.flatnonzero(troubled)
    if not series.slots or (len(places) and places[-1] == series.slots - 1):
        return None
    if not len(places):
        return Calm(series.since, from_the_start=True)
    return Calm(series.since + (int(places[-1]) + 1) * series.slot_seconds, from_the_start=False)


def _idle(fleet: Fleet) -> frozenset[str]:
    """Return the games that are paused, retired or of a stopped group: their silence is no trouble."""
    return frozenset(row.game_key for row in fleet.rows if row.verdict.status == Status.PAUSED)


def _count(series: Series, fleet: Fleet) -> _Counts:
    status = series.status
    reported, idle = status >= 0, _idle(fleet)
    wanted = np.array([key not in idle for key in series.games], dtype=bool)
    heard_after = np.logical_or.accumulate(reported[:, ::-1], axis=1)[:, ::-1]
    heard_before = np.logical_or.accumulate(reported, axis=1) & (wanted[:, np.newaxis] | heard_after)
    missing = heard_before & ~reported
    unsure = missing & series.unsure if series.slot_seconds <= _LOST_SECONDS else np.zeros_like(missing)
    return _Counts(
        np.isin(status, _BAD).sum(axis=0),
        np.isin(status, _LATE).sum(axis=0),
        (status == Status.STARTING.severity).sum(axis=0),
        reported.sum(axis=0),
        (missing & ~unsure).sum(axis=0),
        unsure.sum(axis=0),
    )


def _stood(series: Series, found: Sequence[Incident] | None) -> list[_Stood]:
    """Return what incidents add to each slot: those that were open in it, and their games whose streams ran."""
    slots, seconds = series.slots, series.slot_seconds
    at = {key: number for number, key in enumerate(series.games)}
    starts = series.status == Status.STARTING.severity
    runs = (series.status >= 0) & ~starts & ~np.isin(series.status, _BAD) & ~np.isin(series.status, _LATE)
    marked, causes = np.zeros_like(runs), [dict[str, None]() for _ in range(slots)]
    for each in found or ():
        first = max(0, int((each.since - series.since) // seconds))
        last = slots if each.ended_at is None else min(slots, int((each.ended_at - series.since) // seconds) + 1)
        if first >= last:
            continue
        rows = [at[key] for key in each.games if key in at]
        marked[rows, first:last] = True
        for place in range(first, last):
            causes[place][str(each.finding.cause)] = None
    running, starting = ((marked & each).sum(axis=0) for each in (runs, starts))
    return [_Stood(int(running[place]), int(starting[place]), tuple(causes[place])) for place in range(slots)]


def _slot(counts: _Counts, place: int, at: float, stood: _Stood, *, known: bool) -> StripSlot:
    bad, late = int(counts.bad[place]), int(counts.late[place])
    reported, silent, lost = (int(each[place]) for each in (counts.reported, counts.silent, counts.lost))
    if not known or not reported:
        return StripSlot(at, 0.0, 0.0, known=False, title=f"{_clock(at)}: no driver reported")
    games = reported + silent + lost
    starting = int(counts.starting[place])
    words = [(bad, "failing"), (late, "late or unknown"), (silent, "silent"), (starting, "starting")]
    words.append((lost, "not known: reports may be missing"))
    words.append((stood.running, "running in an incident"))
    said = [f"{amount} {word}" for amount, word in words if amount]
    said += [f"incident: {join_limited(stood.causes, _MOST_CAUSES, str)}"] if stood.causes else []
    title = f"{_clock(at)}: {', '.join(said) or 'none in trouble'}"
    least = 1 if stood.causes and not bad else 0  # an incident without games, such as of the controller, is seen too
    ill = max(late + silent + stood.running + stood.starting, least) / games
    unknown = (starting - stood.starting + lost) / games
    return StripSlot(at, bad / games, ill, known=True, title=title, starting=unknown)


def _now(of: Situation, now: float, *, known: bool) -> StripSlot:
    if not known or not of.games:
        why = "nothing is known" if not known else "no game"
        return StripSlot(now, 0.0, 0.0, known=False, title=f"now: {why}")
    severities, games = [of.severity_of(each) for each in of.games], len(of.games)
    bad, late = (severities.count(each) for each in ("bad", "late"))
    starts = [each.verdict.status == Status.STARTING for each in of.games]
    pairs = list(zip(severities, starts, strict=True))
    starting = pairs.count(("busy", True))  # a share; one of an incident is late or bad as that is, and starts
    over = [(of.incident_of.get(each.game_key), pair) for each, pair in zip(of.games, pairs, strict=True)]
    recovering = sum(each is not None and pair == ("busy", False) for each, pair in over)
    words = (
        (pairs.count(("bad", False)), "failing or unknown"),
        (pairs.count(("late", False)), "late"),
        (sum(starts), "starting"),
        (recovering, "recovering"),
    )
    said = [f"{amount} {word}" for amount, word in words if amount]
    trouble = [each for each in of.standings if each.is_trouble]
    said += [trouble[0].text] if trouble and not (bad or late) else []
    if trouble and not (bad or late):
        late = 1
    title = f"now: {', '.join(said) or 'none in trouble'}"
    return StripSlot(now, bad / games, late / games, known=True, title=title, starting=(starting + recovering) / games)


def _clock(at: float) -> str:
    return in_utc(at, "%H:%M UTC")
