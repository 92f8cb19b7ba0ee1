"""Which group had a game when: from the minutes that groups reported, and from the operations that moved it. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from listeners.series import Series
from pipeline.api.operations import Operation, OperationState, moved


@dataclass(frozen=True, slots=True)
class Stay:
    """A group had the game from a moment until another one (Unix seconds); infinite: as far as is known."""

    group: str
    since: float = -math.inf
    until: float = math.inf

    def has(self, at: float) -> bool:
        """Return whether the moment is within the stay."""
        return self.since <= at < self.until


@dataclass(frozen=True, slots=True)
class _Move:
    """An operation that moved the game, when it was requested."""

    at: float
    source: str | None
    target: str


def stays(
    series: Series | None, game_key: str, group: str | None, operations: Sequence[Operation], now: float
) -> list[Stay]:
    """Return a game's stays, oldest first, with `group` as the one of now; a gap belongs to the stay before it.

    Minutes say who had the game; the operation that moved it says to the second when, as of its request.
    """
    moves, found = list(_moves(operations, game_key)), list[Stay]()
    reports = [] if series is None else list(_reports(series, game_key))
    for begin, end, its in (*reports, *([] if group is None else [(now, now, group)])):
        if not found or found[-1].group != its:
            _begin(found, its, _last(moves, its, found[-1].since if found else -math.inf, end), begin)
    return found


def held(known: Sequence[Stay], group: str, at: float) -> bool:
    """Return whether this group had the game at a moment (Unix seconds)."""
    return any(each.group == group and each.has(at) for each in known)


def _begin(found: list[Stay], group: str, move: _Move | None, otherwise: float) -> None:
    """Add a stay: as of the move, else as of `otherwise` (Unix seconds), the first one as of ever."""
    if not found and move is not None and move.source is not None:
        found.append(Stay(move.source))
    at = move.at if move is not None else otherwise
    if found:
        found[-1] = replace(found[-1], until=at)
    found.append(Stay(group, at if found else -math.inf))


def _reports(series: Series, game_key: str) -> Iterator[tuple[float, float, str]]:
    """Yield the slots that were reported: begin, end, group."""
    for slot, group in enumerate(series.group_by_slot(game_key)):
        if group is not None:
            begin = series.since + slot * series.slot_seconds
            yield begin, begin + series.slot_seconds, group


def _moves(operations: Sequence[Operation], game_key: str) -> Iterator[_Move]:
    for each in operations:
        if each.state == OperationState.SUCCEEDED and (move := moved(each).get(game_key)) is not None:
            yield _Move(each.requested_at, *move)


def _last(moves: Sequence[_Move], group: str, after: float, before: float) -> _Move | None:
    """Return the last move to a group between two moments (Unix seconds)."""
    possible = [each for each in moves if each.target == group and after <= each.at <= before]
    return max(possible, key=lambda each: each.at, default=None)
