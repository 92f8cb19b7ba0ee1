"""The one sentence of the Fleet page: how the fleet is, since when, and of how long ago that was known.

Pure. The words are those of the judgement, which `turnout status` prints as well.
"""

from dataclasses import dataclass

from app import formatting
from app.fleet.signals import Signals, since_text
from app.fleet.strip import calm_since
from app.look.tokens import Tone
from listeners.status import Status
from pipeline.base.texts import short_moment
from pipeline.health.facts.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Headline:
    """A sentence, what stands beside it in grey, and how urgent it is."""

    text: str
    meta: str
    tone: Tone


def headline(signals: Signals) -> Headline:
    """Say how the fleet is.

    Where streams are in trouble the sentence speaks of them, and what else is wrong stands beside it; where they are
    not, all of it is the sentence, so that none calls healthy what is not.
    """
    judgement, now = signals.fleet.judgement, signals.fleet.read_at
    streams, _, notes = judgement.headline.partition("; ")
    opened = [each for each in signals.incidents or () if each.ended_at is None]
    if judgement.healthy and not opened:
        return Headline(judgement.headline, _calm(signals), _well_tone(signals.fleet))
    since = since_text(_trouble_since(signals), now)
    if judgement.healthy:  # such as rows that are refused while their stream runs
        count = f"{len(opened)} incident{'' if len(opened) == 1 else 's'} open"
        return Headline(f"{judgement.headline}; {count}", since, "late")
    if judgement.silence is None and any(row.is_own_trouble for row in signals.fleet.rows):
        return Headline(streams, _joined(notes, since), _trouble_tone(signals.fleet))
    return Headline(judgement.headline, since, _trouble_tone(signals.fleet))


def stale_headline(fleet: Fleet, now: float, why: str) -> Headline:
    """Say that nothing is known since the last reading, what it said, and why there is no newer one."""
    then = f"then: {fleet.judgement.headline}"
    return Headline(f"Nothing known for {formatting.age(now - fleet.read_at)}", _joined(then, why), "blind")


def _joined(*texts: str) -> str:
    return " · ".join(text for text in texts if text)


def _well_tone(fleet: Fleet) -> Tone:
    """Return green only where streams run and none starts: nothing is known to be well before a row has landed."""
    statuses = {row.verdict.status for row in fleet.rows}
    if Status.RUNNING in statuses and Status.STARTING not in statuses:
        return "well"
    return "busy" if statuses - {Status.PAUSED} else "plain"


def _trouble_tone(fleet: Fleet) -> Tone:
    """Return the tone of the worst stream; a driver in trouble is as bad as a stream that fails."""
    if any(problem.kind not in {"stream", "operation"} for problem in fleet.judgement.problems):
        return "bad"
    own = [row.verdict.status for row in fleet.rows if row.is_own_trouble]
    if not own:
        return "late"
    worst = max(own, key=lambda status: status.severity)
    return "bad" if worst.is_bad else formatting.STATUS_STYLES[worst].tone


def _trouble_since(signals: Signals) -> float | None:
    """Return when the oldest trouble began that is still there, None where nobody knows."""
    fleet = signals.fleet
    since = [each.since for each in signals.incidents or () if each.ended_at is None]
    if not since:
        since = [row.verdict.since for row in fleet.rows if row.is_own_trouble and row.verdict.since is not None]
        since += [
            each.liveness.since
            for each in fleet.judgement.drivers
            if each.is_problem and each.liveness.since is not None and not each.liveness.is_live
        ]
        since += [fleet.judgement.source.since] if fleet.judgement.source.since is not None else []
    known = [at for at in since if at <= fleet.read_at]
    return min(known, default=None)


def _calm(signals: Signals) -> str:
    """Say since when nothing was wrong: from the last incident, else from what the series shows."""
    now = signals.fleet.read_at
    if any(row.verdict.status == Status.STARTING for row in signals.fleet.rows):
        return ""  # nothing is known of it yet
    ended = [each.ended_at for each in signals.incidents or () if each.ended_at is not None]
    if ended:
        return f"calm for {formatting.age(now - max(ended))}"
    calm = calm_since(signals.series, signals.fleet) if signals.series is not None else None
    if calm is None:
        return ""
    at_least = "at least " if calm.from_the_start else ""
    return (
        f"calm for {at_least}{formatting.age(now - calm.at)}"
        if calm.at < now
        else f"calm since {short_moment(calm.at, now)}"
    )
