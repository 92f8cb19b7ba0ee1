"""The metrics of one edge; docs/edge.md explains each."""

from collections import Counter as Counts
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from pipeline.edge.judging import EdgeRefusal, Judged

_SECONDS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class EdgeMetrics:
    """What one edge counts since its start, in a registry of its own."""

    def __init__(self) -> None:
        """Register everything."""
        self.registry = CollectorRegistry()
        self._accepted = Counter(
            "turnout_edge_accepted_events", "Events that the log has acknowledged", ["game"], registry=self.registry
        )
        self._refused = Counter(
            "turnout_edge_refused_events", "Events that were refused", ["game", "reason"], registry=self.registry
        )
        self._ended = Counter(
            "turnout_edge_ended_calls",
            "Requests and streams that ended with a status",
            ["code", "reason"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "turnout_edge_request_seconds",
            "From a request's arrival to its answer",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge("turnout_edge_in_flight_events", "Events that wait for the log", registry=self.registry)
        self.streams = Gauge("turnout_edge_open_streams", "Open streams of producers", registry=self.registry)
        self.followers = Gauge("turnout_edge_followers", "Open streams that follow", registry=self.registry)

        self.certificate_errors = Counter(
            "turnout_edge_certificate_errors",
            "Changes of the certificate's files that could not be served",
            registry=self.registry,
        )
        self._certificate: tuple[Gauge, Gauge] | None = None

    def served(self, expires_at: float, lifetime: float) -> None:
        """Export expiry (Unix seconds) and lifetime (seconds) of the served certificate; never called without TLS."""
        if self._certificate is None:
            self._certificate = (
                Gauge(
                    "turnout_edge_certificate_expires_timestamp_seconds",
                    "When the served certificate expires",
                    registry=self.registry,
                ),
                Gauge(
                    "turnout_edge_certificate_lifetime_seconds",
                    "How long the served certificate is valid in all",
                    registry=self.registry,
                ),
            )
        for gauge, value in zip(self._certificate, (expires_at, lifetime), strict=True):
            gauge.set(value)

    def answered(self, judged: Judged, seconds: float) -> None:
        """Count a request that was answered."""
        for game, events in Counts(judged.games).items():
            self._accepted.labels(game).inc(events)
        self._count(judged.refused)
        self._seconds.observe(seconds)

    def _count(self, refused: Iterable[EdgeRefusal]) -> None:
        for (game, reason), events in Counts((each.game, each.reason) for each in refused).items():
            self._refused.labels(game, reason).inc(events)

    def ended(self, code: str, reason: str) -> None:
        """Count a request or a stream that ended with a status."""
        self._ended.labels(code, reason).inc()
