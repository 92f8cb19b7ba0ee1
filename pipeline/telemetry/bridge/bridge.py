"""What all drivers say on their own `/metrics`, read from the metrics tables and the control store.

For drivers that nobody can reach, as those of job clusters. What is old is left out, never frozen.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine

from listeners.bridge.appended import Appended
from listeners.bridge.counting import Counting
from listeners.bridge.families import Known, Readings, bridge_families
from listeners.bridge.processes import Processes
from listeners.metrics_schema import PROCESS_SAMPLE, STREAM_BATCH, MetricsTable
from listeners.minutes.reader import TablePlace
from listeners.process_kinds import GROUP
from listeners.sample import Lane, StreamState
from listeners.status import STATUSES
from listeners.totals import (
    ControllerMetrics,
    FleetProblems,
    GameTotals,
    GroupTotals,
    IngestTotals,
    MetricsSnapshot,
    ProcessSample,
    SelfCounts,
)
from pipeline.data.derived.uniqueness import read_unique_by
from pipeline.data.output_contracts.freshness import read_freshness
from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.fleet import Fleet, GameRow, read_fleet
from pipeline.health.kinds.registry import registered
from pipeline.health.verdicts.liveness import heartbeat_limit
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import DeltaTable, files_below, open_table
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store, require_store
from pipeline.telemetry.bridge.polled import Polled, PolledValue

CONTROL_STORE: Final = "control_store"

WAIT_SECONDS: Final = 5.0
"""Seconds that a scrape waits for a reading, of the ten that Prometheus gives it by default."""

_EVERY_SECONDS: Final = 10.0  # between two readings at least, as drivers are silent after fifteen
_LANES: Final = frozenset(Lane)


@dataclass(frozen=True, slots=True)
class _Store:
    """The control store at one moment."""

    fleet: Fleet
    controller: ControllerMetrics


class Bridge(Collector):
    """All drivers' metrics as one collector. Any thread may call it; `close` ends its own threads."""

    def __init__(self, settings: Settings, paths: Paths, registry: CollectorRegistry) -> None:
        """Begin to count; reads nothing until a scrape wants it."""
        self._settings, self._paths = settings, paths
        self._engine: Engine | None = None
        metrics, self.began_at = settings.metrics, time.time()
        self._counting, self._processes = Counting(self.began_at), Processes()
        self._limit = heartbeat_limit(metrics.heartbeat_seconds)
        # A row waits for the next flush, whose time varies by a fifth, and then for the next reading.
        self._row_limit = self._limit + 2 * metrics.flush_seconds
        passes = Appended(_place(paths.metrics, STREAM_BATCH), STREAM_BATCH, "finished_at")
        samples = Appended(_place(paths.metrics, PROCESS_SAMPLE), PROCESS_SAMPLE, "at")
        every = min(_EVERY_SECONDS, metrics.flush_seconds)  # the tables get nothing new more often
        self._place_limit = self._limit + 2 * every
        self._store = Polled(CONTROL_STORE, self._read_store, every)
        self._tables = (
            Polled(STREAM_BATCH.name, partial(self._read_passes, passes), every),
            Polled(PROCESS_SAMPLE.name, partial(self._read_samples, samples), every),
        )
        self._places: tuple[Polled[_Store] | Polled[bool], ...] = (self._store, *self._tables)
        registry.register(self)

    def describe(self) -> Sequence[Metric]:
        """Return nothing: the metrics depend on what is read, and registering must not read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of the last reading; `refresh` reads."""
        yield from bridge_families(self.known(time.time()))

    def refresh(self, wait_seconds: float = WAIT_SECONDS) -> None:
        """Read what is due; wait at most `wait_seconds`, all together, for places that hang."""
        until = time.monotonic() + wait_seconds
        for place in self._places:
            place.want()
        for place in self._places:
            place.wait(until - time.monotonic())

    def failure(self) -> str | None:
        """Return in a sentence why nothing at all is known; None where anything is."""
        if any(self._is_up(place.newest()) for place in self._places):
            return None
        reason = next(
            (place.failure for place in self._places if place.failure is not None), "no reading has ended yet"
        )
        return f"Neither the control store nor a metrics table can be read: {reason}"

    def known(self, now: float) -> Known:
        """Return what is known at that moment (Unix seconds)."""
        read = self._store.newest()
        store = read if self._is_up(read) else None
        samples = self._processes.fresh(now - self._row_limit) if self._is_up(self._tables[1].newest()) else []
        newest = {STREAM_BATCH.name: self._counting.newest_at, PROCESS_SAMPLE.name: self._processes.newest_at}
        return Known(
            self._snapshot(store, None if read is None else read.value.fleet, samples),
            {(each.kind, each.name): each.own for each in samples},
            {each.place: self._readings(each) for each in self._places},
            {table: at for table, at in newest.items() if at is not None},
            {} if store is None else self._late(store.value.fleet, samples),
            are_passes_known=self._is_up(self._tables[0].newest()),
        )

    def close(self) -> None:
        """Read no more."""
        for place in self._places:
            place.close()
        if self._engine is not None:
            self._engine.dispose()

    def _snapshot(
        self, store: "PolledValue[_Store] | None", last: Fleet | None, samples: Sequence[ProcessSample]
    ) -> MetricsSnapshot:
        """Return all that is known; `last` is the fleet as it was last read, however long ago."""
        groups = {each.name: each.group for each in samples if each.group is not None and _exists(each.name, last)}
        queries = {name: totals for each in samples for name, totals in each.queries.items()}
        ingest = next((each.ingest for each in samples if each.ingest is not None), None)
        states, fleet, controller = None, None, None
        if store is not None:
            seen = store.value.fleet
            states = {row.game_key: state for row in seen.rows if (state := _state(row)) is not None}
            groups = _beating(seen, groups, self._limit)
            ingest = _newest_commit(seen, ingest)
            fleet, controller = _problems(seen, store.at), store.value.controller
        games = self._counting.games
        if states is None and last is not None:
            games = _as_last_shown(games, last)
        return MetricsSnapshot(games, states, groups, queries, ingest, SelfCounts(), fleet, controller)

    def _late(self, fleet: Fleet, samples: Sequence[ProcessSample]) -> Mapping[tuple[str, str], bool]:
        heard = {(each.kind, each.name) for each in samples}
        return {
            (each.kind, each.name): (each.kind, each.name) not in heard
            for kind in registered()
            if kind.moves_rows
            for each in fleet.drivers_of(kind.name)
            if each.state != "stopped"
            and each.heartbeat_age(fleet.read_at) <= self._limit
            and fleet.read_at - each.started_at > self._row_limit  # a driver that starts has written nothing yet
        }

    def _readings(self, place: "Polled[_Store] | Polled[bool]") -> Readings:
        newest = place.newest()
        is_up = self._is_up(newest) and place.failure is None
        return Readings(is_up, None if newest is None else newest.at, place.failures)

    def _is_up(self, reading: "PolledValue[_Store] | PolledValue[bool] | None") -> bool:
        """Whether a reading still describes the present: the place may hang, or be away."""
        return reading is not None and reading.age_seconds <= self._place_limit

    def _read_store(self) -> _Store:
        if self._engine is None:
            require_store(self._settings, self._paths)
            self._engine = open_store(self._settings, self._paths, connections=1)
        fleet = read_fleet(self._engine, settings=self._settings)
        freshness = read_freshness(self._engine, fleet)
        unique_by = read_unique_by(self._engine, (row.game for row in fleet.rows))
        return _Store(fleet, read_controller_metrics(self._engine, fleet, freshness, unique_by))

    def _read_passes(self, passes: Appended) -> bool:
        now = time.time()
        self._counting.add(passes.rows(self._counting.since(now), time.monotonic()), now)
        return True

    def _read_samples(self, samples: Appended) -> bool:
        since = time.time() - self._row_limit
        self._processes.add(samples.rows(since, time.monotonic()), since)
        return True


def _place(folder: Location, table: MetricsTable) -> TablePlace:
    path = folder / table.name

    def opened() -> DeltaTable | None:
        return open_table(path) if exists(path) else None

    return TablePlace(opened, files_below(path))


def _state(row: GameRow) -> StreamState | None:
    """Return a stream's report where it still describes the present; None where it does not."""
    said = row.live
    is_known = said is not None and said.status in STATUSES and said.lane in _LANES
    return said if is_known else None


def _exists(group: str, last: Fleet | None) -> bool:
    return last is None or group in last.groups


def _as_last_shown(games: Mapping[str, GameTotals], last: Fleet) -> dict[str, GameTotals]:
    """Return the games that the last reading of the store showed, with their groups then, and those it did not know.

    Without the store nobody retires, moves or removes anything: what was hidden, such as a retired game, stays hidden.
    """
    states = {row.game_key: _state(row) for row in last.rows}
    found = {key: totals for key, totals in games.items() if key not in states}
    for key, state in states.items():
        if state is not None and key in games:
            found[key] = replace(games[key], group=state.group)
    return found


def _beating(fleet: Fleet, groups: Mapping[str, GroupTotals], limit: float) -> dict[str, GroupTotals]:
    """Return the groups with their newest heartbeats, also of groups that only the control store has."""
    beats = {
        each.name: each.heartbeat_at
        for each in fleet.drivers_of(GROUP)
        if each.state != "stopped" and each.heartbeat_age(fleet.read_at) <= limit
    }
    found = dict(groups)
    for name, at in beats.items():
        known = found.get(name) or GroupTotals(passes=None)
        found[name] = replace(known, heartbeat_at=max(at, known.heartbeat_at or at))
    return found


def _newest_commit(fleet: Fleet, ingest: IngestTotals | None) -> IngestTotals | None:
    """Return ingest's totals with the newest commit to bronze that either place knows."""
    seq, at = fleet.newest_bronze_seq, fleet.newest_bronze_at
    if seq is None or at is None:
        return ingest
    if ingest is None:
        return IngestTotals(seq, None, None, at)
    return replace(ingest, seq=max(seq, ingest.seq), last_commit_at=max(at, ingest.last_commit_at))


def _problems(fleet: Fleet, judged_at: float) -> FleetProblems:
    judgement = fleet.judgement
    return FleetProblems(
        judgement.count_problems(), judged_at, judgement.stopped_groups, judgement.wanted_groups, fleet.stranded_games,
        fleet.through_times, fleet.through_at,
    )  # fmt: skip
