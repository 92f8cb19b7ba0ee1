"""Turnout's alerts, asked once for all viewers, and since when nobody answers.

A thread asks, so that no page waits for a server that is away: pages get the last answer, with its age.
"""

import threading
import time
from typing import Final

import streamlit as st

from app import formatting
from app.state.services import Environment
from pipeline.api import alerts as queries
from pipeline.api.alerts import Alerts, AlertSilence, AlertState, ReportedAlert
from pipeline.base.texts import short_moment
from pipeline.settings.alerts import AlertSettings

__all__ = ["AlertSilence", "AlertState", "Alerts", "ReportedAlert", "alerts", "briefly_unknown"]

_KEPT_SECONDS: Final = 5.0
_FIRST_SECONDS: Final = 2.5  # how long the first page of all waits
_NEXT_SECONDS: Final = 0.3  # how long others wait for a newer answer


def alerts(environment: Environment) -> Alerts:
    """Return what is known of the alerts. An answer without the watchdog says nothing about the others."""
    settings = environment.settings.alerts
    if not (settings.alertmanager_url or settings.prometheus_url):
        return queries.read(settings)  # which says so, and asks nobody
    return _asker(settings.alertmanager_url, settings.prometheus_url).answer()


def briefly_unknown(known: Alerts, now: float) -> str:
    """Say in a few words why nobody knows which alerts fire, since when, and what the last answer was."""
    if known.by is None or known.away_since is None:
        return "no server is configured"
    said = f"{known.by} away since {short_moment(known.away_since, now)}"
    if known.last is None or known.last.firing is None:
        return said
    return f"away since {short_moment(known.away_since, now)}, {formatting.count(len(known.last.firing))} fired then"


class _Asker:
    """Asks the servers of two addresses, at most once in some seconds and once at a time."""

    def __init__(self, settings: AlertSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._answer: Alerts | None = None

    def answer(self) -> Alerts:
        """Return the newest answer, after a moment in which a newer one may come."""
        with self._lock:
            before, thread = self._answer, self._thread
            if thread is None and (before is None or time.time() - before.read_at > _KEPT_SECONDS):
                thread = self._thread = threading.Thread(target=self._ask, name="alerts", daemon=True)
                thread.start()
        if thread is not None:
            thread.join(_FIRST_SECONDS if before is None else _NEXT_SECONDS)
        with self._lock:
            known = self._answer
        by = "Alertmanager" if self._settings.alertmanager_url else "Prometheus"
        return known or Alerts(None, f"{by} has not answered yet.", time.time(), by).after(None)

    def _ask(self) -> None:
        found = queries.read(self._settings)
        with self._lock:
            self._answer, self._thread = found.after(self._answer), None


@st.cache_resource(max_entries=4, show_spinner=False)
def _asker(alertmanager_url: str, prometheus_url: str) -> _Asker:
    return _Asker(AlertSettings(alertmanager_url, prometheus_url))
