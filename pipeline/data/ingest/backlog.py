"""Measures the source's backlog while ingest runs, on a thread of its own, so that no micro-batch is delayed.

The control store keeps the newest measurement; `pipeline/health/verdicts/source.py` judges it. The query is not
involved.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from pipeline.data.ingest.identity import Position
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.data.ingest.sources.waiting import Waiting
from pipeline.data.ingest.through.recorder import ThroughRecorder
from pipeline.settings.tree import Paths, Settings
from pipeline.store.reports import write_backlog
from pipeline.store.rows import START_LIMIT_SECONDS, NamedBacklog

_log = logging.getLogger("turnout")
_PEAK_SECONDS: Final = 60.0
_BEFORE_START_SECONDS: Final = 0.5
_LEVEL_SHARE: Final = 0.25  # of the objective, within which what waited for the start has been read
_CLOSE_SECONDS: Final = 2.0  # it may wait for a broker, and nothing waits for it then


@dataclass(frozen=True, slots=True)
class BronzePosition:
    """The position of bronze in a source: an offset in Spark's form."""

    offset: Mapping[str, Any] | None  # None: nothing was read yet
    begin: Position | None  # where reading begins; None: Spark reads the setting itself


@contextmanager
def backlog_watched(
    settings: Settings,
    paths: Paths,
    engine: Engine,
    place: Callable[[], BronzePosition | None],
    head: Callable[[], int] | None = None,
) -> Iterator[None]:
    """Measure the backlog repeatedly while the block runs; `place` returns bronze's position, None: unknown.

    With `head`, which returns bronze's last seq, also record up to which time bronze has all of its source.
    """
    watch = BacklogWatch(settings, paths, engine, place, head)
    stop = threading.Event()
    thread = threading.Thread(target=watch.run, args=(stop,), name="source-backlog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_CLOSE_SECONDS)


class BacklogWatch:
    """Measures one source's backlog, and keeps the highest age of the last minute.

    What waited for the start is no peak: none is known until it was read, or `START_LIMIT_SECONDS` have passed.
    """

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        engine: Engine,
        place: Callable[[], BronzePosition | None],
        head: Callable[[], int] | None = None,
    ) -> None:
        """Prepare; measures nothing yet."""
        self._settings, self._engine, self._place = settings, engine, place
        self._source = configured_source(settings, paths).backlog()
        self._through = None if head is None else ThroughRecorder(settings, paths, engine, self._source, head)
        self._ages: deque[tuple[float, float]] = deque()
        self._began = time.monotonic()
        self._begin: BronzePosition | None = None  # as it was measured first
        self._starts = True  # what waited for the start has not been read yet

    def run(self, stop: threading.Event) -> None:
        """Measure until the event."""
        try:
            while not stop.is_set():
                is_known = self.measure()
                self._record_through()
                stop.wait(self._settings.metrics.heartbeat_seconds if is_known else _BEFORE_START_SECONDS)
            self._record_through()  # twice: an observation counts once the next one is made
            self._record_through()
        finally:
            self._source.close()

    def measure(self) -> bool:
        """Measure once and record it; False while bronze's position is unknown."""
        place = self._place()
        if place is None:
            return False
        try:
            found = self._source.look(place.offset, place.begin)
        except Exception as error:  # noqa: BLE001 - the thread's edge: the next measurement may succeed
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            _log.warning("the backlog of the source cannot be measured: %s", reason)
            found = Waiting(None, None, reason)
        self._write(found, place)
        return True

    def _record_through(self) -> None:
        """Record how far bronze is complete; the next heartbeat tries again after a failure."""
        place = self._place()
        if self._through is None or place is None:
            return
        try:
            self._through.look(place.offset, place.begin)
        except Exception as error:  # noqa: BLE001 - the thread's edge: the time that was recorded stays true
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            _log.warning("the time up to which bronze is complete cannot be recorded: %s", reason)

    def _has_to_start(self, place: BronzePosition, age: float | None, now: float) -> bool:
        """Return whether nothing was landed since the first measurement, or what waited for it is still being read."""
        if self._begin is None:
            self._begin = place
        limit = _LEVEL_SHARE * self._settings.metrics.latency_objective_seconds
        is_read = place.offset != self._begin.offset and age is not None and age <= limit
        return not is_read and now - self._began <= START_LIMIT_SECONDS

    def _write(self, found: Waiting, place: BronzePosition) -> None:
        at = time.time()
        age = found.age(at)
        now = time.monotonic()
        while self._ages and self._ages[0][0] < now - _PEAK_SECONDS:
            self._ages.popleft()
        self._starts = self._starts and self._has_to_start(place, age, now)
        if age is not None and not self._starts:
            self._ages.append((now, age))
        try:
            write_backlog(
                self._engine,
                age_seconds=age,
                peak_seconds=max((each for _, each in self._ages), default=None),
                rows=found.rows,
                limit_seconds=self._settings.metrics.latency_objective_seconds,
                reason=found.reason,
                sources=[NamedBacklog(name, each.age(at), each.rows, each.reason) for name, each in found.of.items()],
            )
        except SQLAlchemyError as error:  # the last measurement grows old, then counts as unknown
            _log.warning("the backlog of the source cannot be recorded: %s", error)
