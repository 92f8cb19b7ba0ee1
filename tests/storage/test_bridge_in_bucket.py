"""The bridge reads metrics tables in a bucket, and shows nothing of them while the bucket is away."""

import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pipeline.telemetry.bridge.bridge import Bridge
from tests.storage.buckets import bucket, proxied
from tests.unit.telemetry.bridge_world import GROUP, BridgeWorld, Scrape, parsed, until

COMMITS = ("turnout_stream_commits_total", frozenset({("game", "go"), ("cluster_group", GROUP)}))
STATE = ("turnout_stream_info", frozenset({("game", "go"), ("cluster_group", GROUP), ("lane", "RUN")}))
UP = ("turnout_metrics_serve_up", frozenset({("place", "stream_batch")}))


def test_counters_of_a_bucket_vanish_while_it_is_away_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in a bucket are counted; while it refuses they are absent and the control store's go on; then all count."""
    with bucket() as url, proxied(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        world = BridgeWorld(tmp_path, storage=f"{url}/env")
        registry = CollectorRegistry()
        bridge = Bridge(world.settings, world.paths, registry)
        bridge._place_limit = 1.5

        def scrape() -> Scrape:
            world.beat()
            bridge.refresh()
            return parsed(generate_latest(registry).decode())

        world.work()
        until(lambda: scrape().get(COMMITS) == 1, "the pass is never counted")
        assert sum(proxy.seen.values()) > 0
        proxy.fault = lambda _method, _path: "forbidden"
        until(lambda: scrape().get(UP) == 0 and COMMITS not in scrape(), "its counters are frozen")
        world.work()
        assert STATE in scrape()
        proxy.fault = lambda _method, _path: None
        until(lambda: scrape().get(COMMITS) == 2, "the second pass is never counted")
        bridge.close()
        world.close()
