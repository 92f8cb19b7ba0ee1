"""The incident rows of the Fleet page: a line per cause, and one for all else at which a person should look.

Pure. No stream and no driver in trouble is left out: where no incident names it, it gets a line of its own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app import formatting
from app.fleet.signals import Signals
from app.state.situations import counted
from listeners.status import Status
from pipeline.base.texts import join_limited, short_moment, some_are
from pipeline.control.kinds import find
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.headlines.standings import Concern, Severity, Situation
from pipeline.health.incidents.causes import Action
from pipeline.health.incidents.incidents import Incident
from pipeline.health.verdicts.judgement import Problem

MOST: Final = 20
"""Most rows on screen; the others are counted."""

MOST_ENDED: Final = 100
"""Most incidents that have ended on screen."""

_RUNBOOKS: Final[Mapping[str, str]] = {
    Status.STALLED: "turnoutstreamstalled",
    Status.FAILED: "turnoutstreamdown",
    Status.CRASH_LOOP: "turnoutstreamdown",
    Status.MISSING: "turnoutstreamdown",
    Status.LAGGING: "turnoutlatencyoverobjective",
    Status.AT_RISK: "turnoutlatencyoverobjective",
}
_RUNBOOKS_OF_PROBLEMS: Final[Mapping[str, str]] = {
    "store": "turnoutfleetunhealthy",
    "operation": "turnoutoperationneedsperson",
}
_COLON: Final = re.compile(r": (is|was|has|ended|lost|sent|reported|could) ")
_MOST_NAMED: Final = 3
_LONGEST: Final = 160  # characters of a reason
_FACTS: Final = 2  # of the evidence, shown in a row


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One row: what is wrong, where and how much, since when, and the next step; all of it plain text."""

    row_id: str  # the same while the trouble lasts
    glyph: str
    title: str
    about: str
    since: float | None
    tone: Severity
    action: Action | None
    runbook: str | None
    recovering: bool = False
    acting: bool = False  # a person or the controller works on it


def rows(signals: Signals) -> list[IncidentRow]:
    """Return the rows, worst first, then the oldest: all that stands, but for what only starts."""
    known = signals.situation
    return [made for each in known.standings if (made := _row(each, signals.fleet, known)) is not None]


def _row(standing: Concern, fleet: Fleet, known: Situation) -> IncidentRow | None:
    if standing.incident is not None:
        return _of_incident(standing, standing.incident, fleet)
    if standing.problem is not None:
        return _of_problem(standing, standing.problem, fleet)
    if standing.status is not None and standing.is_trouble:
        return _of_alike(standing, standing.status, fleet, known)
    if not standing.is_trouble:
        return None
    return IncidentRow(
        standing.standing_id, "▲", standing.text, "ingest runs", standing.since, standing.severity, None,
        "turnoutingeststalled",
    )  # fmt: skip


def about_rows(made: Sequence[IncidentRow], signals: Signals) -> str:
    """Return what stands beside the head of the rows."""
    if signals.incidents is None:
        why = formatting.shown(signals.whys.get("incidents", "not read"), _LONGEST)
        return f"{len(made)} open, by status, as their causes are not known: {why}"
    recovering, acting = sum(row.recovering for row in made), sum(row.acting for row in made)
    opened = [f"{len(made) - recovering - acting} open"]
    opened += [f"{count} {what}" for count, what in ((acting, "being mended"), (recovering, "recovering")) if count]
    return f"{', '.join(opened)} · games with one cause are one line"


def calm_text(signals: Signals) -> str:
    """Return the one line where nothing is wrong: that, and what ended last."""
    if signals.incidents is None:
        why = signals.whys.get("incidents", "not read")
        return f"Nothing is in trouble now. Earlier incidents are not known: {formatting.shown(why, _LONGEST)}"
    ended = [each for each in signals.incidents if each.ended_at is not None]
    if not ended:
        return "No incident, and none that ended in the last day."
    last = max(ended, key=lambda each: each.ended_at or 0.0)
    at = short_moment(last.ended_at or 0.0, signals.fleet.read_at)
    return f"No incident. The last one ended {at}: {formatting.shown(last.finding.title, _LONGEST)}."


def ended(signals: Signals) -> list[dict[str, str]]:
    """Return the incidents that ended within a day, the newest end first, as lines of a table."""
    fleet = signals.fleet
    lines = []
    for each in signals.incidents or ():
        if each.ended_at is not None:
            named = [row for key in each.games if (row := fleet.row(key)) is not None]
            lines.append(
                {
                    "ended": short_moment(each.ended_at, fleet.read_at),
                    "lasted": formatting.age(each.ended_at - each.since),
                    "cause": str(each.finding.cause),
                    "what": formatting.shown(each.finding.title, _LONGEST),
                    "where": _where(each, named),
                }
            )
    return lines


def _of_incident(standing: Concern, incident: Incident, fleet: Fleet) -> IncidentRow:
    finding = incident.finding
    named = [row for key in incident.games if (row := fleet.row(key)) is not None]
    worst = max((row.verdict.status for row in named), key=lambda status: status.severity, default=None)
    progress, recovering = incident.progress(fleet.read_at), incident.phase == "recovering"
    facts = [each for each in (progress, *finding.evidence[:_FACTS], *finding.excludes[:1], finding.advice) if each]
    glyph = "»" if progress is not None else formatting.STATUS_STYLES[worst].glyph if worst is not None else "▲"
    return IncidentRow(
        standing.standing_id,
        glyph if worst != Status.RUNNING or progress is not None else "!",  # as its cells in the grid
        standing.text,
        " · ".join([_where(incident, named), *(formatting.shown(fact, _LONGEST) for fact in facts)]),
        standing.since,
        standing.severity,
        finding.action,
        finding.runbook,
        recovering,
        incident.phase == "acting",
    )


def _where(incident: Incident, named: Sequence[GameRow]) -> str:
    group = f" in group {formatting.shown(incident.group, 40)}" if incident.group is not None else ""
    if not named:
        return f"{len(incident.games)} games{group}" if incident.games else group.strip() or "no game"
    names = join_limited(named, _MOST_NAMED, lambda row: formatting.shown(row.game, 40))
    return f"{names}{group}"


def _of_problem(standing: Concern, problem: Problem, fleet: Fleet) -> IncidentRow:
    first, *others = problem.text.split("\n")
    state, kind = fleet.judgement.driver(problem.kind, problem.name), find(problem.kind)
    members = [row for row in fleet.rows if kind.kind.carries_games and row.group == problem.name]
    about = [_many(len(members), "game")] if members else []
    about += [formatting.shown(each, _LONGEST) for each in others]
    is_live = state is not None and state.liveness.is_live
    return IncidentRow(
        standing.standing_id,
        "▲" if standing.severity == "late" or is_live else "✗",
        _sentence(first),
        " · ".join(about),
        standing.since,
        standing.severity,
        _step(problem),
        _RUNBOOKS_OF_PROBLEMS.get(problem.kind) or kind.kind.runbook,
    )


def _sentence(text: str) -> str:
    """Return a problem's text as a title: `group b: is silent for 20 s` is about the group, and says so."""
    shown = formatting.shown(_COLON.sub(r" \1 ", text, count=1), _LONGEST)
    return f"{shown[:1].upper()}{shown[1:]}"


def _step(problem: Problem) -> Action | None:
    if problem.kind == "operation":
        return Action("Open operations", "operations", {})
    step = find(problem.kind).tile.step
    return None if step is None else step(problem.name, formatting.shown(problem.name, 24))


def _of_alike(standing: Concern, status: Status, fleet: Fleet, known: Situation) -> IncidentRow:
    """Return the row of streams that no incident names."""
    group, keys = standing.group, set(standing.games)
    members = [row for row in fleet.rows if row.game_key in keys]
    one = members[0]
    named = join_limited(members, _MOST_NAMED, lambda row: formatting.shown(row.game, 40))
    facts = [f"1 game in group {formatting.shown(group or '', 40)}" if len(members) == 1 and group else named]
    facts += [formatting.shown(why, _LONGEST)] if (why := reason(one)) else []
    facts += [_neighbours(group, members, fleet, known)] if group is not None else []
    return IncidentRow(
        standing.standing_id,
        formatting.STATUS_STYLES[status].glyph,
        standing.text,
        " · ".join(fact for fact in facts if fact),
        standing.since,
        standing.severity,
        Action("Open game", "game", {"game": one.game_key})
        if len(members) == 1
        else Action("Show in the table", "fleet", {"status": status, **({"group": group} if group else {})}),
        _RUNBOOKS.get(status),
    )


def reason(row: GameRow) -> str | None:
    """Return why a stream is as it is, as far as its driver or the judgement says."""
    reported = row.reported.last_error if row.reported is not None and row.in_trouble else None
    return row.verdict.reason or row.verdict.waits_for or reported


def _neighbours(group: str, members: Sequence[GameRow], fleet: Fleet, known: Situation) -> str:
    own = {row.game_key for row in members}
    others = [row for row in fleet.rows if row.group == group and row.game_key not in own]
    how = counted(others, known)
    if not others:
        return ""
    if how.troubled:
        return f"{some_are(how.troubled, len(others), 'neighbour')} in trouble, too"
    if how.busy:
        return f"neighbours: {how.words}"
    return f"its {_many(len(others), 'neighbour')} {'is' if len(others) == 1 else 'are'} well"


def _many(count: int, noun: str) -> str:
    return f"{formatting.count(count)} {noun}{'' if count == 1 else 's'}"
