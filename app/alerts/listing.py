"""What the page Alerts shows: a line per alert and state, and a row per affected thing. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app import formatting
from app.look.tokens import Tone
from app.state.alerts import Alerts, AlertState, ReportedAlert
from pipeline.base.texts import join_limited, short_moment
from pipeline.health.alerting.links import SUBJECTS
from pipeline.health.incidents.causes import Action

_MOST_NAMED: Final = 3
_LONGEST: Final = 240  # characters of a text of a rule
_OF_LABELS: Final = {
    "edge": "edge",
    "derived": "derived stream",
    "contract": "contract",
    "registry": "registry",
    "place": "place",
    "class": "class",
    "kind": "process",
    "instance": "at",
}
"""Labels that say what an alert is about besides its game and group, and how people read them."""

STATES: Final[Mapping[AlertState, tuple[str, Tone]]] = {
    "firing": ("▲ firing", "bad"),
    "pending": ("… pending", "late"),
    "silenced": ("‖ silenced", "plain"),
    "explained": ("→ explained", "plain"),
}
"""Glyph and word of each state, and what its colour means."""


@dataclass(frozen=True, slots=True)
class AlertLine:
    """One alert in one state with all that it is about."""

    name: str
    state: AlertState
    tone: Tone
    title: str
    about: str
    since: float
    action: Action | None
    runbook: str | None
    subject: Mapping[str, str]  # of the link to the runbook


def sentence(known: Alerts) -> tuple[str, Tone]:
    """Return the page's sentence and its tone."""
    if known.firing is None:
        return ("No server of alerts is configured" if known.by is None else "Nobody knows which alerts fire"), "blind"
    if not known.firing:
        return "No alert fires", "well"
    fires = "1 alert fires" if len(known.firing) == 1 else f"{formatting.count(len(known.firing))} alerts fire"
    return fires, "bad" if any(each.severity == "page" for each in known.firing) else "late"


def meta(known: Alerts, now: float) -> str:
    """Return what stands beside the sentence: since when, what else there is, and who says it."""
    if known.firing is None:
        return away(known.why_unknown, known.away_since, now)
    said = []
    if known.firing:
        first = min(each.since for each in known.firing)
        said.append(f"since {short_moment(first, now)}, {formatting.age(now - first)}")
    for alerts, word in ((known.pending, "pending"), (known.silenced, "silenced"), (known.explained, "explained")):
        said += [f"{formatting.count(len(alerts))} {word}"] if alerts else []
    return " · ".join([*said, f"as {known.by} says"])


def away(why: str | None, since: float | None, now: float) -> str:
    """Say why nobody knows, and since when."""
    reason = formatting.shown(why or "not asked", _LONGEST)
    return reason if since is None else f"since {short_moment(since, now)}, {formatting.age(now - since)} · {reason}"


def lines(alerts: Sequence[ReportedAlert], names: Mapping[str, str], now: float) -> list[AlertLine]:
    """Return a line per alert and state; pages first, then the oldest. `names` are the games' by their keys."""
    alike: dict[tuple[str, AlertState], list[ReportedAlert]] = {}
    for each in alerts:
        alike.setdefault((each.name, each.state), []).append(each)
    return [_line(members, names, now) for members in alike.values()]


def affected(alert: ReportedAlert, names: Mapping[str, str]) -> str:
    """Return what an alert is about, for people."""
    labels = alert.labels
    said = []
    if (key := labels.get("game")) is not None:
        said.append(formatting.shown(names.get(key, key), 60))
    if (group := labels.get("cluster_group")) and "game" not in labels:
        said.append(f"group {formatting.shown(group, 40)}")
    said += [f"{word} {formatting.shown(labels[name], 60)}" for name, word in _OF_LABELS.items() if labels.get(name)]
    return ", ".join(said) or "the fleet"


def summary(alert: ReportedAlert, names: Mapping[str, str]) -> str:
    """Return the text of an alert's rule with the game's name for its key."""
    key = alert.labels.get("game", "")
    return _text(alert.summary.replace(key, names[key]) if key in names else alert.summary)


def silenced(alert: ReportedAlert, now: float) -> str:
    """Say who silenced an alert, until when and why; a dash where it is not silenced."""
    if alert.silence is None:
        return "by whom is not known" if alert.state == "silenced" else formatting.UNKNOWN_VALUE
    by, until = formatting.shown(alert.silence.by, 40), short_moment(alert.silence.until, now)
    return f"by {by} until {until}: {formatting.shown(alert.silence.comment, 120)}"


def _line(members: Sequence[ReportedAlert], names: Mapping[str, str], now: float) -> AlertLine:
    first = members[0]
    tone = STATES[first.state][1] if first.state != "firing" or first.severity == "page" else "late"
    return AlertLine(
        first.name,
        first.state,
        tone,
        formatting.shown(first.name, 60),
        " · ".join(_about(members, names, now)),
        min(each.since for each in members),
        _action(members),
        first.runbook,
        subject(first),
    )


def _text(of_rule: str) -> str:
    """Return a text of a rule, whose commands stand between marks that a page does not draw."""
    return formatting.shown(of_rule.replace("`", ""), _LONGEST)


def _description(alert: ReportedAlert) -> str:
    """Return a rule's description with the time of its numbers: Alertmanager gets new ones each minute."""
    when = "when last evaluated" if alert.updated_at is None else f"as of {formatting.clock(alert.updated_at)}"
    return f"{when}: {_text(alert.description)}"


def _about(members: Sequence[ReportedAlert], names: Mapping[str, str], now: float) -> Iterator[str]:
    first = members[0]
    if first.state == "pending":
        yield "holds, but not for long enough yet"  # what the rule's texts say is so once it fires
    if len(members) == 1:
        yield summary(first, names)
        yield from [_description(first)] if first.description and first.state != "pending" else []
        yield from [f"silenced {silenced(first, now)}"] if first.state == "silenced" else []
    else:
        named = join_limited(members, _MOST_NAMED, lambda each: affected(each, names))
        yield f"{formatting.count(len(members))}: {named}"
    yield f"severity {formatting.shown(first.severity, 20)}"


def _action(members: Sequence[ReportedAlert]) -> Action | None:
    """Return the link to the page that shows the problem; of several games, to those in trouble."""
    page = members[0].page
    if page is None:
        return None
    if page[0] == "game" and len(members) > 1:
        return Action("Open fleet", "fleet", {"trouble": "true"})
    return Action(f"Open {page[0]}", page[0], page[1])


def subject(alert: ReportedAlert) -> dict[str, str]:
    """Return what an alert is about, for the link to its runbook."""
    return {param: alert.labels[label] for label, param in SUBJECTS.items() if alert.labels.get(label)}
