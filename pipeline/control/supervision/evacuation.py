"""Evacuates dead groups: the controller itself asks, once for each game, for moves to where the games fit.

Called after each look of the supervisor. A full group is reported and left alone, see docs/decisions/0011.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.control.operations import moves
from pipeline.control.roles import CONTROLLER
from pipeline.health.facts.loads import read_loads
from pipeline.health.verdicts.condition import Conditions, GroupCondition
from pipeline.health.verdicts.placement.capacity import Loads
from pipeline.health.verdicts.placement.planner import Placed, leaving, room_left
from pipeline.settings.tree import PlacementSettings
from pipeline.store.assignments import GameAssignment, read_assignments
from pipeline.store.operations import Intent, Operation, open_by_target, submit, submitted_under
from pipeline.store.reports import keep_waiting

_log = logging.getLogger("turnout")
_WATCHED_SECONDS: Final = 60.0  # after an outage of the store in which drivers must beat again before they are judged
_GAP_SECONDS: Final = 30.0  # between two looks, after which watching begins again
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
        key = f"evacuate-{self.group}-{self.since:.0f}"
        return [key, *(f"{key}/{number}" for number in range(2, _MAX_MOVES + 1))]


_NOBODY: Final[Mapping[str, Dead]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EvacuationPlan:
    """What is done for one dead group."""

    group: str
    intent: Intent | None  # None: there is nothing to ask for, any more or yet
    alarms: tuple[str, ...] = ()  # what a person should know; none where all of its games go
    staying: frozenset[str] = frozenset()  # keys of its games that cannot go


@dataclass(frozen=True, slots=True)
class Facts:
    """What the evacuation of dead groups depends on, at one moment."""

    submitted: Mapping[str, Operation]  # since they died, by key
    taken: Mapping[str, Operation]  # the open operations, by target
    assignments: Mapping[str, GameAssignment]
    groups: Mapping[str, GroupCondition]
    loads: Loads


def dead(
    look: Conditions, minutes: float, watched_since: float = 0.0, before: Mapping[str, Dead] = _NOBODY
) -> list[Dead]:
    """Return the groups that should run, have had no driver for `minutes`, and cannot be started from here.

    There are none in a mass failure. A start that is only tried changes nothing: who was dead `before` is, and nobody
    becomes so in it. Where the clock was set back since a group lived, it lived when the watch began.
    """
    dead_groups: list[Dead] = []
    for name, each in look.groups.items() if look.mass_failure is None else ():
        if each.desired != "running":
            continue
        if each.is_trying and name in before:
            dead_groups.append(before[name])
        if each.gone_since is None:
            continue
        since = each.gone_since if each.gone_since <= look.now else watched_since
        if look.now - since >= minutes * 60:
            why = f"no driver of it has lived for {(look.now - since) / 60:.0f} min, and {each.why_gone}"
            dead_groups.append(Dead(name, since, why))
    return dead_groups


def plan(dead_groups: Sequence[Dead], facts: Facts) -> list[EvacuationPlan]:
    """Return what is done for dead groups: of each go as many games as fit elsewhere and belong to no other operation.

    Where not all fit, those of high priority go first, whichever group they are in. Where all games of a group go, it
    is the drain that a person would ask for. A game that waits for another operation goes as soon as that has ended;
    one that was moved once, and is back, stays.
    """
    games = {each.group: _games_of(each, facts) for each in dead_groups}
    placed = leaving(_without_starts(facts), {name: each.going for name, each in games.items() if each.going})
    evacuations = (_planned_evacuation(each, games[each.group], placed, facts) for each in dead_groups)
    return [evacuation for evacuation in evacuations if evacuation.intent is not None or evacuation.alarms]


def _without_starts(facts: Facts) -> Loads:
    """Return the loads without drivers that start: a driver that fails each time is starting half of the time.

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
    placement: PlacementSettings
    alarms: tuple[str, ...] = ()  # what keeps games in dead groups
    _watched_since: float = 0.0
    _looked_at: float = float("-inf")
    _dead: dict[str, Dead] = field(default_factory=dict)  # as last judged, by group
    _kept: tuple[dict[str, int], set[str]] | None = None  # as last given to `keep_waiting`

    def tick(self, look: Conditions) -> None:
        """Submit the evacuations that are due."""
        now, minutes = look.now, self.placement.evacuate_after_minutes
        if not 0.0 <= now - self._looked_at <= _GAP_SECONDS:  # or the store's clock was set back
            self._watched_since = now
        self._looked_at = now
        wanted = [each for each in look.groups.values() if each.desired == "running"]
        trying = {each.name for each in wanted if each.is_trying}
        idle = {each.name for each in wanted if not each.has_process}
        self._dead = {name: each for name, each in self._dead.items() if name in trying | idle}
        if not minutes or not trying | idle:
            self._keep({}, set(), now)
        is_watched = now - self._watched_since >= _WATCHED_SECONDS
        if not minutes or not trying | idle or look.mass_failure is not None or not is_watched:
            self.alarms = ()  # what is kept stays as it is: nobody judges now
            return
        dead_groups = dead(look, minutes, self._watched_since, self._dead)
        unknown = trying - self._dead.keys()
        self._dead = {each.group: each for each in dead_groups}
        alarms, waiting = self._submit_evacuations(dead_groups, look) if dead_groups else ([], {})
        self.alarms = tuple(alarms)
        self._keep(waiting, unknown, now)

    def _keep(self, waiting: dict[str, int], unknown: set[str], now: float) -> None:
        """Write down how many games wait in dead groups, where that has changed; of whom is unknown nothing changes."""
        if (waiting, unknown) != self._kept:
            keep_waiting(self.engine, waiting, now, unknown)
            self._kept = waiting, unknown

    def _submit_evacuations(self, dead_groups: Sequence[Dead], look: Conditions) -> tuple[list[str], dict[str, int]]:
        """Submit the evacuation of dead groups; return the alarms, and how many games of each cannot go."""
        submitted = submitted_under(self.engine, [key for each in dead_groups for key in each.keys])
        loads = read_loads(self.engine, max_games=self.placement.max_games_per_group, look=look)
        names = {each.group for each in dead_groups}
        targets = [f"group:{name}" for name in names]
        targets += [f"game:{game.game_key}" for game in loads.games if game.group in names]
        taken = open_by_target(self.engine, targets)
        assignments = read_assignments(self.engine)
        alarms: list[str] = []
        waiting: dict[str, int] = {}
        facts = Facts(submitted, taken, assignments, look.groups, loads)
        for each in plan(dead_groups, facts):
            alarms += each.alarms
            staying = len(each.staying)
            waits = None if each.intent is None else self._submit(each.group, each.intent)
            if each.intent is not None and waits is not None:
                alarms.append(waits)
                staying += len(each.intent.preview)
            waiting |= {each.group: staying} if staying else {}
        return alarms, waiting

    def _submit(self, group: str, intent: Intent) -> str | None:
        """Submit an evacuation; return why it has to wait, None where it has not."""
        try:
            operation = submit(self.engine, intent)
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


def _planned_evacuation(group: Dead, games: _Games, placed: Placed, facts: Facts) -> EvacuationPlan:
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
        room = room_left(placed.after, name)
        alarms.append(f"{problem}. {count} games fit nowhere and stay: {join_limited(left)}; {room}.")
    new_groups = {each.game_key: each.target for each in placed.placements if each.source == name}
    if not new_groups:
        return EvacuationPlan(name, None, tuple(alarms), frozenset(staying))
    try:
        planned = moves.plan(new_groups, facts.assignments, facts.groups, facts.loads)
    except Refused as refused:  # such as a driver that fell silent between two looks into the store
        return EvacuationPlan(name, None, (*alarms, _postponed(name, refused)), frozenset(staying | new_groups.keys()))
    all_go = new_groups.keys() == games.all and f"group:{name}" not in facts.taken
    planned = replace(planned, desired={name: ("running", "drained")} if all_go else {})
    key = next(key for key in group.keys if key not in facts.submitted)
    intent = replace(planned.intent(CONTROLLER, f"{problem[0].upper()}{problem[1:]}."), idempotency_key=key)
    return EvacuationPlan(name, intent, tuple(alarms), frozenset(staying))


def _was_moved(operation: Operation, game: GameAssignment | None) -> bool:
    """Return whether an ended operation moved a game; if it failed before that, it may be submitted again."""
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
    return f"group {group} waits for its evacuation: {refused}"
