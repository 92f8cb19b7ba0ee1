"""What an operation would do, planned once for the command that submits it and for the page that shows it first.

A proposal is an intent with the lines that people read. Nothing is written here: `gate.submit` does that.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.control.operations import moves, registry
from pipeline.control.operations.definition import OperationProposal
from pipeline.control.operations.executor import has_effect, require_undoable
from pipeline.control.operations.moves import MovePlan
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.health.facts.loads import read_loads
from pipeline.health.verdicts.condition import GroupCondition
from pipeline.health.verdicts.placement.capacity import Loads
from pipeline.health.verdicts.placement.planner import MAX_REBALANCING_MOVES, Placed, proposed
from pipeline.settings.tree import Settings
from pipeline.store.assignments import GameAssignment, read_assignments
from pipeline.store.database.states import OperationKind
from pipeline.store.operations import Operation, list_operations
from pipeline.store.processes.leases import store_time


class PlacementView:
    """Which games run where, and how loaded the groups are, read at one time: what moves are planned from."""

    assignments: Mapping[str, GameAssignment]
    loads: Loads
    trigger_seconds: float

    def __init__(self, settings: Settings, engine: Engine, now: float | None = None) -> None:
        """Read the control store, as of a moment of its clock; now where None."""
        now, metrics = store_time(engine) if now is None else now, settings.metrics
        self.assignments = read_assignments(engine)
        self.loads = read_loads(engine, now, settings.placement.max_games_per_group, metrics)
        self.trigger_seconds = settings.demux.trigger_seconds
        self._drivers: Mapping[str, GroupCondition] = read_group_liveness(engine, metrics, now)

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
        return self._proposal(moves.drain(group, self.assignments, self._drivers, self.loads), actor, reason)

    def best(self, max_moves: int = MAX_REBALANCING_MOVES) -> tuple[Placed, Placed]:
        """Return the moves of games that cannot stay, and those that then even out the load."""
        return proposed(self.loads, max_moves)

    def rebalance(self, placed: Placed, rebalanced: Placed, actor: str, reason: str = "") -> OperationProposal:
        """Plan what `best` has returned as one move.

        A game that waits for its first group gets it from the controller, and from ingest: that is no move.

        Raises:
            Refused: a group cannot take what would move there.
        """
        movable = [each for each in (*placed.placements, *rebalanced.placements) if each.source is not None]
        return self._proposal(self._plan({each.game_key: each.target for each in movable}), actor, reason)

    def undo(self, done: Operation, actor: str, reason: str = "") -> OperationProposal:
        """Plan to move back what a move has moved, and to let a group that it drained get games again.

        Raises:
            Refused: a game is elsewhere by now, or a group cannot take it back.
        """
        plan = moves.undo(done, self.assignments, self._drivers, self.loads)
        return self._proposal(plan, actor, reason, done.operation_id)

    def _plan(self, wanted: Mapping[str, str]) -> MovePlan:
        return moves.plan(wanted, self.assignments, self._drivers, self.loads)

    def _proposal(self, plan: MovePlan, actor: str, reason: str, undoes: str | None = None) -> OperationProposal:
        lines = moves.render_preview(plan, self.assignments, self.loads, self.trigger_seconds)
        changes = moves.changes(plan, self.loads, self.trigger_seconds)
        return OperationProposal(plan.intent(actor, reason, undoes), lines, changes=changes)


def propose(
    engine: Engine, kind: str, names: Sequence[str], actor: str, reason: str = "", undoes: str | None = None
) -> OperationProposal:
    """Plan an operation (`kind`) on games or groups that are named, by their keys or names.

    Raises:
        Refused: one of them does not exist, or does not allow it.
    """
    definition = registry.find(kind)
    if definition is None or definition.propose is None:
        raise Refused(f"Operation {kind} is not planned by naming games or groups.")
    return definition.propose(engine, names, actor, reason, undoes)


def newest_to_undo(engine: Engine, actor: str) -> Operation:
    """Return the newest operation of a person that can be undone, is no undo itself, and was not undone yet.

    An undo that ended before it did anything undid nothing.

    Raises:
        Refused: they have none.
    """
    listed = sorted(list_operations(engine), key=lambda each: each.requested_at, reverse=True)
    undos = [each for each in listed if each.undoes is not None]
    undone = {each.undoes for each in undos if each.is_open or has_effect(engine, each)}
    for each in listed:
        known = registry.find(each.kind)
        is_own = each.actor == actor and each.undoes is None and each.operation_id not in undone
        if is_own and known is not None and known.inverse is not None:
            return each
    raise Refused("You submitted nothing lately that can be undone. Name an operation: `turnout ops list` shows them.")


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
    kind = registry.inverse_of(done.kind)
    if kind == OperationKind.MOVE:
        return PlacementView(settings, engine, now).undo(done, actor, reason)
    names = [target.partition(":")[2] for target in done.targets]
    return propose(engine, kind, names, actor, reason, done.operation_id)
