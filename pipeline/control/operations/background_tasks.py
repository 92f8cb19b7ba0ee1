"""Long work of the controller, in threads of its process, so that no tick waits for it; begun by `repairs`.

Nothing here survives the process: the next one begins again what was waited for, so each task must bear that.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

_WORKERS: Final = 2  # each may read all of a game's bronze


class BackgroundTasks:
    """What is being done in this process, by name."""

    def __init__(self) -> None:
        """Begin with nothing; threads start when there is work."""
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="work")
        self._lock = threading.Lock()
        self._begun: dict[str, Future[str]] = {}
        self._notes: dict[str, str] = {}

    def contains(self, name: str) -> bool:
        """Return whether a work of this name was begun here, and its result was not taken yet."""
        with self._lock:
            return name in self._begun

    def submit(self, name: str, work: Callable[[], str]) -> None:
        """Begin a work, or let it wait for a thread; one of this name that is here goes on instead."""
        with self._lock:
            if name not in self._begun:
                self._begun[name] = self._pool.submit(work)

    def has_ended(self, name: str) -> bool:
        """Return whether a work of this name has ended here, and its result was not taken yet."""
        with self._lock:
            return name in self._begun and self._begun[name].done()

    def note(self, name: str, text: str) -> None:
        """Keep how far a work is, as a sentence; the work itself calls it."""
        with self._lock:
            if name in self._begun:
                self._notes[name] = text

    def noted(self, name: str) -> str | None:
        """Return how far a work is; None where it has not said so."""
        with self._lock:
            return self._notes.get(name)

    def pop_result(self, name: str) -> str | None:
        """Return a task's result and forget it, None while it runs or waits; what it raised is raised."""
        with self._lock:
            begun = self._begun[name]
            if not begun.done():
                return None
            del self._begun[name]
            self._notes.pop(name, None)
        return begun.result()
