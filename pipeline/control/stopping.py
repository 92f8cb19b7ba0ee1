"""Stops processes of this machine where no controller does it: for `turnout stop`, and for a stop of groups.

Both hold the controller's lease meanwhile, so that no controller starts again what they stop, and note themselves, so
that neither takes the other for a controller.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from sqlalchemy import Engine

from listeners.process_kinds import CONTROLLER, GROUP, ONLY, described
from pipeline.base.errors import Refused
from pipeline.control.backends.duties import Duty
from pipeline.control.backends.local import Local
from pipeline.control.kinds import registered
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import advance
from pipeline.control.operations.groups import STOP as STOP_GROUPS
from pipeline.control.present import (
    DEMO,
    STOP,
    Present,
    noted,
    other_stop,
    present,
    with_lease,
)
from pipeline.health.facts.liveness import read_drivers
from pipeline.health.verdicts.liveness import heartbeat_limit
from pipeline.platforms.local.signals import STOP_SECONDS
from pipeline.settings.tree import Paths
from pipeline.store.backends import backend_kind
from pipeline.store.operations import Operation, OperationConflict
from pipeline.store.processes.leases import Process, expire_dead, leased
from pipeline.store.processes.runs import end_run, open_runs, submit_stop

_log = logging.getLogger("turnout")
_DEMO_SECONDS: Final = 2 * STOP_SECONDS + 20.0  # it waits for its controller, which waits for the groups
_KILLED_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1
Say = Callable[[str], None]


def stop_environment(context: ControlContext, say: Say) -> bool:
    """Stop everything of an environment that runs on this machine; return whether all of it has ended.

    Groups keep their desired state: the next controller starts them again. `say` gets a line about each process, and
    about each that runs elsewhere.

    Raises:
        Refused: another command stops processes of it already.
    """
    engine, paths = context.engine, context.paths
    if (other := other_stop(paths)) is not None:
        raise Refused(
            f"Another stop of {paths.root} runs, process {other.process.pid}. Wait for its end, and then stop again."
        )
    with _marked(paths), ExitStack() as held:
        expire_dead(engine)
        is_done = _stop(context, _here(context, {DEMO}), say, _DEMO_SECONDS)
        is_done &= _stop(context, _here(context, {CONTROLLER}), say, STOP_SECONDS)
        with suppress(Refused):  # a controller of another machine has it, which is said below
            held.enter_context(leased(engine, context.settings.store, CONTROLLER, ONLY))
        is_done &= _stop(context, _here(context), say, STOP_SECONDS)
        for line in _elsewhere(engine):
            say(line)
        unknown = [] if context.settings.store.leases else _beating_here(context)
        for line in unknown:
            say(line)
    return is_done and not unknown


def stop_groups(context: ControlContext, operation: Operation) -> bool:
    """Carry out an operation that stops groups, where all of their drivers are processes of this machine.

    Return whether it was begun: a controller has to do it where a driver is elsewhere, or where one runs by now.
    """
    engine, names = context.engine, frozenset(operation.preview)
    if not _are_here(engine, names):
        return False
    _wait_for_another(context.paths)
    is_second = False  # beside a stop that began in the same moment
    with _marked(context.paths), ExitStack() as held:
        try:
            held.enter_context(leased(engine, context.settings.store, CONTROLLER, ONLY))
            while operation.is_open and not operation.is_stuck:
                operation = advance(context, STOP_GROUPS, operation)
                if operation.is_open:
                    drivers = [each for each in _here(context, {GROUP}) if each.name in names]
                    _stop(context, drivers, _log.info, STOP_SECONDS)
                    _end_unknown(engine, names)
                    time.sleep(_LOOK_SECONDS)
        except OperationConflict:
            pass  # another process has changed it: it is followed as any other
        except Refused:
            if other_stop(context.paths) is None:
                return False  # a controller has begun to run
            is_second = True
    return stop_groups(context, operation) if is_second else True


@contextmanager
def _marked(paths: Paths) -> Iterator[None]:
    """Note that this process stops others while the block runs; a disk without room keeps nobody from it."""
    with ExitStack() as held:
        with suppress(OSError):
            held.enter_context(noted(paths, STOP))
        yield


def _wait_for_another(paths: Paths) -> None:
    """Wait until no other command stops processes of the environment."""
    known = None
    while (other := other_stop(paths)) is not None:
        if other != known:
            known = other
            _log.info("another stop runs, process %d: waiting for its end", other.process.pid)
        time.sleep(_LOOK_SECONDS)


def _here(context: ControlContext, kinds: Collection[str] | None = None) -> list[Present]:
    this = Process.this()
    return [
        each for each in present(context.engine, context.paths)
        if each.process.is_here() and each.process != this and (kinds is None or each.kind in kinds)
    ]  # fmt: skip


def _are_here(engine: Engine, names: Collection[str]) -> bool:
    drivers = [each for each in with_lease(engine, GROUP) if each.name in names]
    runs = [run for name, run in open_runs(engine).items() if name in names]
    return all(each.process.is_here() for each in drivers) and all(backend_kind(run.backend).is_here for run in runs)


def _stop(context: ControlContext, stopping: Sequence[Present], say: Say, seconds: float) -> bool:
    """Ask processes to end, and kill those that have not after `seconds`; return whether all have ended."""
    engine, local = context.engine, Local(context.paths.logs, _starts_nothing, {})
    asked, is_done = [], True
    for each in stopping:
        if each.run_id is not None:
            submit_stop(engine, each.run_id)  # its end is no death, then
        try:
            local.stop(each.reference)
            asked.append(each)
        except Refused as refused:
            say(f"{each} goes on: {refused}")
            is_done = False
    for each in _still_there(asked, seconds):
        local.kill(each.reference)
        say(f"{each} did not end within {seconds:.0f} s, so it is killed.")
    left = _still_there(asked, _KILLED_SECONDS)
    for each in asked:
        if each in left:
            say(f"{each} goes on, though it was killed.")
            continue
        if each.run_id is not None:
            end_run(engine, each.run_id, "stopped by a command", died=False)
        say(f"stopped: {each}")
    expire_dead(engine)
    return is_done and not left


def _still_there(stopping: Sequence[Present], seconds: float) -> list[Present]:
    """Wait until these processes have ended, at most `seconds`; return those that have not."""
    deadline = time.monotonic() + seconds
    while (left := [each for each in stopping if not each.process.is_dead()]) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return left


def _end_unknown(engine: Engine, names: Collection[str]) -> None:
    """Give up runs whose process nobody knows. A driver that was started all the same finds that out, and ends."""
    for name, run in open_runs(engine).items():
        if name in names and run.reference is None:
            end_run(engine, run.run_id, "what started it ended before its process was known", died=False)


def _elsewhere(engine: Engine) -> Iterator[str]:
    """Yield what runs and is not of this machine, with the command that stops it."""
    for each in registered():
        for name, run in open_runs(engine, each.kind.name).items():
            if backend_kind(run.backend).is_job:
                end = "stop it there" if each.stop_command is None else f"`{each.stop_command(name)}` stops it"
                yield f"{described(each.kind.name, name)} goes on as a job of a workspace: {end}"
    for other in with_lease(engine):
        if not other.process.is_here():
            yield f"{other} on {other.process.host} goes on: stop it there"


def _beating_here(context: ControlContext) -> list[str]:
    """Return processes that report from this machine and were not found, with how to end each; a lease proves a pid."""
    heartbeat_seconds = context.settings.metrics.heartbeat_seconds
    facts, this = read_drivers(context.engine, context.settings.metrics), Process.this()
    found = {this.pid, *(each.process.pid for each in present(context.engine, context.paths))}
    return [
        f"{described(*key)} goes on as process {each.pid}: without `store.leases` this command cannot find it. "
        f"End it with `kill {each.pid}`."
        for key, each in facts.drivers.items()
        if each.host == this.host and each.pid not in found and each.state != "stopped"
        and each.heartbeat_age(facts.now) <= heartbeat_limit(heartbeat_seconds)
        and not Process.of(each.pid).is_dead()
    ]  # fmt: skip


def _starts_nothing(_duty: Duty, _run_id: int) -> Sequence[str]:
    raise Refused("This command starts no process.")
