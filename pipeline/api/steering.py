"""The data of pages that steer games and groups, read at one moment.

Every query raises `Refused` where the control store cannot be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from listeners.process_kinds import CONTROLLER, ONLY
from pipeline.api import operations
from pipeline.api.environment import OpenEnvironment
from pipeline.health.facts.fleet import Fleet
from pipeline.health.facts.loads import read_loads
from pipeline.health.verdicts.placement.capacity import Loads
from pipeline.store.assignments import GameAssignment, read_assignments
from pipeline.store.backends import BACKENDS, backend_kind
from pipeline.store.database.engine import reading
from pipeline.store.database.states import PRIORITIES
from pipeline.store.groups import Group, read_groups
from pipeline.store.operations import Operation
from pipeline.store.stream_control import StreamControl, decided

__all__ = ["BACKENDS", "PRIORITIES", "ControlState", "GameAssignment", "Group", "StreamControl", "backend_kind", "read"]


@dataclass(frozen=True, slots=True)
class ControlState:
    """Data of a page that steers games, read at one moment (Unix seconds)."""

    fleet: Fleet
    assignments: Mapping[str, GameAssignment]  # by game key
    decisions: Mapping[str, StreamControl]  # by game key; no entry: nothing was decided
    groups: Mapping[str, Group]  # by name; no entry: it is not registered
    loads: Loads
    busy: Mapping[str, Operation]  # by target, such as game:KEY: the open operation it belongs to
    no_controller: str | None  # why no controller acts, as a clause; None: one does
    read_at: float

    @property
    def alarms(self) -> list[str]:
        """What alarms the controller that runs, such as many groups that died at once."""
        state = self.fleet.state(CONTROLLER, ONLY)
        is_current = state is not None and state.liveness.state == "running"
        return (state.liveness.reason or "").splitlines() if state is not None and is_current else []


@reading()
def read(environment: OpenEnvironment, seen: Fleet) -> ControlState:
    """Read what decides about moves of games and changes of groups, beside a fleet that was read just now."""
    store = environment.engine
    max_games = environment.settings.placement.max_games_per_group
    return ControlState(
        fleet=seen,
        assignments=read_assignments(store),
        decisions=decided(store),
        groups=read_groups(store),
        loads=read_loads(store, max_games=max_games, look=seen.judgement.conditions),
        busy={target: each for each in operations.opened(environment) for target in each.targets},
        no_controller=seen.judgement.controller_absence,
        read_at=seen.read_at,
    )
