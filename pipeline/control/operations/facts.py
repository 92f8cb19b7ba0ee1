"""One game or one group as it is now: what decides what can be done with it. Read by `capabilities` and by pages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.health.verdicts.condition import GroupCondition
from pipeline.health.verdicts.placement.capacity import Loads
from pipeline.store.assignments import GameAssignment
from pipeline.store.groups import Group
from pipeline.store.operations import Operation
from pipeline.store.stream_control import StreamControl


@dataclass(frozen=True, slots=True)
class GameFacts:
    """One game as it is now."""

    game_key: str
    game: str
    group: str | None  # wanted; None: it waits for one, or is retired
    lane: str | None  # as last reported; None: never
    decision: StreamControl
    retired: bool
    has_schema: bool
    has_table: bool
    quarantined: Mapping[str, int] | None  # rows by reason, those that `rows` chooses; None: nobody has counted them
    silence: str | None  # why nothing can be expected of its group's driver, as the end of a sentence; None: it beats
    backend: str | None  # what starts its group, `none`: not turnout; None: it has no group
    neighbours: int  # other games of its group
    busy: str | None  # the open operation that the game belongs to, as in "move 4f1d2a3b by ann"
    took_seconds: Mapping[str, float]  # how long the last success of each kind took, for this game alone
    rows: Mapping[str, str | None] = field(default_factory=dict)  # of quarantine, which a replay would take
    group_busy: str | None = None  # the open operation that its group belongs to
    group_desired: str = "running"
    has_other_group: bool = True
    had_table: bool = False  # as a driver reported: without one now, it was removed


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One cluster group as it is now, among the others."""

    name: str
    groups: Mapping[str, Group]  # those that are registered
    assignments: Mapping[str, GameAssignment]
    drivers: Mapping[str, GroupCondition]
    loads: Loads
    busy: Mapping[str, Operation]  # by target: the open operation it belongs to

    @property
    def games(self) -> list[str]:
        """The keys of its games."""
        return [key for key, assignment in self.assignments.items() if assignment.group == self.name]
