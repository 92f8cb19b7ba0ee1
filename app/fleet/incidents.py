"""The incident rows of the Fleet page: a line per cause, and one for all else at which a person should look.

Pure. No stream and no driver in trouble is left out: where no incident names it, it gets a line of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from app import formatting
from app.fleet.signals import Signals
from listeners.process_kinds import GROUP
from listeners.status import Status
from pipeline.api.incidents import Cause
from pipeline.base.texts import join_limited, short_moment, some_are
from pipeline.control.kinds import find
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.incidents.causes import Action
from pipeline.health.incidents.incidents import Incident
from pipeline.health.verdicts.judgement import Problem
from pipeline.health.verdicts.processes import DriverState

RowTone = Literal["bad", "late"]

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
_OF_DOWN: Final = frozenset({Status.UNKNOWN, Status.FAILED, Status.CRASH_LOOP})
"""Statuses of streams whose driver is down or fails; the row of the driver covers them."""

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
    tone: RowTone
    action: Action | None
    runbook: str | None
    recovering: bool = False
    acting: bool = False  # a person or the controller works on it
    rank: int = 0  # the worst of them first


def rows(signals: Signals) -> list[IncidentRow]:
    """Return the rows, worst first, then the oldest."""
    fleet = signals.fleet
    opened = [each for each in signals.incidents or () if each.ended_at is None]
    made = [_of_incident(each, fleet) for each in opened]
    named = {key for each in opened for key in each.games}
    made += [_of_problem(problem, fleet) for problem in _uncovered(fleet, opened)]
    made += _of_streams([row for row in fleet.rows if row.is_own_trouble and row.game_key not in named], fleet)
    return sorted(
        made, key=lambda row: (row.tone != "bad", row.recovering, row.acting, -row.rank, row.since or 0.0, row.row_id)
    )


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


def _of_incident(incident: Incident, fleet: Fleet) -> IncidentRow:
    finding = incident.finding
    named = [row for key in incident.games if (row := fleet.row(key)) is not None]
    worst = max((row.verdict.status for row in named), key=lambda status: status.severity, default=None)
    progress, recovering = incident.progress(fleet.read_at), incident.phase == "recovering"
    facts = [each for each in (progress, *finding.evidence[:_FACTS], *finding.excludes[:1], finding.advice) if each]
    glyph = "»" if progress is not None else formatting.STATUS_STYLES[worst].glyph if worst is not None else "▲"
    return IncidentRow(
        f"incident_{incident.incident_id}",
        glyph if worst != Status.RUNNING or progress is not None else "!",  # as its cells in the grid
        formatting.shown(finding.title, _LONGEST),
        " · ".join([_where(incident, named), *(formatting.shown(fact, _LONGEST) for fact in facts)]),
        incident.since,
        "bad" if incident.tone == "bad" else "late",
        finding.action,
        finding.runbook,
        recovering,
        incident.phase == "acting",
        rank=len(Status),  # with a cause before those without one
    )


def _where(incident: Incident, named: Sequence[GameRow]) -> str:
    group = f" in group {formatting.shown(incident.group, 40)}" if incident.group is not None else ""
    if not named:
        return f"{len(incident.games)} games{group}" if incident.games else group.strip() or "no game"
    names = join_limited(named, _MOST_NAMED, lambda row: formatting.shown(row.game, 40))
    return f"{names}{group}"


def _uncovered(fleet: Fleet, opened: Sequence[Incident]) -> list[Problem]:
    """Return the problems of drivers and operations that no incident covers."""
    silence = fleet.judgement.silence  # a problem of its own, which explains that each process is silent
    silent = frozenset[tuple[str, str]]() if silence is None else silence.processes
    of_store = any(each.finding.cause == Cause.STORE for each in opened)
    return [
        problem
        for problem in fleet.judgement.problems
        if problem.kind != "stream"
        and not (problem.kind == "store" and of_store)
        and not any(find(problem.kind).tile.covers(each.finding, problem.name) for each in opened)
        and (problem.kind, problem.name) not in silent
    ]


def _of_problem(problem: Problem, fleet: Fleet) -> IncidentRow:
    first, *others = problem.text.split("\n")
    state, kind = fleet.judgement.driver(problem.kind, problem.name), find(problem.kind)
    members = [row for row in fleet.rows if kind.tile.has_games and row.group == problem.name]
    about = [_many(len(members), "game")] if members else []
    about += [formatting.shown(each, _LONGEST) for each in others]
    is_late = kind.tile.is_late or problem.kind == "operation"
    return IncidentRow(
        f"problem_{problem.kind}_{problem.name}",
        "▲" if is_late or (state is not None and state.liveness.is_live) else "✗",
        _sentence(first),
        " · ".join(about),
        _since(problem, state, fleet),
        "late" if is_late else "bad",
        _step(problem),
        _RUNBOOKS_OF_PROBLEMS.get(problem.kind) or kind.kind.runbook,
        rank=len(Status),
    )


def _sentence(text: str) -> str:
    """Return a problem's text as a title: `group b: is silent for 20 s` is about the group, and says so."""
    shown = formatting.shown(text.replace(": is ", " is ", 1).replace(": was ", " was ", 1), _LONGEST)
    return f"{shown[:1].upper()}{shown[1:]}"


def _since(problem: Problem, state: DriverState | None, fleet: Fleet) -> float | None:
    """Return since when a driver is in trouble; the start of a living driver is not when its trouble began."""
    if problem.kind == "store" and fleet.judgement.silence is not None:
        return fleet.judgement.silence.since
    if state is None:
        return None
    since = state.liveness.since
    return since if since is not None and not state.liveness.is_live and since <= fleet.read_at else None


def _step(problem: Problem) -> Action | None:
    if problem.kind == "operation":
        return Action("Open operations", "operations", {})
    step = find(problem.kind).tile.step
    return None if step is None else step(problem.name, formatting.shown(problem.name, 24))


def _of_streams(trouble: Sequence[GameRow], fleet: Fleet) -> list[IncidentRow]:
    """Return a row for the streams of one group that are in one status; a group that is down covers its own."""
    down = {state.name for state in fleet.judgement.of(GROUP) if state.is_problem and not state.liveness.is_live}
    alike: dict[tuple[str | None, Status], list[GameRow]] = {}
    for row in trouble:
        if row.group not in down or row.verdict.status not in _OF_DOWN:
            alike.setdefault((row.group, row.verdict.status), []).append(row)
    return [_of_alike(group, status, members, fleet) for (group, status), members in alike.items()]


def _of_alike(group: str | None, status: Status, members: Sequence[GameRow], fleet: Fleet) -> IncidentRow:
    style, one = formatting.STATUS_STYLES[status], members[0]
    where = f"of group {formatting.shown(group, 40)}" if group is not None else "without a group"
    title = formatting.shown(one.game, 60) if len(members) == 1 else f"{len(members)} streams {where}"
    known = [row.verdict.since for row in members if row.verdict.since is not None]
    since = min((at for at in known if at <= fleet.read_at), default=None)
    named = join_limited(members, _MOST_NAMED, lambda row: formatting.shown(row.game, 40))
    facts = [f"1 game in group {formatting.shown(group or '', 40)}" if len(members) == 1 and group else named]
    facts += [formatting.shown(why, _LONGEST)] if (why := reason(one)) else []
    facts += [_neighbours(group, members, fleet)] if group is not None else []
    return IncidentRow(
        f"streams_{status}_{group or ''}",
        style.glyph,
        f"{title} {style.word}",
        " · ".join(fact for fact in facts if fact),
        since,
        "bad" if status.is_bad else "late",
        Action("Open game", "game", {"game": one.game_key})
        if len(members) == 1
        else Action("Show in the table", "fleet", {"status": status, **({"group": group} if group else {})}),
        _RUNBOOKS.get(status),
        rank=status.severity,
    )


def reason(row: GameRow) -> str | None:
    """Return why a stream is as it is, as far as its driver or the judgement says."""
    reported = row.reported.last_error if row.reported is not None and row.in_trouble else None
    return row.verdict.reason or row.verdict.waits_for or reported


def _neighbours(group: str, members: Sequence[GameRow], fleet: Fleet) -> str:
    own = {row.game_key for row in members}
    others = [row for row in fleet.rows if row.group == group and row.game_key not in own]
    bad = sum(row.is_own_trouble for row in others)
    if not others:
        return ""
    if bad:
        return f"{some_are(bad, len(others), 'neighbour')} in trouble, too"
    return f"its {_many(len(others), 'neighbour')} {'is' if len(others) == 1 else 'are'} well"


def _many(count: int, noun: str) -> str:
    return f"{formatting.count(count)} {noun}{'' if count == 1 else 's'}"
