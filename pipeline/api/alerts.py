"""Turnout's alerts, as Alertmanager and Prometheus report them; unknown where neither can.

What a server answers is foreign: only the fields below are taken from it, and pages escape them.
"""

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from http.client import HTTPException
from typing import Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pipeline.base.errors import Refused, first_line
from pipeline.health.alerting.alerts import alerts as rules
from pipeline.settings.alerts import AlertSettings

AlertState = Literal["firing", "pending", "silenced", "explained"]
"""Explained: another alert that fires says more, so Alertmanager sends no message (inhibition)."""

_T = TypeVar("_T")
_PATIENCE_SECONDS: Final = 2.0
_MAX_BYTES: Final = 8_000_000  # 2,000 games with two alerts each are about 4 MB
_WATCHDOG: Final = "TurnoutWatchdog"
_ALERTMANAGER: Final = "/api/v2/alerts?filter=alertname%3D~%22Turnout.%2B%22"
_SILENCES: Final = "/api/v2/silences"
_PROMETHEUS: Final = "/api/v1/alerts"
_LABEL: Final = re.compile(r"{{ \$labels\.(\w+) }}")
_RULES: Final = {each.name: each for each in rules()}


@dataclass(frozen=True, slots=True)
class AlertSilence:
    """Who keeps Alertmanager from sending an alert, until when (Unix seconds) and why."""

    by: str
    until: float
    comment: str


@dataclass(frozen=True, slots=True)
class ReportedAlert:
    """One alert as a server reports it."""

    name: str
    severity: str  # page | ticket | none
    state: AlertState
    summary: str
    description: str
    since: float  # Unix seconds
    labels: Mapping[str, str]
    silence: AlertSilence | None = None  # None where it is not silenced, or nobody said how
    updated_at: float | None = None  # Unix seconds: when Alertmanager got its texts last; None: unknown

    @property
    def runbook(self) -> str | None:
        """Return the name of its runbook; None of an alert that this version does not know."""
        rule = _RULES.get(self.name)
        return None if rule is None else rule.runbook.rpartition("/")[2]

    @property
    def page(self) -> tuple[str, Mapping[str, str]] | None:
        """Return the page that shows the problem, with its choice; None where a label is missing for it."""
        rule = _RULES.get(self.name)
        if rule is None:
            return None
        place = urlsplit(rule.dashboard)
        try:
            chosen = {
                name: _LABEL.sub(lambda each: self.labels[each[1]], value) for name, value in parse_qsl(place.query)
            }
        except KeyError:
            return None
        return place.path.strip("/") or "fleet", chosen


@dataclass(frozen=True, slots=True)
class Alerts:
    """All alerts but the watchdog, pages first, then the oldest; None where they are not known, with the reason."""

    firing: tuple[ReportedAlert, ...] | None
    why_unknown: str | None
    read_at: float  # Unix seconds
    by: str | None = None  # the server that says which fire; None: none is configured
    pending: tuple[ReportedAlert, ...] | None = None
    why_no_pending: str | None = None
    silenced: tuple[ReportedAlert, ...] | None = None  # None: only Alertmanager knows them, as the next
    explained: tuple[ReportedAlert, ...] | None = None
    away_since: float | None = None  # since when nobody says which fire, as far as it was asked
    pending_away_since: float | None = None
    last: "Alerts | None" = None  # the last answer that said which fire, where this one does not

    def after(self, before: "Alerts | None") -> "Alerts":
        """Return this answer with what the answer before it knew, of the same servers."""
        known = before if before is not None and before.by == self.by else None
        if known is None:
            known = Alerts(None, None, self.read_at)
        if self.by is None:
            return self
        away = None if self.firing is not None else known.away_since or self.read_at
        no_pending = None if self.why_no_pending is None else known.pending_away_since or self.read_at
        last = None if self.firing is not None else known.last if known.firing is None else known
        return replace(self, away_since=away, pending_away_since=no_pending, last=last)


def read(settings: AlertSettings) -> Alerts:
    """Ask the configured servers once; never raises, and waits at most some seconds for each."""
    if settings.alertmanager_url:
        found = _of_alertmanager(settings.alertmanager_url)
        return _with_pending(found, settings.prometheus_url)
    if settings.prometheus_url:
        return _of_prometheus(settings.prometheus_url)
    return Alerts(None, "Neither alerts.alertmanager_url nor alerts.prometheus_url is set.", time.time())


def _of_alertmanager(address: str) -> Alerts:
    by = "Alertmanager"
    try:
        found = _asked(by, address, _ALERTMANAGER, lambda answer: [_heard(each) for each in answer])
        _require_watchdog(by, (each for each, _ in found))
    except Refused as refused:
        return Alerts(None, str(refused), time.time(), by)
    silences = _silences(address) if any(each.state == "silenced" for each, _ in found) else {}
    alerts = [replace(each, silence=next(filter(None, map(silences.get, ids)), None)) for each, ids in found]
    return Alerts(
        _of_state(alerts, "firing"), None, time.time(), by,
        silenced=_of_state(alerts, "silenced"), explained=_of_state(alerts, "explained"),
    )  # fmt: skip


def _of_prometheus(address: str) -> Alerts:
    by = "Prometheus"
    try:
        alerts = _asked(by, address, _PROMETHEUS, lambda answer: list(_evaluated(answer)))
        _require_watchdog(by, alerts)
    except Refused as refused:
        why = str(refused)
        return Alerts(None, why, time.time(), by, why_no_pending=why)
    return Alerts(_of_state(alerts, "firing"), None, time.time(), by, _of_state(alerts, "pending"))


def _with_pending(found: Alerts, address: str) -> Alerts:
    """Add which alerts are pending: Alertmanager hears of none before it fires."""
    if not address:
        return replace(found, why_no_pending="Only Prometheus knows, and alerts.prometheus_url is not set.")
    asked = _of_prometheus(address)
    return replace(found, pending=asked.pending, why_no_pending=asked.why_no_pending)


def _of_state(alerts: Iterable[ReportedAlert], state: AlertState) -> tuple[ReportedAlert, ...]:
    chosen = (each for each in alerts if each.state == state and each.severity != "none")
    return tuple(sorted(chosen, key=lambda each: (each.severity != "page", each.since, each.name)))


def _require_watchdog(by: str, alerts: Iterable[ReportedAlert]) -> None:
    if all(each.name != _WATCHDOG for each in alerts):
        raise Refused(f"{by} reports no {_WATCHDOG}, so it does not get the alerts of a Prometheus with the rules.")


def _asked(by: str, address: str, path: str, parse: Callable[[Any], _T]) -> _T:
    """Return what a server answers.

    Raises:
        Refused: it does not answer, or answers something else.
    """
    try:
        return parse(json.loads(_get(address.rstrip("/") + path)))
    except urllib.error.HTTPError as error:
        why = f"{by} answers with {error.code}. Check the setting alerts.{by.lower()}_url."
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = f"{by} does not answer: {first_line(reason if isinstance(reason, Exception) else error)}."
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        why = f"{by} gave no list of alerts. Check the setting alerts.{by.lower()}_url."
    raise Refused(why)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - settings take http and https
        content: bytes = answer.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError("too long")
    return content


def _heard(each: Any) -> tuple[ReportedAlert, Sequence[str]]:
    """Return an alert of Alertmanager, with the ids of its silences."""
    status = each.get("status") or {}
    silences = [str(silence) for silence in status.get("silencedBy") or ()]
    state: AlertState = "silenced" if silences else "explained" if status.get("inhibitedBy") else "firing"
    updated_at = _seconds(each["updatedAt"]) if each.get("updatedAt") else None
    return replace(
        _alert(each["labels"], each["annotations"], each["startsAt"], state), updated_at=updated_at
    ), silences


def _evaluated(answer: Any) -> Iterator[ReportedAlert]:
    """Yield turnout's alerts of Prometheus."""
    for each in answer["data"]["alerts"]:
        if str(each["labels"].get("alertname", "")).startswith("Turnout") and each["state"] in {"firing", "pending"}:
            yield _alert(each["labels"], each["annotations"], each["activeAt"], each["state"])


def _silences(address: str) -> Mapping[str, AlertSilence]:
    """Return the silences by id; none where they cannot be read: that an alert is silenced is known without them."""
    try:
        return _asked("Alertmanager", address, _SILENCES, _parsed_silences)
    except Refused:
        return {}


def _parsed_silences(answer: Any) -> Mapping[str, AlertSilence]:
    return {
        str(each["id"]): AlertSilence(str(each["createdBy"]), _seconds(each["endsAt"]), str(each["comment"]))
        for each in answer
    }


def _alert(labels: Mapping[str, Any], notes: Mapping[str, Any], since: str, state: AlertState) -> ReportedAlert:
    name = str(labels["alertname"])
    return ReportedAlert(
        name=name,
        severity=str(labels.get("severity", "ticket")),
        state=state,
        summary=str(notes.get("summary") or name),
        description=str(notes.get("description") or ""),
        since=_seconds(since),
        labels={str(key): str(value) for key, value in labels.items()},
    )


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
