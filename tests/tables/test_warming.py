"""Warming, which a driver does beside the opening of its tables, for its first pass."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from listeners.process_cpu import read_all, tree
from pipeline.data.streams.batches.tail_batches import TailBatches, warm_planner
from pipeline.data.streams.warming import WORKERS, attempt, start_workers
from pipeline.data.streams.writing.split import split
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Demux
from tests.tables.maintenance_world import bronze_table


def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the command of the process that forked this worker, and the libraries it has loaded."""
    for _ in batches:
        files = [Path(f"/proc/{os.getppid()}/{name}") for name in ("cmdline", "maps")]
        yield pa.record_batch({"found": ["\n".join(file.read_text("utf-8") for file in files)]})


def commands() -> dict[int, str]:
    """Return the commands of this process's children and theirs, by process id."""
    found = {}
    for each in tree(read_all(), os.getpid()):
        try:
            found[each.pid] = Path(f"/proc/{each.pid}/cmdline").read_text("utf-8")
        except OSError:
            continue
    return found


def test_workers_are_forked_by_a_process_that_has_loaded_what_tasks_need(spark: SparkSession) -> None:
    """No worker of a driver loads the decoders and the writers again."""
    start_workers(spark)
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(seen, "found string").collect()
    assert WORKERS in row.found
    assert "ptars" in row.found, "it decodes protobuf"


def test_the_first_frame_uses_the_processes_that_were_started_before(spark: SparkSession, tmp_path: Path) -> None:
    """A query's start waits for no process that warming has started."""
    warm_planner(spark)
    before = commands()
    bronze = bronze_table(tmp_path / "bronze", 1)
    TailBatches(spark, Demux(), bronze, split, located(tmp_path / "query")).frame()
    assert not [each for pid, each in commands().items() if pid not in before and "create_data_source" in each]


def test_a_failure_of_warming_stops_nothing(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """A driver whose session cannot be warmed starts all the same."""

    def fails(_: SparkSession) -> None:
        raise OSError("no process")

    with caplog.at_level(logging.DEBUG, "turnout"):
        attempt(fails, spark)
    assert "fails: no process" in caplog.text
