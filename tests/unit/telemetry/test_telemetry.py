"""The file by which Prometheus finds a driver, and the minutes that a driver leaves in the metrics tables."""

import json
import time
from pathlib import Path

from deltalake import DeltaTable

from listeners.metrics_schema import INGEST_MINUTE, PROCESS_MINUTE, STREAM_MINUTE
from listeners.sample import CHUNK, GameResult, GroupSample, Lane, PassResult, StreamState
from listeners.series import BUCKETS
from pipeline.settings.tree import Metrics, Paths
from pipeline.telemetry.driver import Telemetry


def test_a_driver_that_ends_late_leaves_its_successor_on_the_list(tmp_path: Path) -> None:
    """Health: Prometheus keeps scraping the driver that took over, and nobody once that one has ended."""
    old, new = (Telemetry(Metrics(), Paths(tmp_path), "group", "a") for _ in range(2))
    target = Paths(tmp_path).targets / "group-a.json"
    old.close()
    assert json.loads(target.read_text("utf-8"))[0]["targets"] == [new.address]
    new.close()
    assert not target.exists()


def test_a_driver_that_ends_leaves_its_open_minute(tmp_path: Path) -> None:
    """Series: passes, chunks and states of the last minute are in the table when a driver has stopped."""
    telemetry, now = Telemetry(Metrics(), Paths(tmp_path), "group", "a"), time.time()
    counts = (4, *(0,) * (BUCKETS - 1))
    game = GameResult("chess", Lane.RUN, 1, 1, 4, {"bad": 1}, 1, 1, now, 0.1, counts, caught_up_rows=2)
    state = StreamState("chess", "a", Lane.RUN, "LAGGING", now, 1, now, 70.0, 1.0, 1.0, 4, 1, None, now)
    telemetry.passed(PassResult("a", "run", 1, now, now, 1, (game,)))
    telemetry.caught_up(PassResult("a", "catch-up", CHUNK, now, now, 1, (game,)))
    telemetry.states([state], [], GroupSample("a", now, 1, 1, 0, 1.0))
    telemetry.tick(0)
    telemetry.close()
    rows = DeltaTable(Paths(tmp_path).metrics / STREAM_MINUTE.name).to_pyarrow_table().to_pylist()
    assert [sum(row[name] for row in rows) for name in ("rows", "caught_up_rows", "refused", "commits")] == [8, 4, 2, 2]
    assert [row["status"] for row in rows if row["status"] is not None] == ["LAGGING"]
    assert not DeltaTable.is_deltatable(str(Paths(tmp_path).metrics / INGEST_MINUTE.name))


def test_ingest_reports_that_it_runs(tmp_path: Path) -> None:
    """Series: a minute of an idle source is 0 events, which differs from a minute without ingest."""
    telemetry = Telemetry(Metrics(), Paths(tmp_path), "ingest", "main", has_source=True)
    telemetry.tick(0)
    telemetry.landed(time.time(), 5, 2)
    telemetry.waiting(9.0)
    telemetry.close()
    rows = DeltaTable(Paths(tmp_path).metrics / INGEST_MINUTE.name).to_pyarrow_table().to_pylist()
    assert tuple(sum(row[name] for row in rows) for name in ("rows", "refused", "commits")) == (5, 2, 1)
    assert max(row["backlog_age_seconds"] or 0.0 for row in rows) == 9.0


def test_a_driver_leaves_its_cpu_time_by_minute(tmp_path: Path) -> None:
    """Load: what the processes of a driver used is in its minutes and its /metrics, and says whether that is all."""
    for name, works_here in (("a", True), ("b", False)):
        telemetry = Telemetry(Metrics(), Paths(tmp_path), "group", name, works_here=works_here)
        spent = time.process_time() + 0.05
        while time.process_time() < spent:
            pass
        telemetry.tick(0)
        total = telemetry.exposition.snapshot().own.cpu_seconds
        telemetry.close()
        assert total is not None
        assert total >= 0.05
    rows = DeltaTable(Paths(tmp_path).metrics / PROCESS_MINUTE.name).to_pyarrow_table().to_pylist()
    for name, works_here in (("a", True), ("b", False)):
        own = [row for row in rows if (row["kind"], row["name"]) == ("group", name)]
        assert sum(row["cpu_seconds"] for row in own) >= 0.03, "the system counts in steps of 10 ms"
        assert {row["is_whole"] for row in own} == {works_here}
        assert 0.05 <= sum(row["measured_seconds"] for row in own) < 60
