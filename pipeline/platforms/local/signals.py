"""SIGTERM and Ctrl-C as an event that loops wait on: a process ends at a boundary of its own choosing."""

import logging
import signal
import threading
from types import FrameType
from typing import Final

_log = logging.getLogger("turnout")
STOP_SECONDS: Final = 60.0
"""The controller then kills a driver that has not ended: it may hang in a pass, and no row depends on it."""


def stop_on_signals() -> threading.Event:
    """Return an event that is set by the first SIGTERM or SIGINT.

    Outside the main thread Python takes no signals, as where a platform runs us in a thread of its own: then only the
    control store's word ends a driver in order.
    """
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    try:
        signal.signal(signal.SIGTERM, handle)
        signal.signal(signal.SIGINT, handle)
    except ValueError:
        _log.info("this is not the main thread: no signal stops this process, only the control store does")
    return stop
