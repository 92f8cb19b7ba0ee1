"""The one sentence of the Fleet page, and what it says once the control store does not answer. Pure."""

from app import formatting
from app.fleet.signals import Signals
from app.fleet.strip import calm_since
from app.look.sentences import Sentence, joined, of_headline
from pipeline.base.texts import short_moment
from pipeline.health.facts.fleet import Fleet
from pipeline.health.headlines.pages import of_fleet


def headline(signals: Signals) -> Sentence:
    """Say how the fleet is, since when, and, where nothing stands, since when it is calm."""
    said, now = of_fleet(signals.situation), signals.fleet.read_at
    return of_headline(
        said, now, *([] if signals.situation.standings or signals.incidents is None else [_calm(signals)])
    )


def stale_headline(fleet: Fleet, now: float, why: str) -> Sentence:
    """Say that nothing is known since the last reading, what it said, and why there is no newer one."""
    then = f"then: {fleet.judgement.headline}"
    return Sentence(f"Nothing known for {formatting.age(now - fleet.read_at)}", joined(then, why), "blind")


def _calm(signals: Signals) -> str:
    """Say since when nothing was wrong: from the last incident, else from what the series shows."""
    now = signals.fleet.read_at
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
