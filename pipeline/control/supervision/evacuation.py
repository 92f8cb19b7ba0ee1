"""Relieves dead groups: the controller itself asks, once, for the move of their games to where they fit.

Called after each look of the supervisor. A full group is told of and left alone, see docs/decisions/0011.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Engine

from pipeline.control.operations import moves
from pipeline.control.operations.executor import join_limited
from pipeline.control.placement.planner import leaving, most_room
from pipeline.control.processes.backends import process_of
from pipeline.control.roles import CONTROLLER
from pipeline.control.supervision.restart_policy import GroupObservation
from pipeline.errors import Refused
from pipeline.settings import Placement
from pipeline.store.assignments import GameAssignment, GroupDriver, read_assignments, read_group_drivers
from pipeline.store.fleet import Driver, group_drivers
from pipeline.store.groups import last_lived
from pipeline.store.loads import read_loads
from pipeline.store.operations import Intent, ask, asked_under
from pipeline.store.placing import Loads

_log = logging.getLogger("turnout")
_TRIES: Final = 3  # starts that must have come to nothing
_LIVED_SECONDS: Final = 120.0  # a run that lived so long was no failed start
_WATCHED_SECONDS: Final = 60.0  # so long nobody is judged after the store was away: drivers must beat again first
_GAP_SECONDS: Final = 30.0  # between two looks, after which watching begins anew


@dataclass(frozen=True, slots=True)
class Dead:
    """A group that no driver carries and that the controller cannot start."""

    group: str
    since: float  # when a driver of it was last known to live, Unix seconds by the clock of who knew
    why: str  # what is the matter, for a sentence

    @property
    def key(self) -> str:
        """What its relief is asked for under, once for each time that it dies."""
        return f"relieve-{self.group}-{self.since:.0f}"


@dataclass(frozen=True, slots=True)
class Relief:
    """What is done for one dead group."""

    group: str
    intent: Intent | None  # None: there is nothing to ask for, any more or yet
    alarm: str | None  # what a person should know; None: all of its games go


def dead(
    groups: Sequence[GroupObservation],
    drivers: Mapping[str, Driver],
    lived: Mapping[str, float],
    now: float,
    clock: float,
    minutes: float,
) -> list[Dead]:
    """Return the groups that shall run, have had no driver for so many minutes, and cannot be started from here.

    None where more than half of the groups are down, since they share a cause then. `lived` is what `last_lived` tells,
    `now` the time of the store, `clock` that of this machine, by which drivers beat; Unix seconds.
    """
    shall = [seen for seen in groups if seen.group.desired != "stopped"]
    down = [seen for seen in shall if _is_down(seen, drivers.get(seen.group.name), clock)]
    if 2 * len(down) > len(shall):
        return []
    found = []
    for seen in down:
        name = seen.group.name
        if seen.group.desired != "running" or seen.group.defect is not None:
            continue
        if seen.group.backend == "none":
            each = _left_alone(name, drivers[name], clock, minutes)
        else:
            each = _unstartable(seen, drivers.get(name), lived.get(name), now, minutes)
        found += [each] if each is not None else []
    return found


def plan(
    found: Sequence[Dead],
    asked: Mapping[str, bool],
    there: Mapping[str, GameAssignment],
    groups: Mapping[str, GroupDriver],
    loads: Loads,
    clock: float,
) -> list[Relief]:
    """Return what is done for dead groups; `asked` has the keys that were asked under, and whether that is still open.

    Of each as many games go as fit elsewhere. Where all do, it is the drain that a person would ask for.
    """
    made = []
    for each in found:
        mine = [game.game_key for game in loads.games if game.group == each.group]
        if not mine or asked.get(each.key):
            continue
        said = f"group {each.group} is dead: {each.why}"
        if each.key in asked:
            hint = f"Run `turnout groups drain {each.group}` where others have room, or start it"
            made.append(
                Relief(each.group, None, f"{said}. {len(mine)} games are still in it: {join_limited(mine)}. {hint}.")
            )
            continue
        placed = leaving(loads, each.group)
        alarm = None
        if placed.unplaced:
            left = [game.game.game_key for game in placed.unplaced]
            room = most_room(placed.after, each.group)
            alarm = f"{said}. {len(left)} of its {len(mine)} games fit nowhere and stay: {join_limited(left)}; {room}."
        intent = None
        if placed.wanted:
            desired = {} if placed.unplaced else {each.group: ("running", "drained")}
            planned = replace(moves.plan(placed.wanted, there, groups, clock, loads), desired=desired)
            reason = f"{said[0].upper()}{said[1:]}."
            intent = replace(planned.intent(CONTROLLER, reason), idempotency_key=each.key)
            loads = replace(loads, groups=placed.after)  # who is relieved next finds what room is left then
        made.append(Relief(each.group, intent, alarm))
    return made


@dataclass(slots=True)
class Evacuator:
    """Looks after dead groups; what was asked for is in the store, so a controller that follows does not ask again."""

    engine: Engine
    placement: Placement
    alarm: str | None = None  # what keeps games in dead groups
    _watched_since: float = 0.0
    _looked_at: float = float("-inf")
    _told: str | None = None

    def tick(self, groups: Sequence[GroupObservation], failure: str | None, now: float) -> None:
        """Ask for what is to be done now: `groups` were seen at `now` by the store, `failure` is a mass failure."""
        if now - self._looked_at > _GAP_SECONDS:
            self._watched_since = now
        self._looked_at = now
        watched = now - self._watched_since >= _WATCHED_SECONDS
        is_quiet = all(_has_process(seen) for seen in groups if seen.group.desired == "running")
        if not self.placement.drain_dead_minutes or failure is not None or not watched or is_quiet:
            self._tell([])
            return
        clock = time.time()
        lived = last_lived(self.engine, _LIVED_SECONDS)
        minutes = self.placement.drain_dead_minutes
        found = dead(groups, group_drivers(self.engine), lived, now, clock, minutes)
        self._tell(self._relieved(found, clock) if found else [])

    def _relieved(self, found: Sequence[Dead], clock: float) -> list[str]:
        """Ask for the relief of dead groups; return what a person should know."""
        done = asked_under(self.engine, [each.key for each in found])
        asked = {key: operation.is_open for key, operation in done.items()}
        loads = read_loads(self.engine, clock, self.placement.most_games)
        alarms = []
        for each in plan(found, asked, read_assignments(self.engine), read_group_drivers(self.engine), loads, clock):
            waits = None if each.intent is None else self._ask(each.group, each.intent)
            alarms += [said for said in (each.alarm, waits) if said is not None]
        return alarms

    def _ask(self, group: str, intent: Intent) -> str | None:
        """Ask for a relief; return why it has to wait, None where it has not."""
        try:
            operation = ask(self.engine, intent)
        except Refused as refused:  # such as a game that belongs to another operation now: the next look asks again
            return f"group {group} waits for its relief: {refused}"
        _log.warning("operation %s: %s", operation.operation_id[:8], intent.reason)
        return None

    def _tell(self, alarms: Sequence[str]) -> None:
        """Keep what alarms, and log it where it is new."""
        self.alarm = " ".join(alarms) or None
        if self.alarm is not None and self._told is None:
            _log.error("%s", self.alarm)
        self._told = self.alarm


def _has_process(seen: GroupObservation) -> bool:
    return seen.run is not None or seen.holder is not None


def _is_down(seen: GroupObservation, driver: Driver | None, clock: float) -> bool:
    """Tell whether a group had a driver, or tries to start one, and has none now."""
    if _has_process(seen):
        return False
    if seen.group.backend == "none":
        return driver is not None and driver.silence(clock) is not None
    return bool(seen.ended)


def _left_alone(name: str, driver: Driver, clock: float, minutes: float) -> Dead | None:
    """Judge a group that somebody else starts; one whose driver has ended in order was stopped on purpose."""
    silent = clock - driver.heartbeat_at
    if driver.state == "stopped" or silent < minutes * 60:
        return None
    why = f"{driver.silence(clock)}, was last heard of {silent / 60:.0f} min ago, and turnout does not start it"
    return Dead(name, driver.heartbeat_at, why)


def _unstartable(
    seen: GroupObservation, driver: Driver | None, lived: float | None, now: float, minutes: float
) -> Dead | None:
    """Judge a group that the controller starts. One whose driver starts and dies of its work is not relieved.

    The game that kills it would kill the next one; `isolation` parts it from the others.
    """
    if lived is None or now - lived < minutes * 60:
        return None
    tries = [run for run in seen.ended if run.died and (run.ended_at or 0.0) > lived]
    if len(tries) < _TRIES:
        return None
    processes = (process_of(run.reference or "") for run in tries[:_TRIES])
    if driver is not None and driver.state == "running" and driver.pid in {each.pid for each in processes if each}:
        return None
    why = f"no driver of it has lived for {(now - lived) / 60:.0f} min, and the last start ended with: {tries[0].said}"
    return Dead(seen.group.name, lived, why)
