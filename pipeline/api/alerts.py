"""Which of turnout's alerts fire, as Alertmanager or Prometheus says; unknown where neither can say it.

What a server answers is foreign: only the fields below are taken from it, and pages escape them.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPException
from typing import Any, Final

from pipeline.base.errors import first_line
from pipeline.health.alerting.alerts import alerts as rules
from pipeline.settings.alerts import AlertSettings

_PATIENCE_SECONDS: Final = 2.0
_MAX_BYTES: Final = 8_000_000  # 2,000 games with two alerts each are about 4 MB
_WATCHDOG: Final = "TurnoutWatchdog"
_ALERTMANAGER: Final = "/api/v2/alerts?active=true&silenced=false&inhibited=false&filter=alertname%3D~%22Turnout.%2B%22"
_PROMETHEUS: Final = "/api/v1/alerts"
_RUNBOOKS: Final[Mapping[str, str]] = {each.name: each.runbook for each in rules()}


@dataclass(frozen=True, slots=True)
class FiringAlert:
    """One alert that fires now, neither silenced nor explained by another one."""

    name: str
    severity: str
    summary: str
    since: float  # Unix seconds
    labels: Mapping[str, str]
    runbook: str | None  # path on the dashboard


@dataclass(frozen=True, slots=True)
class Alerts:
    """What fires, pages first; None where it is unknown, with the reason."""

    firing: tuple[FiringAlert, ...] | None
    why_unknown: str | None
    read_at: float  # Unix seconds


def read(settings: AlertSettings) -> Alerts:
    """Ask the configured server once; never raises, and waits at most a few seconds."""
    if settings.alertmanager_url:
        name, address, path, of_answer = "Alertmanager", settings.alertmanager_url, _ALERTMANAGER, _of_alertmanager
    elif settings.prometheus_url:
        name, address, path, of_answer = "Prometheus", settings.prometheus_url, _PROMETHEUS, _of_prometheus
    else:
        return _unknown("Neither alerts.alertmanager_url nor alerts.prometheus_url is set.")
    try:
        found = list(of_answer(json.loads(_get(address.rstrip("/") + path))))
    except urllib.error.HTTPError as error:
        return _unknown(f"{name} answers with {error.code}. Check the setting alerts.{name.lower()}_url.")
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        return _unknown(f"{name} does not answer: {first_line(reason if isinstance(reason, Exception) else error)}.")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _unknown(f"{name} gave no list of alerts. Check the setting alerts.{name.lower()}_url.")
    if all(each.name != _WATCHDOG for each in found):
        return _unknown(f"{name} reports no {_WATCHDOG}, so it does not get the alerts of a Prometheus with the rules.")
    firing = (each for each in found if each.severity != "none")
    worst_first = sorted(firing, key=lambda each: (each.severity != "page", each.since, each.name))
    return Alerts(tuple(worst_first), None, time.time())


def _unknown(why: str) -> Alerts:
    return Alerts(None, why, time.time())


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - settings take http and https
        content: bytes = answer.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError("too long")
    return content


def _of_alertmanager(answer: Any) -> Iterator[FiringAlert]:
    for each in answer:
        yield _alert(each["labels"], each["annotations"], each["startsAt"])


def _of_prometheus(answer: Any) -> Iterator[FiringAlert]:
    for each in answer["data"]["alerts"]:
        if each["state"] == "firing" and str(each["labels"].get("alertname", "")).startswith("Turnout"):
            yield _alert(each["labels"], each["annotations"], each["activeAt"])


def _alert(labels: Mapping[str, Any], annotations: Mapping[str, Any], since: str) -> FiringAlert:
    name = str(labels["alertname"])
    return FiringAlert(
        name=name,
        severity=str(labels.get("severity", "ticket")),
        summary=str(annotations.get("summary") or name),
        since=datetime.fromisoformat(since).timestamp(),
        labels={str(key): str(value) for key, value in labels.items()},
        runbook=_RUNBOOKS.get(name),
    )
