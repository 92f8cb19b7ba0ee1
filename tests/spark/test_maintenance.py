import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from pipeline.base import failpoints
from pipeline.data.maintenance import run
from pipeline.lake.delta.rewrite import table_files
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Paths, Settings
from tests.tables.maintenance_world import CHESS, DAY, LATER, contents, full_world, live, on_disk

WANTED = Maintenance(small_files=3, bronze_commits=2, bronze_age_minutes=0.0)


def maintain(world: Any, after: float = 0.0) -> None:
    settings = Settings(environment=world.settings.environment, maintenance=WANTED)
    done = run.one_round(settings, world.paths, time.time() + after, thorough=True)
    assert [(report.table, report.error) for report in done.tables if report.error] == []


def land(world: Any, times: int, events: int = 300) -> None:
    for _ in range(times):
        world.simulate(events)
        world.ingest()


def files_of(path: Path) -> int:
    return len(table_files(DeltaTable(path)))


@pytest.mark.proves("A20", "G141")
def test_a20_live_readers_go_on_over_sorted_and_vacuumed_bronze(world: Any) -> None:
    """Fault A20: a group that stands in the middle of bronze goes on after a round sorted, deleted and cut it."""
    group = world.group("a")
    land(world, 2)
    world.split(group)
    maintain(world)
    maintain(world, LATER)
    assert files_of(world.paths.bronze) == 1
    assert live(world.paths.bronze) == on_disk(world.paths.bronze)
    land(world, 1)
    world.split(group)
    assert world.verify().complete
    group.stop()


@pytest.mark.proves("G141")
def test_a_group_that_comes_late_catches_up_from_sorted_bronze(world: Any) -> None:
    """Laws L2 and L7: what is sorted by game is caught up like what is not, row for row."""
    land(world, 2)
    maintain(world)
    assert files_of(world.paths.bronze) == 1
    group = world.group("late")
    world.split(group)
    balance = world.verify()
    assert balance.complete
    assert balance.totals.landed > 0
    group.stop()


@pytest.mark.long
@pytest.mark.proves("G138")
def test_verify_and_spark_say_the_same_before_and_after_a_round(world: Any) -> None:
    """Law L10: maintenance changes files, not rows: ingest's chain, cursors and all values are as they were."""
    group = world.group("a")
    for _ in range(3):
        land(world, 1)
        world.split(group)
    tables = world.paths.tables.folders()
    read = world.spark.read.format("delta")
    paths = [world.paths.bronze, world.paths.quarantine, *tables[:2]]
    before, rows = world.verify(), [sorted(map(str, read.load(str(path)).collect())) for path in paths]
    assert max(files_of(path) for path in tables) >= 3
    maintain(world)
    assert rows == [sorted(map(str, read.load(str(path)).collect())) for path in paths]
    maintain(world, LATER)
    after = world.verify()
    assert before.complete
    assert before.totals == after.totals
    assert max(files_of(path) for path in tables) <= 2
    land(world, 1)  # its chain goes on from heads read from sorted bronze
    world.split(group)
    assert world.verify().complete
    group.stop()


@pytest.mark.long
@pytest.mark.proves("A21", "G143")
def test_a21_a_reader_behind_the_log_fails_loudly(world: Any) -> None:
    """Fault A21: a reader that slept past log retention stops with an error; it never skips what it missed."""
    land(world, 2)
    query = world.paths.root / "reader"
    read = world.spark.readStream.format("delta").option("startingVersion", 1).option("failOnDataLoss", "true")

    def read_on() -> None:
        frame = read.load(str(world.paths.bronze))
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(query))
        writer.trigger(availableNow=True).start().awaitTermination()

    read_on()
    land(world, 3)
    DeltaTable(world.paths.bronze).create_checkpoint()
    land(world, 1)
    maintain(world, 31 * DAY)
    assert not (world.paths.bronze / "_delta_log" / f"{3:020}.json").exists()
    with pytest.raises(StreamingQueryException):
        read_on()


_ROUND = """
import sys, time
from pathlib import Path
from pipeline.data.maintenance import run
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Paths, Settings
wanted = Maintenance(small_files=3, bronze_commits=4, bronze_age_minutes=0.0)
done = run.one_round(Settings("test", maintenance=wanted), Paths(Path(sys.argv[1])), float(sys.argv[2]), thorough=True)
sys.exit(0 if done.ok else 1)
"""


def round_elsewhere(root: Path, now: float, faults: Path) -> int:
    environ = {**os.environ, failpoints.ENVIRON: str(faults)}
    command = [sys.executable, "-c", _ROUND, str(root), str(now)]
    return subprocess.run(command, env=environ, start_new_session=True, timeout=60).returncode


@pytest.mark.long
@pytest.mark.proves("G138")
def test_a_kill_at_any_point_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """SIGKILL between files and commit, and between commit and deletion, of every table: the next round finishes."""
    paths = Paths(tmp_path / "env")
    before = full_world(paths)
    faults = tmp_path / "faults"
    faults.mkdir()
    kills, tries = 0, 0
    for now in (time.time(), time.time() + LATER):
        while True:
            tries += 1
            hits = faults / "in_maintenance.hits"
            number = len(hits.read_text().splitlines()) if hits.exists() else 0
            # Each try gets one hit further than the one before, so each point of each table is a place of death.
            (faults / "armed").write_text(f"in_maintenance crash {number + 1 + tries % 2}\n")
            code = round_elsewhere(paths.root, now, faults)
            assert before == contents(paths)
            if code == 0:
                break
            assert code == -9
            kills += 1
    assert kills >= 8
    assert all(live(Path(path)) == on_disk(Path(path)) for path in (paths.bronze, paths.quarantine, paths.table(CHESS)))
