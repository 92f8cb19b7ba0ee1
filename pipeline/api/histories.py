"""The history of events of an operation, of one of its targets, or of a game over all operations.

Every query raises `Refused` where the control store cannot be read.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.api.environment import OpenEnvironment
from pipeline.store.database.engine import reading
from pipeline.store.games import known_games
from pipeline.store.operation_events import TargetEvent, read_events
from pipeline.store.operations import Operation, Step, about_target

__all__ = ["GameHistory", "HistoryEvent", "TargetEvent", "events_of", "of_game"]

_MOST: Final = 50  # operations of one game, the newest


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One thing that happened, at a time (Unix seconds by the store's clock)."""

    at: float
    operation_id: str
    name: str  # such as `submitted`, `step release begins`, `release`
    detail: str  # may hold foreign names; empty where there is none
    target: str | None = None  # None: it is of the operation, not of one target


@dataclass(frozen=True, slots=True)
class GameHistory:
    """What operations did to one game, the newest operation first, read at one moment (Unix seconds)."""

    game_key: str
    names: Mapping[str, str]  # by game key
    operations: tuple[tuple[Operation, tuple[HistoryEvent, ...]], ...]
    read_at: float


@reading()
def of_game(environment: OpenEnvironment, game_key: str) -> GameHistory:
    """Read the history of a game: the newest operations that name it, each with its events."""
    store, target = environment.engine, f"game:{game_key}"
    found = about_target(store, target, _MOST)
    noted = read_events(store, [operation.operation_id for operation, _ in found], target)
    histories = tuple(
        (operation, tuple(events_of(operation, journal, noted.get(operation.operation_id, ()))))
        for operation, journal in found
    )
    return GameHistory(game_key, known_games(store), histories, time.time())


def events_of(
    operation: Operation, journal: Sequence[Step], noted: Sequence[TargetEvent], target: str | None = None
) -> list[HistoryEvent]:
    """Return the events of an operation in their order; with a target those of other targets are left out. Pure."""
    chosen = (each for each in noted if target is None or each.target == target)
    made = [_submitted(operation), *_of_journal(operation, journal), *_of_targets(operation, chosen)]
    made += _end(operation)
    return sorted(made, key=lambda each: each.at)  # events of one moment stay in the order above


def _submitted(operation: Operation) -> HistoryEvent:
    by = f"by {operation.actor}"
    undo = f"; undoes {operation.undoes[:8]}" if operation.undoes else ""
    why = f": {operation.reason}" if operation.reason else ""
    return HistoryEvent(operation.requested_at, operation.operation_id, "submitted", f"{by}{why}{undo}")


def _end(operation: Operation) -> Iterator[HistoryEvent]:
    own = operation.operation_id
    if operation.stuck_since is not None:
        yield HistoryEvent(operation.stuck_since, own, "needs a person", operation.outcome or "")
    if operation.ended_at is not None:
        yield HistoryEvent(operation.ended_at, own, str(operation.state), operation.outcome or "")


def _of_journal(operation: Operation, journal: Sequence[Step]) -> Iterator[HistoryEvent]:
    for step in journal:
        waits = step.detail if step.ended_at is None else ""
        yield HistoryEvent(step.started_at, operation.operation_id, f"step {step.name} begins", waits)
        if step.ended_at is not None:
            yield HistoryEvent(step.ended_at, operation.operation_id, f"step {step.name} {step.state}", step.detail)


def _of_targets(operation: Operation, noted: Iterator[TargetEvent]) -> Iterator[HistoryEvent]:
    for each in noted:
        if each.at is not None:
            yield HistoryEvent(each.at, operation.operation_id, each.name, each.detail, each.target)
