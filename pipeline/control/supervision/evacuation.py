"""Evacuates dead groups: the controller itself asks, once for each game, for moves to where the games fit.

Called after each look of the supervisor. A full group is reported and left alone, see docs/decisions/0011.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from sqlalchemy import Engine

from pipeline.control.operations import moves
from pipeline.control.processes.backends import process_of
from pipeline.control.roles import CONTROLLER
from pipeline.control.supervision.restart_policy import GroupObservation
from pipeline.errors import Refused
from pipeline.health.liveness import HEARTBEAT_SECONDS, RUNS, DriverFacts
from pipeline.lists import join_limited
from pipeline.placement.capacity import Loads
from pipeline.placement.planner import Placed, leaving, most_room
from pipeline.settings import Placement
from pipeline.store.assignments import GameAssignment, GroupDriver, read_assignments, read_group_drivers
from pipeline.store.evacuations import keep_waiting
from pipeline.store.groups import last_lived
from pipeline.store.liveness import read_drivers
from pipeline.store.loads import read_loads
from pipeline.store.operations import Intent, Operation, ask, asked_under, open_by_target

_log = logging.getLogger("turnout")
_TRIES: Final = 3  # starts that must have failed
_LIVED_SECONDS: Final = 120.0  # a run that lived so long was no failed start
_WATCHED_SECONDS: Final = 60.0  # so long nobody is judged after the store was away: drivers must beat again first
_GAP_SECONDS: Final = 30.0  # between two looks, after which watching begins again
_MOST_DOWN: Final = (
    "More than half of the groups that should run are down. That has one cause, so no group is evacuated: find what "
    "their drivers share."
)
_MAX_MOVES: Final = 20  # of one dead group: its games may come free of other operations one after the other


@dataclass(frozen=True, slots=True)
class Dead:
    """A group that no driver carries and that the controller cannot start."""

    group: str
    since: float  # when a driver of it was last known to live, Unix seconds by the store's clock
    why: str  # what is the matter, for a sentence

    @property
    def keys(self) -> list[str]:
        """The keys its moves are submitted under, in their order; others each time that it dies."""
        key = f"relieve-{self.group}-{self.since:.0f}"
        return [key, *(f"{key}/{number}" for number in range(2, _MAX_MOVES + 1))]


_NOBODY: Final[Mapping[str, Dead]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Relief:
    """What is done for one dead group."""

    group: str
    intent: Intent | None  # None: there is nothing to ask for, any more or yet
    alarms: tuple[str, ...] = ()  # what a person should know; none where all of its games go
    staying: frozenset[str] = frozenset()  # keys of its games that cannot go


@dataclass(frozen=True, slots=True)
class Facts:
    """What the relief of dead groups depends on, at one moment."""

    submitted: Mapping[str, Operation]  # since they died, by key
    taken: Mapping[str, Operation]  # the open operations, by target
    assignments: Mapping[str, GameAssignment]
    groups: Mapping[str, GroupDriver]
    loads: Loads
    is_complete: bool = True  # of every game it is known where it is


def dead(
    groups: Sequence[GroupObservation],
    drivers: DriverFacts,
    lived: Mapping[str, float],
    minutes: float,
    before: Mapping[str, Dead] = _NOBODY,
) -> list[Dead] | None:
    """Return the groups that should run, have had no driver for so many minutes, and cannot be started from here.

    None where more than half of the groups are down, since they share a cause then. `lived` is what `last_lived`
    returns. A lease that runs is a driver's, whatever its heartbeats say: only the minutes make a silent group dead.
    A start that is only tried changes nothing: who was dead `before` is, and nobody becomes so in it.
    """
    enabled = [seen for seen in groups if seen.group.desired != "stopped"]
    down = [seen for seen in enabled if _is_down(seen, drivers)]
    if 2 * len(down) > len(enabled):
        return None
    dead_groups = []
    for seen in down:
        name = seen.group.name
        if seen.group.desired != "running" or seen.defect is not None:
            continue
        each: Dead | None
        if _has_process(seen):
            each = before.get(name)
        elif seen.group.backend == "none":
            each = _left_alone(name, drivers, minutes)
        else:
            each = _unstartable(seen, drivers, lived.get(name), minutes)
        dead_groups += [each] if each is not None else []
    return dead_groups


def plan(dead_groups: Sequence[Dead], facts: Facts) -> list[Relief]:
    """Return what is done for dead groups: of each go as many games as fit elsewhere and belong to no other operation.

    Where not all fit, those of high priority go first, whichever group they are in. Where all games of a group go, it
    is the drain that a person would ask for. A game that waits for another operation goes as soon as that has ended;
    one that was moved once, and is back, stays.
    """
    games = {each.group: _games_of(each, facts) for each in dead_groups}
    placed = leaving(_without_starts(facts), {name: each.going for name, each in games.items() if each.going})
    reliefs = (_relief(each, games[each.group], placed, facts) for each in dead_groups)
    return [relief for relief in reliefs if relief.intent is not None or relief.alarms]


def _without_starts(facts: Facts) -> Loads:
    """Return the loads as if a driver that starts were none: one that fails each time is starting half of the time.

    Games would wait in its group for ever. A person may move them there all the same.
    """
    starting = {name for name, each in facts.groups.items() if each.liveness.state == "starting"}
    groups = {
        name: replace(each, alive=None) if name in starting else each for name, each in facts.loads.groups.items()
    }
    return replace(facts.loads, groups=groups)


@dataclass(slots=True)
class Evacuator:
    """Evacuates dead groups; what was submitted is in the store, so a controller that follows does not ask again."""

    engine: Engine
    placement: Placement
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    alarms: tuple[str, ...] = ()  # what keeps games in dead groups
    _watched_since: float = 0.0
    _looked_at: float = float("-inf")
    _dead: dict[str, Dead] = field(default_factory=dict)  # as last judged, by group
    _kept: tuple[dict[str, int], set[str]] | None = None  # as last given to `keep_waiting`

    def tick(self, groups: Sequence[GroupObservation], failure: str | None, now: float) -> None:
        """Ask for what is to be done now: `groups` were seen at `now` by the store, `failure` is a mass failure."""
        if not 0.0 <= now - self._looked_at <= _GAP_SECONDS:  # or the store's clock was set back
            self._watched_since = now
        self._looked_at = now
        watched = now - self._watched_since >= _WATCHED_SECONDS
        wanted = [seen for seen in groups if seen.group.desired == "running"]
        trying = {seen.group.name for seen in wanted if _only_tries(seen, now)}
        if groups:  # else it is not known who lives
            without_process = {seen.group.name for seen in wanted if not _has_process(seen)}
            self._dead = {name: each for name, each in self._dead.items() if name in trying | without_process}
        is_quiet = all(_has_process(seen) and seen.group.name not in trying for seen in wanted)
        if not self.placement.evacuate_after_minutes or (groups and is_quiet):
            self._keep({}, set(), now)
        if not self.placement.evacuate_after_minutes or failure is not None or not watched or is_quiet:
            self.alarms = ()  # what is kept stays as it is: nobody judges now
            return
        # What lies ahead is of before the store's clock was set back: so long ago as it is being watched, or longer.
        lived = {
            name: at if at <= now else self._watched_since
            for name, at in last_lived(self.engine, _LIVED_SECONDS).items()
        }
        minutes = self.placement.evacuate_after_minutes
        dead_groups = dead(groups, read_drivers(self.engine, self.heartbeat_seconds, now), lived, minutes, self._dead)
        if dead_groups is None:  # what is kept stays as it is, too
            self.alarms = (_MOST_DOWN,)
            return
        unknown = {seen.group.name for seen in groups if seen.defect is not None} | (trying - self._dead.keys())
        self._dead = {each.group: each for each in dead_groups}
        alarms, waiting = self._relieved(dead_groups, now) if dead_groups else ([], {})
        self.alarms = tuple(alarms)
        self._keep(waiting, unknown, now)

    def _keep(self, waiting: dict[str, int], unknown: set[str], now: float) -> None:
        """Write down how many games wait in dead groups, where that has changed; of whom is unknown nothing changes."""
        if (waiting, unknown) != self._kept:
            keep_waiting(self.engine, waiting, now, unknown)
            self._kept = waiting, unknown

    def _relieved(self, dead_groups: Sequence[Dead], now: float) -> tuple[list[str], dict[str, int]]:
        """Ask for the relief of dead groups; return what a person should know, and how many games cannot go of each."""
        submitted = asked_under(self.engine, [key for each in dead_groups for key in each.keys])
        loads = read_loads(self.engine, now, self.placement.max_games_per_group, self.heartbeat_seconds)
        names = {each.group for each in dead_groups}
        targets = [f"group:{name}" for name in names]
        targets += [f"game:{game.game_key}" for game in loads.games if game.group in names]
        taken = open_by_target(self.engine, targets)
        assignments = read_assignments(self.engine)
        groups = read_group_drivers(self.engine, self.heartbeat_seconds, now)
        alarms: list[str] = []
        waiting: dict[str, int] = {}
        facts = Facts(submitted, taken, assignments, groups, loads)
        for each in plan(dead_groups, facts):
            alarms += each.alarms
            staying = len(each.staying)
            waits = None if each.intent is None else self._ask(each.group, each.intent)
            if each.intent is not None and waits is not None:
                alarms.append(waits)
                staying += len(each.intent.preview)
            waiting |= {each.group: staying} if staying else {}
        return alarms, waiting

    def _ask(self, group: str, intent: Intent) -> str | None:
        """Ask for a relief; return why it has to wait, None where it has not."""
        try:
            operation = ask(self.engine, intent)
        except Refused as refused:  # such as a game that belongs to another operation now: the next look asks again
            return _postponed(group, refused)
        _log.warning("operation %s: %s", operation.operation_id[:8], intent.reason)
        return None


@dataclass(frozen=True, slots=True)
class _Games:
    """The games of a dead group."""

    all: set[str]
    still: list[str]  # were moved once, and are back, or could not go
    waits: dict[str, Operation]  # belong to another operation
    going: set[str]


def _games_of(group: Dead, facts: Facts) -> _Games:
    own_keys = {game.game_key for game in facts.loads.games if game.group == group.group}
    earlier = [facts.submitted[key] for key in group.keys if key in facts.submitted]
    under_way = {key for each in earlier if each.is_open for key in each.preview}
    ended = {
        key
        for each in earlier
        if not each.is_open
        for key in each.preview
        if _was_moved(each, facts.assignments.get(key))
    }
    new = own_keys - under_way - ended
    waits = {key: facts.taken[f"game:{key}"] for key in sorted(new) if f"game:{key}" in facts.taken}
    going = new - waits.keys()
    if len(earlier) == _MAX_MOVES:
        ended, going = ended | going, set()
    return _Games(own_keys, sorted(own_keys & ended), waits, going)


def _relief(group: Dead, games: _Games, placed: Placed, facts: Facts) -> Relief:
    name, problem = group.group, f"group {group.group} is dead: {group.why}"
    alarms: list[str] = []
    staying = {*games.still, *games.waits}
    if games.still:
        hint = f"Run `turnout groups drain {name}` where others have room, or start it"
        alarms.append(f"{problem}. {len(games.still)} games are still in it: {join_limited(games.still)}. {hint}.")
    if games.waits:
        alarms.append(f"{problem}. {_waiting(games)}")
    if left := [each.game.game_key for each in placed.unplaced if each.game.group == name]:
        staying |= {*left}
        count = f"{len(left)} of its {len(games.all)}"
        room = most_room(placed.after, name)
        alarms.append(f"{problem}. {count} games fit nowhere and stay: {join_limited(left)}; {room}.")
    new_groups = {each.game_key: each.target for each in placed.placements if each.source == name}
    if not new_groups:
        return Relief(name, None, tuple(alarms), frozenset(staying))
    try:
        planned = moves.plan(new_groups, facts.assignments, facts.groups, facts.loads)
    except Refused as refused:  # such as a driver that fell silent between two looks into the store
        return Relief(name, None, (*alarms, _postponed(name, refused)), frozenset(staying | new_groups.keys()))
    is_free = facts.is_complete and f"group:{name}" not in facts.taken
    all_go = new_groups.keys() == games.all and is_free
    planned = replace(planned, desired={name: ("running", "drained")} if all_go else {})
    key = next(key for key in group.keys if key not in facts.submitted)
    intent = replace(planned.intent(CONTROLLER, f"{problem[0].upper()}{problem[1:]}."), idempotency_key=key)
    return Relief(name, intent, tuple(alarms), frozenset(staying))


def _was_moved(operation: Operation, game: GameAssignment | None) -> bool:
    """Tell whether an operation that has ended has moved a game; one that failed before may be submitted again."""
    return game is None or operation.state != "failed" or game.epoch > operation.preview[game.game_key][-1]


def _waiting(games: _Games) -> str:
    """Say which games wait for which operations."""
    by_operation: dict[str, list[str]] = {}
    for key, operation in games.waits.items():
        by_operation.setdefault(operation.operation_id[:8], []).append(key)
    named = []
    for operation_id, keys in by_operation.items():
        operation = games.waits[keys[0]]
        named.append(f"{join_limited(keys)} for {operation_id}, a {operation.kind} that is {operation.state}")
    count = f"{len(games.waits)} of its {len(games.all)}"
    hint = "`turnout ops show` tells what it waits for"
    return f"{count} games wait for another operation: {join_limited(named)}. {hint}."


def _postponed(group: str, refused: Refused) -> str:
    return f"group {group} waits for its relief: {refused}"


def _has_process(seen: GroupObservation) -> bool:
    return seen.run is not None or seen.holder is not None


def _only_tries(seen: GroupObservation, now: float) -> bool:
    """Tell whether a group's driver is being started after one that died, and has not been seen to run yet."""
    if seen.run is None or seen.holder is not None or seen.is_reported or not seen.ended:
        return False
    return seen.ended[0].died and now - seen.run.started_at < _LIVED_SECONDS


def _is_down(seen: GroupObservation, drivers: DriverFacts) -> bool:
    """Tell whether a group had a driver, or tries to start one, and has none now."""
    if _has_process(seen):
        return _only_tries(seen, drivers.now) and not _reports(seen, drivers)
    if seen.group.backend == "none":
        judged = drivers.judge("group", seen.group.name)
        return judged.state not in {"not_started", "stopped"} and not drivers.may_live("group", seen.group.name)
    return bool(seen.ended)


def _reports(seen: GroupObservation, drivers: DriverFacts) -> bool:
    """Tell whether the process of a group's run has reported that it runs, also where there are no leases."""
    driver, run = drivers.drivers.get(("group", seen.group.name)), seen.run
    process = process_of(run.reference or "") if run is not None else None
    return driver is not None and driver.state in RUNS and process is not None and driver.pid == process.pid


def _left_alone(name: str, drivers: DriverFacts, minutes: float) -> Dead | None:
    """Judge a group that another tool starts; one whose driver has ended in order was stopped on purpose."""
    driver, judged = drivers.drivers.get(("group", name)), drivers.judge("group", name)
    if driver is None or driver.defect is not None:
        return None  # nobody knows when it was last heard of
    silent = drivers.now - driver.heartbeat_at
    if driver.state == "stopped" or silent < minutes * 60:
        return None
    why = f"{judged.silence}, was last heard of {silent / 60:.0f} min ago, and turnout does not start it"
    return Dead(name, driver.heartbeat_at, why)


def _unstartable(seen: GroupObservation, drivers: DriverFacts, lived: float | None, minutes: float) -> Dead | None:
    """Judge a group that the controller starts. One whose driver starts and dies of its work is not relieved.

    The game that kills it would kill the next one; `isolation` parts it from the others.
    """
    driver, now = drivers.drivers.get(("group", seen.group.name)), drivers.now
    if lived is None or now - lived < minutes * 60 or (driver is not None and driver.defect is not None):
        return None
    tries = [run for run in seen.ended if run.died and (run.ended_at or 0.0) > lived]
    if len(tries) < _TRIES:
        return None
    processes = (process_of(run.reference or "") for run in tries[:_TRIES])
    if driver is not None and driver.state in RUNS and driver.pid in {each.pid for each in processes if each}:
        return None
    silence = f"no driver of it has lived for {(now - lived) / 60:.0f} min"
    return Dead(seen.group.name, lived, f"{silence}, and the last start ended with: {tries[0].exit_message}")
