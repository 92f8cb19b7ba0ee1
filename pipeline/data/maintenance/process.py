"""`turnout maintain`: runs round after round within the configured hours, and records each in the control store.

A process of its own, without Spark, started by the controller or by hand; the controller does not stop one started by
hand. A lease keeps out a second one. While the control store is away the rounds go on.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from sqlalchemy import Engine

from listeners.process_kinds import MAINTENANCE, ONLY
from pipeline.base.errors import Refused
from pipeline.base.terminal import say_lines
from pipeline.data.derived.definitions import Definition, loads
from pipeline.data.maintenance.readers import Reader, readers_said
from pipeline.data.maintenance.report import Round, as_json, render_round
from pipeline.data.maintenance.run import one_round
from pipeline.data.maintenance.unchanged import Unchanged
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.health.facts.liveness import read_drivers
from pipeline.health.verdicts.upkeep import in_hours
from pipeline.settings.parsing import hours_of
from pipeline.settings.tree import Paths, Settings, Store
from pipeline.store.database.engine import DRIVER_CONNECTIONS, open_store
from pipeline.store.database.states import ProcessState
from pipeline.store.derived import in_force_in
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Lease, held_by, leased
from pipeline.store.processes.runs import is_wanted
from pipeline.store.reports import record_round

_THOROUGH_SECONDS = 24 * 3600.0  # between two checks of all of quarantine
_HOURS_SECONDS = 30.0  # between two checks of the configured hours


def maintain(
    settings: Settings,
    paths: Paths,
    stop: threading.Event,
    *,
    once: bool,
    as_json_lines: bool,
    run_id: int | None = None,
) -> int:
    """Run a round at each interval until a signal to stop, or only one with `once`; print each, return the exit code.

    `once` ignores the configured hours. `run_id` is the run of the control store that a controller started it for.

    Raises:
        Refused: there is no such environment, the store cannot be used, or another process does maintenance.
    """
    if not paths.root.is_dir():
        raise Refused(f"The environment {paths.root} does not exist. Give --env-dir an existing environment.")
    engine = open_store(settings, paths, connections=DRIVER_CONNECTIONS)
    hours = (0, 24) if once else hours_of(settings.maintenance.hours) or (0, 24)
    with ExitStack() as held:
        lease = _take(engine, settings.store, held, run_id)

        def goes_on() -> bool:
            if not paths.root.is_dir():
                raise Refused(f"The environment {paths.root} no longer exists.")
            if lease is not None:
                lease.check()
            while not in_hours(hours, time.time()):
                if stop.wait(_HOURS_SECONDS):
                    return False
            return not stop.is_set()

        with _heartbeats(engine, settings.metrics.heartbeat_seconds, stop, run_id):
            return _rounds(settings, paths, engine, stop, goes_on, once=once, as_json_lines=as_json_lines)


def _take(engine: Engine, wanted: Store, held: ExitStack, run_id: int | None) -> Lease | None:
    """Hold the lease on maintenance until `held` ends; see `leased`.

    Raises:
        Refused: another process has it. The controller's would be started again where a person ended it.
    """
    try:
        return held.enter_context(leased(engine, wanted, MAINTENANCE, ONLY, run_id))
    except Refused:
        key, facts = (MAINTENANCE, ONLY), read_drivers(engine)
        holder, lease, run = held_by(engine, *key), facts.leases.get(key), facts.runs.get(key)
        if holder is None or lease is None or run is None or run.ended_at is not None or lease.run_id != run.run_id:
            raise
        raise Refused(
            f"The controller runs maintenance, as process {holder.pid} on {holder.host}. Wait for its next round, "
            f"which `turnout status` shows. To run it yourself, set maintenance.backend to none and restart the "
            f"controller, which stops that process."
        ) from None


def _rounds(
    settings: Settings,
    paths: Paths,
    engine: Engine,
    stop: threading.Event,
    goes_on: Callable[[], bool],
    *,
    once: bool,
    as_json_lines: bool,
) -> int:
    thorough_at, unchanged, in_force = -math.inf, Unchanged(), InForce(engine)
    while goes_on():
        now = time.time()
        thorough = now - thorough_at >= _THOROUGH_SECONDS
        said = partial(_readers_said, engine)
        done = one_round(
            settings, paths, now, thorough=thorough, readers_said=said, streams=in_force.read, unchanged=unchanged,
            goes_on=goes_on,
        )  # fmt: skip
        if not done.is_whole:
            break
        thorough_at = now if thorough else thorough_at
        _record(engine, done)
        say_lines(as_json(done) if as_json_lines else render_round(done))
        if once:
            return 0 if done.ok else 1
        if stop.wait(settings.maintenance.interval_minutes * 60):
            break
    return 0


def _readers_said(engine: Engine) -> list[Reader]:
    """Return the readers in the control store; while that is away, one at an unknown position."""
    said: list[Reader] | None = None
    with tolerate_store_outage("bronze is not merged in this round"):
        said = readers_said(engine)
    unknown = Reader("of any group, as the control store does not answer", None, time.time())
    return [unknown] if said is None else said


class InForce:
    """The derived streams in force, as last known: while the control store is away nobody applies others."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: tuple[Definition, ...] | None = None

    def read(self) -> tuple[Definition, ...] | None:
        """Return them; None where the control store has not answered yet."""
        with tolerate_store_outage("logs are kept for the derived streams last known"), self._engine.connect() as held:
            self._known = loads(in_force_in(held))
        return self._known


def _record(engine: Engine, done: Round) -> None:
    failed = [f"{table.table}: {table.error}" for table in done.tables if table.error is not None]
    with tolerate_store_outage("the result of this round of maintenance is not recorded"):
        record_round(
            engine,
            done.seconds,
            failed,
            tables=len(done.tables),
            files_before=sum(table.files_before or 0 for table in done.tables),
            files_after=sum(table.files_after or 0 for table in done.tables),
        )


@contextmanager
def _heartbeats(engine: Engine, every_seconds: float, stop: threading.Event, run_id: int | None) -> Iterator[None]:
    """Send heartbeats while the block runs, however long a table takes, and record how it ended."""
    start_driver(engine, MAINTENANCE, ONLY, None, run_id)
    ended = threading.Event()
    beat = partial(_heartbeat, engine, every_seconds, ended, stop, run_id)
    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    state: ProcessState = "failed"
    error = None
    try:
        yield
        state = "stopped"
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"[:500]
        raise
    finally:
        ended.set()
        thread.join()
        with tolerate_store_outage("the end of maintenance is not recorded"):
            heartbeat(engine, MAINTENANCE, ONLY, state, None, error)


def _heartbeat(
    engine: Engine, every_seconds: float, ended: threading.Event, stop: threading.Event, run_id: int | None
) -> None:
    while True:
        with tolerate_store_outage("this heartbeat is not recorded"):
            heartbeat(engine, MAINTENANCE, ONLY, "running", None)
            if run_id is not None and not is_wanted(engine, MAINTENANCE, ONLY, run_id):
                stop.set()  # the controller wants this run to end
        if ended.wait(every_seconds):
            return
