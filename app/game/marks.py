"""What is marked in the charts of a game: incidents, operations, its driver's starts and deaths, schemas. Pure.

What concerns a group is marked while that group had the game, whichever has it now.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from app import formatting
from app.game.signals import GameSignals
from app.game.stays import Stay, held, stays
from app.look.axes import ChartMark
from listeners.process_kinds import GROUP
from pipeline.api.incidents import Cause
from pipeline.api.operations import Operation, words
from pipeline.api.runs import DriverEvent, driver_events

_LONGEST: Final = 24  # characters
_SAME_SECONDS: Final = 120.0  # a driver's death so soon before an incident of its group is that incident
_UNNAMED: Final = frozenset({Cause.OPERATOR, Cause.UNDETERMINED})  # an operation is marked; the other says nothing


def events(signals: GameSignals) -> list[ChartMark]:
    """Return the events, oldest first; what could not be read has none."""
    row = signals.row
    known = stays(signals.series, row.game_key, row.group, signals.operations or (), signals.now)
    drivers = _drivers(signals, known)
    died = [each.at for each in drivers if each.what == "died"]
    found = [ChartMark(each.requested_at, operation_words(each)) for each in signals.operations or ()]
    found += [ChartMark(each.created_at, f"schema {each.version}") for each in signals.versions or ()]
    found += [ChartMark(each.at, formatting.shown(f"{each.name} {each.what}", _LONGEST)) for each in drivers]
    found += _causes(signals, known, died)
    return sorted(found, key=lambda each: each.at)


def operation_words(operation: Operation) -> str:
    """Say in a few words what an operation is: `pause`, or `move 3 games`."""
    verb = words(operation).verb
    games = sum(target.startswith("game:") for target in operation.targets)
    return formatting.shown(f"{verb} {games} games" if games > 1 else verb, _LONGEST)


def _drivers(signals: GameSignals, known: Sequence[Stay]) -> list[DriverEvent]:
    since = -math.inf if signals.series is None else signals.series.since
    found = driver_events(signals.fleet.drivers_of(GROUP), signals.runs or (), since, GROUP)
    return [each for each in found if held(known, each.name, each.at)]


def _causes(signals: GameSignals, known: Sequence[Stay], died: Sequence[float]) -> Iterator[ChartMark]:
    """Yield the causes of the game's incidents, also of those of the group that it was in then, and of the source."""
    key = signals.row.game_key
    for each in signals.incidents or ():
        cause, scope = each.finding.cause, each.finding.scope
        of_group = any(scope == f"group {stay.group}" and stay.has(each.since) for stay in known)
        is_about = of_group or scope == "source" or (key in each.games and not scope.startswith("group "))
        is_named = cause == Cause.DRIVER_GONE and any(0 <= each.since - at <= _SAME_SECONDS for at in died)
        if is_about and cause not in _UNNAMED and not is_named:
            yield ChartMark(each.since, formatting.shown(str(cause), _LONGEST))
