"""The composition roots of the two kinds of driver: ingest, and one cluster group. Only the command line imports this.

A driver sends heartbeats, watches its query, restarts it within a budget, and ends cleanly on SIGTERM or Ctrl-C.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from listeners.listener import Attachment, attach
from listeners.process_kinds import GROUP, INGEST, ONLY
from listeners.sample import PassResult
from pipeline.base.errors import Refused, StorageError, Transient, first_line
from pipeline.base.names import is_group_name
from pipeline.base.reasons import innermost, passing
from pipeline.control.incident_keeper import IncidentKeeper
from pipeline.control.present import goes_on, noted_without_leases
from pipeline.data.books.keeping import BookKeeper
from pipeline.data.contracts.given_ids import StoreAge
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.derived.carrying import DerivedStreams
from pipeline.data.derived.uniqueness import read_unique_by
from pipeline.data.ingest.backlog import backlog_watched
from pipeline.data.ingest.query import Ingest, LandedRows
from pipeline.data.ingest.through.posts import posting
from pipeline.data.output_contracts.freshness import read_freshness
from pipeline.data.streams.group import Group
from pipeline.data.streams.lookup import Lookup
from pipeline.data.streams.outage import tolerate_store_outage
from pipeline.data.streams.warming import WORKERS, warm
from pipeline.data.streams.watchdog import Watchdog
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.fleet import Fleet, read_fleet
from pipeline.health.facts.placing import placing_by
from pipeline.health.verdicts.liveness import MISSED_HEARTBEATS, storage_wait
from pipeline.lake.delta.errors import DeltaError
from pipeline.platforms.local.signals import DRIVER_SECONDS, stop_on_signals
from pipeline.platforms.session.driver import driver_session, stop_queries
from pipeline.platforms.session.spark import waits_for_cores, works_here
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import DRIVER_CONNECTIONS, open_store
from pipeline.store.database.states import ProcessState
from pipeline.store.games import register_group
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Lease, expire_dead, leased
from pipeline.store.processes.runs import is_wanted
from pipeline.telemetry.driver import Telemetry

_log = logging.getLogger("turnout")
_LOOP_SECONDS = 0.5
_RESTARTS = 3  # failures in a row, without any progress, after which the process exits and its starter decides
_RESTART_SECONDS = 5.0
_GAP_SECONDS = 30.0  # the longest that a failure may last that passes by itself; restarts then are not counted
_RETRIABLE = (Transient, OSError, SQLAlchemyError, DeltaError)  # as on a full disk
_IDLE_TRIGGERS = 3  # triggers without a new bronze commit after which everything there counts as passed


@dataclass(frozen=True, slots=True)
class _DriverProcess:
    """This process as a driver, until a signal to stop or until another process has taken over."""

    kind: str
    name: str
    engine: Engine
    stop: threading.Event
    lease: Lease | None  # None where leases are turned off
    run_id: int | None = None  # the run that a controller started it for
    is_far: bool = False  # its tables are in a bucket
    judges_fleet: bool = False  # it exports the judgement of the fleet, for the alerts

    def require(self) -> None:
        """Continue only while no other process is known to have taken over.

        Raises:
            LeaseLost: one has.
        """
        if self.lease is not None:
            self.lease.check()

    def stop_if_unwanted(self) -> None:
        """Stop where the controller wants this run to end: a signal reaches processes of its own machine alone."""
        if (
            self.run_id is not None
            and not self.stop.is_set()
            and not is_wanted(self.engine, self.kind, self.name, self.run_id)
        ):
            _log.info("the controller wants this run to end")
            self.stop.set()


def run_ingest(settings: Settings, paths: Paths, *, once: bool) -> int:
    """Run the ingest driver until a signal to stop, or with `once` until the source is read; return the exit code.

    Raises:
        Refused: the source, the store or a setting cannot be used, or another process is the ingest driver.
    """
    with (
        _driving(settings, paths, INGEST, ONLY, judges_fleet=True) as duty,
        driver_session(settings, paths, "turnout-ingest", light=once) as spark,
    ):
        code = _run_ingest(settings, paths, duty, spark, once=once)
        if duty.stop.is_set():
            with tolerate_store_outage("what else runs is not known"):
                if (left := goes_on(duty.engine, paths)) is not None:
                    _log.info("Ingest has ended. %s", left)
        return code


def _run_ingest(settings: Settings, paths: Paths, duty: _DriverProcess, spark: SparkSession, *, once: bool) -> int:
    engine = duty.engine
    telemetry = Telemetry(settings.metrics, paths, INGEST, ONLY, has_source=True, works_here=works_here(spark))
    attachment = attach(spark, telemetry.event)
    start_driver(engine, INGEST, ONLY, telemetry.address)
    try:
        with _refusal_reported(duty), ExitStack() as stack:
            lookup = Lookup(engine, _resolution(settings, paths, engine))
            ingest = Ingest(spark, settings, paths, engine, partial(_publish_landed, telemetry), lookup.note)
            stack.callback(lookup.stop)
            if not once:  # groups ask for what they read, in any case
                lookup.start()
            stack.enter_context(backlog_watched(settings, paths, engine, lambda: ingest.place, ingest.look_at_head))
            stack.enter_context(posting(settings, paths, engine, telemetry.exposition.set_through_posts))
            waits, storage_is_down = _waits(engine, paths, spark), partial(_storage_is_down, paths)
            driver = _Driver(settings, duty, telemetry, attachment, waits=waits, storage_is_down=storage_is_down)
            code = driver.supervise(lambda: ingest.start(once=once), lambda: None, lambda: ingest.head_seq, once=once)
            ingest.close()
            return code
    finally:
        stop_queries(spark)
        attachment.detach()
        telemetry.close()


def run_group(settings: Settings, paths: Paths, name: str, *, once: bool, run_id: int | None = None) -> int:
    """Run the driver of one cluster group; with `once` until all of its games have caught up with bronze.

    `run_id` is the run of the control store that a controller started it for.

    Raises:
        Refused: the group's name, the store or a setting cannot be used, or another process drives the group.
    """
    if not is_group_name(name):
        raise Refused(f"{name!r} cannot name a cluster group: use 1 to 40 of a-z, 0-9 and '-', not starting with '-'.")
    with _driving(settings, paths, GROUP, name, run_id) as duty:
        duty.stop_if_unwanted()
        if duty.stop.is_set():  # its cluster came up after the controller gave it up
            return 0
        register_group(duty.engine, name, placing_by(settings))
        with driver_session(settings, paths, f"turnout-group-{name}", light=True, workers=WORKERS) as spark:
            return _run_group(settings, paths, duty, spark, once=once)


def _holds(group: Group, key: str) -> bool:
    return key in group.streams and group.roster.holds(key)


def _run_group(settings: Settings, paths: Paths, duty: _DriverProcess, spark: SparkSession, *, once: bool) -> int:
    engine, name = duty.engine, duty.name
    if works_here(spark) and not once:
        warm(spark)
    telemetry = Telemetry(settings.metrics, paths, GROUP, name, works_here=works_here(spark))
    attachment = attach(spark, telemetry.event)
    start_driver(engine, GROUP, name, telemetry.address, duty.run_id)

    def passed(result: PassResult) -> None:
        watchdog.passed(result)
        if not result.is_chunk:
            telemetry.passed(result)
        else:
            telemetry.caught_up(result)

    idle = _Idle(settings.demux.trigger_seconds * _IDLE_TRIGGERS)

    def between_passes() -> None:
        idle.observe(group)
        group.sync_queries()

    try:
        with _refusal_reported(duty), ExitStack() as stack:
            resolution = _resolution(settings, paths, engine)
            group = Group(spark, settings, paths, engine, name, passed, duty.lease, resolution)
            stack.callback(group.stop)
            held = partial(_holds, group)
            beside = (
                DerivedStreams(settings, paths, engine, name, held),
                BookKeeper(settings, paths, engine, name, held),
            )
            for each in beside:
                stack.callback(each.stop)
                if not once:
                    each.start()
            watchdog = Watchdog(settings, engine, group, telemetry.states)
            waits, storage_is_down = _waits(engine, paths, spark), partial(_storage_is_down, paths)
            driver = _Driver(settings, duty, telemetry, attachment, watchdog, waits, group.reads_from, storage_is_down)
            start = partial(group.start, once=once)
            code = driver.supervise(start, between_passes, lambda: group.frontier_seq, once=once)
            if once and code == 0:
                group.finish()
                for each in beside:
                    each.finish()
                duty.require()
                watchdog.evaluate(active=True)
            return code
    finally:
        attachment.detach()
        telemetry.close()


def _waits(engine: Engine, paths: Paths, spark: SparkSession) -> Callable[[], str | None]:
    """Look whether the control store is older than bronze; return what says what a driver lacks while it runs."""
    age = StoreAge(engine, paths.bronze)

    def waits() -> str | None:
        trouble = None
        with tolerate_store_outage("whether it is an older copy is not known"):
            trouble = age.trouble()
        return waits_for_cores(spark) if trouble is None else f"says {trouble}"

    return waits


def _storage_is_down(paths: Paths) -> bool:
    """Return whether the tables' object store does not answer; False for a folder, which is not asked."""
    if not paths.bronze.is_far:
        return False
    try:
        paths.bronze.is_folder()
    except StorageError:
        return True
    return False


def _resolution(settings: Settings, paths: Paths, engine: Engine) -> Resolution | None:
    """Return what asks the registries of the settings; None without any, so that no client is loaded."""
    if not settings.registries:
        return None
    from pipeline.data.contracts.registries.supported import resolution_of

    return resolution_of(engine, settings, paths.bronze)


@contextmanager
def _driving(
    settings: Settings, paths: Paths, kind: str, name: str, run_id: int | None = None, *, judges_fleet: bool = False
) -> Iterator[_DriverProcess]:
    engine = open_store(settings, paths, connections=DRIVER_CONNECTIONS)
    stop = stop_on_signals(DRIVER_SECONDS)
    alone = leased(engine, settings.store, kind, name, run_id)
    with alone as lease, noted_without_leases(settings.store, paths, kind, name):
        yield _DriverProcess(kind, name, engine, stop, lease, run_id, paths.bronze.is_far, judges_fleet)


@contextmanager
def _refusal_reported(duty: _DriverProcess) -> Iterator[None]:
    """Write a last heartbeat with the reason for this driver's end, unless another driver has taken over."""
    try:
        yield
    except (Refused, Transient) as error:
        with tolerate_store_outage("the end of this driver is not recorded"):
            heartbeat(duty.engine, duty.kind, duty.name, "failed", None, str(error))
        raise


class _Idle:
    """Detects that the query has passed all of bronze, when bronze has not grown for a while."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._head = -1
        self._since = 0.0

    def observe(self, group: Group) -> None:
        now = time.monotonic()
        if now - self._since < self._patience_seconds:
            return
        head = group.bronze_head()
        if head == self._head and group.pass_since is None:
            group.advance_frontier(head)
        self._head, self._since = head, now


class _StorageHeartbeat:
    """Sends heartbeats for a driver whose main thread waits for storage; what for once a person should look."""

    def __init__(self, duty: _DriverProcess, every: float) -> None:
        self._duty, self._every, self._said_after = duty, every, MISSED_HEARTBEATS * every
        self._waits_for = "for storage to answer" if duty.is_far else "for its disk or its processor"
        self._since: float | None = None
        self._frontier: int | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="storage heartbeat", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    @contextmanager
    def waits(self, frontier: int) -> Iterator[None]:
        """Run a block that storage may keep waiting."""
        self._frontier, self._since = frontier or None, time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            since = self._since
            waited = 0.0 if since is None else time.monotonic() - since
            if waited > self._every:
                said = storage_wait(waited, self._waits_for) if waited > self._said_after else None
                with tolerate_store_outage("this heartbeat is not recorded"):
                    heartbeat(self._duty.engine, self._duty.kind, self._duty.name, "running", self._frontier, said)


class _Driver:
    """Keeps one query running and sends its heartbeats."""

    def __init__(
        self,
        settings: Settings,
        duty: _DriverProcess,
        telemetry: Telemetry,
        attachment: Attachment,
        watchdog: Watchdog | None = None,
        waits: Callable[[], str | None] = lambda: None,
        reads_from: Callable[[], int | None] = lambda: None,
        storage_is_down: Callable[[], bool] = lambda: False,
    ) -> None:
        self._waits, self._reads_from, self._storage_is_down = waits, reads_from, storage_is_down
        self._settings, self._every = settings, settings.metrics.heartbeat_seconds
        self._duty, self._stop = duty, duty.stop
        self._telemetry, self._attachment, self._watchdog = telemetry, attachment, watchdog
        self._keeper = IncidentKeeper(duty.engine, settings, duty.kind) if duty.judges_fleet else None
        self._heartbeat_at = 0.0
        self._storage_heartbeat = _StorageHeartbeat(duty, self._every)

    def supervise(
        self,
        start: Callable[[], StreamingQuery],
        meanwhile: Callable[[], None],
        frontier: Callable[[], int],
        *,
        once: bool,
    ) -> int:
        """Run the query until the stop event, its end, or too many failures in a row; return the exit code.

        While the store of the tables does not serve, another process would fail alike: the driver stays.

        `meanwhile` is called repeatedly while it runs, `frontier` returns its position.

        Raises:
            LeaseLost: another process has taken over; the running pass has not ended yet.
        """
        with self._storage_heartbeat:
            failures, gap_since = 0, None
            while not self._stop.is_set():
                self._duty.require()
                before = frontier()
                failure = self._run(start, meanwhile, frontier, once=once)
                if failure is None:
                    break
                if frontier() > before:  # a run with progress does not count as a failure in a row
                    failures, gap_since = 0, None
                sentence = passing(failure)
                if sentence is not None:
                    gap_since = gap_since or time.monotonic()
                    if time.monotonic() - gap_since < _GAP_SECONDS:
                        _log.warning("restarting the %s query at once: %s", self._duty.kind, sentence)
                        self._stop.wait(_LOOP_SECONDS)
                        continue
                sentence = sentence or innermost(failure)
                failures += 1
                _log.error("the %s query failed: %s", self._duty.kind, sentence)
                if self._watchdog:
                    self._watchdog.failed(sentence)
                self._heartbeat("failed", frontier(), active=False, error=sentence, now=True)
                if once or (failures > _RESTARTS and not self._storage_is_down()):
                    return 1
                self._stop.wait(_RESTART_SECONDS * min(failures, _RESTARTS))
            self._heartbeat("stopped", frontier(), active=False, now=True)
            return 0

    def _run(
        self,
        start: Callable[[], StreamingQuery],
        meanwhile: Callable[[], None],
        frontier: Callable[[], int],
        *,
        once: bool,
    ) -> str | None:
        """Run the query until its end or the stop event; return its error, None without one."""
        try:
            with self._storage_heartbeat.waits(frontier()):
                query = start()
        except _RETRIABLE as error:
            return _sentence(error)
        except (Py4JJavaError, PySparkException) as error:  # a failure at the start counts like any other
            return str(error)
        if self._watchdog:
            self._watchdog.started()
        while query.isActive and not self._stop.wait(_LOOP_SECONDS):
            has_news = self._watchdog is not None and self._watchdog.has_news
            self._heartbeat("running", frontier(), active=True, now=has_news)
            if not once:
                try:
                    with self._storage_heartbeat.waits(frontier()):
                        meanwhile()
                except _RETRIABLE as error:
                    query.stop()
                    return _sentence(error)
        if self._stop.is_set():
            query.stop()
            return None
        failure = query.exception()
        return None if failure is None else str(failure)

    def _heartbeat(
        self, state: ProcessState, frontier: int, *, active: bool, error: str | None = None, now: bool = False
    ) -> None:
        self._duty.require()
        if not now and time.monotonic() - self._heartbeat_at < self._every:
            return
        self._heartbeat_at = time.monotonic()
        self._telemetry.tick(self._attachment.errors)
        is_judged, is_kept = False, False
        if state == "running":
            error = error or self._waits()
        with tolerate_store_outage("this heartbeat is not recorded"):
            reads_from = self._reads_from()
            heartbeat(self._duty.engine, self._duty.kind, self._duty.name, state, frontier or None, error, reads_from)
            self._duty.stop_if_unwanted()
            if self._watchdog and state != "stopped":
                self._watchdog.evaluate(active=active)
            if self._keeper is not None:
                is_judged = self._judge_fleet()
            is_kept = True
        if not is_kept and self._keeper is not None:
            self._keeper.store_refused()
        if not is_judged:
            self._telemetry.exposition.set_controller_metrics(None)  # the earlier state is out of date

    def _judge_fleet(self) -> bool:
        """Export the judgement of the fleet, as on the command line and the pages, for the alerts; ingest always runs.

        Also exports the controller's state for its alerts, and records what the controller would, in case the
        controller has died. Return whether the control store could be read.
        """
        try:
            expire_dead(self._duty.engine)
            fleet = read_fleet(self._duty.engine, settings=self._settings)
            freshness = read_freshness(self._duty.engine, fleet)
            unique_by = read_unique_by(self._duty.engine, (row.game for row in fleet.rows))
            judgement = fleet.judgement
            controller_metrics = read_controller_metrics(self._duty.engine, fleet, freshness, unique_by)
        except Exception as error:  # noqa: BLE001 - a bug of the judgement must not stop ingest; an alert reports it
            _log.warning("judging the fleet failed, retrying: %s", error)
            return False
        self._telemetry.exposition.set_fleet(
            judgement.count_problems(), time.time(), judgement.stopped_groups, judgement.wanted_groups,
            fleet.stranded_games, fleet.through_times, fleet.through_at,
        )  # fmt: skip
        self._telemetry.exposition.set_controller_metrics(controller_metrics)
        self._telemetry.waiting(controller_metrics.source_age_seconds)
        if not judgement.controller_runs:
            self._keep_incidents(fleet)
        return True

    def _keep_incidents(self, fleet: Fleet) -> None:
        """Keep the incidents in place of a controller."""
        if self._keeper is not None:
            try:
                self._keeper.look(fleet)
            except Exception as error:  # noqa: BLE001 - it must not stop ingest; readers see how old the last look is
                _log.warning("judging causes failed, retrying: %s", error)


def _publish_landed(telemetry: Telemetry, landed: LandedRows) -> None:
    refused = sum(landed.refused.values())
    telemetry.exposition.add_ingest(
        seq=landed.seq,
        accepted=landed.rows - refused,
        refused=refused,
        committed_at=landed.committed_at,
        clocks=landed.clocks,
    )
    telemetry.landed(landed.committed_at, landed.rows, refused)


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, Transient) else first_line(error)
