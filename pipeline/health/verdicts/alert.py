"""One Prometheus alert rule, as a kind of process and `pipeline.health.alerting` state it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


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
