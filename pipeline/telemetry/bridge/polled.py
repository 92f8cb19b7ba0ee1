"""Reads one place on demand, at most once in a while, on a thread of its own.

However many scrapes ask, one reading serves them; a place that hangs keeps nobody longer than they want to wait.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pipeline.base.errors import first_line

_T = TypeVar("_T")
_CLOSE_SECONDS: Final = 5.0

_log = logging.getLogger("turnout")


@dataclass(frozen=True, slots=True)
class PolledValue(Generic[_T]):
    """The newest reading that succeeded."""

    value: _T
    at: float  # Unix seconds
    age_seconds: float  # since then, by a monotonic clock


class Polled(Generic[_T]):
    """Reads a place again on demand, where the last reading began `every_seconds` ago or earlier."""

    def __init__(self, place: str, read: Callable[[], _T], every_seconds: float) -> None:
        self.place = place
        self.failures = 0
        self._read, self._every = read, every_seconds
        self._changed = threading.Condition()
        self._is_wanted = self._is_closed = False
        self._began = float("-inf")  # by the monotonic clock, as the next
        self._newest: tuple[_T, float, float] | None = None
        self._failed: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"read-{place}", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str | None:
        """Why the last reading failed, one line; None where it did not."""
        return self._failed

    def want(self) -> None:
        """Begin a reading if one is due and none is under way; returns at once."""
        with self._changed:
            if not self._is_wanted and time.monotonic() - self._began >= self._every:
                self._is_wanted = True
                self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait at most `seconds` for the reading that is under way, if one is."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_wanted, max(0.0, seconds))

    def newest(self) -> PolledValue[_T] | None:
        """Return the newest reading that succeeded; None where none ever did."""
        with self._changed:
            found = self._newest
        return None if found is None else PolledValue(found[0], found[1], time.monotonic() - found[2])

    def close(self) -> None:
        """Read no more; a reading that hangs ends with the process."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_wanted or self._is_closed)
                if self._is_closed:
                    return
                self._began = time.monotonic()
            at, began, failed = time.time(), self._began, None
            value: _T | None = None
            try:
                value = self._read()
            except Exception as error:  # noqa: BLE001 - the thread's edge: what is away now may be back at the next look
                failed = first_line(error)
                _log.warning("%s cannot be read: %s", self.place, failed)
            with self._changed:
                self._failed = failed
                if value is None:
                    self.failures += 1
                else:
                    self._newest = (value, at, began)
                self._is_wanted = False
                self._changed.notify_all()
