"""The controller: the process that brings operations on, tick by tick, from what the control store holds."""

import logging
import threading
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from pipeline.control.engine import World, tick
from pipeline.control.moves import MOVE
from pipeline.control.signals import stop_on_signals
from pipeline.settings import Paths, Settings
from pipeline.store.engine import open_store
from pipeline.store.leases import leased

_log = logging.getLogger("turnout")
KINDS: Final = {MOVE.name: MOVE}
_QUIET_SECONDS: Final = 1.0  # between two looks
_BUSY_SECONDS: Final = 0.2  # while an operation is open


def run(settings: Settings, paths: Paths, stop: threading.Event | None = None) -> int:
    """Run until SIGTERM or SIGINT; return the exit code.

    Its lease keeps a second controller from running for nothing; two would do no harm.

    Raises:
        Refused: the store cannot be used, or another controller runs.
    """
    stop = stop or stop_on_signals()
    engine = open_store(settings, paths)
    world = World(settings, engine)
    with leased(engine, settings.store, "controller", "main") as lease:
        while True:
            if lease is not None:
                lease.check()
            wait = _QUIET_SECONDS
            try:
                if tick(world, KINDS):
                    wait = _BUSY_SECONDS
            except SQLAlchemyError as error:
                _log.warning("the control store is away, operations wait: %s", error)
            if stop.wait(wait):
                return 0
