"""The controller: the process that brings operations on, tick by tick, from what the control store holds."""

import logging
import threading
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from pipeline.control import moves, pauses
from pipeline.control.engine import World, require_undoable, tick
from pipeline.control.signals import stop_on_signals
from pipeline.settings import Paths, Settings
from pipeline.store.decisions import decided
from pipeline.store.engine import open_store
from pipeline.store.games import assign_waiting
from pipeline.store.leases import leased
from pipeline.store.loads import read_loads
from pipeline.store.operations import Operation, Wish
from pipeline.store.placing import MOST_GAMES
from pipeline.store.seats import group_seats, seats

_log = logging.getLogger("turnout")
KINDS: Final = {moves.MOVE.name: moves.MOVE, **pauses.KINDS}
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
                assign_waiting(engine, settings.placement.most_games)  # games that fitted nowhere when they came
                if tick(world, KINDS):
                    wait = _BUSY_SECONDS
            except SQLAlchemyError as error:
                _log.warning("the control store is away, operations wait: %s", error)
            if stop.wait(wait):
                return 0


def undo(
    engine: Engine, done: Operation, actor: str, reason: str, now: float, most_games: int = MOST_GAMES
) -> tuple[Wish, list[str]]:
    """Return the inverse of an operation, to be asked for like any other, and what it does as lines for people.

    Raises:
        Refused: it has none, or it cannot be any more.
    """
    require_undoable(engine, done)
    there = seats(engine)
    if done.kind == "move":
        loads = read_loads(engine, now, most_games)
        plan = moves.undo(done, there, group_seats(engine), now, loads)
        return plan.wish(actor, reason, done.operation_id), moves.rendered(plan, there, loads)
    kind = pauses.INVERSE[done.kind]
    facts = pauses.plan(kind, done.parameters["games"], there, decided(engine))
    return pauses.wish(kind, facts, actor, reason, done.operation_id), pauses.rendered(kind, facts, there)
