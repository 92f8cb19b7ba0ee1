"""This process's Prometheus metrics: totals from the sinks, rendered for each scrape, served or pushed.

The outbox's and the watchdog's threads call `Exposition`. Unknown values are never exported.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from prometheus_client import CollectorRegistry, delete_from_gateway, push_to_gateway, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from listeners.families import families
from listeners.join import Pass
from listeners.periodic import PeriodicSender
from listeners.process_kinds import GROUP
from listeners.sample import OTHER, Progress, StreamState
from listeners.status import STATUSES
from listeners.totals import (
    BUCKETS,
    MAX_QUERIES,
    ControllerMetrics,
    FleetProblems,
    GameTotals,
    GroupTotals,
    IngestTotals,
    MetricsSnapshot,
    ProcessSample,
    QueryTotals,
    SelfCounts,
    after_pass,
    after_progress,
    after_result,
    after_rows,
)

PUSH_TIMEOUT_SECONDS: Final = 5.0


class Exposition(Collector):
    """One process's metrics as a collector of the given registry; safe to use from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lock = threading.Lock()
        self._games: dict[str, GameTotals] = {}
        self._states: dict[str, StreamState] | None = None
        self._groups: dict[str, GroupTotals] = {}
        self._queries: dict[str, QueryTotals] = {}
        self._ingest: IngestTotals | None = None
        self._own = SelfCounts()
        self._fleet: FleetProblems | None = None
        self._controller_metrics: ControllerMetrics | None = None
        self._through_posts: tuple[int, int] | None = None
        registry.register(self)

    def add_pass(self, finished: Pass) -> None:
        """Count one pass; a game's failed result counts as an error only, since its rows come again.

        Raises:
            ValueError: a latency histogram has not one count per bucket; nothing of the pass is counted.
        """
        result = finished.result
        for game in result.games:
            if len(game.latency_counts) != BUCKETS:
                raise ValueError(f"{game.game_key}: expected {BUCKETS} latency counts, got {len(game.latency_counts)}")
        with self._lock:
            for game in result.games:
                before = self._games.get(game.game_key) or GameTotals(result.group)
                if before.group != result.group:
                    before = replace(before, group=result.group)
                self._games[game.game_key] = after_result(before, game)
            self._groups[result.group] = after_pass(self._groups.get(result.group) or GroupTotals(), result)
            if result.input_rows is not None and finished.progress is not None:
                name = self._query(finished.progress)
                self._queries[name] = after_rows(self._queries.get(name), result.input_rows)

    def set_states(self, states: Sequence[StreamState]) -> None:
        """Replace the states of all streams of this process; other games disappear.

        Raises:
            ValueError: a status is not one of STATUSES.
        """
        for state in states:
            if state.status not in STATUSES:
                raise ValueError(f"{state.game_key}: no such status: {state.status!r}")
        with self._lock:
            self._states = {state.game_key: state for state in states}
            for state in states:
                self._groups.setdefault(state.group, GroupTotals())

    def set_heartbeat(self, group: str, at: float) -> None:
        """Record that the group's driver was alive at this time (Unix seconds)."""
        with self._lock:
            self._groups[group] = replace(self._groups.get(group) or GroupTotals(), heartbeat_at=at)

    def add_progress(self, progress: Progress) -> None:
        """Count one micro-batch of any query; `add_pass` counts the result of its pass."""
        with self._lock:
            name = self._query(progress)
            self._queries[name] = after_progress(self._queries.get(name), progress)

    def _query(self, progress: Progress) -> str:
        """Return the label of a progress's query."""
        name = progress.query_name or "unnamed"
        return OTHER if name not in self._queries and len(self._queries) >= MAX_QUERIES else name

    def add_ingest(
        self,
        *,
        seq: int,
        accepted: int,
        refused: int,
        committed_at: float,
        clocks: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Count one bronze commit: its seq, its rows for games, its refused rows, and when (Unix seconds).

        `clocks` gives all of its rows by whose clock their source time is.
        """
        with self._lock:
            before = self._ingest or IngestTotals(seq, 0, 0, committed_at)
            rows = Counter(before.clocks)
            rows.update(clocks)
            self._ingest = IngestTotals(
                seq, (before.accepted or 0) + accepted, (before.refused or 0) + refused, committed_at, dict(rows)
            )

    def set_fleet(
        self,
        problems: Mapping[str, int],
        judged_at: float,
        stopped_groups: Sequence[str] = (),
        wanted_groups: Mapping[str, bool] | None = None,
        stranded_games: Sequence[tuple[str, str]] = (),
        through: Mapping[str, float] = MappingProxyType({}),
        bronze_through: float | None = None,
    ) -> None:
        """Replace the fleet's number of problems by kind, 0 included, as judged at this time.

        `stopped_groups` are down as configured: they raise no alert. `wanted_groups` has for each other group whether
        it is down, and `stranded_games` are the games of those, with their group. `through` has for each game the
        time through which it is complete, without those of which none is known.
        """
        with self._lock:
            self._fleet = FleetProblems(
                dict(problems), judged_at, tuple(stopped_groups), dict(wanted_groups or {}), tuple(stranded_games),
                dict(through), bronze_through,
            )  # fmt: skip

    def set_controller_metrics(self, controller_metrics: ControllerMetrics | None) -> None:
        """Replace the snapshot of the controller's work; None when the control store cannot be read."""
        with self._lock:
            self._controller_metrics = controller_metrics

    def set_self(
        self,
        *,
        events_dropped: int | None,
        listener_errors: int | None,
        outbox_items: int | None,
        flush_failures: int | None,
        push_failures: int | None = None,
        cpu_seconds: float | None = None,
    ) -> None:
        """Replace the numbers about the process and its telemetry, totals since the start; None is unknown."""
        with self._lock:
            self._own = SelfCounts(
                events_dropped, listener_errors, outbox_items, flush_failures, push_failures, cpu_seconds
            )

    def sample(self, kind: str, name: str, process: str, at: float) -> ProcessSample:
        """Return what is known at this moment (Unix seconds) beside the games, for the metrics tables."""
        with self._lock:
            group = self._groups.get(name) if kind == GROUP else None
            return ProcessSample(kind, name, process, at, group, self._ingest, dict(self._queries), self._own)

    def set_through_posts(self, taken: int, failed: int) -> None:
        """Replace how many posts about complete games a receiver took, and how many failed, since the start."""
        with self._lock:
            self._through_posts = taken, failed

    def snapshot(self) -> MetricsSnapshot:
        """Return the present snapshot."""
        with self._lock:
            states = None if self._states is None else dict(self._states)
            groups, queries = dict(self._groups), dict(self._queries)
            once = (self._ingest, self._own, self._fleet, self._controller_metrics, self._through_posts)
            return MetricsSnapshot(dict(self._games), states, groups, queries, *once)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of one scrape."""
        yield from families(self.snapshot())

    def describe(self) -> Sequence[Metric]:
        """Return nothing: the metrics depend on the snapshot, and registering must not collect."""
        return ()


def serve(registry: CollectorRegistry, bind: str = "127.0.0.1", port: int = 0) -> tuple[int, Callable[[], None]]:
    """Serve the registry over HTTP on this address only; port 0 picks a free one.

    Returns:
        The port, and a function that stops the server and frees it.

    Raises:
        OSError: the address is not this machine's or the port is taken.
        ValueError: the address is empty, which would mean every address.
    """
    if not bind:
        raise ValueError("the address of the metrics server is empty: name one, such as 127.0.0.1")
    try:
        server, thread = start_http_server(port, bind, registry)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno, f"metrics cannot be served on {bind} port {port} ({reason}): choose another address or port"
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop


def push(
    registry: CollectorRegistry,
    gateway: str,
    job: str,
    grouping: Mapping[str, str],
    *,
    every_seconds: float = 15.0,
    timeout_seconds: float = PUSH_TIMEOUT_SECONDS,
) -> PeriodicSender:
    """Push the registry to a Pushgateway at once and then periodically, until `stop()` of the result.

    It then deletes the group, so that the gateway does not show a dead process for ever.
    """
    group = dict(grouping)
    return PeriodicSender(
        "pushing metrics",
        gateway,
        lambda: push_to_gateway(gateway, job, registry, group, timeout_seconds),
        lambda: delete_from_gateway(gateway, job, group, timeout_seconds),
        lambda error: str(error) if isinstance(error, OSError) else type(error).__name__,  # others quote the address
        every_seconds,
        timeout_seconds,
    )
