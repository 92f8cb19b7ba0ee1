"""Takes all games off a cluster group, and lets none land there again: one move, planned from load. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.control.operations.moves import Plan, plan, require_group
from pipeline.errors import Refused
from pipeline.health.condition import GroupCondition
from pipeline.lists import join_limited
from pipeline.placement.capacity import Loads
from pipeline.placement.planner import leaving, most_room
from pipeline.store.assignments import GameAssignment


def drain(
    group: str, assignments: Mapping[str, GameAssignment], groups: Mapping[str, GroupCondition], loads: Loads
) -> Plan:
    """Plan moves of all of a group's games to where they fit; with them a running group becomes drained.

    Raises:
        Refused: there is no such group, or not all of its games fit elsewhere.
    """
    seat = require_group(group, groups)
    placed = leaving(loads, {group: [each.game_key for each in loads.games if each.group == group]})
    if placed.unplaced:
        keys = [each.game.game_key for each in placed.unplaced]
        cores = sum(each.game.cores for each in placed.unplaced)
        raise Refused(
            f"Group {group} cannot be drained: {len(keys)} of its {loads.groups[group].games} games fit nowhere, with "
            f"{cores:.3g} cores: {join_limited(keys)}. When the others have left, {most_room(placed.after, group)}. "
            "Start another group, or give one more capacity."
        )
    planned = plan(placed.new_groups, assignments, groups, loads)
    return replace(planned, desired={group: ("running", "drained")} if seat.desired == "running" else {})
