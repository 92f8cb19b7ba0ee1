"""SIGTERM and Ctrl-C as an event that loops wait on: a process ends at a boundary of its own choosing."""

import faulthandler
import logging
import signal
import threading
from types import FrameType
from typing import Final

_log = logging.getLogger("turnout")
STOP_SECONDS: Final = 60.0
"""The controller then kills a driver that has not ended: it may hang in a pass, and no row depends on it."""
DRIVER_SECONDS: Final = 50.0
"""A driver then ends itself, and its log has what each thread waits for. Spark's waits for queries and for its own end,
and those of Python for threads, have no limit of their own."""


def stop_on_signals(within: float | None = None) -> threading.Event:
    """Return an event that is set by the first SIGTERM or SIGINT.

    A process that still runs `within` seconds later prints the stacks of its threads and ends with exit code 1.

    Outside the main thread Python takes no signals, as where a platform runs us in a thread of its own: then only the
    control store's word ends a driver in order.
    """
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if within is not None and not stop.is_set():
            faulthandler.dump_traceback_later(within, exit=True)
        stop.set()

    try:
        signal.signal(signal.SIGTERM, handle)
        signal.signal(signal.SIGINT, handle)
    except ValueError:
        _log.info("this is not the main thread: no signal stops this process, only the control store does")
    return stop
