"""Numbers by slots of time: the minute tables of an environment, and the ranges of time in which pages show them."""

import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from listeners.metrics_schema import INGEST_MINUTE, PROCESS_MINUTE, STREAM_MINUTE, MetricsTable
from listeners.minutes.fold import GRACE_SECONDS
from listeners.minutes.reader import SeriesReader, TablePlace
from listeners.series import Series
from pipeline.base.errors import Refused, first_line
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import DeltaTable, files_below, open_table
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Metrics, Paths

__all__ = ["RANGES", "SeriesReader", "open_reader", "read", "settled_seconds"]

RANGES: Final = {900: (60, 15), 3600: (60, 60), 21_600: (360, 60), 86_400: (1440, 60)}
"""Seconds of a range → the width of its slots in seconds, and their number."""

_KEPT_SLOTS: Final = max(slots for _, slots in RANGES.values())
_JITTER: Final = 1.2  # of the time between two writes of the metrics tables
_WRITE_SECONDS: Final = 2.0


def open_reader(paths: Paths) -> SeriesReader:
    """Return a reader of an environment's minute tables, for each range."""
    widths = {slot_seconds for slot_seconds, _ in RANGES.values()}
    tables = (STREAM_MINUTE, INGEST_MINUTE, PROCESS_MINUTE)
    streams, ingest, processes = (_place(paths.metrics, table) for table in tables)
    return SeriesReader(streams, ingest, processes, dict.fromkeys(widths, _KEPT_SLOTS))


def read(reader: SeriesReader, settings: Metrics, paths: Paths, range_seconds: int) -> Series:
    """Read the closed minutes of a range (a key of RANGES); before the first report it has no games.

    Raises:
        Refused: the minute tables cannot be read.
    """
    slot_seconds, slots = RANGES[range_seconds]
    until = time.time() - settled_seconds(settings)
    try:
        return reader.read(slot_seconds, slots, until, time.monotonic())
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise Refused(
            f"The minute tables cannot be read: {first_line(error)}. Streams are not affected. Check {paths.metrics}."
        ) from error


def settled_seconds(metrics: Metrics) -> float:
    """Return how long after its end a minute is in its table, unless results are late or a driver is gone."""
    return GRACE_SECONDS + metrics.heartbeat_seconds + _JITTER * metrics.flush_seconds + _WRITE_SECONDS


def _place(folder: Location, table: MetricsTable) -> TablePlace:
    path = folder / table.name
    return TablePlace(_opener(path), files_below(path))


def _opener(path: Location) -> Callable[[], DeltaTable | None]:
    return lambda: open_table(path) if exists(path) else None
