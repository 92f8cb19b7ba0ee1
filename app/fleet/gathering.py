"""Gathers what the Fleet page knows for one viewer: each reading by itself, the last good ones where one fails.

What the control store says comes first, and is drawn before the rest is read.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, Final

from app.fleet import readers
from app.fleet.signals import Signals
from app.games import queries as game_queries
from app.state import control_queries, judged, services
from app.state.alerts import Alerts, briefly_unknown
from app.state.alerts import alerts as reported_alerts
from app.state.control_queries import OperationList
from app.state.readings import Reading, held, read_since, reading
from app.state.series import series
from app.state.services import Environment
from app.state.shared import once
from listeners.series import Series
from pipeline.api.fleet import RegisteredSchema
from pipeline.api.games import OpenNames
from pipeline.api.runs import Run
from pipeline.health.facts.fleet import Fleet
from pipeline.health.incidents.incidents import Incident

MISSED_REFRESHES: Final = 3
"""Refreshes in a row without a reading after which nothing of the fleet counts as known."""

_OF_ONE_REFRESH: Final = 0.8  # of the time to the next refresh, in which the second part may be drawn first
_RECENT_SECONDS: Final = 900
_NOT_READ: Final[Reading[Any]] = Reading()


@dataclass(frozen=True, slots=True)
class Gathered:
    """The readings, and what may be said of them at one moment (Unix seconds by this machine's clock).

    `first_of_all` has what the control store says; `gather` adds what is read elsewhere and may take long.
    """

    at: float
    fleet: Reading[Fleet]
    incidents: Reading[tuple[Incident, ...]]
    names: Reading[OpenNames]  # proposed ones, and those without a game
    signals: Signals | None  # None: the fleet could never be read
    stale_since: float | None  # when the store last answered, where it does not and that is too long ago
    series: Reading[Series]  # at first that of the refresh before
    operations: Reading[OperationList] = _NOT_READ
    schemas: Reading[tuple[RegisteredSchema, ...]] = _NOT_READ
    runs: Reading[tuple[Run, ...]] = _NOT_READ  # of drivers, over the range on screen


def of_this_refresh(
    environment: Environment, refresh_seconds: float, *, paused: bool
) -> tuple[Reading[Fleet], Reading[tuple[Incident, ...]]]:
    """Return fleet and incidents as the sentence shows them, so that no cell contradicts it until the next refresh."""
    store, seconds = environment.store, _OF_ONE_REFRESH * refresh_seconds
    return (
        read_since("fleet", store, lambda: services.fleet(environment), seconds, paused=paused),
        read_since("incidents", store, lambda: judged.incidents(environment), seconds, paused=paused),
    )


def series_reading(environment: Environment, range_seconds: int, *, paused: bool) -> Reading[Series]:
    """Return the numbers over time of the range on screen."""
    return reading(
        "series", (environment.store, range_seconds), lambda: series(environment, range_seconds), paused=paused
    )


def stale_since(seen: Reading[Fleet], refresh_seconds: float, now: float) -> float | None:
    """Return when the store last answered, if `MISSED_REFRESHES` refreshes had no answer since; else None."""
    if not seen.failed or seen.value is None or seen.good_at is None:
        return None
    return seen.value.read_at if now - seen.good_at > MISSED_REFRESHES * refresh_seconds else None


def first_of_all(environment: Environment, range_seconds: int, refresh_seconds: float, *, paused: bool) -> Gathered:
    """Read what the control store says of this moment: sentence and incidents wait for nothing else."""
    seen = reading("fleet", environment.store, lambda: services.fleet(environment), paused=paused)
    found = reading("incidents", environment.store, lambda: judged.incidents(environment), paused=paused)
    names = reading("open_names", environment.store, lambda: game_queries.open_names(environment), paused=paused)
    before: Reading[Series] = held("series", (environment.store, range_seconds))
    now = time.time()
    known = None
    if seen.value is not None:
        known = once(
            _signals, seen.value, environment.settings.metrics.latency_objective_seconds, before.value, None,
            found.value if not found.failed else None, None, None, before.why, found.why, None, None,
        )  # fmt: skip
    return Gathered(now, seen, found, names, known, stale_since(seen, refresh_seconds, now), before)


def gather(environment: Environment, first: Gathered, range_seconds: int, *, paused: bool) -> Gathered:
    """Read the rest; nothing that fails keeps the others from being read."""
    store, seen, found = environment.store, first.fleet, first.incidents
    hour = series_reading(environment, range_seconds, paused=paused)
    recent = reading("recent", store, lambda: series(environment, _RECENT_SECONDS), paused=paused)
    operations = reading("operations", store, lambda: control_queries.journal(environment), paused=paused)
    schemas = reading(
        "schemas", (store, range_seconds), lambda: readers.registered(environment, range_seconds), paused=paused
    )
    runs = reading("runs", (store, range_seconds), lambda: readers.runs(environment, range_seconds), paused=paused)
    alerts = reported_alerts(environment)
    now = time.time()
    known = None
    if seen.value is not None:
        known = once(  # viewers of one moment share them, and so what is made of them
            _signals,
            seen.value,
            environment.settings.metrics.latency_objective_seconds,
            hour.value,
            recent.value if not recent.failed else None,
            found.value if not found.failed else None,
            alerts,
            operations.value if not operations.failed else None,
            hour.why,
            found.why,
            operations.why,
            _why_no_alerts(alerts, now),
        )
    return replace(first, signals=known, series=hour, operations=operations, schemas=schemas, runs=runs)


def _signals(  # noqa: PLR0913, PLR0917 - the readings of a page
    fleet: Fleet,
    objective_seconds: float,
    hour: Series | None,
    recent: Series | None,
    found: tuple[Incident, ...] | None,
    alerts: Alerts | None,
    operations: OperationList | None,
    why_no_series: str | None,
    why_no_incidents: str | None,
    why_no_operations: str | None,
    why_no_alerts: str | None,
) -> Signals:
    whys = {
        "series": why_no_series,
        "incidents": why_no_incidents,
        "operations": why_no_operations,
        "alerts": why_no_alerts,
    }
    firing = None if alerts is None or alerts.firing is None else tuple(each.name for each in alerts.firing)
    known = {name: why for name, why in whys.items() if why is not None}
    return Signals(fleet, objective_seconds, hour, recent, found, firing, operations, known)


def _why_no_alerts(alerts: Alerts, now: float) -> str | None:
    return briefly_unknown(alerts, now) if alerts.firing is None else None
