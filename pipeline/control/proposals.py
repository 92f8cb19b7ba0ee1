"""What an operation would do, planned once for the command that submits it and for the page that shows it first.

A proposal is an intent with the lines that people read. Nothing is written here: `gate.submit` does that.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.control.operations import drains, groups, moves, pauses, retirement
from pipeline.control.operations.executor import require_undoable
from pipeline.control.operations.moves import Plan
from pipeline.errors import Refused
from pipeline.health.condition import GroupCondition
from pipeline.placement.capacity import Loads
from pipeline.placement.planner import MAX_EVENED, Placed, proposed
from pipeline.settings import Settings
from pipeline.store.assignments import GameAssignment, read_assignments, read_group_drivers
from pipeline.store.groups import read_groups
from pipeline.store.leases import store_time
from pipeline.store.loads import read_loads
from pipeline.store.operations import Intent, Operation
from pipeline.store.stream_control import decided


@dataclass(frozen=True, slots=True)
class OperationProposal:
    """An operation that may be submitted; without targets it would change nothing."""

    intent: Intent
    lines: Sequence[str]
    left_out: Sequence[str] = ()  # what is not done of what was wanted, and why not: a line for each game
    best_effort: bool = False  # nobody has named games, so what is left out is no failure

    def unchanged(self, keys: Sequence[str]) -> list[str]:
        """Return those of these games that it would not touch, since they are as they should be."""
        touched = set(self.intent.targets)
        return sorted(key for key in set(keys) if f"game:{key}" not in touched)


class PlacementView:
    """Which games run where, and how loaded the groups are, read at one time: what moves are planned from."""

    assignments: Mapping[str, GameAssignment]
    loads: Loads
    trigger_seconds: float

    def __init__(self, settings: Settings, engine: Engine, now: float | None = None) -> None:
        """Read the control store, as of a moment of its clock; now where None."""
        now, heartbeat_seconds = store_time(engine) if now is None else now, settings.metrics.heartbeat_seconds
        self.assignments = read_assignments(engine)
        self.loads = read_loads(engine, now, settings.placement.max_games_per_group, heartbeat_seconds)
        self.trigger_seconds = settings.demux.trigger_seconds
        self._drivers: Mapping[str, GroupCondition] = read_group_drivers(engine, heartbeat_seconds, now)

    def move(self, keys: Sequence[str], group: str, actor: str, reason: str = "") -> OperationProposal:
        """Plan to move games, by their keys, to a group.

        Raises:
            Refused: a game or the group does not exist, or the group cannot take them.
        """
        return self._proposal(self._plan(dict.fromkeys(keys, group)), actor, reason)

    def drain(self, group: str, actor: str, reason: str = "") -> OperationProposal:
        """Plan to move all games of a group to where they fit, and to give it no more.

        Raises:
            Refused: there is no such group, or not all of its games fit elsewhere.
        """
        return self._proposal(drains.drain(group, self.assignments, self._drivers, self.loads), actor, reason)

    def best(self, max_moves: int = MAX_EVENED) -> tuple[Placed, Placed]:
        """Return the moves of games that cannot stay, and those that then even out the load."""
        return proposed(self.loads, max_moves)

    def rebalance(self, placed: Placed, even: Placed, actor: str, reason: str = "") -> OperationProposal:
        """Plan what `best` has returned as one move.

        A game that waits for its first group gets it from the controller, and from ingest: that is no move.

        Raises:
            Refused: a group cannot take what would move there.
        """
        movable = [each for each in (*placed.placements, *even.placements) if each.source is not None]
        return self._proposal(self._plan({each.game_key: each.target for each in movable}), actor, reason)

    def undo(self, done: Operation, actor: str, reason: str = "") -> OperationProposal:
        """Plan to move back what a move has moved, and to let a group that it drained get games again.

        Raises:
            Refused: a game is elsewhere by now, or a group cannot take it back.
        """
        plan = moves.undo(done, self.assignments, self._drivers, self.loads)
        return self._proposal(plan, actor, reason, done.operation_id)

    def _plan(self, wanted: Mapping[str, str]) -> Plan:
        return moves.plan(wanted, self.assignments, self._drivers, self.loads)

    def _proposal(self, plan: Plan, actor: str, reason: str, undoes: str | None = None) -> OperationProposal:
        lines = moves.render_preview(plan, self.assignments, self.loads, self.trigger_seconds)
        return OperationProposal(plan.intent(actor, reason, undoes), lines)


def decision(
    engine: Engine, assignments: Mapping[str, GameAssignment], kind: str, keys: Sequence[str], actor: str,
    reason: str = "", undoes: str | None = None,
) -> OperationProposal:  # fmt: skip
    """Plan to pause, resume, retry, retire or restore (`kind`) games, by their keys.

    Raises:
        Refused: a game does not exist, or is retired and would have to run.
    """
    if kind in retirement.INVERSE:
        facts = retirement.plan(kind, keys, assignments)
        lines = retirement.render_preview(kind, facts, assignments)
        return OperationProposal(retirement.intent(kind, facts, actor, reason, undoes), lines)
    facts = pauses.plan(kind, keys, assignments, decided(engine))
    lines = pauses.render_preview(kind, facts, assignments)
    return OperationProposal(pauses.intent(kind, facts, actor, reason, undoes), lines)


def of_groups(
    engine: Engine, assignments: Mapping[str, GameAssignment], kind: str, names: Sequence[str], actor: str,
    reason: str = "", undoes: str | None = None,
) -> OperationProposal:  # fmt: skip
    """Plan to start, stop or restart (`kind`) groups.

    Raises:
        Refused: a group does not exist, or another tool starts it.
    """
    facts = groups.plan(kind, names, read_groups(engine))
    counts = Counter(each.group for each in assignments.values() if each.group is not None)
    lines = groups.render_preview(kind, facts, counts)
    return OperationProposal(groups.intent(kind, facts, actor, reason, undoes), lines)


# ----------------------------------------------------------------------------------------------------------------- undo


def inverse_of(kind: str) -> str:
    """Return what kind of operation undoes one of this kind, where one does."""
    return {**pauses.INVERSE, **groups.INVERSE, **retirement.INVERSE}.get(kind, kind)


def undo(
    settings: Settings, engine: Engine, done: Operation, actor: str, reason: str = "", now: float | None = None
) -> OperationProposal:
    """Plan the inverse of an operation, to be submitted like any other; `now` is as of `PlacementView`.

    Raises:
        Refused: it has none, or it cannot be any more.
    """
    require_undoable(engine, done)
    if not done.targets:
        raise Refused(f"Operation {done.operation_id[:8]} does not say what it did. Ask for the inverse itself.")
    if done.kind == "move":
        return PlacementView(settings, engine, now).undo(done, actor, reason)
    assignments, kind, operation_id = read_assignments(engine), inverse_of(done.kind), done.operation_id
    if done.kind in groups.INVERSE:
        return of_groups(engine, assignments, kind, done.parameters["groups"], actor, reason, operation_id)
    return decision(engine, assignments, kind, done.parameters["games"], actor, reason, operation_id)
