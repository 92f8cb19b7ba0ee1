"""Which of turnout's alerts fire, asked once for all viewers."""

from app.state.services import Environment, kept
from pipeline.api import alerts as queries
from pipeline.api.alerts import Alerts, FiringAlert
from pipeline.settings.alerts import AlertSettings

__all__ = ["Alerts", "FiringAlert", "alerts"]


def alerts(environment: Environment) -> Alerts:
    """Return what fires, at most 5 s old. An answer without the watchdog says nothing about the others."""
    settings = environment.settings.alerts
    return _read(environment, settings.alertmanager_url, settings.prometheus_url)


@kept(seconds=5, most=4)
def _read(environment: Environment, alertmanager_url: str, prometheus_url: str) -> Alerts:  # noqa: ARG001 - the cache's key
    return queries.read(AlertSettings(alertmanager_url, prometheus_url))
