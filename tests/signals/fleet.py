"""A fleet of two processes as Prometheus sees it: the real exposition of a driver and of ingest, with faults to set."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from listeners.bridge.families import Known, bridge_families
from listeners.join import Pass
from listeners.prometheus import Exposition, serve
from listeners.sample import CHUNK, LATENCY_EDGES_SECONDS, GameResult, Lane, PassResult, StreamState
from listeners.totals import ControllerMetrics, MetricsSnapshot, SelfCounts
from pipeline.edge.metrics import EdgeMetrics

GROUP = "a"
NEIGHBOUR = "go_abcdefghijkl"
_LIFETIME = 90 * 86_400.0  # seconds, of a certificate
_COUNTS = (1, *[0] * len(LATENCY_EDGES_SECONDS))


@dataclass(frozen=True, slots=True)
class Health:
    """The state that both processes report at a scrape; the defaults are a calm day."""

    status: str = "RUNNING"  # of the game under test; its neighbour is well
    age: float | None = 1.0
    rejects: int = 0  # of each hundred rows
    broken: int = 0  # rows of each hundred that break a contract, and land
    heartbeat_ago: float = 0.0
    committed_ago: float = 0.0
    judged_ago: float = 0.0
    problems: int = 0
    drops: bool = False
    is_edge_gone: bool = False  # an edge was killed, and its target file is still there
    certificate_left: float = 0.5  # share of the lifetime of another edge's certificate
    is_late: bool = False  # the bridge gets no rows of the driver
    control: ControllerMetrics = field(
        default_factory=lambda: ControllerMetrics(
            is_controller_running=True,
            supervised_groups=1,
            open_operations={"needs_human": 0, "planned": 0},
            oldest_stuck_since=None,
            access_read_at=time.time(),
            drift={"extra": 0},
            source_age_seconds=1.0,
            source_rows=1,
            maintenance_overdue_seconds=0.0,
        )
    )


class _Scraped(Collector):
    """Brings an exposition up to date before each scrape."""

    def __init__(self, exposition: Exposition, report: Callable[[], None]) -> None:
        self._exposition, self._report = exposition, report

    def collect(self) -> Iterator[Metric]:
        self._report()
        yield from self._exposition.collect()

    def describe(self) -> Sequence[Metric]:
        return ()


class _Bridge(Collector):
    """The series of `turnout metrics serve` about its own reading."""

    def __init__(self, is_late: Callable[[], bool]) -> None:
        self._is_late = is_late

    def collect(self) -> Iterator[Metric]:
        nothing = MetricsSnapshot({}, None, {}, {}, None, SelfCounts())
        yield from bridge_families(Known(nothing, {}, {}, {}, {("group", GROUP): self._is_late()}))

    def describe(self) -> Sequence[Metric]:
        return ()


class Fleet:
    """Serves both processes with target files, as a driver and ingest do."""

    def __init__(self, targets: Path) -> None:
        self._health, self._taken, self._edge = Health(), 0, targets / "edge-one.json"
        self._second = EdgeMetrics()
        self._second.served(time.time() + _LIFETIME / 2, _LIFETIME)
        self.game = ""
        self.take_new_game()
        self._lock = threading.Lock()
        self._driver, self._ingest = Exposition(CollectorRegistry()), Exposition(CollectorRegistry())
        self._scrapes = 0
        self._stops = [
            self._serve(targets, f"group-{GROUP}", self._driver, self._report_driver),
            self._serve(targets, "ingest-main", self._ingest, self._report_ingest),
            self._serve_bridge(targets),
            self._list(targets, "edge-two", self._second.registry),
        ]

    @property
    def processes(self) -> int:
        """Return how many processes are there on a calm day."""
        return len(self._stops)

    def take_new_game(self) -> None:
        """Show another game from now on, which has missed nothing yet: windows are long even when an hour is short."""
        self._taken += 1
        self.game = f"game{self._taken}_abcdefghijkl"

    def set(self, **changes: object) -> None:
        """Set what the next scrape shows; everything else is as on a calm day."""
        with self._lock:
            self._health = replace(Health(), **changes)  # type: ignore[arg-type]  # a table of changes
            self._second.served(time.time() + _LIFETIME * self._health.certificate_left, _LIFETIME)
            labels = {"kind": "edge", "edge": "one"}
            if self._health.is_edge_gone:
                self._edge.write_text(json.dumps([{"targets": ["127.0.0.1:1"], "labels": labels}]))
            else:
                self._edge.unlink(missing_ok=True)

    def set_control(self, **changes: object) -> None:
        """Set what ingest reports of the controller's work."""
        self.set(control=replace(Health().control, **changes))  # type: ignore[arg-type]

    def stop(self) -> None:
        for stop in self._stops:
            stop()

    def _serve(
        self, targets: Path, name: str, exposition: Exposition, report: Callable[[], None]
    ) -> Callable[[], None]:
        registry = CollectorRegistry()
        registry.register(_Scraped(exposition, report))
        return self._list(targets, name, registry)

    def _serve_bridge(self, targets: Path) -> Callable[[], None]:
        registry = CollectorRegistry()
        registry.register(_Bridge(lambda: self._now().is_late))
        return self._list(targets, "bridge-main", registry)

    def _list(self, targets: Path, name: str, registry: CollectorRegistry) -> Callable[[], None]:
        port, stop = serve(registry)
        kind = name.partition("-")[0]
        own = {"group": {"cluster_group": GROUP}, "edge": {"edge": name.removeprefix("edge-")}}
        labels = {"kind": kind, **own.get(kind, {})}
        targets.mkdir(parents=True, exist_ok=True)
        (targets / f"{name}.json").write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"], "labels": labels}]))
        return stop

    def _report_driver(self) -> None:
        now, health = time.time(), self._now()
        self._scrapes += 1
        rejects = {"malformed_payload": health.rejects} if health.rejects else {}
        games = (self.game, NEIGHBOUR)
        broken = {"sales/price": health.broken} if health.broken else {}
        results = [
            GameResult(game, Lane.RUN, 1, 1, 100, rejects, 1, 1, now, 0.1, _COUNTS, broken=broken) for game in games
        ]
        self._driver.add_pass(Pass(PassResult(GROUP, "run", CHUNK, now - 1, now, 1, tuple(results)), None))
        shown = ((health.status, health.age), ("RUNNING", 1.0))
        self._driver.set_states([self._state(game, *each, now) for game, each in zip(games, shown, strict=True)])
        self._driver.set_heartbeat(GROUP, now - health.heartbeat_ago)
        drops = self._scrapes if health.drops else 0
        self._driver.set_self(events_dropped=drops, listener_errors=0, outbox_items=0, flush_failures=0)

    def _report_ingest(self) -> None:
        now, health = time.time(), self._now()
        self._ingest.add_ingest(seq=1, accepted=1, refused=0, committed_at=now - health.committed_ago)
        self._ingest.set_fleet({"group": health.problems}, now - health.judged_ago)
        grown = [
            replace(each, duplicates=self._scrapes, reported_at=now) if each.unique_by else each
            for each in health.control.derived
        ]
        self._ingest.set_controller_metrics(replace(health.control, derived=grown))
        self._ingest.set_self(events_dropped=0, listener_errors=0, outbox_items=0, flush_failures=0)

    def _now(self) -> Health:
        with self._lock:
            return self._health

    def _state(self, game: str, status: str, age: float | None, now: float) -> StreamState:
        return StreamState(game, GROUP, Lane.RUN, status, now, 1, now, age, 1.0, 1.0, 1, 0, None, now)
