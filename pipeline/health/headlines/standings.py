"""All that stands at one moment: incidents, other troubles, starts. Each headline, strip and cell is made of this list.

Pure. While anything stands no page is green, and a page gives one thing the severity that every other page gives it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, Protocol

from listeners.process_kinds import GROUP, INGEST, described
from listeners.status import Status
from pipeline.base.texts import visible
from pipeline.health.incidents.incidents import Incident
from pipeline.health.kinds.registry import find
from pipeline.health.verdicts.judgement import Judgement, Problem, StreamVerdict
from pipeline.health.verdicts.processes import DriverState
from pipeline.store.database.states import Cause

Severity = Literal["bad", "late", "busy"]
"""`bad`: rows do not reach their tables, or nobody knows. `late`: a person should look. `busy`: starts, recovers."""

_ORDER: Final[tuple[Severity, ...]] = ("bad", "late", "busy")
_WITH_CAUSE: Final = len(Status)  # such as incidents: before streams of which no incident names the cause
_OF_DOWN: Final = frozenset(
    {Status.UNKNOWN, Status.FAILED, Status.CRASH_LOOP}
)  # of a group that is down, which says it
_LONGEST: Final = 160  # characters of a text


class SeenGame(Protocol):
    """A game with its verdict, as `pipeline/health/facts/fleet.py` reads it."""

    @property
    def game_key(self) -> str:
        """Its key."""

    @property
    def game(self) -> str:
        """Its exact name, which may hold anything."""

    @property
    def group(self) -> str | None:
        """The group that carries it."""

    @property
    def verdict(self) -> StreamVerdict:
        """How it is."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing that is not as it should be, or not yet."""

    standing_id: str  # the same while it stands
    text: str  # a sentence without its full stop, safe to show
    severity: Severity
    since: float | None  # Unix seconds; None: nobody knows
    games: tuple[str, ...] = ()  # keys, worst first
    group: str | None = None  # that carries all its games
    is_of_group: bool = False  # it is about that group's driver, or half of what it carries at least
    incident: Incident | None = None
    problem: Problem | None = None
    status: Status | None = None  # of streams of which no incident names the cause
    rank: int = _WITH_CAUSE

    @property
    def is_trouble(self) -> bool:
        """Whether a person should look."""
        return self.severity != "busy"

    @property
    def is_recovering(self) -> bool:
        """Whether its cause is gone, and its games are not level yet."""
        return self.incident is not None and self.incident.tone == "recovering"


@dataclass(frozen=True)
class Situation:
    """All that headlines are made of, read at one moment."""

    judgement: Judgement
    games: Sequence[SeenGame]
    incidents: Sequence[Incident] | None  # None: nobody knows them

    @property
    def now(self) -> float:
        """Unix seconds by the store's clock."""
        return self.judgement.now

    @cached_property
    def opened(self) -> tuple[Incident, ...]:
        """The incidents that have not ended, worst first."""
        return tuple(each for each in self.incidents or () if each.ended_at is None)

    @cached_property
    def standings(self) -> tuple[Concern, ...]:
        """All that stands, worst first, then the oldest."""
        return tuple(sorted(_standings(self), key=_order))

    @cached_property
    def incident_of(self) -> Mapping[str, Incident]:
        """The worst open incident of each game, by key."""
        return {key: each for each in reversed(self.opened) for key in each.games}

    def about(self, keys: Collection[str]) -> tuple[Concern, ...]:
        """Return what stands of some games, worst first."""
        wanted = set(keys)
        return tuple(each for each in self.standings if not wanted.isdisjoint(each.games))

    def of_group(self, name: str) -> tuple[Concern, ...]:
        """Return what stands of a group's driver, or of all that it carries, worst first."""
        return tuple(each for each in self.standings if each.is_of_group and each.group == name)

    def severity_of(self, game: SeenGame) -> Severity | None:
        """Return how a game is, by the worse of its status and its open incident; None: well, or paused on purpose.

        So a game whose stream runs is as its incident is, such as of refused rows.
        """
        status, incident = game.verdict.status, self.incident_of.get(game.game_key)
        if status == Status.PAUSED:
            return None
        found = {of_status(status)} if not status.is_well else set[Severity]()
        if incident is not None:
            found.add("busy" if incident.tone == "recovering" else incident.tone)
        return min(found, key=_ORDER.index, default=None)


def of_status(status: Status) -> Severity:
    """Return the severity of streams that are not well: unknown is as bad as failing."""
    if not status.is_trouble:
        return "busy"
    return "bad" if status.severity >= Status.UNKNOWN.severity else "late"


def of_incident(incident: Incident, games: Mapping[str, StreamVerdict]) -> Severity:
    """Return the severity of an open incident: its own, busy if it recovers, or that of its worst game in trouble."""
    own: Severity = "busy" if incident.tone == "recovering" else incident.tone
    statuses = (games[key].status for key in incident.games if key in games)
    return min([own, *(of_status(each) for each in statuses if each.is_trouble)], key=_ORDER.index)


def worst(standings: Collection[Concern]) -> Severity | None:
    """Return the severity of the worst; None without any."""
    return min((each.severity for each in standings), key=_ORDER.index, default=None)


def is_own_trouble(verdict: StreamVerdict) -> bool:
    """Return whether a stream itself is in trouble, and not its source or the control store, which are named once."""
    return verdict.status.is_trouble and not verdict.waits_for_ingest and not verdict.is_unheard


def is_worse(one: Severity, other: Severity | None) -> bool:
    """Return whether a severity is above another; None: well."""
    return other is None or _ORDER.index(one) < _ORDER.index(other)


def past(since: float | None, now: float) -> float | None:
    """Return a moment, None where it is not known or has not come."""
    return since if since is not None and since <= now else None


def _order(standing: Concern) -> tuple[int, bool, int, float, str]:
    since = standing.since if standing.since is not None else 0.0
    return _ORDER.index(standing.severity), standing.is_recovering, -standing.rank, since, standing.standing_id


def _standings(of: Situation) -> list[Concern]:
    judgement = of.judgement
    made = [_of_incident(each, of) for each in of.opened]
    made += [_of_problem(each, of) for each in _uncovered(of)]
    made += _of_streams(of)
    is_silent = any(each.finding.cause == Cause.SOURCE_SILENT for each in of.opened)
    if judgement.quiet_since is not None and not is_silent:
        made.append(Concern("quiet", "Nothing arrives in bronze", "late", judgement.quiet_since))
    runs = all(each not in judgement.starting for each in judgement.of(INGEST))
    if judgement.source.is_starting and runs:
        is_known = judgement.source.condition != "unknown"
        text = "Ingest reads what waited for its start" if is_known else "Ingest is starting"
        made.append(Concern("source", text, "busy", past(judgement.source.since, of.now)))
    made += [_of_start(each, of) for each in judgement.starting]
    return made


def _of_start(state: DriverState, of: Situation) -> Concern:
    who = visible(described(state.kind, state.name), 60)
    group = state.name if find(state.kind).carries_games else None
    liveness = state.liveness
    does, since = "is starting", liveness.since if liveness.gone_since is None else liveness.gone_since
    if state.is_awaited:
        does, since = "has not started yet", of.judgement.starting_since
    return Concern(
        f"start_{state.kind}_{state.name}", f"{who[0].upper()}{who[1:]} {does}", "busy", past(since, of.now),
        group=group, is_of_group=group is not None,
    )  # fmt: skip


def _of_incident(incident: Incident, of: Situation) -> Concern:
    group, members = incident.group, [each for each in of.games if each.group == incident.group]
    shared = group is not None and incident.finding.scope == f"group {group}"
    is_of_group = shared and (incident.finding.cause != Cause.UNDETERMINED or 2 * len(incident.games) >= len(members))
    return Concern(
        f"incident_{incident.incident_id}", visible(incident.finding.title, _LONGEST),
        of_incident(incident, of.judgement.games), past(incident.since, of.now), incident.games, group, is_of_group,
        incident,
    )  # fmt: skip


def _uncovered(of: Situation) -> list[Problem]:
    """Return the problems of processes, operations and the store that no incident covers, which is as severe."""
    judgement = of.judgement
    silent = frozenset[tuple[str, str]]() if judgement.silence is None else judgement.silence.processes

    def is_covered(problem: Problem) -> bool:
        severity = _ORDER.index(_severity(problem, of))
        known = [each for each in of.opened if _ORDER.index(of_incident(each, judgement.games)) <= severity]
        if problem.kind == "store":
            return any(each.finding.cause == Cause.STORE for each in known)
        covers = find(problem.kind).covers
        return any(covers(each.finding.cause, each.finding.scope, problem.name) for each in known)

    problems = (each for each in judgement.problems if each.kind != "stream" or each.name not in judgement.games)
    return [each for each in problems if (each.kind, each.name) not in silent and not is_covered(each)]


def _severity(problem: Problem, of: Situation) -> Severity:
    state = of.judgement.driver(problem.kind, problem.name)
    if problem.text == of.judgement.source.sentence:
        return of_status(of.judgement.source.status)
    is_late = (
        find(problem.kind).is_late or problem.kind == "operation" or (state is not None and state.liveness.is_live)
    )
    return "late" if is_late else "bad"


def _of_problem(problem: Problem, of: Situation) -> Concern:
    state = of.judgement.driver(problem.kind, problem.name)
    since = None
    if problem.kind == "store" and of.judgement.silence is not None:
        since = of.judgement.silence.since
    elif state is not None and not state.liveness.is_live:  # when one that lives began is not when its trouble did
        since = state.liveness.since
    elif state is not None:
        since = of.judgement.source.since
    group = problem.name if find(problem.kind).carries_games else None
    note = visible(problem.note or problem.text, _LONGEST)
    return Concern(
        f"problem_{problem.kind}_{problem.name}", f"{note[:1].upper()}{note[1:]}",
        _severity(problem, of), past(since, of.now),
        tuple(each.game_key for each in of.games if group is not None and each.group == group), group,
        group is not None, problem=problem,
    )  # fmt: skip


def _of_streams(of: Situation) -> list[Concern]:
    """Return the streams that neither an incident nor their group names, those of a group in one status as one."""
    judgement = of.judgement
    down = {each.name for each in judgement.of(GROUP) if each.is_problem and not each.liveness.is_live}
    alike: dict[tuple[str | None, Status], list[SeenGame]] = {}
    for each in of.games:
        status = each.verdict.status
        is_said = each.game_key in of.incident_of or (each.group in down and status in _OF_DOWN)
        starts = status == Status.STARTING and not each.verdict.waits_for_ingest
        if (is_own_trouble(each.verdict) or starts) and not is_said:
            alike.setdefault((each.group, status), []).append(each)
    starting = {each.name for each in judgement.of(GROUP) if each in judgement.starting}
    return [
        _of_alike(group, status, members, of.now)
        for (group, status), members in alike.items()
        if status != Status.STARTING or group not in starting
    ]


def _of_alike(group: str | None, status: Status, members: Sequence[SeenGame], now: float) -> Concern:
    where = f"of group {visible(group, 40)}" if group is not None else "without a group"
    who = visible(members[0].game, 60) if len(members) == 1 else f"{len(members):,} streams {where}"
    since = [each.verdict.since for each in members if each.verdict.since is not None and each.verdict.since <= now]
    return Concern(
        f"streams_{status}_{group or ''}", f"{who} {status.lower().replace('_', ' ')}", of_status(status),
        min(since, default=None), tuple(each.game_key for each in members), group, status=status, rank=status.severity,
    )  # fmt: skip
