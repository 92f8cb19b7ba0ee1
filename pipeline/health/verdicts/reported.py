"""What the control store has of games and groups, as the judgement takes it: reported, assigned, wanted."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReportedStream:
    """What a group's driver last reported of a stream; None is unknown, times are Unix seconds."""

    group: str
    lane: str
    status: str
    status_since: float
    cursor_seq: int
    last_commit_at: float | None
    backlog_age_seconds: float | None
    rows_per_second: float | None
    latency_p95_seconds: float | None
    rows_total: int
    rejects_total: int
    last_error: str | None
    updated_at: float
    waits_for: str | None = None  # "waits for schema …": what its next rows lack
    latency_p50_seconds: float | None = None  # of the last five minutes, as all latencies here without a span
    latency_p99_seconds: float | None = None
    latency_p99_last_minute_seconds: float | None = None
    queue_seconds: float | None = None  # this and the next three: the segments of latency, means over rows
    process_seconds: float | None = None
    commit_seconds: float | None = None
    upstream_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AssignedGame:
    """One game: the group that should carry it, and what was last reported of its stream."""

    game_key: str
    group: str | None
    reported: ReportedStream | None
    retired_at: float | None = None


@dataclass(frozen=True, slots=True)
class GroupIntent:
    """A group's desired state and backend."""

    desired: str  # running | drained | stopped
    backend: str = "none"  # what starts its driver; `none`: not turnout

    @property
    def is_supervised(self) -> bool:
        """Whether the controller starts and restarts its driver."""
        return self.backend != "none"
