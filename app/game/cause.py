"""The cause card of a game: what is wrong, by which evidence, what it is not, and what to do next. Pure.

It is made of the incident that the game belongs to. Without one, and while incidents cannot be read, a game in trouble
has a card of what its driver and its neighbours say, and the cause is undetermined or unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from app import formatting
from app.game.signals import GameSignals, lasting
from app.look.tokens import Tone
from app.state.situations import Counted, counted
from listeners.status import Status
from pipeline.api.incidents import Cause
from pipeline.api.operations import OperationKind
from pipeline.health.headlines.standings import of_incident, of_status
from pipeline.health.incidents.causes import Action
from pipeline.health.incidents.incidents import Incident

FOLLOWING: Final[Mapping[Cause, tuple[OperationKind, str]]] = {
    Cause.SCHEMA: (OperationKind.REPLAY, "then replay its refused rows"),
}
"""What can be done once the cause is gone, and how a person reads it."""

_LONGEST: Final = 400  # characters of a line
_TITLE: Final = 160


@dataclass(frozen=True, slots=True)
class CauseCard:
    """A cause as it is drawn; every text went through `formatting.shown`."""

    glyph: str
    title: str
    tone: Tone
    since: str
    lines: tuple[tuple[str, str], ...]  # label and value; a label that repeats is left out
    action: Action | None
    following: OperationKind | None  # what comes after it
    why_not_yet: str | None  # why that is of no use before the action was taken; None: it may be of use
    runbook: str | None


def card(signals: GameSignals) -> CauseCard | None:
    """Return the card; None where the game is in no trouble and belongs to no incident."""
    incident = signals.incident
    if incident is not None:
        return _of_incident(signals, incident)
    return _of_verdict(signals) if signals.row.in_trouble else None


def _of_incident(signals: GameSignals, incident: Incident) -> CauseCard:
    finding, others = incident.finding, len(incident.games) - 1
    progress, action = incident.progress(signals.now), finding.action
    lines = [] if progress is None else [("now", progress)]
    lines += [("evidence", text) for text in finding.evidence]
    lines += [("error", text) for text in _last_error(signals)]
    lines += [("not", text) for text in finding.excludes]
    if others > 0:
        lines.append(("also", f"{_games(others)} in the same incident"))
    lines += [("next", text) for text in _next(incident)]
    following = FOLLOWING[finding.cause][0] if finding.cause in FOLLOWING and incident.phase == "open" else None
    is_first = action is not None and action.kind != following
    return CauseCard(
        "»" if progress is not None else _glyph(signals.row.verdict.status),
        formatting.shown(finding.title, _TITLE),
        of_incident(incident, signals.fleet.judgement.games),
        lasting(incident.since, signals.now),
        _shown(lines),
        action,
        following if is_first else None,
        _NOT_YET if is_first and following is not None else None,
        finding.runbook,
    )


def _glyph(status: Status) -> str:
    """Return the glyph of a status; a running stream has the mark of its cell in the grid."""
    return "!" if status == Status.RUNNING else formatting.STATUS_STYLES[status].glyph


_NOT_YET: Final = "Mend the schema first: until then a replay leaves the rows in quarantine."


def _next(incident: Incident) -> Iterable[str]:
    action = incident.finding.action
    said = [] if action is None else [action.label.rstrip("…")]
    if action is not None and incident.finding.cause in FOLLOWING and action.kind is None and incident.phase == "open":
        said = [f"{said[0]}, {FOLLOWING[incident.finding.cause][1]}"]
    said += [] if incident.finding.advice is None else [incident.finding.advice]
    return ["; ".join(said)] if said else []


def _of_verdict(signals: GameSignals) -> CauseCard:
    verdict = signals.row.verdict
    style = formatting.STATUS_STYLES[verdict.status]
    lines = [("evidence", text) for text in (verdict.reason, verdict.waits_for) if text is not None]
    lines += [("error", text) for text in _last_error(signals)]
    others = signals.neighbours
    if others and not verdict.waits_for_ingest:
        lines += _of_neighbours(f"group {signals.row.group}", counted(others, signals.situation), len(others))
    why = signals.whys.get("incidents")
    lines.append(("cause", "undetermined" if why is None else f"not known: {why}"))
    title = f"{style.word.capitalize()} {lasting(verdict.since, signals.now)}".strip()
    tone: Tone = of_status(verdict.status)
    return CauseCard(style.glyph, title, tone, "", _shown(lines), None, None, None, None)


def _of_neighbours(group: str, how: Counted, count: int) -> list[tuple[str, str]]:
    """Say whether the neighbours share the trouble, which tells the stream's from the group's."""
    bad = how.troubled
    if not bad and how.busy:
        return [("not", f"{group}: of its {_games(count)} none is in trouble, {formatting.count(how.busy)} on the way")]
    if not bad:
        return [("not", f"{group}: its {_games(count)} {'is' if count == 1 else 'are'} well")]
    share = f"{formatting.count(bad)} of " if bad < count else "the " if count == 1 else "all "
    lines = [("evidence", f"{share}{_games(count)} of {group} in trouble too")]
    return [*lines, ("next", f"Look at {group} first")] if bad * 2 >= count else lines


def _last_error(signals: GameSignals) -> Iterable[str]:
    reported = signals.row.reported
    return [reported.last_error] if reported is not None and reported.last_error else []


def _games(count: int) -> str:
    return f"{formatting.count(count)} other {'game' if count == 1 else 'games'}"


def _shown(lines: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the lines for people; of those in a row with one label only the first has it."""
    repeated = [label == before for (before, _), (label, _) in pairwise([("", ""), *lines])]
    return tuple(
        ("" if again else label, formatting.shown(text, _LONGEST))
        for again, (label, text) in zip(repeated, lines, strict=True)
    )
