"""What is marked in the charts of a game: operations, starts of its driver, schema versions. Pure."""

from typing import Final

from app import formatting
from app.game.signals import GameSignals
from app.look.axes import ChartMark
from listeners.process_kinds import GROUP
from pipeline.api.operations import Intent, Operation
from pipeline.control.operations import registry

_LONGEST: Final = 24  # characters


def events(signals: GameSignals) -> list[ChartMark]:
    """Return the events, oldest first; what could not be read has none."""
    found = [ChartMark(each.requested_at, operation_words(each)) for each in signals.operations or ()]
    found += [ChartMark(each.created_at, f"schema {each.version}") for each in signals.versions or ()]
    group = signals.row.group
    driver = signals.fleet.driver(GROUP, group) if group is not None else None
    if driver is not None and group is not None:
        found.append(ChartMark(driver.started_at, formatting.shown(f"{group} starts", _LONGEST)))
    return sorted(found, key=lambda each: each.at)


def operation_words(operation: Operation) -> str:
    """Say in a few words what an operation is: `pause`, or `move 3 games`."""
    known = registry.find(operation.kind)
    intent = Intent(operation.kind, operation.targets, operation.actor, parameters=operation.parameters)
    verb = operation.kind if known is None else known.verb(intent)
    games = sum(target.startswith("game:") for target in operation.targets)
    return formatting.shown(f"{verb} {games} games" if games > 1 else verb, _LONGEST)
