"""Is the fleet healthy: one judgement of drivers, streams, groups and operations.

The command line, the pages and the alerts show this and nothing else. Pure: what is known is an argument, and `now` is
the control store's time. What is not known is never healthy.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final

from listeners.process_kinds import CONTROLLER, GROUP, INGEST, ONLY, described
from listeners.sample import StreamState
from listeners.status import STATUSES, Status
from pipeline.base.texts import join_limited
from pipeline.health.verdicts.condition import Conditions, GroupCondition, judge_group, judge_groups
from pipeline.health.verdicts.liveness import Liveness, controller_absence, heartbeat_limit
from pipeline.health.verdicts.processes import DriverState, FleetFacts, ProcessKind, how, plural, unregistered
from pipeline.health.verdicts.reported import AssignedGame
from pipeline.health.verdicts.silence import Silence, find_silence
from pipeline.health.verdicts.source import NOT_KNOWN, SourceState, quiet_since
from pipeline.health.verdicts.starting import since_when, starting_since
from pipeline.store.rows import CLOCK_BOUND_SECONDS, START_LIMIT_SECONDS, Driver

_OF_FAILED: Final = frozenset({Status.PAUSED, Status.FAILED, Status.CRASH_LOOP})
"""What a driver can know of streams whose query failed."""

_MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class StreamVerdict:
    """A status that may be shown, since when (None is unknown), and the reason when it is not the driver's own word."""

    status: Status
    since: float | None
    reason: str | None
    waits_for: str | None = None  # "waits for schema …", as its driver reports
    waits_for_ingest: bool = False  # it has all of bronze, as its driver reports, and its source is late or unknown
    is_unheard: bool = False  # its driver cannot report, as the control store takes no writes


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing at which a person should look."""

    kind: str  # store, stream, operation, or a kind of process
    name: str  # of the driver or game; empty for operations and the store
    text: str
    note: str = ""  # the same as a clause; empty for streams


@dataclass(frozen=True, slots=True)
class GroupNote:
    """What the headline says of some groups."""

    text: str
    groups: tuple[str, ...]  # that it names or counts


@dataclass(frozen=True)
class Judgement:
    """How the fleet is."""

    drivers: tuple[DriverState, ...]  # in the order of the kinds of processes: the groups come last of ours
    games: Mapping[str, StreamVerdict]  # by game key
    problems: tuple[Problem, ...]  # none: no person should look
    notes: tuple[str, ...]  # clauses of the headline: what else is wrong, or nearly so
    conditions: Conditions  # of the registered groups
    supervised_groups: int = 0  # whose drivers the controller should keep running
    source: SourceState = NOT_KNOWN
    group_notes: tuple[GroupNote, ...] = ()  # what the headline says of groups: those down, silent or degraded
    silence: Silence | None = None  # that all processes fell silent at one moment, which explains their problems
    kinds: tuple[str, ...] = ()  # the kinds of processes that were judged
    starting_since: float | None = None  # when the environment began to start; None: it does not
    quiet_since: float | None = None  # when the last row arrived, where ingest runs and that is too long ago

    @property
    def healthy(self) -> bool:
        """Whether there is nothing at which a person should look."""
        return not self.problems

    @property
    def now(self) -> float:
        """The moment that was judged, Unix seconds by the store's clock."""
        return self.conditions.now

    @property
    def headline(self) -> str:
        """The condition in one sentence, without incidents."""
        return "; ".join((self.streams(), *self.notes))

    def streams(self, *, is_calm: bool = True) -> str:
        """Say how the streams are: healthy only where nothing is wrong, silent or starting, here or with incidents."""
        is_calm = is_calm and not (self.problems or self.starting or self.quiet_since is not None)
        return _streams_sentence(self.games, "healthy" if is_calm and self.source.may_be_level else "level with bronze")

    @property
    def starting(self) -> tuple[DriverState, ...]:
        """The processes that should run, and were started just now, are awaited, or wait for storage in a start."""
        stopped = {name for name, each in self.conditions.groups.items() if each.desired == "stopped"}
        unwanted = [each for each in self.of(GROUP) if each.name in stopped]
        return tuple(
            each
            for each in self.drivers
            if (each.is_awaited or each.is_slow_start or each.liveness.state == "starting") and each not in unwanted
        )

    @cached_property
    def _states(self) -> Mapping[tuple[str, str], DriverState]:
        return {(each.kind, each.name): each for each in self.drivers}

    def driver(self, kind: str, name: str) -> DriverState | None:
        """Return the state of one driver, None where none should run and none ever did."""
        return self._states.get((kind, name))

    def of(self, kind: str) -> tuple[DriverState, ...]:
        """Return the states of the processes of one kind, by name."""
        return tuple(each for each in self.drivers if each.kind == kind)

    @property
    def stopped_groups(self) -> tuple[str, ...]:
        """The groups that do not run and need not, such as those that were stopped on purpose."""
        heard = (each for each in self.of(GROUP) if not self.is_unheard(GROUP, each.name))
        return tuple(each.name for each in heard if not (each.is_problem or each.is_awaited or each.liveness.is_live))

    @property
    def wanted_groups(self) -> Mapping[str, bool]:
        """Whether each group that should run is down; a start after a death is down until the driver runs.

        A group that a control store without writes silences is not in it: nobody knows.
        """
        stopped, conditions = set(self.stopped_groups), self.conditions.groups
        found = {}
        for each in self.of(GROUP):
            if each.name not in stopped and not self.is_unheard(GROUP, each.name):
                condition = conditions.get(each.name)
                loops = condition is not None and condition.desired != "stopped" and condition.is_trying
                found[each.name] = loops or not (each.liveness.is_live or each.is_awaited)
        return found

    def is_unheard(self, kind: str, name: str) -> bool:
        """Return whether a control store without writes keeps a process from reporting: nobody knows how it is."""
        return self.silence is not None and (kind, name) in self.silence.unheard

    @property
    def controller_runs(self) -> bool:
        """Whether a controller brings operations on and keeps drivers running."""
        return self.controller_absence is None

    @property
    def controller_absence(self) -> str | None:
        """Return a clause that no controller acts; None where one does."""
        state = self.driver(CONTROLLER, ONLY)
        return controller_absence(None if state is None else state.liveness)

    def count_problems(self) -> Mapping[str, int]:
        """Return how many problems there are of each kind, 0 included."""
        kinds = ("store", "stream", *self.kinds, "operation")
        return {kind: sum(each.kind == kind for each in self.problems) for kind in kinds}


def judge_fleet(facts: FleetFacts, kinds: Sequence[ProcessKind]) -> Judgement:
    """Judge the whole fleet; `kinds` are those of `pipeline.health.kinds`, in the order in which they are named.

    Problems are: a control store that takes no writes, or what else silences all processes at one moment; a stream from
    AT_RISK on; a group that should run and does not, unless it was stopped on purpose, and then its games are PAUSED;
    ingest that does not run, or of whose source too much waits or nothing is known; a controller that died or does not
    run though it is needed; maintenance that died or is overdue; operations that need a person. That a source is late
    is one problem, and none of each of its streams; a store that takes no writes is the one problem of all whom it
    keeps from reporting.
    """
    silence = find_silence(facts, facts.store_refusal)
    unheard = frozenset[tuple[str, str]]() if silence is None else silence.unheard
    facts = replace(facts, unheard=unheard)
    if facts.supervised_groups:  # elsewhere nothing but people starts processes
        facts = replace(facts, starting_since=starting_since(facts))
    conditions = judge_groups(facts)
    facts = replace(facts, conditions={**conditions.groups, **_judge_others(facts)})
    kinds = [*kinds, *map(unregistered, sorted({kind for kind, _ in facts.drivers} - {each.name for each in kinds}))]
    judged = {each.name: tuple(each.judge(facts)) for each in kinds}
    ingest = judged[INGEST][0]
    source = facts.source_state(ingest.liveness)
    verdicts = {each.game_key: judge_game(each, facts.conditions.get(each.group or ""), facts) for each in facts.games}
    games = {key: _behind_source(each, source) for key, each in verdicts.items()}
    counted = [(kind, each) for kind in kinds for each in judged[kind.name] if not _is_excused(kind, each, facts)]
    problems = (
        *([Problem("store", "", silence.text(facts.now), silence.note)] if silence is not None else []),
        *(_problem(kind, each, facts) for kind, each in counted if each.is_problem),
        *(
            [Problem(INGEST, ingest.name, source.sentence, source.sentence)]
            if source.is_problem and not ingest.is_problem
            else []
        ),
        *_operation_problems(facts),
        *(Problem("stream", key, each.status) for key, each in games.items() if _is_trouble(each)),
    )
    groups = _group_notes(judged.get(GROUP, ()), games, facts)
    if silence is not None:
        groups = [GroupNote(silence.note, ()), *groups]
    notes = [
        *(each.text for each in groups),
        *(note for kind, each in counted for note in kind.notes(each, facts)),
        *([_need_person(facts.stuck_operations)] if facts.stuck_operations else []),
    ]
    return Judgement(
        tuple(chain.from_iterable(judged.values())),
        games,
        problems,
        tuple(notes),
        conditions,
        facts.supervised_groups,
        source,
        tuple(groups),
        silence,
        tuple(judged),
        facts.starting_since,
        quiet_since(source, facts.newest_bronze_at, ingest.liveness, facts.now),
    )


def _problem(kind: ProcessKind, state: DriverState, facts: FleetFacts) -> Problem:
    note = "; ".join(kind.notes(state, facts)) or f"{described(state.kind, state.name)} {_how(state.liveness)}"
    return Problem(state.kind, state.name, kind.problem(state, facts), note)


def _how(liveness: Liveness) -> str:
    return _clause(liveness.reason) if liveness.is_live else how(liveness)


def _judge_others(facts: FleetFacts) -> Mapping[str, GroupCondition]:
    """Judge the groups that are not registered and have a driver, or carry a game."""
    names = {*facts.names(GROUP), *(each.group for each in facts.games if each.group is not None)}
    return {name: judge_group(facts, name) for name in names - facts.groups.keys()}


def judge_game(game: AssignedGame, condition: GroupCondition | None, facts: FleetFacts) -> StreamVerdict:
    """Decide what may be shown of a game; `condition` is of its group.

    The driver's word counts only while the driver runs, carries the game, and has reported it in its present run; that
    its query failed counts too, until it is silent.
    """
    group, reported = game.group, game.reported
    if game.retired_at is not None:
        return StreamVerdict(
            Status.PAUSED, game.retired_at, "it is retired: its rows stay in bronze, and no group carries it"
        )
    if group is None or condition is None:
        return StreamVerdict(Status.MISSING, None, "no cluster group carries this game")
    liveness = condition.liveness
    if reported is not None and _is_failing_word(condition, reported, facts):  # also of a group that is to be stopped
        return StreamVerdict(Status(reported.status), reported.status_since, None, reported.waits_for)
    if condition.desired == "stopped" and not liveness.is_live:
        return StreamVerdict(
            Status.PAUSED, None, f"group {group} is stopped on purpose: `turnout groups start {group}` starts it"
        )
    if condition.is_supervised and facts.awaits(liveness):
        return StreamVerdict(Status.STARTING, facts.starting_since, f"group {group} has not started yet")
    if liveness.state == "not_started":
        return StreamVerdict(Status.UNKNOWN, None, f"group {group} has no driver yet: it was never started")
    last = f"; last report: {reported.status}" if reported is not None else ""
    if not liveness.is_live:
        is_unheard = (GROUP, group) in facts.unheard
        return StreamVerdict(
            Status.UNKNOWN, liveness.since, f"its driver {liveness.reason}{last}", is_unheard=is_unheard
        )
    if reported is None:
        return StreamVerdict(Status.STARTING, None, f"group {group} has not reported this game yet")
    if reported.group != group:
        return StreamVerdict(
            Status.STARTING, None, f"assigned to group {group}, last reported by group {reported.group}"
        )
    driver = facts.drivers.get((GROUP, group))
    return _judge_report(condition, reported, driver, facts) or StreamVerdict(
        Status(reported.status), since_when(reported, liveness, driver), None, reported.waits_for
    )


def _behind_source(verdict: StreamVerdict, source: SourceState) -> StreamVerdict:
    """Return what may be said of a stream beyond bronze: it is no better than its source."""
    if verdict.reason is not None or not verdict.status.is_level or source.may_be_level:
        return verdict
    reason = f"{source.sentence}; last report: {verdict.status}"
    return StreamVerdict(source.status, source.since, reason, waits_for_ingest=True)


def _is_trouble(verdict: StreamVerdict) -> bool:
    return verdict.status.is_trouble and not verdict.waits_for_ingest and not verdict.is_unheard


def _is_excused(kind: ProcessKind, driver: DriverState, facts: FleetFacts) -> bool:
    """Return whether a control store without writes is all that is wrong with a driver."""
    return (driver.kind, driver.name) in facts.unheard and not kind.is_overdue(facts)


def _judge_report(
    condition: GroupCondition, reported: StreamState, driver: Driver | None, facts: FleetFacts
) -> StreamVerdict | None:
    """Return why a living driver's report of a stream does not count, None where it does."""
    now, liveness, group = facts.now, condition.liveness, condition.name
    if liveness.state == "starting" or driver is None or reported.updated_at < driver.started_at:
        waits = f"has not reported this game yet; last report of the run before: {reported.status}"
        since = liveness.since
        if _is_normal_start(condition, reported, now):
            began = since if liveness.gone_since is None else liveness.gone_since
            lasts = "" if began is None else f", for {max(0.0, now - began):.0f} s,"
            return StreamVerdict(Status.STARTING, began, f"its driver is starting{lasts} and {waits}")
        ago = "" if since is None else f" {max(0.0, now - since):.0f} s ago"
        return StreamVerdict(Status.UNKNOWN, since, f"its driver was started{ago} and {waits}")
    quiet = now - reported.updated_at
    if quiet < -CLOCK_BOUND_SECONDS:
        return StreamVerdict(Status.UNKNOWN, None, f"its last report is {-quiet:.0f} s in the future: a clock is wrong")
    if quiet > heartbeat_limit(facts.heartbeat_seconds):
        silent = f"group {group} beats, but reported nothing about this game for {quiet:.0f} s"
        return StreamVerdict(Status.UNKNOWN, reported.updated_at, f"{silent}; last report: {reported.status}")
    if reported.status not in STATUSES:
        return StreamVerdict(
            Status.UNKNOWN, reported.status_since, "its driver reported a status this version does not know"
        )
    return None


def _is_failing_word(condition: GroupCondition, reported: StreamState, facts: FleetFacts) -> bool:
    """Return whether a driver whose query just failed, and which tries again, said so of its streams: that is known."""
    driver = facts.drivers.get((GROUP, condition.name))
    if condition.liveness.state != "failed" or condition.liveness.is_over or driver is None:
        return False
    is_new = driver.started_at <= reported.updated_at
    is_fresh = -CLOCK_BOUND_SECONDS <= facts.now - reported.updated_at <= heartbeat_limit(facts.heartbeat_seconds)
    return reported.group == condition.name and is_new and is_fresh and reported.status in _OF_FAILED


def _is_normal_start(condition: GroupCondition, reported: StreamState, now: float) -> bool:
    """Return whether a driver that has not reported a stream yet is in a start that needs nobody.

    It began a moment ago; and the run before reported the stream until then, or nothing died under the controller. A
    driver that fails at each start is starting half of the time: its streams become unknown, and a person looks.
    """
    limit, since = START_LIMIT_SECONDS, condition.liveness.since
    if since is None or not -CLOCK_BOUND_SECONDS <= now - since <= limit:
        return False
    is_recent = -CLOCK_BOUND_SECONDS <= now - reported.updated_at <= limit
    return is_recent or (condition.is_supervised and not condition.deaths)


def _operation_problems(facts: FleetFacts) -> list[Problem]:
    """Return what is wrong with open operations; that they wait is the controller's problem."""
    text = _need_person(facts.stuck_operations)
    return [Problem("operation", "", text, text)] if facts.stuck_operations else []


def _streams_sentence(games: Mapping[str, StreamVerdict], well: str) -> str:
    if not games:
        return "No games yet"
    counts = Counter(Status.RUNNING if each.waits_for_ingest else each.status for each in games.values())
    amounts = {"failing": sum(counts[status] for status in Status if status.is_bad)}
    amounts |= {_word(status): counts[status] for status in reversed(Status) if status.is_late}
    bad = [(amount, name) for name, amount in amounts.items() if amount]
    streams = plural(len(games), "stream")
    if bad:
        (first, name), *others = bad
        return ", ".join([f"{first} of {streams} {name}", *(f"{amount} {other}" for amount, other in others)])
    busy = [
        f"{counts[status]} {_word(status)}"
        for status in reversed(Status)
        if counts[status] and status not in {Status.RUNNING, Status.STARTING}
    ]
    if starting := counts[Status.STARTING]:  # nothing is known to be well before a row has landed, or none waits
        are_starting = f"{streams} starting" if starting == len(games) else f"{starting} of {streams} starting"
        return ", ".join([are_starting, *busy])
    return f"{streams} {well} ({', '.join(busy)})" if busy else f"{streams} {well}"


def _word(status: Status) -> str:
    return status.lower().replace("_", " ")


def _group_notes(
    groups: Sequence[DriverState], games: Mapping[str, StreamVerdict], facts: FleetFacts
) -> list[GroupNote]:
    """Name the groups that are down or silent, those with another problem, and those of which half is in trouble."""
    gone = [each for each in groups if each.is_problem and not each.liveness.is_live]
    down = [each.name for each in gone if each.liveness.state != "unknown"]
    silent = [
        each.name for each in gone if each.liveness.state == "unknown" and (GROUP, each.name) not in facts.unheard
    ]
    named = {"down": down, "silent": silent}
    notes = [
        GroupNote(f"{plural(len(names), 'group')} {word} ({join_limited(names, _MAX_NAMED)})", tuple(names))
        for word, names in named.items()
        if names
    ]
    unrunning = {each.name for each in gone}
    verdicts: dict[str, list[bool]] = {}
    for game in facts.games:
        verdicts.setdefault(game.group or "", []).append(_is_trouble(games[game.game_key]))
    for each in groups:
        members = verdicts.get(each.name, [])
        if each.name in unrunning:
            continue
        if each.is_problem:
            notes.append(GroupNote(f"group {each.name} {_clause(each.liveness.reason)}", (each.name,)))
        elif len(members) > 1 and 2 * sum(members) >= len(members):
            notes.append(GroupNote(f"group {each.name} degraded ({sum(members)} of {len(members)})", (each.name,)))
    return notes


def _clause(reason: str | None) -> str:
    """Return the beginning of a predicate, for a headline."""
    return "needs a person" if reason is None else re.split(r"[,:.](?=\s|$)", reason)[0]


def _need_person(count: int) -> str:
    return f"{plural(count, 'operation')} {'needs' if count == 1 else 'need'} a person"
