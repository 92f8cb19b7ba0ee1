"""The composition roots of the two kinds of driver: ingest, and one cluster group.

Only the command line imports this. A driver beats, watches its query, restarts it within a budget, and ends cleanly
on SIGTERM or Ctrl-C.
"""

import logging
import threading
import time
from collections.abc import Callable

from pyspark.sql.streaming import StreamingQuery
from sqlalchemy import Engine

from listeners.listener import Attachment, attach
from listeners.sample import PassResult
from pipeline.control.signals import stop_on_signals
from pipeline.errors import Refused, Transient
from pipeline.ingest.query import Ingest, Landed
from pipeline.names import is_group_name
from pipeline.session import spark_session
from pipeline.settings import Paths, Settings
from pipeline.store.drivers import Kind, beat, start_driver
from pipeline.store.engine import open_store
from pipeline.store.games import register_group
from pipeline.streams.group import Group
from pipeline.streams.watchdog import Watchdog
from pipeline.telling import Telling

_log = logging.getLogger("turnout")
_LOOP_SECONDS = 0.5
_RESTARTS = 3  # failures in a row, without any progress, after which the process gives up and its starter decides
_RESTART_SECONDS = 5.0
_IDLE_TRIGGERS = 3  # triggers without a new bronze commit after which everything there counts as passed


def run_ingest(settings: Settings, paths: Paths, *, once: bool) -> int:
    """Run the ingest driver until it is told to stop, or with `once` until the source is read; return the exit code.

    Raises:
        Refused: the source, the store or a setting cannot be used.
    """
    engine = open_store(settings, paths)
    stop = stop_on_signals()
    spark = spark_session(settings, paths, "turnout-ingest", brief=once)
    telling = Telling(settings.metrics, paths, "ingest", "main")
    attachment = attach(spark, telling.event)
    start_driver(engine, "ingest", "main", telling.address)
    try:
        ingest = Ingest(spark, settings, paths, engine, lambda landed: _tell_landed(telling, landed))
        driver = _Driver(settings, engine, telling, attachment, "ingest", "main", stop)
        code = driver.supervise(lambda: ingest.start(once=once), lambda: None, lambda: ingest.head_seq, once=once)
        ingest.close()
        return code
    except Refused as error:
        beat(engine, "ingest", "main", "failed", None, str(error))
        raise
    finally:
        attachment.detach()
        telling.close()
        spark.stop()


def run_group(settings: Settings, paths: Paths, name: str, *, once: bool) -> int:
    """Run the driver of one cluster group; with `once` until all of its games have caught up with bronze.

    Raises:
        Refused: the group's name, the store or a setting cannot be used.
    """
    if not is_group_name(name):
        raise Refused(f"{name!r} cannot name a cluster group: use 1 to 40 of a-z, 0-9 and '-', not starting with '-'.")
    engine = open_store(settings, paths)
    stop = stop_on_signals()
    register_group(engine, name)
    spark = spark_session(settings, paths, f"turnout-group-{name}", brief=once)
    telling = Telling(settings.metrics, paths, "group", name)
    attachment = attach(spark, telling.event)
    start_driver(engine, "group", name, telling.address)

    def passed(result: PassResult) -> None:
        watchdog.passed(result)
        if result.batch_id >= 0:
            telling.passed(result)
        else:
            telling.caught_up(result)

    group = Group(spark, settings, paths, engine, name, passed)
    watchdog = Watchdog(settings, engine, group, telling.states)
    driver = _Driver(settings, engine, telling, attachment, "group", name, stop, watchdog)
    idle = _Idle(settings.demux.trigger_seconds * _IDLE_TRIGGERS)

    def between_passes() -> None:
        idle.look(group)
        group.tend()

    try:
        code = driver.supervise(lambda: group.start(once=once), between_passes, lambda: group.frontier_seq, once=once)
        if once and code == 0:
            group.finish()
            watchdog.evaluate(active=True)
        return code
    finally:
        group.stop()
        attachment.detach()
        telling.close()
        spark.stop()


class _Idle:
    """Finds out that the query has passed all there is, when bronze has not grown for a while."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._head = -1
        self._since = 0.0

    def look(self, group: Group) -> None:
        now = time.monotonic()
        if now - self._since < self._patience_seconds:
            return
        head = group.bronze_head()
        if head == self._head and group.pass_since is None:
            group.advance_frontier(head)
        self._head, self._since = head, now


class _Driver:
    """Keeps one query running and beats for it."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        telling: Telling,
        attachment: Attachment,
        kind: Kind,
        name: str,
        stop: threading.Event,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._every = settings.metrics.heartbeat_seconds
        self._engine, self._telling, self._attachment = engine, telling, attachment
        self._kind: Kind = kind
        self._name, self._stop, self._watchdog = name, stop, watchdog
        self._beaten_at = 0.0

    def supervise(
        self,
        start: Callable[[], StreamingQuery],
        meanwhile: Callable[[], None],
        frontier: Callable[[], int],
        *,
        once: bool,
    ) -> int:
        """Run the query until the stop event, its end, or too many failures in a row; return the exit code.

        `meanwhile` is called again and again while it runs, `frontier` tells how far it has come.
        """
        failures = 0
        while not self._stop.is_set():
            before = frontier()
            sentence = self._run(start, meanwhile, frontier, once=once)
            if sentence is None:
                break
            # A run that got further is no failure in a row: Delta's source, for one, fails now and then for no lasting
            # reason, when a listing of a busy log shows a commit but not the one before it.
            failures = 1 if frontier() > before else failures + 1
            _log.error("the %s query failed: %s", self._kind, sentence)
            if self._watchdog:
                self._watchdog.failed(sentence)
            self._beat("failed", frontier(), active=False, error=sentence, now=True)
            if once or failures > _RESTARTS:
                return 1
            self._stop.wait(_RESTART_SECONDS * failures)
        self._beat("stopped", frontier(), active=False, now=True)
        return 0

    def _run(
        self,
        start: Callable[[], StreamingQuery],
        meanwhile: Callable[[], None],
        frontier: Callable[[], int],
        *,
        once: bool,
    ) -> str | None:
        """Run the query until its end or the stop event; return why it failed, None when it did not."""
        try:
            query = start()
        except Transient as error:
            return str(error)
        if self._watchdog:
            self._watchdog.started()
        while query.isActive and not self._stop.wait(_LOOP_SECONDS):
            self._beat("running", frontier(), active=True)
            if not once:
                meanwhile()
        if self._stop.is_set():
            query.stop()
            return None
        failure = query.exception()
        return None if failure is None else _one_line(str(failure))

    def _beat(self, state: str, frontier: int, *, active: bool, error: str | None = None, now: bool = False) -> None:
        if not now and time.monotonic() - self._beaten_at < self._every:
            return
        self._beaten_at = time.monotonic()
        beat(self._engine, self._kind, self._name, state, frontier or None, error)
        self._telling.tick(self._attachment.errors)
        if self._watchdog and state != "stopped":
            self._watchdog.evaluate(active=active)


def _tell_landed(telling: Telling, landed: Landed) -> None:
    refused = sum(landed.refused.values())
    telling.exposition.add_ingest(
        seq=landed.seq, accepted=landed.rows - refused, refused=refused, committed_at=landed.committed_at
    )


def _one_line(text: str) -> str:
    """Return the innermost cause of a query's failure, as far as the text tells it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [
        line for line in lines if line.startswith(("Caused by:", "pipeline.errors.", "RuntimeError", "deltalake."))
    ]
    return (causes[-1] if causes else lines[0] if lines else "no reason given")[:500]
