"""A small fleet as drivers leave it: telemetry of ingest and of a group, their rows in the tables, and the store."""

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert, update

from listeners.events import Progressed
from listeners.sample import (
    CHUNK,
    LATENCY_EDGES_SECONDS,
    GameResult,
    GroupSample,
    Lane,
    PassResult,
    StreamState,
    TypeRows,
)
from pipeline.settings.tree import Metrics, Paths, Settings
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.processes.drivers import heartbeat, record_commit, start_driver
from pipeline.telemetry.driver import Telemetry
from tests.unit.store.reports_world import write_streams

Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]
COUNTS: Final = (1, 2, *(0,) * (len(LATENCY_EDGES_SECONDS) - 2), 4)
HOSTILE: Final = 'a"b\\c\nd{}=,\u202e é'
PATIENCE_SECONDS: Final = 20.0
GROUP: Final = "eu-1"


class BridgeWorld:
    """An environment whose drivers are this process: each reports to its own `/metrics`, the tables and the store."""

    def __init__(self, folder: Path, games: Sequence[str] = ("chess", "go", HOSTILE), storage: str = "") -> None:
        self.settings, self.paths = Settings(metrics=Metrics(flush_seconds=0.5)), Paths(folder, storage)
        self.engine = open_store(self.settings, self.paths)
        self.games = games
        self._batch = 0
        self.ingest = Telemetry(self.settings.metrics, self.paths, "ingest", "main", has_source=True)
        self.group = Telemetry(self.settings.metrics, self.paths, "group", GROUP)
        start_driver(self.engine, "ingest", "main", self.ingest.address)
        start_driver(self.engine, "group", GROUP, self.group.address)
        now = time.time()
        rows = [
            {"game_key": game, "game": game, "group_name": GROUP, "last_seq": 1, "discovered_at": now} for game in games
        ]
        with self.engine.begin() as connection:
            connection.execute(insert(tables.games), rows)

    def work(self) -> None:
        """Ingest a batch, pass it and a chunk, and fail once, as drivers report it."""
        self._batch += 1
        batch, now = self._batch, time.time()
        self.ingest.exposition.add_ingest(seq=batch, accepted=20, refused=1, committed_at=now, clocks={"broker": 21})
        self.ingest.landed(now, 21, 1)
        record_commit(self.engine, batch, 21, 1, now)
        good = [_result(game, batch, now) for game in self.games]
        bad = _result(self.games[0], batch, None, rows=0, rejects={}, error="store down")
        self.group.passed(PassResult(GROUP, "run", batch, now - 1, now, batch, tuple(good), {"commit": 0.5}))
        progress = {
            "id": "q", "runId": "run", "batchId": batch, "name": f"turnout-demux-{GROUP}", "timestamp": "",
            "numInputRows": 30, "durationMs": {"addBatch": 300},
        }  # fmt: skip
        self.group.event(Progressed(json.dumps(progress)))
        chunk = PassResult(GROUP, "catch-up", CHUNK, now - 1, now + batch / 1000, batch, (good[0],), {"split": 0.25})
        self.group.caught_up(chunk)
        self.group.caught_up(PassResult(GROUP, "catch-up", CHUNK, now - 1, now + 0.5, batch, (bad,)))

    def beat(self, status: str = "RUNNING") -> None:
        """Send the heartbeats of both drivers, with the states of all streams."""
        now = time.time()
        states = [_state(game, status, self._batch, now) for game in self.games]
        heartbeat(self.engine, "ingest", "main", "running", self._batch)
        heartbeat(self.engine, "group", GROUP, "running", self._batch)
        write_streams(self.engine, states)
        self.group.states(states, [], GroupSample(GROUP, now, self._batch, len(states), 0, 1.0))
        self.group.tick(0)
        self.ingest.tick(0)

    def fall_silent(self, seconds: float) -> None:
        """Make the last word of all drivers in the control store older."""
        with self.engine.begin() as connection:
            connection.execute(update(tables.drivers).values(heartbeat_at=tables.drivers.c.heartbeat_at - seconds))
            connection.execute(update(tables.streams).values(updated_at=tables.streams.c.updated_at - seconds))

    def own(self) -> Scrape:
        """Return what a Prometheus has that scrapes the drivers: their series, with labels of targets where needed."""
        found = scrape(self.group.address)
        for (name, labels), value in scrape(self.ingest.address).items():
            found[name, labels] = value
        return found

    def close(self) -> None:
        with ThreadPoolExecutor() as pool:  # each waits half a second for its server
            list(pool.map(Telemetry.close, (self.group, self.ingest)))
        self.engine.dispose()


def parsed(text: str) -> Scrape:
    """Return the samples of an exposition by name and labels."""
    families = text_string_to_metric_families(text)
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def scrape(address: str) -> Scrape:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return parsed(answer.read().decode())


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition that other threads bring about."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def _result(game: str, seq: int, committed_at: float | None, **changes: object) -> GameResult:
    values: dict[str, object] = {
        "rows": 7, "rejects": {"malformed_payload": 2, HOSTILE: 1}, "error": None, "caught_up_rows": 0,
        "types": {"t.M": TypeRows(7, 1)}, **changes,
    }  # fmt: skip
    return GameResult(
        game, Lane.RUN, seq, seq, files=1, bytes=10, committed_at=committed_at, commit_seconds=0.1,
        latency_counts=COUNTS, **values,  # type: ignore[arg-type]  # a table of changes
    )  # fmt: skip


def _state(game: str, status: str, seq: int, now: float) -> StreamState:
    return StreamState(game, GROUP, Lane.RUN, status, now - 60, seq, now, 1.5, 1.0, 1.0, 7, 3, None, now)
