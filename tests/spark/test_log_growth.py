"""Spark over logs that turnout checkpoints and cuts itself."""

import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.data.maintenance import retain
from pipeline.data.maintenance.report import TableReport
from pipeline.lake.delta.checkpoint import checkpoint_file, newest_checkpoint, write_checkpoint
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.maintenance import Maintenance
from tests.tables.maintenance_world import APP, ROWS, game_rows

SMALL = Maintenance(log_megabytes=1)
LATER = 2 * retain.RECENT_SECONDS


def commits(table: CursorTable, *seqs: int) -> None:
    for seq in seqs:
        note = {"turnout": "x" * 50_000}  # a large log by few commits
        table.commit([write_file(game_rows(seq), table.path, ["_seq"])], seq - 1 or None, seq, note=note)


def cut(path: Path) -> int:
    """Cut a log as a round two hours from now would; return the version it begins with."""
    retain.clean_log(located(path), time.time() + LATER, SMALL, TableReport("t"))
    return min(int(entry.name[:20]) for entry in (path / "_delta_log").glob("0*.json"))


def seqs_of(frame: Any) -> list[int]:
    return sorted(row["_seq"] for row in frame.select("_seq").collect())


@pytest.mark.long
@pytest.mark.proves("G147")
def test_spark_and_turnout_go_on_from_each_others_checkpoints(world: Any) -> None:
    """Law L3: rows and cursor outlive any order of checkpoints, with nothing of the log before the last one."""
    path = world.paths.root / "t"
    spark = world.spark
    table = CursorTable.create(located(path), ROWS, APP, checkpoint_interval=10)
    commits(table, *range(1, 31))
    write_checkpoint(located(path), table.version)
    for entry in (path / "_delta_log").glob("*.json"):
        if int(entry.name[:20]) < table.version:
            entry.unlink()
    assert seqs_of(spark.read.format("delta").load(str(path))) == list(range(1, 31))
    spark.createDataFrame([(31, 0, "r31")], "_seq long, _pos int, name string").write.format("delta").mode(
        "append"
    ).save(str(path))
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(path))
    log.checkpoint()
    assert newest_checkpoint(path, 100) == table.version + 1
    table.refresh()
    assert table.cursor == 30
    table.commit([write_file(game_rows(32), located(path), ["_seq"])], 30, 32)
    write_checkpoint(located(path), table.version)
    assert checkpoint_file(path, table.version).exists()
    for entry in (path / "_delta_log").glob("*.json"):
        if int(entry.name[:20]) < table.version:
            entry.unlink()
    log.clearCache()
    assert seqs_of(spark.read.format("delta").load(str(path))) == list(range(1, 33))
    assert DeltaTable(path).transaction_version(APP) == 32


@pytest.mark.long
@pytest.mark.proves("G144")
def test_a_streaming_reader_and_time_travel_go_on_while_the_log_is_cut_behind_them(world: Any) -> None:
    """A table is readable at every moment: cutting takes only what is behind the window, from below."""
    path = world.paths.root / "t"
    into, place = world.paths.root / "into", world.paths.root / "reader"
    spark = world.spark
    table = CursorTable.create(located(path), ROWS, APP, checkpoint_interval=5)
    commits(table, 1)
    frame = spark.readStream.format("delta").option("startingVersion", 1).load(str(path))
    query = (
        frame.writeStream.format("delta")
        .option("checkpointLocation", str(place))
        .trigger(processingTime="100 milliseconds")
        .start(str(into))
    )
    begins = []
    for first in range(2, 62, 20):
        commits(table, *range(first, first + 20))
        query.processAllAvailable()
        begins.append(cut(path))
        assert seqs_of(spark.read.format("delta").load(str(path))) == list(range(1, first + 20))
        assert seqs_of(spark.read.format("delta").option("versionAsOf", begins[-1]).load(str(path)))
        assert table.version == DeltaTable(path).version()
    query.stop()
    assert begins[-1] > begins[0]
    assert seqs_of(spark.read.format("delta").load(str(into))) == list(range(1, 62))
