"""One Prometheus alert rule, and the rules about the backlog of the source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert rule; durations are Prometheus durations, texts are Prometheus templates."""

    name: str
    severity: Literal["page", "ticket", "none"]
    expr: str
    hold: str  # how long the expression must hold before the alert fires
    summary: str
    description: str
    dashboard: str  # path on the dashboard
    keep_firing: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # besides the severity

    @property
    def runbook(self) -> str:
        """The path on the dashboard of the alert's runbook, which it serves from docs/runbooks to everybody."""
        return f"/runbooks/{self.name.lower()}"


_FLEET_PAGE: Final = "/"

# A batch that ends takes most of a backlog at once, so that its age falls and rises with each: the highest counts.
_LATE: Final = "max(max_over_time(turnout_source_backlog_seconds[2m])) > OBJECTIVE"

# Ingest exports both: where it is dead, other alerts say so. The first is there as long as it runs and reads the store.
_UNKNOWN: Final = """\
0 * (max(turnout_fleet_judged_timestamp_seconds) unless on () turnout_source_backlog_seconds)"""


def source_alerts(objective: str) -> tuple[Alert, ...]:
    """Return them for a latency objective in seconds."""
    return (
        Alert(
            "TurnoutSourceBacklog",
            "page",
            _LATE.replace("OBJECTIVE", objective),
            "3m",
            "Ingest cannot keep up with its source",
            "The oldest row that is not in bronze is {{ $value | humanizeDuration }} old"
            '{{ with query "max(turnout_source_backlog_rows)" }}, and {{ . | first | value | humanize }} rows wait'
            f"{{{{ end }}}}; the objective is {objective} s. Every game is at least that late.",
            _FLEET_PAGE,
        ),
        Alert(
            "TurnoutSourceUnknown",
            "ticket",
            _UNKNOWN,
            "5m",
            "What waits in the source is not known",
            "Ingest runs and cannot measure it; `turnout status` says why. Every game may be late without a sign.",
            _FLEET_PAGE,
        ),
    )
