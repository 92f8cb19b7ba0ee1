"""Moves games between cluster groups: a changed assignment, which the drivers follow at their next pass.

The old driver drops a game and lets it go, the new one takes it and catches up from the table's cursor. Nobody else
restarts, and the tables' compare-and-set keeps even a botched move exact (law L4).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.control.engine import Kind, Progress, StepKind, World, some
from pipeline.errors import Refused
from pipeline.store.fleet import HEARTBEAT_LIMIT_SECONDS
from pipeline.store.operations import Operation, Wish, hold
from pipeline.store.seats import GroupSeat, Moved, Seat, reassign, seats

_RELEASE_SECONDS: Final = 120.0  # a pass may be running; a driver that is dead loses its lease before
_TAKE_SECONDS: Final = 120.0
_SEEN_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Move:
    """One game's way from group to group."""

    game_key: str
    source: str | None
    target: str
    epoch: int  # of the assignment that is left


@dataclass(frozen=True, slots=True)
class Plan:
    """Who moves where; applying it and planning again gives nothing."""

    moves: tuple[Move, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """What must still be so when the plan is applied."""
        return {each.game_key: [each.source, each.target, each.epoch] for each in self.moves}

    def wish(self, actor: str, reason: str, undoes: str | None = None) -> Wish:
        """Return the operation to ask for; `undoes` is the one it is the inverse of."""
        targets = tuple(f"game:{each.game_key}" for each in self.moves)
        assignments = {each.game_key: each.target for each in self.moves}
        return Wish("move", targets, actor, reason, {"assignments": assignments}, self.facts, undoes=undoes)


def plan(wanted: Mapping[str, str], there: Mapping[str, Seat], groups: Mapping[str, GroupSeat], now: float) -> Plan:
    """Plan moves (game key → group); games that are where they shall be are left out.

    Raises:
        Refused: a game or a group does not exist, or a group has no driver that beats.
    """
    unknown = sorted(wanted.keys() - there.keys())
    if unknown:
        raise Refused(f"No such game: {some(unknown)}. `turnout games list` shows those there are.")
    for group in sorted(set(wanted.values())):
        if group not in groups:
            known = ", ".join(sorted(groups)) or "none"
            raise Refused(f"There is no cluster group {group!r}. Groups: {known}.")
        why = _silence(groups[group], now)
        if why is not None:
            raise Refused(f"Group {group} cannot take games: {why}. Start it with `turnout group run {group}`.")
    moves = [
        Move(key, there[key].group, group, there[key].epoch)
        for key, group in sorted(wanted.items())
        if there[key].group != group
    ]
    return Plan(tuple(moves))


def rendered(planned: Plan, there: Mapping[str, Seat]) -> list[str]:
    """Return what a plan does, as lines for people."""
    lines = []
    for each in planned.moves:
        seat = there[each.game_key]
        behind = "cursor unknown" if seat.cursor_seq is None else f"cursor {seat.cursor_seq} of {seat.last_seq}"
        lines.append(f"{each.game_key}: {each.source or 'no group'} → {each.target}, {behind}")
    lines.append(f"{len(planned.moves)} to move. No other stream restarts; no row is lost or doubled by it.")
    return lines


def _facts(world: World, operation: Operation) -> Mapping[str, Any]:
    there = seats(world.engine)
    facts = {}
    for key, group in operation.parameters["assignments"].items():
        if key not in there:
            raise Refused(f"there is no game {key} any more.")
        facts[key] = [there[key].group, group, there[key].epoch]
    return facts


def _assign(world: World, operation: Operation) -> Progress:
    moves = {key: (epoch, group) for key, (_, group, epoch) in operation.preview.items()}
    try:
        with world.engine.begin() as connection:
            hold(connection, operation)
            reassign(connection, moves)
    except Moved as moved:
        return Progress("failed", str(moved))
    return Progress("done", f"{len(moves)} assigned.")


def _release(world: World, operation: Operation) -> Progress:
    if not world.settings.store.leases:
        return Progress("done", "Leases are off: nobody is asked to let go.")
    there = seats(world.engine)
    held = [key for key, (source, *_) in operation.preview.items() if source and there[key].held_by == source]
    if held:
        holders = Counter(str(operation.preview[key][0]) for key in held)
        who = ", ".join(f"{group} still holds {count}" for group, count in sorted(holders.items()))
        return Progress(
            "waiting",
            f"Group {who}: {some(held)}. A driver lets go when its pass has ended; restart it if it is stuck in one.",
        )
    return Progress("done", "The old drivers have let go.")


def _take(world: World, operation: Operation) -> Progress:
    there = seats(world.engine)
    missing = [
        key for key, (_, group, epoch) in operation.preview.items() if not _is_taken(there[key], group, epoch, world)
    ]
    if missing:
        groups = sorted({str(operation.preview[key][1]) for key in missing})
        return Progress("waiting", f"Group {', '.join(groups)} has not taken {len(missing)} yet: {some(missing)}.")
    return Progress("done", "The new drivers hold all of them.")


def _is_taken(seat: Seat, group: str, epoch: int, world: World) -> bool:
    if seat.epoch > epoch + 1:
        return True  # somebody has moved it on since: the final wish wins
    return seat.held_by == group if world.settings.store.leases else seat.told_group == group


def _see(world: World, operation: Operation) -> Progress:
    """Look whether the new drivers tell of the games, and each runs, catches up or has nothing to do."""
    there = seats(world.engine)
    unseen = []
    for key, (_, group, epoch) in operation.preview.items():
        seat = there[key]
        if seat.epoch > epoch + 1:
            continue
        told = seat.told_group == group and (seat.told_at or 0.0) > operation.asked_at
        settled = seat.lane in {"RUN", "PAUSED", "QUARANTINED"} or (seat.cursor_seq or 0) >= seat.last_seq
        if not told or not settled:
            unseen.append(key)
    if unseen:
        behind = sum(max(there[key].last_seq - (there[key].cursor_seq or 0), 0) for key in unseen)
        return Progress("waiting", f"{len(unseen)} not caught up yet, {behind} seqs in all: {some(unseen)}.")
    return Progress("done", "Each is told of by its new driver and reads on from its cursor.")


def _done(operation: Operation) -> str:
    by_group = Counter(group for _, group, _ in operation.preview.values())
    return "Moved and seen: " + ", ".join(f"{count} in {group}" for group, count in sorted(by_group.items())) + "."


def undo(operation: Operation, there: Mapping[str, Seat], groups: Mapping[str, GroupSeat], now: float) -> Plan:
    """Plan the way back of a move, checked like any other.

    Raises:
        Refused: it cannot be, or a game was moved on since.
    """
    for key, (_, group, epoch) in operation.preview.items():
        seat = there.get(key)
        if seat is None or (seat.group, seat.epoch) != (group, epoch + 1):
            raise Refused(f"{key} was moved on since: it is in {seat.group if seat else 'no group'} now.")
    wanted = {key: source for key, (source, *_) in operation.preview.items() if source is not None}
    return plan(wanted, there, groups, now)


MOVE: Final = Kind(
    "move",
    (
        StepKind("assign", _assign, 30.0),
        StepKind("release", _release, _RELEASE_SECONDS),
        StepKind("take", _take, _TAKE_SECONDS),
        StepKind("see", _see, _SEEN_SECONDS, verifies=True),
    ),
    _facts,
    _done,
)


def _silence(group: GroupSeat, now: float) -> str | None:
    if group.state is None or group.heartbeat_at is None:
        return "its driver was never started"
    if group.state in {"failed", "stopped"}:
        return f"its driver {'has failed' if group.state == 'failed' else 'is stopped'}"
    quiet = now - group.heartbeat_at
    return f"its driver is silent for {quiet:.0f} s" if quiet > HEARTBEAT_LIMIT_SECONDS else None
