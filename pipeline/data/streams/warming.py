"""Starts what the first pass would wait for while a driver opens its tables: Spark's Python workers and planners."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.data.streams.batches.tail_batches import warm_planner

WORKERS: Final = "pipeline.data.streams.writing.workers"
"""The module of the process from which a driver's Python workers are forked."""

_log = logging.getLogger("turnout")


def warm(spark: SparkSession) -> None:
    """Begin, in threads that end by themselves; nothing depends on what they do, nor on whether it fails."""
    for start in (start_workers, warm_planner):
        threading.Thread(target=attempt, args=(start, spark), name="warming", daemon=True).start()


def attempt(start: Callable[[SparkSession], None], spark: SparkSession) -> None:
    """Start something; what keeps it from that will keep a pass from it, too, which then says so."""
    try:
        start(spark)
    except Exception as error:  # noqa: BLE001 - of a session that may be ending
        _log.debug("%s: %s", start.__name__, error)


def start_workers(spark: SparkSession) -> None:
    """Run a task on each core; the workers stay for those of the first pass."""
    cores = spark.sparkContext.defaultParallelism
    spark.range(0, cores, 1, cores).mapInArrow(_nothing, "id long").collect()


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
