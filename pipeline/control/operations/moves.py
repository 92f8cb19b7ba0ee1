"""Moves games between cluster groups: a changed assignment, which the drivers follow at their next pass.

The old driver drops a game and lets it go, the new one takes it and catches up from the table's cursor. Nobody else
restarts, and the tables' compare-and-set keeps even a botched move exact (law L4).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.base.texts import cores, join_limited
from pipeline.control.operations import move_events
from pipeline.control.operations.definition import (
    WAIT,
    Change,
    ControlContext,
    Offer,
    OperationDefinition,
    StepDefinition,
    StepResult,
    describe_open,
    of_one_game,
)
from pipeline.control.operations.facts import GroupFacts
from pipeline.control.roles import Role
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.health.verdicts.condition import GroupCondition
from pipeline.health.verdicts.lag import seconds_left
from pipeline.health.verdicts.placement.capacity import GameLoad, GroupLoad, Loads
from pipeline.health.verdicts.placement.planner import catch_up_seconds, full, leaving, room_left
from pipeline.settings.tree import Demux
from pipeline.store.assignments import (
    AssignmentConflict,
    GameAssignment,
    read_assignments,
    reassign,
    render_waits,
    require_carried,
)
from pipeline.store.database.states import OperationKind
from pipeline.store.operation_events import TargetEvent
from pipeline.store.operations import Intent, Operation, lock_operation

_RELEASE_SECONDS: Final = 120.0  # a pass may be running; a driver that is dead loses its lease before
_ACQUIRE_SECONDS: Final = 120.0
_SEEN_SECONDS: Final = 300.0
_NO_LOADS: Final = Loads()
_TRIGGER_SECONDS: Final = Demux().trigger_seconds


@dataclass(frozen=True, slots=True)
class Move:
    """One game's way from group to group."""

    game_key: str
    source: str | None
    target: str
    epoch: int  # of the assignment that is left


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Who moves where; applying it and planning again gives nothing."""

    moves: tuple[Move, ...]
    desired: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Groups that it changes: name → desired state now, and after."""

    @property
    def facts(self) -> dict[str, Any]:
        """What must still be so when the plan is applied."""
        return {each.game_key: [each.source, each.target, each.epoch] for each in self.moves}

    @property
    def assigned(self) -> dict[str, str]:
        """Game key → the group it moves to."""
        return {each.game_key: each.target for each in self.moves}

    def intent(self, actor: str, reason: str, undoes: str | None = None) -> Intent:
        """Return the operation to ask for; `undoes` is the one it is the inverse of."""
        targets = (*(f"game:{each.game_key}" for each in self.moves), *(f"group:{name}" for name in self.desired))
        parameters: dict[str, Any] = {"assignments": self.assigned}
        if self.desired:
            parameters["desired"] = {name: list(states) for name, states in self.desired.items()}
        return Intent(OperationKind.MOVE, targets, actor, reason, parameters, self.facts, undoes=undoes)


def plan(
    target_groups: Mapping[str, str],
    assignments: Mapping[str, GameAssignment],
    groups: Mapping[str, GroupCondition],
    loads: Loads = _NO_LOADS,
) -> MovePlan:
    """Plan moves (game key → group); games that are where they should be are left out.

    Raises:
        Refused: a game or group does not exist, a game is retired, or a group is not to run, has no driver that lives
            or no room.
    """
    unknown = sorted(target_groups.keys() - assignments.keys())
    if unknown:
        raise Refused(f"No such game: {join_limited(unknown)}. `turnout games list` shows those there are.")
    require_carried(target_groups, assignments)
    for group in sorted(set(target_groups.values())):
        _require_taking(require_group(group, groups))
    moves = [
        Move(key, assignments[key].group, group, assignments[key].epoch)
        for key, group in sorted(target_groups.items())
        if assignments[key].group != group
    ]
    planned = MovePlan(tuple(moves))
    for after in loads.after(planned.assigned).values():
        coming = [each.game_key for each in moves if each.target == after.name]
        if coming and after.is_over(loads.max_games):
            raise Refused(_crowded(loads, after, coming))
    return planned


def drain(
    group: str, assignments: Mapping[str, GameAssignment], groups: Mapping[str, GroupCondition], loads: Loads
) -> MovePlan:
    """Plan moves of all of a group's games to where they fit; with them a running group becomes drained.

    Raises:
        Refused: there is no such group, or not all of its games fit elsewhere.
    """
    leaving_group = require_group(group, groups)
    placed = leaving(loads, {group: [each.game_key for each in loads.games if each.group == group]})
    if placed.unplaced:
        keys = [each.game.game_key for each in placed.unplaced]
        load = sum(each.game.cores for each in placed.unplaced)
        raise Refused(
            f"Group {group} cannot be drained: {len(keys)} of its {loads.groups[group].games} games fit nowhere, with "
            f"about {cores(load)}: {join_limited(keys)}. When the others have left, {room_left(placed.after, group)}. "
            "Start another group, or give one more capacity."
        )
    planned = plan(placed.new_groups, assignments, groups, loads)
    return replace(planned, desired={group: ("running", "drained")} if leaving_group.desired == "running" else {})


def require_group(name: str, groups: Mapping[str, GroupCondition]) -> GroupCondition:
    """Return a group.

    Raises:
        Refused: there is none of that name.
    """
    if name not in groups:
        raise Refused(f"There is no cluster group {name!r}. Groups: {', '.join(sorted(groups)) or 'none'}.")
    return groups[name]


def render_preview(
    planned: MovePlan,
    assignments: Mapping[str, GameAssignment],
    loads: Loads = _NO_LOADS,
    trigger_seconds: float = _TRIGGER_SECONDS,
) -> list[str]:
    """Return what a plan does, as lines for people."""
    lines = [f"{name}: {was} → {then}" for name, (was, then) in planned.desired.items()]
    by_key = loads.by_key()
    for each in planned.moves:
        assignment = assignments[each.game_key]
        behind = (
            "cursor unknown"
            if assignment.cursor_seq is None
            else f"cursor {assignment.cursor_seq} of {assignment.last_seq}"
        )
        catchup = _catchup(each, by_key, trigger_seconds)
        lines.append(f"{each.game_key}: {each.source or 'no group'} → {each.target}, {behind}, {catchup}")
    touched = {name for each in planned.moves for name in (each.source, each.target)}
    for name, after in loads.after(planned.assigned).items():
        if name in touched:
            lines.append(f"{name}: {full(loads.groups[name])} → {full(after)}")
    lines.append(f"{len(planned.moves)} to move. No other stream restarts; no row is lost or doubled by it.")
    return lines


def changes(planned: MovePlan, loads: Loads = _NO_LOADS, trigger_seconds: float = _TRIGGER_SECONDS) -> list[Change]:
    """Return what a plan changes of each group and game."""
    by_key = loads.by_key()
    return [
        *(Change(f"group:{name}", was, then) for name, (was, then) in planned.desired.items()),
        *(
            Change(
                f"game:{each.game_key}", "no group" if each.source is None else f"group {each.source}",
                f"group {each.target}", _catchup(each, by_key, trigger_seconds),
            )
            for each in planned.moves
        ),
    ]  # fmt: skip


def _catchup(move: Move, by_key: Mapping[str, GameLoad], trigger_seconds: float) -> str:
    game = by_key.get(move.game_key)
    seconds = None if game is None else catch_up_seconds(game, trigger_seconds)
    return "catch-up time unknown" if seconds is None else f"caught up after about {seconds:.0f} s"


def _crowded(loads: Loads, after: GroupLoad, coming: Sequence[str]) -> str:
    by_key = loads.by_key()
    if after.games > loads.max_games:
        why = f"it would carry {after.games} games, and placement.max_games_per_group is {loads.max_games}"
    else:
        load = sum(by_key[key].cores for key in coming if key in by_key)
        why = f"they take about {cores(load)}, and it has {full(loads.groups[after.name])}"
    roomiest = room_left(loads.groups, after.name)
    return (
        f"Group {after.name} has no room for {len(coming)} more: {why}; {roomiest}. Take another group, or fewer games."
    )


def _facts(context: ControlContext, operation: Operation) -> Mapping[str, Any]:
    current, groups = context.read(read_assignments), context.read(read_group_liveness)
    assignments = operation.parameters["assignments"]
    desired = operation.parameters.get("desired", {})
    for name, (was, then) in desired.items():
        if name not in groups or groups[name].desired != was:
            raise Refused(f"group {name} is {groups[name].desired if name in groups else 'gone'} now.")
        carried = (
            key for key, assignment in current.items() if assignment.group == name and assignment.retired_at is None
        )
        new = sorted(set(carried) - assignments.keys())
        if then != "running" and new:
            raise Refused(f"group {name} has got {len(new)} more since you looked: {join_limited(new)}. Ask again.")
    for name in sorted(set(assignments.values()) - desired.keys()):
        if name not in groups and operation.kind == OperationKind.MOVE:  # `isolate` makes its group itself
            raise Refused(f"there is no group {name} any more.")
        if name in groups and groups[name].desired != "running":
            raise Refused(f"group {name} takes no games: it is {groups[name].desired}.")
    facts = {}
    for key, group in assignments.items():
        if key not in current:
            raise Refused(f"there is no game {key} any more.")
        facts[key] = [current[key].group, group, current[key].epoch]
    return facts


def _assign(context: ControlContext, operation: Operation) -> StepResult:
    moves = {key: (epoch, group) for key, (_, group, epoch) in operation.preview.items()}
    desired = {name: (was, then) for name, (was, then) in operation.parameters.get("desired", {}).items()}
    try:
        with context.engine.begin() as connection:
            lock_operation(connection, operation)
            reassign(connection, moves, desired)
    except AssignmentConflict as moved:
        return StepResult("failed", str(moved))
    marked = "".join(f"Group {name} is {then}. " for name, (_, then) in sorted(desired.items()))
    return StepResult("done", f"{marked}{len(moves)} assigned.", move_events.assigned(operation))


def release(context: ControlContext, operation: Operation) -> StepResult:
    """Wait until the old drivers have released the games; the preview names the old driver of each first.

    One that was assigned again since, perhaps back to its old group, is not waited for: the last request wins.
    """
    if not context.settings.store.leases:
        return StepResult("done", "Leases are off: no driver has to release.")
    assignments = context.read(read_assignments)
    held = [
        key
        for key, (source, *_, epoch) in operation.preview.items()
        if source and assignments[key].held_by == source and assignments[key].epoch <= epoch + 1
    ]
    if held:
        holders = Counter(str(operation.preview[key][0]) for key in held)
        who = ", ".join(f"{group} still holds {count}" for group, count in sorted(holders.items()))
        return StepResult(
            "waiting",
            f"Group {who}: {join_limited(held)}. "
            "A driver lets go when its pass has ended; restart it if it is stuck in one.",
            _seen(context, operation),
        )
    return StepResult("done", "The old drivers have let go.", _seen(context, operation))


def _seen(context: ControlContext, operation: Operation) -> tuple[TargetEvent, ...]:
    """Return what is seen of a move's games; nothing of other operations, whose previews have other facts."""
    if "assignments" not in operation.parameters:
        return ()
    return move_events.seen(operation, context.read(read_assignments), leases=context.settings.store.leases)


def _acquire(context: ControlContext, operation: Operation) -> StepResult:
    assignments = context.read(read_assignments)
    missing = [
        key
        for key, (_, group, epoch) in operation.preview.items()
        if not _is_taken(assignments[key], group, epoch, context)
    ]
    if missing:
        groups = sorted({str(operation.preview[key][1]) for key in missing})
        return StepResult(
            "waiting",
            f"Group {', '.join(groups)} has not taken {len(missing)} yet: {join_limited(missing)}.",
            _seen(context, operation),
        )
    return StepResult("done", "The new drivers hold all of them.", _seen(context, operation))


def _is_taken(assignment: GameAssignment, group: str, epoch: int, context: ControlContext) -> bool:
    if assignment.epoch > epoch + 1:
        return True  # another request moved it on since: the last one wins
    return assignment.held_by == group if context.settings.store.leases else assignment.reported_group == group


def _verify(context: ControlContext, operation: Operation) -> StepResult:
    """Check whether the new drivers report the games, and each runs, has nothing to do, or waits for a schema.

    The operation's outcome says which games wait, and for what.
    """
    assignments = context.read(read_assignments)
    unseen = []
    for key, (_, group, epoch) in operation.preview.items():
        assignment = assignments[key]
        if assignment.epoch > epoch + 1:
            continue
        reported = assignment.reported_group == group and (assignment.reported_at or 0.0) > operation.requested_at
        if not reported or not assignment.is_settled:
            unseen.append(key)
    if unseen:
        behind = sum(max(assignments[key].last_seq - (assignments[key].cursor_seq or 0), 0) for key in unseen)
        left = _left(context, operation, [assignments[key] for key in unseen])
        return StepResult(
            "waiting",
            f"{len(unseen)} not caught up yet, {behind} seqs in all: {join_limited(unseen)}. {left}",
            _seen(context, operation),
        )
    context.seen.pop(operation.operation_id, None)
    moved = (assignments[key] for key, (*_, epoch) in operation.preview.items() if assignments[key].epoch <= epoch + 1)
    return StepResult("done", render_waits(moved), _seen(context, operation))


def _left(context: ControlContext, operation: Operation, unseen: Sequence[GameAssignment]) -> str:
    """Say how long the games that are behind still need, as far as this process has seen their lag fall."""
    lags = [
        assignment.backlog_age_seconds
        if assignment.reported_group == operation.preview[assignment.game_key][1]
        else None
        for assignment in unseen
    ]
    known = [lag for lag in lags if lag is not None]
    if len(known) < len(lags):
        return "No estimate: a lag is unknown."
    now = (max(assignment.reported_at or 0.0 for assignment in unseen), max(known))
    seconds = seconds_left(context.seen.setdefault(operation.operation_id, now), now)
    if seconds is None:
        context.seen[operation.operation_id] = now
        return "No estimate: the lag was not seen to fall."
    return f"About {seconds:.0f} s are left, as fast as the lag falls."


def _done(operation: Operation) -> str:
    by_group = Counter(group for _, group, _ in operation.preview.values())
    parts = [f"{count} in {group}" for group, count in sorted(by_group.items())]
    marked = [f"group {name} is {then}" for name, (_, then) in operation.parameters.get("desired", {}).items()]
    return f"Moved and seen: {', '.join([*parts, *marked])}."


def undo(
    operation: Operation,
    assignments: Mapping[str, GameAssignment],
    groups: Mapping[str, GroupCondition],
    loads: Loads = _NO_LOADS,
) -> MovePlan:
    """Plan the way back of a move, checked like any other, with the former states of its groups.

    Raises:
        Refused: it cannot be, or a game was moved on or a group changed since.
    """
    for key, (_, group, epoch) in operation.preview.items():
        assignment = assignments.get(key)
        if assignment is None or (assignment.group, assignment.epoch) != (group, epoch + 1):
            raise Refused(f"{key} was moved on since: it is in {assignment.group if assignment else 'no group'} now.")
    back = {name: (then, was) for name, (was, then) in operation.parameters.get("desired", {}).items()}
    for name, (then, _) in back.items():
        if require_group(name, groups).desired != then:
            raise Refused(f"Group {name} was changed since: it is {groups[name].desired} now, not {then}.")
    sources = {key: source for key, (source, *_) in operation.preview.items() if source is not None}
    as_then = {name: replace(groups[name], desired=was) for name, (_, was) in back.items()}
    return replace(plan(sources, assignments, {**groups, **as_then}, loads), desired=back)


def _require_taking(group: GroupCondition) -> None:
    if group.desired != "running":
        raise Refused(f"Group {group.name} takes no games: it is {group.desired}. Set it running, or take another.")
    why = group.liveness.silence
    if why is not None:
        raise Refused(f"Group {group.name} cannot take games: {why}. Start it with `turnout groups run {group.name}`.")


def _obstacle_to_drain(facts: GroupFacts) -> str | None:
    busy = next((facts.busy[target] for key in facts.games if (target := f"game:{key}") in facts.busy), None)
    if busy is not None:
        return f"Games of it belong to an open operation now: {describe_open(busy)}. {WAIT}"
    try:
        planned = drain(facts.name, facts.assignments, facts.drivers, facts.loads)
    except Refused as refused:
        return str(refused)
    return None if planned.moves or planned.desired else "It takes no games, and has none."


def _verb(intent: Intent) -> str:
    """Call a move that empties groups a drain."""
    return "drain" if _drained(intent) else intent.kind


def _about(intent: Intent) -> tuple[str, ...]:
    """Return what a move is of: a drain is of the groups that it empties, not of their games."""
    return tuple(f"group:{name}" for name in _drained(intent)) or intent.targets


def _drained(intent: Intent) -> list[str]:
    desired = intent.parameters.get("desired", {})
    return sorted(name for name, (_, then) in desired.items() if then == "drained")


MOVE: Final = OperationDefinition(
    OperationKind.MOVE,
    Role.MOVER,
    of_one_game(2),
    (
        StepDefinition("assign", _assign, 30.0),
        StepDefinition("release", release, _RELEASE_SECONDS, looks=True),
        StepDefinition("acquire", _acquire, _ACQUIRE_SECONDS, looks=True),
        StepDefinition("verify", _verify, _SEEN_SECONDS, verifies=True, looks=True, reports=True),
    ),
    _facts,
    _done,
    inverse=OperationKind.MOVE,
    of_game=Offer(
        lambda facts: None if facts.has_other_group else "There is no other group. Make one under Groups.",
        "Another group's driver goes on from its cursor; no other stream restarts.",
        chooses_group=True,
    ),
    of_group=Offer(
        _obstacle_to_drain,
        lambda facts: (
            f"Moves its {len(facts.games)} games to groups that have room, and gives it no more. No stream restarts."
        ),
        (OperationKind.STOP,),
        name="drain",
    ),
    verb=_verb,
    about=_about,
)
