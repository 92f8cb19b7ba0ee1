"""Registers a real StreamingQueryListener that hands each event to a sink, cheaply and without ever raising.

Called once for each session that starts queries. The callbacks must never call Spark, parse or wait: the lean adapter
makes two to five round trips to the JVM for an event, Spark's public Python class several hundred.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from listeners.callbacks import start_callbacks
from listeners.events import Idle, Progressed, QueryEvent, Started, Terminated
from listeners.java import java_class

Sink = Callable[[QueryEvent], None]

_INTERFACE: Final = "org.apache.spark.sql.streaming.PythonStreamingQueryListener"
_WRAPPER: Final = f"{_INTERFACE}Wrapper"  # of Spark 4.0 to 4.2

_log = logging.getLogger(__name__)


class Attachment:
    """A registered listener; counts the failures of its callbacks."""

    def __init__(self, kind: Literal["lean", "public"], intake: "_Intake", remove: Callable[[], None]) -> None:
        self.kind: Final = kind
        self._intake = intake
        self._remove = remove
        self._attached = True

    @property
    def errors(self) -> int:
        """Events lost because reading them or the sink failed."""
        return self._intake.errors

    @property
    def last_error(self) -> str | None:
        """Why the newest of them was lost, one line; None without losses."""
        return self._intake.last_error

    def detach(self) -> None:
        """Remove the listener from its session; idempotent."""
        if self._attached:
            self._attached = False
            self._remove()


def attach(spark: SparkSession, sink: Sink) -> Attachment:
    """Register a listener on the session and send each event of its queries to the sink.

    Spark's threads call the sink, so it must only enqueue; its exceptions are counted, never passed on.
    """
    intake = _Intake(sink)
    return _attach_lean(spark, intake) or _attach_public(spark, intake)


class _Intake:
    """Calls the sink; an event that cannot be read or handed over is counted."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lock = threading.Lock()  # Started comes on each query's own thread
        self.errors = 0
        self.last_error: str | None = None

    def take(self, read: Callable[[], QueryEvent]) -> None:
        try:
            self._sink(read())
        except Exception as error:  # noqa: BLE001 - the edge to Spark's threads: an error here may fail start()
            with self._lock:
                self.errors += 1
                self.last_error = f"{type(error).__name__}: {error}".splitlines()[0][:500]


def _attach_lean(spark: SparkSession, intake: _Intake) -> Attachment | None:
    """Register the lean adapter, or return None where this Spark has no such interface."""
    try:
        wrapper = java_class(spark._jvm, _WRAPPER)
        if wrapper is None:
            _log.info("this Spark has no %s, using its public class for events of queries", _WRAPPER)
            return None
        start_callbacks(spark.sparkContext._gateway)
        manager: Any = spark.streams._jsqm
        listener = wrapper(_LeanAdapter(intake))
        manager.addListener(listener)
    except (ImportError, AttributeError, TypeError, Py4JError) as error:
        _log.info("the lean listener cannot be used here, using Spark's public class: %s", error)
        return None
    return Attachment("lean", intake, lambda: manager.removeListener(listener))


def _attach_public(spark: SparkSession, intake: _Intake) -> Attachment:
    listener = _PublicAdapter(intake)
    spark.streams.addListener(listener)
    return Attachment("public", intake, lambda: spark.streams.removeListener(listener))


class _LeanAdapter:
    """The Java interface itself, called by py4j; takes the progress as one text."""

    def __init__(self, intake: _Intake) -> None:
        self._intake = intake

    def onQueryStarted(self, event: Any) -> None:
        self._intake.take(
            lambda: Started(event.id().toString(), event.runId().toString(), event.name(), event.timestamp())
        )

    def onQueryProgress(self, event: Any) -> None:
        self._intake.take(lambda: Progressed(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:
        self._intake.take(lambda: Idle(event.id().toString(), event.runId().toString(), event.timestamp()))

    def onQueryTerminated(self, event: Any) -> None:
        def read() -> Terminated:
            error = event.exception()
            text = error.get() if error.isDefined() else None
            return Terminated(event.id().toString(), event.runId().toString(), text)

        self._intake.take(read)

    class Java:
        """Tells py4j which interface this is."""

        implements: ClassVar[list[str]] = [_INTERFACE]


class _PublicAdapter(StreamingQueryListener):
    """Spark's public class: slower, but supported everywhere."""

    def __init__(self, intake: _Intake) -> None:
        self._intake = intake

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._intake.take(lambda: Started(str(event.id), str(event.runId), event.name, event.timestamp))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._intake.take(lambda: Progressed(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._intake.take(lambda: Idle(str(event.id), str(event.runId), event.timestamp))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._intake.take(lambda: Terminated(str(event.id), str(event.runId), event.exception))
