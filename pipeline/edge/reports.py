"""Hands what threads of the log report to the event loop: one wake-up for a burst, as each costs a system call."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress


class Reports:
    """Reports on their way to one event loop, in the order in which they came."""

    def __init__(self) -> None:
        """Begin with none."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def hand(self, loop: asyncio.AbstractEventLoop, report: Callable[[], None]) -> None:
        """Let the loop call this soon; from any thread. Once the loop has ended nobody waits for it."""
        self._waiting.append(report)
        if not self._is_woken:  # who has woken it finds this, too: it says so before it looks
            self._is_woken = True
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._take, loop)

    def _take(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_woken = False
        for _ in range(len(self._waiting)):  # what comes meanwhile has woken the loop again
            loop.call_soon(self._waiting.popleft())  # a call of its own, as one that fails must not stop the others
