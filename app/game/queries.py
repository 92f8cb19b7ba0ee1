"""Reads what the page of one game shows, each part by itself: a part that cannot be read leaves the others."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from app.fleet import readers
from app.game.signals import GameSignals
from app.game.stays import stays
from app.state import alerts, control_queries, judged, series, services
from app.state.alerts import ReportedAlert
from app.state.control_queries import ControlState
from app.state.readings import Reading, reading
from app.state.services import Environment, cached
from listeners.series import Series
from pipeline.api import versions
from pipeline.api.operations import Operation
from pipeline.base.errors import Refused
from pipeline.health.facts.fleet import GameRow

_RECENT: Final = 900  # seconds, by the minute


Part = TypeVar("Part")


def signals(environment: Environment, steering: ControlState, row: GameRow, range_seconds: int) -> GameSignals:
    """Read all parts of a game's page; what could not be read is None, and why it could not."""
    whys: dict[str, str] = {}
    until: dict[str, float] = {}
    readings: dict[str, Reading[Any]] = {}

    def part(name: str, read: Callable[[], Part]) -> Part | None:
        try:
            return read()
        except Refused as refused:
            whys[name] = str(refused)
            return None

    def kept(name: str, read: Callable[[], Part]) -> Part | None:
        """Read what says nothing of this very moment: its last good value stays, and says of when it is."""
        seen = readings[name] = reading(f"game_{name}", (environment.store, key, range_seconds), read)
        if seen.failed:
            whys[name] = seen.why or ""
            if seen.good_at is not None:
                until[name] = seen.good_at
        return seen.value

    key = row.game_key
    asked = environment.settings.alerts
    firing = part("alerts", lambda: _alerts(environment, row))
    if not (asked.alertmanager_url or asked.prometheus_url):
        whys.pop("alerts", None)  # nobody watches, and nobody is asked
    of_game = kept("versions", lambda: game_versions(environment, key))
    over_time = kept("series", lambda: _of_game(environment, key, range_seconds))
    return GameSignals(
        fleet=steering.fleet,
        row=row,
        objective_seconds=environment.settings.metrics.latency_objective_seconds,
        series=over_time,
        recent=part("recent", lambda: _of_game(environment, key, _RECENT)),
        trend=kept("trend", lambda: services.game_trend(environment, key, float(range_seconds))),
        incidents=part("incidents", lambda: judged.incidents(environment)),
        alerts=firing,
        operations=kept("operations", lambda: _operations(environment, row, over_time)),
        runs=kept("runs", lambda: readers.runs(environment, range_seconds)),
        versions=None if of_game is None else of_game.versions,
        whys=whys,
        until=until,
        series_about=series.about(readings["series"], steering.fleet.read_at),
    )


game_versions: Final = cached(versions.of_game, seconds=10, most=200)


def _of_game(environment: Environment, key: str, range_seconds: int) -> Series:
    return series.series(environment, range_seconds).of((key,))


def _operations(environment: Environment, row: GameRow, over_time: Series | None) -> Sequence[Operation]:
    """Return the operations about a game, its derived streams, or its group while that had the game.

    Those that need a person come first, then the open ones, then the newest.
    """
    journal = control_queries.journal(environment)
    known = stays(over_time, row.game_key, row.group, journal.operations, journal.read_at)

    def is_about(each: Operation) -> bool:
        if f"game:{row.game_key}" in each.targets or row.game_key in each.parameters.get("games", ()):
            return True
        moment = journal.read_at if each.is_open else each.requested_at
        return any(f"group:{stay.group}" in each.targets and stay.has(moment) for stay in known)

    return tuple(filter(is_about, journal.operations))


def _alerts(environment: Environment, row: GameRow) -> Sequence[ReportedAlert]:
    """Return the firing alerts about a game.

    Raises:
        Refused: nobody knows which alerts fire.
    """
    found = alerts.alerts(environment)
    if found.firing is None:
        raise Refused(found.why_unknown or "Nobody knows which alerts fire.")
    return tuple(each for each in found.firing if each.labels.get("game") == row.game_key)
