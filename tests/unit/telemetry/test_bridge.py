"""The bridge says of a fleet what its drivers say themselves, and nothing that may have ended since."""

import json
import socket
import threading
import time
import urllib.error
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import update

from listeners.bridge.counting import LATE_SECONDS
from listeners.metrics_schema import PROCESS_SAMPLE, STREAM_BATCH
from pipeline.base.errors import Refused
from pipeline.health.verdicts.liveness import heartbeat_limit
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database import tables
from pipeline.telemetry.bridge.bridge import Bridge
from pipeline.telemetry.bridge.serving import _patience, serve
from tests.unit.telemetry.bridge_world import GROUP, HOSTILE, BridgeWorld, Scrape, parsed, scrape, until

OWN_TIMES = {"turnout_group_heartbeat_timestamp_seconds", "turnout_ingest_last_commit_timestamp_seconds"}
"""The store has these by its own clock, a moment later."""
OF_EACH = {
    "turnout_listener_events_dropped_total", "turnout_listener_errors_total", "turnout_outbox_items",
    "turnout_metrics_flush_failures_total", "turnout_driver_cpu_seconds_total",
}  # fmt: skip
"""Series without labels, which a scrape tells apart by the target's."""
OF_STORE = (
    "turnout_fleet_", "turnout_controller_", "turnout_operations_", "turnout_maintenance_", "turnout_source_",
    "turnout_access_",
)  # fmt: skip
"""The fleet as ingest judges it; here no ingest runs."""


class Watched:
    """A bridge and its scrapes."""

    def __init__(self, settings: Settings, paths: Paths) -> None:
        self.registry = CollectorRegistry()
        self.bridge = Bridge(settings, paths, self.registry)

    def scrape(self) -> Scrape:
        self.bridge.refresh()
        return parsed(generate_latest(self.registry).decode())

    def drivers(self) -> Scrape:
        """Return the series that a driver has, too."""
        return {
            (name, labels): value
            for (name, labels), value in self.scrape().items()
            if not name.startswith(("turnout_metrics_serve_", *OF_STORE)) and name not in OF_EACH
        }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BridgeWorld]:
    made = BridgeWorld(tmp_path)
    yield made
    made.close()


@pytest.fixture
def watched(world: BridgeWorld) -> Iterator[Watched]:
    made = Watched(world.settings, world.paths)
    made.scrape()
    yield made
    made.bridge.close()


def rounded(scrape: Scrape) -> Scrape:
    """Return a scrape without the last digits of numbers, which tables keep as microseconds."""
    return {key: round(value, 4) for key, value in scrape.items() if key[0] not in OWN_TIMES}


def own(world: BridgeWorld) -> Scrape:
    return {key: value for key, value in world.own().items() if key[0] not in OF_EACH}


def test_the_bridge_says_what_the_drivers_say(world: BridgeWorld, watched: Watched) -> None:
    """The same fleet has the same series with the same values through its drivers' own endpoints and through it.

    Hostile names and reasons go through both; a failed result, a chunk and a second pass count alike.
    """
    for _ in range(3):
        world.work()
        until(lambda: not len(world.group._outbox), "the results are not published")
        world.beat()
    until(lambda: rounded(watched.drivers()) == rounded(own(world)), "the two never agree")
    assert len(own(world)) > 120
    assert any(HOSTILE in dict(labels).values() for _, labels in watched.drivers())
    for name in OWN_TIMES:
        found = [
            {key: value for key, value in each.items() if key[0] == name} for each in (own(world), watched.drivers())
        ]
        assert found[0].keys() == found[1].keys() != set()
        assert all(abs(value - found[1][key]) < 5 for key, value in found[0].items())


def test_drivers_are_told_apart_by_the_labels_of_their_targets(world: BridgeWorld, watched: Watched) -> None:
    """Each driver's counts of its own telemetry have the labels that a scrape adds, as the rules expect."""
    world.beat()
    labels = {frozenset({("kind", "ingest")}), frozenset({("kind", "group"), ("cluster_group", GROUP)})}
    until(lambda: labels <= {key[1] for key in watched.scrape() if key[0] == "turnout_outbox_items"}, "not told apart")


def test_a_fleet_that_falls_silent_vanishes(
    world: BridgeWorld, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers from before a driver fell silent are absent, never frozen; the judgement says that it is down."""
    world.work()
    world.beat()
    until(lambda: len(watched.drivers()) > 100 and is_heard(watched), "the drivers are never heard")
    world.fall_silent(heartbeat_limit(world.settings.metrics.heartbeat_seconds) + 1)
    real = time.time
    limit = watched.bridge._row_limit + 5
    monkeypatch.setattr("pipeline.telemetry.bridge.bridge.time.time", lambda: real() + limit)
    until(lambda: left(watched) == {"turnout_ingest_seq", "turnout_ingest_last_commit_timestamp_seconds"}, "frozen")
    problems = {key: value for key, value in watched.scrape().items() if key[0] == "turnout_fleet_problems"}
    assert problems["turnout_fleet_problems", frozenset({("problem", "group")})] == 1


def test_an_old_reading_shows_nothing_old(world: BridgeWorld, watched: Watched) -> None:
    """While no reading succeeds, what was read grows old and vanishes by itself: rows by their own time."""
    world.beat()
    until(lambda: bool(watched.scrape()) and bool(watched.bridge.known(time.time()).own), "no sample is read")
    later = watched.bridge.known(time.time() + watched.bridge._row_limit + 1)
    assert (later.own, later.snapshot.queries) == ({}, {})
    assert watched.bridge.known(time.time()).snapshot.states
    for place in watched.bridge._places:
        place.close()
    watched.bridge._place_limit = 0.0
    gone = watched.bridge.known(time.time())
    assert (gone.own, gone.snapshot.states, gone.snapshot.fleet, gone.are_passes_known) == ({}, None, None, False)


def test_without_the_store_what_it_hid_stays_hidden(world: BridgeWorld, watched: Watched) -> None:
    """A retired game and a removed group do not come back when the store is away for longer than a reading counts."""
    world.work()
    until(lambda: not len(world.group._outbox), "the results are not published")
    with world.engine.begin() as connection:
        one = tables.games.c.game_key == "go"
        connection.execute(update(tables.games).where(one).values(retired_at=time.time(), group_name=None))
    world.beat()
    until(lambda: games_of(watched) == {"chess", HOSTILE}, "the store is never read")
    until(lambda: bool(watched.scrape()) and len(watched.bridge._counting.games) == 3, "no pass is read")
    until(lambda: watched.bridge.known(time.time()).snapshot.groups.keys() == {GROUP}, "no sample is read")
    watched.bridge._store._newest = older(watched.bridge)
    known = watched.bridge.known(time.time()).snapshot
    assert known.states is None, "the store is away"
    assert known.games.keys() == {"chess", HOSTILE}
    value, *times = older(watched.bridge)
    watched.bridge._store._newest = (replace(value, fleet=replace(value.fleet, groups=())), *times)
    assert watched.bridge.known(time.time()).snapshot.groups == {}


def games_of(watched: Watched) -> set[str]:
    return {dict(labels)["game"] for name, labels in watched.drivers() if name == "turnout_stream_rows_total"}


def older(bridge: Bridge) -> Any:
    """Return the last reading of the store as if it were a minute old."""
    value, at, began = bridge._store._newest or (None, 0.0, 0.0)
    return value, at - 60, began - 60


def test_a_place_that_hangs_keeps_no_scrape(world: BridgeWorld, watched: Watched) -> None:
    """While the control store hangs a scrape has the rest in time, and the store is down once its reading is old."""
    ends = threading.Event()
    watched.bridge._store._read = lambda: ends.wait() and None  # type: ignore[assignment,return-value]
    watched.bridge._place_limit = 1.0
    up = ("turnout_metrics_serve_up", frozenset({("place", "control_store")}))
    world.beat()

    def has_the_rest() -> bool:
        began = time.monotonic()
        watched.bridge.refresh(0.1)
        assert time.monotonic() - began < 2
        is_down = parsed(generate_latest(watched.registry).decode())[up] == 0
        return is_down and {name for name, _ in watched.bridge.known(time.time()).own} == {"group", "ingest"}

    until(has_the_rest, "the store is never down beside places that are not")
    ends.set()


def left(watched: Watched) -> set[str]:
    return {name for name, _ in watched.drivers()}


def is_heard(watched: Watched) -> bool:
    return ("turnout_ingest_rows_total", frozenset({("result", "ok")})) in watched.scrape()


def test_a_driver_whose_rows_do_not_come_is_late(world: BridgeWorld, watched: Watched) -> None:
    """A driver that beats while its rows stay away is late, which an alert reports; its counters are absent."""
    world.group._tables.add = lambda item: None  # type: ignore[method-assign]
    world.beat()
    key = ("turnout_metrics_serve_driver_late", frozenset({("kind", "group"), ("cluster_group", GROUP)}))
    watched.bridge._row_limit = 0.5

    def is_late() -> bool:
        world.beat()
        return watched.scrape().get(key) == 1

    until(is_late, "nobody is late")
    assert ("turnout_group_passes_total", frozenset({("cluster_group", GROUP)})) not in watched.scrape()


def test_rows_count_once_through_a_merge_and_a_doubled_file(world: BridgeWorld, watched: Watched) -> None:
    """Counters neither fall nor grow when maintenance merges the files, nor when a retry has doubled rows."""
    key = ("turnout_stream_commits_total", frozenset({("game", "go"), ("cluster_group", GROUP)}))
    for batches in (1, 2):
        world.work()
        world.beat()
        until(lambda: watched.scrape().get(key) == batches, "the pass is never counted")  # noqa: B023 - within the turn
    table = DeltaTable(str(world.paths.metrics / STREAM_BATCH.name))
    from deltalake import write_deltalake

    write_deltalake(table, table.to_pyarrow_table(), mode="append")
    table.optimize.compact()
    version = DeltaTable(str(world.paths.metrics / STREAM_BATCH.name)).version()
    passes = watched.bridge._tables[0]
    began = passes._began
    until(lambda: bool(watched.scrape()) and passes._began > began + 0.5, "it is never read again")
    assert version >= 3
    assert watched.scrape()[key] == 2


def test_many_scrapes_are_one_reading(world: BridgeWorld, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two scrapers do not double the readings: within the time between two, all get the same one."""
    for place in watched.bridge._places:
        place._every = 3600.0
    read = [place._began for place in watched.bridge._places]
    for _ in range(5):
        watched.scrape()
    assert [place._began for place in watched.bridge._places] == read


def test_a_place_that_is_away_is_named_and_nothing_of_it_is_frozen(tmp_path: Path) -> None:
    """Without any store the bridge knows nothing and says so; tables that are not there yet are no error."""
    watched = Watched(Settings(), Paths(tmp_path))
    found = watched.scrape()
    ups = {dict(labels)["place"]: value for (name, labels), value in found.items() if name.endswith("serve_up")}
    assert ups == {"control_store": 0.0, STREAM_BATCH.name: 1.0, PROCESS_SAMPLE.name: 1.0}
    assert watched.bridge.failure() is None
    assert {name for name, _ in found} == {
        "turnout_metrics_serve_up", "turnout_metrics_serve_read_timestamp_seconds",
        "turnout_metrics_serve_read_failures_total",
    }  # fmt: skip
    watched.bridge.close()


def test_an_old_row_is_in_no_counter(world: BridgeWorld, watched: Watched) -> None:
    """A pass that ended before the bridge began is not counted: a restart must not count it again."""
    world.work()
    world.beat()
    until(lambda: bool(watched.scrape()) and watched.bridge._counting.newest_at is not None, "the pass is never read")
    later = Watched(world.settings, world.paths)
    world.beat()
    key = ("turnout_stream_commits_total", frozenset({("game", "go"), ("cluster_group", GROUP)}))
    until(lambda: key in later.scrape(), "the states are never read")
    assert later.scrape()[key] == 0
    assert later.bridge._counting.since(time.time() + 2 * LATE_SECONDS) > time.time()
    later.bridge.close()


def test_nothing_known_is_an_error_with_one_sentence(tmp_path: Path) -> None:
    """Where neither store can be read the scrape fails, so that `up` is 0."""
    for name in (STREAM_BATCH.name, PROCESS_SAMPLE.name):
        log = tmp_path / "metrics" / name / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_text("no log")
    stop, paths = threading.Event(), Paths(tmp_path)
    thread = threading.Thread(target=serve, args=(Settings(), paths, "127.0.0.1", 0, stop, lambda _: None))
    thread.start()
    target = paths.target("bridge", "main")
    until(target.exists, "it never listens")
    with pytest.raises(urllib.error.HTTPError) as refusal:
        scrape(json.loads(target.read_text())[0]["targets"][0])
    stop.set()
    thread.join()
    sentence = refusal.value.read().decode()
    assert (refusal.value.code, sentence.count("\n")) == (503, 1)
    assert sentence.startswith("Neither the control store nor a metrics table can be read")
    refusal.value.close()


@pytest.mark.parametrize("bind", ["127.0.0.1", "192.0.2.1", ""])
def test_an_address_that_cannot_be_used_is_one_sentence(tmp_path: Path, bind: str) -> None:
    """A port that is taken, another machine's address and none are refused with what to do; nobody lists the bridge."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Refused, match="--bind"):
        serve(Settings(), Paths(tmp_path), bind, taken.getsockname()[1], threading.Event(), lambda _: None)
    assert not Paths(tmp_path).targets.exists()


@pytest.mark.parametrize(("header", "seconds"), [("1", 0.5), ("10", 5.0), ("60", 5.0), ("-3", 0.0), ("soon", 5.0)])
def test_a_scrape_waits_for_half_of_its_time(header: str, seconds: float) -> None:
    """A scrape that ends after a second gets its answer before, so that a slow place does not make `up` 0."""
    assert _patience({"HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS": header}) == seconds
    assert _patience({}) == 5.0
