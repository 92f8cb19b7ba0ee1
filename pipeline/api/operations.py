"""Operations and their journals, and what decides about what can be done for games.

Every query raises `Refused` where the control store cannot be read.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.control.capabilities import read_all_facts
from pipeline.control.operations import registry
from pipeline.control.operations.executor import require_undoable
from pipeline.control.operations.facts import GameFacts
from pipeline.health.facts.liveness import judge_controller
from pipeline.health.verdicts.liveness import controller_absence
from pipeline.store.database.engine import reading
from pipeline.store.database.states import OperationKind, OperationState
from pipeline.store.games import known_games
from pipeline.store.operation_events import TargetEvent, read_events
from pipeline.store.operations import Intent, Operation, Step, last_durations, list_operations, steps
from pipeline.store.operations import operation as find
from pipeline.store.processes.leases import store_time

__all__ = [
    "Intent",
    "OneOperation",
    "Operation",
    "OperationKind",
    "OperationList",
    "OperationState",
    "OperationWords",
    "Step",
    "TargetEvent",
    "absence",
    "facts",
    "journal",
    "moved",
    "one",
    "opened",
    "words",
    "words_of",
]

_MAX_OPEN: Final = 1_000
_LATEST: Final = 200  # operations that have ended


@dataclass(frozen=True, slots=True)
class OperationList:
    """The operations there are, with the names of the games they are about, read at one moment (Unix seconds)."""

    operations: tuple[Operation, ...]  # those that need a person, then the open ones, then the newest
    names: Mapping[str, str]  # by game key
    no_controller: str | None  # why no controller acts, as a clause; None: one does
    read_at: float


@dataclass(frozen=True, slots=True)
class OneOperation:
    """One operation with its steps, read at one moment (Unix seconds)."""

    operation: Operation
    steps: tuple[Step, ...]
    names: Mapping[str, str]
    no_controller: str | None  # why no controller acts, as a clause; None: one does
    why_no_undo: str | None  # None: it may be undone
    read_at: float
    events: tuple[TargetEvent, ...] = ()  # of its targets, in the order in which they were seen
    usual_seconds: float | None = None  # what the last success of its kind on this one target took; None: not known


@dataclass(frozen=True, slots=True)
class OperationWords:
    """What people call an operation: `drain` of `group:b`, though its kind is `move` and its targets are games."""

    verb: str
    about: tuple[str, ...]  # targets


def words(operation: Operation) -> OperationWords:
    """Return the words of an operation's definition; without a definition, its kind and targets."""
    return words_of(Intent(operation.kind, operation.targets, operation.actor, operation.reason, operation.parameters))


def words_of(intent: Intent) -> OperationWords:
    """Return the words of an intent's definition; without a definition, its kind and targets."""
    known = registry.find(intent.kind)
    if known is None:
        return OperationWords(intent.kind, intent.targets)
    return OperationWords(known.verb(intent), known.about(intent))


def moved(operation: Operation) -> dict[str, tuple[str | None, str]]:
    """Return the games that an operation moves: key → the group that had it, None: none, and the one that gets it."""
    return {
        key: (operation.preview.get(key, (None,))[0], target)
        for key, target in operation.parameters.get("assignments", {}).items()
    }


@reading()
def opened(environment: OpenEnvironment) -> list[Operation]:
    """Read the open operations: those that need a person, then running ones."""
    return list_operations(environment.engine, only_open=True, limit=_MAX_OPEN)


@reading()
def journal(environment: OpenEnvironment) -> OperationList:
    """Read the open operations and the latest ones."""
    store, still_open = environment.engine, opened(environment)
    known = {each.operation_id for each in still_open}
    ended = [each for each in list_operations(store, limit=_LATEST) if each.operation_id not in known]
    return OperationList((*still_open, *ended), known_games(store), absence(environment), time.time())


@reading()
def one(environment: OpenEnvironment, operation_id: str) -> OneOperation:
    """Read one operation (its id or the beginning of it) with its steps.

    Raises:
        Refused: there is none.
    """
    store = environment.engine
    stored = find(store, operation_id)
    try:
        # The inverse of a change of access is planned by `grants`.
        known = registry.find(stored.kind)
        if known is None or not known.has_items or stored.is_open:
            require_undoable(store, stored)
        why = None
    except Refused as refused:
        why = str(refused)
    journaled = tuple(steps(store, stored.operation_id))
    noted = tuple(read_events(store, [stored.operation_id]).get(stored.operation_id, ()))
    took = last_durations(store, stored.targets[0]) if len(stored.targets) == 1 and stored.is_open else {}
    return OneOperation(
        stored, journaled, known_games(store), absence(environment), why, time.time(), noted, took.get(stored.kind)
    )


@reading()
def facts(environment: OpenEnvironment, keys: Sequence[str]) -> Mapping[str, GameFacts]:
    """Read what decides about what can be done for games; rows in quarantine are not counted."""
    store, metrics = environment.engine, environment.settings.metrics
    return read_all_facts(store, environment.paths, keys, store_time(store), metrics=metrics)


@reading()
def absence(environment: OpenEnvironment) -> str | None:
    """Return why no controller acts, as a clause; None where one does."""
    return controller_absence(judge_controller(environment.engine, environment.settings.metrics))
