"""SIGTERM and Ctrl-C as an event that loops wait on: a process ends at a boundary of its own choosing."""

import signal
import threading
from types import FrameType
from typing import Final

STOP_SECONDS: Final = 60.0
"""The controller then kills a driver that has not ended: it may hang in a pass, and no row depends on it."""


def stop_on_signals() -> threading.Event:
    """Return an event that is set by the first SIGTERM or SIGINT."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return stop
