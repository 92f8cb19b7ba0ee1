import re
import time
import urllib.request
from typing import Any

import pyarrow.compute as pc
import pytest

from listeners import history
from listeners.listener import attach
from listeners.process_cpu import tree_cpu_seconds
from pipeline.data.streams.watchdog import Watchdog
from pipeline.platforms.session.spark import works_here
from pipeline.telemetry.driver import Telemetry


def _scraped(address: str, metric: str, key: str) -> float:
    """Return the sum of one game's samples of a metric on a /metrics page."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        text = page.read().decode()
    found = re.findall(rf'^{metric}{{[^}}]*game="{key}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return sum(float(value) for value in found)


@pytest.mark.proves("G136")
def test_metrics_page_and_metrics_table_tell_the_same_numbers(world: Any) -> None:
    """A pass is reported once, to Prometheus and to the metrics table alike, with Spark's own progress of it."""
    telemetry = Telemetry(world.settings.metrics, world.paths, "group", "a")
    attachment = attach(world.spark, telemetry.event)
    group = world.group("a", lambda result: (telemetry.passed if result.batch_id >= 0 else telemetry.caught_up)(result))
    watchdog = Watchdog(world.settings, world.engine, group, telemetry.states)
    world.simulate(2_000)
    world.ingest()
    world.split(group)
    watchdog.evaluate(active=True)
    attachment.detach()
    stop_serving, telemetry._stop_serving = telemetry._stop_serving, lambda: None
    telemetry.close()

    summary = {each.game_key: each for each in history.summary(world.paths.metrics, 0.0)}
    landed = {each.game_key: each.counts for each in world.verify().games if each.game_key in group.streams}
    assert {key: counts.landed for key, counts in landed.items()} == {key: each.rows for key, each in summary.items()}
    for key, each in summary.items():
        assert each.rows + each.rejects == _scraped(telemetry.address, "turnout_stream_rows_total", key)
        timed = _scraped(telemetry.address, "turnout_stream_latency_seconds_count", key)
        assert each.rows == timed + _scraped(telemetry.address, "turnout_stream_caught_up_rows_total", key)
        assert _scraped(telemetry.address, "turnout_stream_status", key) == 1
    stop_serving()
    passes = history.passes(world.paths.metrics, None, 0.0)
    assert "RUN" in passes.column("lane").to_pylist() or "CATCHUP" in passes.column("lane").to_pylist()
    run = passes.filter(pc.equal(passes.column("lane"), "RUN"))
    assert run.column("input_rows").null_count == 0
    assert not (world.paths.targets / "group-a.json").exists()


def test_the_time_of_the_jvm_counts_as_the_drivers(world: Any) -> None:
    """Load: a driver works in the JVM that it started, whose CPU time is in what it measures of itself."""
    assert works_here(world.spark)
    before, own = tree_cpu_seconds(), time.process_time()
    world.spark.range(500_000).selectExpr("sum(hash(id))").collect()
    after, own = tree_cpu_seconds(), time.process_time() - own
    assert before is not None
    assert after is not None
    assert after - before - own >= 0.1
