"""What the pages ask for: first a preview of it, then one operation in the control store; the controller does the rest.

Nothing here draws. A preview carries its own key, so however often it is confirmed, it is asked for once.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from app import services, words
from app.services import Environment
from pipeline.control import controller, moves, pauses
from pipeline.control import engine as steps
from pipeline.errors import Refused
from pipeline.store import operations
from pipeline.store.decisions import decided
from pipeline.store.operations import Operation, Stale, Wish
from pipeline.store.seats import Seat, group_seats, seats


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be asked for, and what a person is shown of it."""

    wish: Wish
    lines: tuple[str, ...]  # raw names are in them: draw them as text
    seen_at: float  # Unix seconds


def preview_move(environment: Environment, keys: Sequence[str], group: str | None) -> Preview:
    """Plan to move games, by their keys, to a group.

    Raises:
        Refused: it cannot be, there is nothing to move, or the control store cannot be read.
    """
    if not keys or group is None:
        raise Refused("Choose what to move, and the group that shall carry it.")
    with services.reading():
        store = services.engine(environment)
        there = seats(store)
        plan = moves.plan(dict.fromkeys(keys, group), there, group_seats(store), time.time())
    if not plan.moves:
        raise Refused(f"Nothing to move: choose games that are not in group {group} already.")
    left = sorted(set(keys) - {each.game_key for each in plan.moves})
    lines = [*moves.rendered(plan, there), *(f"left out: {key} is in group {group} already" for key in left)]
    return _preview(plan.wish(services.actor(), ""), lines, there)


def preview_decision(environment: Environment, kind: str, keys: Sequence[str]) -> Preview:
    """Plan a pause, a resume or a retry (`kind`) of games, by their keys.

    Raises:
        Refused: a game does not exist, nothing would change, or the control store cannot be read.
    """
    with services.reading():
        store = services.engine(environment)
        there = seats(store)
        facts = pauses.plan(kind, keys, there, decided(store))
    left = [f"{key} {_UNCHANGED[kind]}" for key in sorted(set(keys) - facts.keys())]
    if not facts:
        raise Refused(f"Nothing to {kind}: {'; '.join(left) or 'no game is chosen'}.")
    lines = [*pauses.rendered(kind, facts, there), *(f"left out: {each}" for each in left)]
    return _preview(pauses.wish(kind, facts, services.actor(), ""), lines, there)


_UNCHANGED = {
    "pause": "is paused already",
    "resume": "is not paused",
    "retry": "is not parked and does not wait after a failure",
}


def preview_undo(environment: Environment, operation_id: str) -> Preview:
    """Plan the inverse of an operation.

    Raises:
        Refused: it has none, it cannot be any more, or the control store cannot be read.
    """
    with services.reading():
        store = services.engine(environment)
        done = operations.operation(store, operation_id)
        wish, lines = controller.undo(store, done, services.actor(), "", time.time())
        there = seats(store)
    if not wish.targets:
        raise Refused(f"Nothing to undo: operation {done.operation_id[:8]} has no effect any more.")
    return _preview(wish, lines, there)


def ask(environment: Environment, wish: Wish) -> Operation:
    """Write one operation; asked again with the same wish it is the same one.

    Raises:
        Refused: one of its targets belongs to another open operation, or the control store does not answer.
    """
    with _writing():
        return operations.ask(services.engine(environment), wish)


def resume(environment: Environment, seen: Operation, reason: str = "") -> Operation:
    """Let an operation that needs a person go on, if it is as it was seen.

    Raises:
        Refused: it does not wait for a person, has changed since, or the control store does not answer.
    """
    with _writing():
        return steps.resume(services.engine(environment), seen, services.actor(), reason)


def close(environment: Environment, seen: Operation, reason: str) -> Operation:
    """End an operation that needs a person, if it is as it was seen.

    Raises:
        Refused: it does not wait for a person, has changed since, or the control store does not answer.
    """
    with _writing():
        return steps.close(services.engine(environment), seen, services.actor(), reason)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except Stale as stale:
        raise Refused("Somebody else has changed this operation since you looked. Look again.") from stale
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise Refused(
            f"The control store did not answer: {reason}. Try again: what is confirmed twice is asked for once."
        ) from error


def _preview(wish: Wish, lines: Sequence[str], there: Mapping[str, Seat]) -> Preview:
    return Preview(wish, tuple(_named(line, there) for line in lines), time.time())


def _named(line: str, there: Mapping[str, Seat]) -> str:
    """Put a game's name before a line that begins with its key."""
    key = line.partition(":")[0]
    return f"{words.shown(there[key].game, 60)} · {line}" if key in there else line
