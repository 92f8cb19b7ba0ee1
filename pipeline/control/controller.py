"""The controller: the process that brings operations on, tick by tick, from what the control store holds."""

import logging
import math
import threading
import time
from collections import ChainMap
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from listeners.process_kinds import CONTROLLER, ONLY
from pipeline.base import extensions
from pipeline.control.alarms import Alarms
from pipeline.control.backends.starting import Command, make_backends
from pipeline.control.incident_keeper import IncidentKeeper
from pipeline.control.kinds import arguments, duties_of
from pipeline.control.onboarding.keeper import OnboardingKeeper
from pipeline.control.operations import registry
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import Extension, tick
from pipeline.control.present import goes_on, noted_without_leases
from pipeline.control.supervision.evacuation import Evacuator
from pipeline.control.supervision.supervisor import Supervisor
from pipeline.data.streams import active_games
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.health.facts.placing import placing_by
from pipeline.platforms.local.child_processes import turnout
from pipeline.platforms.local.signals import stop_on_signals
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.games import assign_waiting
from pipeline.store.processes.drivers import heartbeat, newest_news, start_driver
from pipeline.store.processes.leases import leased

_log = logging.getLogger("turnout")
KINDS: Final = {str(each.kind): each for each in registry.own()}
_QUIET_SECONDS: Final = 1.0  # between two looks
_BUSY_SECONDS: Final = 0.2  # while an operation is open


def run(
    settings: Settings,
    paths: Paths,
    stop: threading.Event | None = None,
    *,
    stop_groups: bool = False,
    driver: Command | None = None,
) -> int:
    """Run until SIGTERM or SIGINT; return the exit code. What it runs goes on, or ends with it by `stop_groups`.

    The code is 1 where they should have ended and go on, since the control store does not answer or one is frozen.
    Its lease keeps a second controller from running for nothing; two would do no harm. `driver` is the command line
    of a duty and a run's id, `turnout groups run` and `turnout maintain` where None.

    Raises:
        Refused: the store cannot be used, or another controller runs.
    """
    stop = stop or stop_on_signals()
    engine = open_store(settings, paths)
    context = ControlContext(settings, engine, paths)
    max_silent = settings.placement.restart_hung_after_minutes * 60 or math.inf
    duties = partial(duties_of, settings=settings)
    in_hand, backends = partial(_games_in_progress, paths), make_backends(settings, paths, driver or _driver(paths))
    supervisor = Supervisor(engine, backends, in_hand, duties, max_silent, settings.metrics)
    evacuator = Evacuator(engine, settings.placement)
    alone = leased(engine, settings.store, CONTROLLER, ONLY)
    with alone as lease, noted_without_leases(settings.store, paths, CONTROLLER):
        start_driver(engine, CONTROLLER, ONLY, None)
        heartbeats = _Heartbeats(engine, settings.metrics.heartbeat_seconds)
        added: list[Extension] = [make(context) for make in extensions.registered(extensions.CONTROLLER)]
        kinds = ChainMap(dict(KINDS), *(dict(each.kinds) for each in added))
        keeper = IncidentKeeper(engine, settings, CONTROLLER)
        parts = _parts(engine, settings, supervisor, evacuator, keeper, added)
        alarms, looked_at = Alarms(), -math.inf
        while True:
            if lease is not None:
                lease.check()
            wait = _QUIET_SECONDS
            try:
                if tick(context, kinds):
                    wait = _BUSY_SECONDS
                if time.monotonic() - looked_at >= _QUIET_SECONDS:
                    looked_at = time.monotonic()
                    for part, act in parts.items():
                        alarms.run(part, act)
                    heartbeats.heartbeat(alarms.text)
            except SQLAlchemyError as error:
                keeper.store_refused()
                _log.warning("the control store is away, operations and groups wait: %s", error)
            if stop.wait(wait):
                break
        for each in added:
            each.stop()
        return _end(engine, paths, supervisor, stop_groups=stop_groups)


def _parts(
    engine: Engine,
    settings: Settings,
    supervisor: Supervisor,
    evacuator: Evacuator,
    keeper: IncidentKeeper,
    added: Sequence[Extension],
) -> dict[str, Callable[[], Sequence[str]]]:
    """Return what the controller does at each look, by name; each returns what alarms."""

    def place() -> Sequence[str]:
        assign_waiting(engine, placing_by(settings))  # games that fitted nowhere when they came
        return ()

    onboarding = OnboardingKeeper(engine, settings)

    def onboard() -> Sequence[str]:
        onboarding.look()
        return ()

    def supervise() -> Sequence[str]:
        supervisor.tick()
        return supervisor.alarms

    def evacuate() -> Sequence[str]:
        if supervisor.conditions is None:
            return ()  # that look broke
        evacuator.tick(supervisor.conditions)
        return evacuator.alarms

    judged_at, known_news = -math.inf, newest_news(engine)

    def judge() -> Sequence[str]:
        nonlocal judged_at, known_news
        news = newest_news(engine)
        if news != known_news or time.monotonic() - judged_at >= settings.metrics.heartbeat_seconds:
            judged_at, known_news = time.monotonic(), news
            keeper.look()
        return ()

    def extend(extension: Extension) -> Sequence[str]:
        alarm = extension.tick()
        return () if alarm is None else (alarm,)

    others = {f"Extension {type(each).__name__}": partial(extend, each) for each in added}
    own = {"Onboarding": onboard, "Placement": place, "Supervision": supervise, "Evacuation": evacuate}
    return {**own, "Incidents": judge, **others}


def _end(engine: Engine, paths: Paths, supervisor: Supervisor, *, stop_groups: bool) -> int:
    """Stop the groups where that is wished, and tell that the controller has ended; return the exit code."""
    stopped = not stop_groups
    supervisor.frozen = {}
    with tolerate_store_outage("the groups that this controller runs go on"):
        while not stopped:
            stopped = supervisor.stop_all()
            if not stopped:
                time.sleep(_BUSY_SECONDS)
    with tolerate_store_outage("the controller ends, and will be reported as silent"):
        heartbeat(engine, CONTROLLER, ONLY, "stopped", None)
        if (left := goes_on(engine, paths)) is not None:
            _log.info("The controller has ended. %s", left)
    for alarm in supervisor.alarms if stop_groups else ():
        _log.error("%s", alarm)
    return 0 if stopped and not (stop_groups and supervisor.frozen) else 1


class _Heartbeats:
    """Tells that the controller lives, and what alarms it; not at every tick."""

    def __init__(self, engine: Engine, every_seconds: float) -> None:
        self._engine, self._every_seconds = engine, every_seconds
        self._heartbeat_at = -math.inf

    def heartbeat(self, alarm: str | None) -> None:
        if time.monotonic() - self._heartbeat_at >= self._every_seconds:
            heartbeat(self._engine, CONTROLLER, ONLY, "running", None, alarm)
            self._heartbeat_at = time.monotonic()


def _games_in_progress(paths: Paths, group: str) -> list[str]:
    return active_games.read_leftover(paths.checkpoints / "demux" / group)


def _driver(paths: Paths) -> Command:
    return lambda duty, run_id: turnout(*arguments(duty, run_id), "--env-dir", str(paths.root))
