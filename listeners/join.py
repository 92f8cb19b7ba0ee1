"""Joins a pass's result with the query's progress; they arrive in either order, or one never arrives.

Called on the outbox's thread. Pure: `now` is an argument, and joined passes are returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from listeners.sample import PassResult, Progress

_T = TypeVar("_T")
_Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass, with or without its progress."""

    result: PassResult
    progress: Progress | None  # None: Spark reported nothing in time

    @property
    def input_rows(self) -> int | None:
        """The rows that it read, by its own count or by Spark's; None: unknown."""
        if self.result.input_rows is not None or self.progress is None:
            return self.result.input_rows
        return self.progress.input_rows


class Joiner:
    """Matches by (run_id, batch_id).

    Args:
        patience_seconds: how long a result waits for its progress before it is released alone; a progress without a
            result (a query that makes no passes) is forgotten after the same time.
        capacity: most results, and most progresses, that wait; beyond it the oldest is released or forgotten early.
    """

    def __init__(self, patience_seconds: float, capacity: int = 1_000) -> None:
        self._patience_seconds = patience_seconds
        self._capacity = capacity
        self._results: dict[_Key, _Waiting[PassResult]] = {}
        self._progresses: dict[_Key, _Waiting[Progress]] = {}

    def __len__(self) -> int:
        """Return how many results and progresses wait."""
        return len(self._results) + len(self._progresses)

    def add_result(self, result: PassResult, now: float) -> Sequence[Pass]:
        """Return the passes that this result completes."""
        key = (result.run_id, result.batch_id)
        progress = self._progresses.pop(key, None)
        ready = list(self.expire(now))
        if progress is not None:  # looked for before expiry: a late progress still beats none
            return [*ready, Pass(result, progress.item)]
        twin = self._results.pop(key, None)  # reported twice: keep both
        if twin is not None:
            ready.append(Pass(twin.item, None))
        self._results[key] = _Waiting(result, now)
        return ready + [Pass(waiting.item, None) for waiting in _shed(self._results, self._capacity)]

    def add_progress(self, progress: Progress, now: float) -> Sequence[Pass]:
        """Return the passes that this progress completes."""
        key = (progress.run_id, progress.batch_id)
        result = self._results.pop(key, None)
        if result is not None:
            return [Pass(result.item, progress), *self.expire(now)]
        ready = self.expire(now)
        self._progresses.pop(key, None)
        self._progresses[key] = _Waiting(progress, now)
        _shed(self._progresses, self._capacity)
        return ready

    def expire(self, now: float) -> Sequence[Pass]:
        """Return the results whose patience has run out, each without progress; call it periodically."""
        _overdue(self._progresses, now - self._patience_seconds)
        return [Pass(waiting.item, None) for waiting in _overdue(self._results, now - self._patience_seconds)]

    def release(self) -> Sequence[Pass]:
        """Return all waiting results without progress and forget the rest: the end of the process."""
        self._progresses.clear()
        return [Pass(waiting.item, None) for waiting in _shed(self._results, 0)]


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[_T]):
    item: _T
    since: float


def _overdue(waiting: dict[_Key, _Waiting[_T]], limit: float) -> list[_Waiting[_T]]:
    keys = [key for key, entry in waiting.items() if entry.since <= limit]
    return [waiting.pop(key) for key in keys]


def _shed(waiting: dict[_Key, _Waiting[_T]], capacity: int) -> list[_Waiting[_T]]:
    """Take out the oldest entries beyond the capacity; a dict keeps the order of arrival."""
    return [waiting.pop(next(iter(waiting))) for _ in range(len(waiting) - capacity)]
