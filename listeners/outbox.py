"""A bounded queue with one draining thread, between callers that must not wait and sinks that may.

Offering never blocks: when the queue is full the oldest item is dropped and counted.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Outbox(Generic[_T]):
    """Hands items to `publish` in order, on a thread of its own.

    Args:
        capacity: most items that wait; beyond it the oldest is dropped.
        publish: called with one item at a time; its exceptions are counted and logged, and the next item follows.
    """

    def __init__(self, capacity: int, publish: Callable[[_T], None]) -> None:
        if capacity < 1:
            raise ValueError(f"an outbox needs room for at least one item, got {capacity}")
        self._capacity = capacity
        self._publish = publish
        self._items: deque[_T] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._dropped = 0
        self._failures = 0
        self._thread = threading.Thread(target=self._drain, name="outbox", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._items)

    @property
    def dropped(self) -> int:
        """Items that were never published: too many waited, or the outbox was closed."""
        return self._dropped

    @property
    def failures(self) -> int:
        """Items for which `publish` raised."""
        return self._failures

    def offer(self, item: _T) -> None:
        """Add an item; returns at once."""
        with self._changed:
            if self._closed:
                self._dropped += 1
                return
            if len(self._items) == self._capacity:
                self._items.popleft()
                self._dropped += 1
            self._items.append(item)
            self._changed.notify()

    def close(self, deadline_seconds: float) -> bool:
        """Take no more items and publish the waiting ones until the deadline; return whether all were published.

        Items left after the deadline are dropped and counted.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(deadline_seconds)
        with self._changed:
            left = len(self._items)
            self._dropped += left
            self._items.clear()
        return left == 0 and not self._thread.is_alive()

    def _drain(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._closed)
                if not self._items:
                    return
                item = self._items.popleft()
            try:
                self._publish(item)
            except Exception:  # noqa: BLE001 - the thread's edge: one bad item must not stop all others
                self._failures += 1
                _log.exception("a sink failed; the item is lost")
