"""Extensions by packages above this one, found by their entry points, since imports go one way."""

from importlib.metadata import entry_points
from typing import Any, Final

COMMANDS: Final = "turnout.commands"
"""Entry points here are functions without arguments that return a sequence of click commands."""

CONTROLLER: Final = "turnout.controller"
"""Entry points here are classes like `Extension` of `control.operations.executor`, made with its `ControlContext`."""


def registered(group: str) -> list[Any]:
    """Return the objects registered under a group, ordered by name; a failure to load raises."""
    return [each.load() for each in sorted(entry_points(group=group), key=lambda each: each.name)]
