"""Limits the requests to a catalog per second, and the wait for its answers."""

import threading
import time
from functools import lru_cache
from typing import Final, Protocol

from grants.catalog import CatalogUnavailable

_MARGIN: Final = 1.1
"""A request is sent a moment after its turn, now longer, now shorter: without this some seconds have one too many."""


class Clock(Protocol):
    """Seconds that grow, and waiting."""

    def time(self) -> float:
        """Return seconds since some moment."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class WallClock:
    """This machine's clock."""

    def time(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class BoundedClock:
    """A clock for the SDK, which would wait as long as a catalog says, however long that is."""

    def __init__(self, budget_seconds: float, clock: Clock) -> None:
        self._budget, self._clock = budget_seconds, clock

    def time(self) -> float:
        """Return seconds since some moment."""
        return self._clock.time()

    def sleep(self, seconds: float) -> None:
        """Wait, if it is not for longer than there is patience.

        Raises:
            CatalogUnavailable: it is.
        """
        if seconds > self._budget + 1:  # the SDK adds up to a second
            raise CatalogUnavailable(f"The catalog asks to retry after {seconds:.0f} s.")
        self._clock.sleep(seconds)


class RateLimiter:
    """Lets a number of requests through each second, evenly, for any number of threads."""

    def __init__(self, per_second: float, clock: Clock) -> None:
        self._pause, self._clock = _MARGIN / per_second, clock
        self._free_at = clock.time()
        self._lock = threading.Lock()

    def take(self) -> None:
        """Wait for one's turn."""
        with self._lock:
            now = self._clock.time()
            turn_at = max(now, self._free_at)
            self._free_at = turn_at + self._pause
        if turn_at > now:
            self._clock.sleep(turn_at - now)
            with self._lock:  # it may have slept longer: then the next turn is counted from now
                self._free_at = max(self._free_at, self._clock.time() + self._pause)


@lru_cache(maxsize=64)
def limiter_for(address: str, per_second: float) -> RateLimiter:  # noqa: ARG001 - it is what the cache tells them apart by
    """Return the one pace at which this process reads from an address, whichever of its clients does."""
    return RateLimiter(per_second, WallClock())
