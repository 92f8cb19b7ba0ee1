"""What packages above this one add to it, found by their entry points: imports go one way, and this one is below."""

from importlib.metadata import entry_points
from typing import Any, Final

COMMANDS: Final = "turnout.commands"
"""Entry points here are functions without arguments that return a sequence of click commands."""

CONTROLLER: Final = "turnout.controller"
"""Entry points here are classes like `Extension` of `control.operations.executor`, made with its `ControlContext`."""


def registered(group: str) -> list[Any]:
    """Return what was registered under a group, in the order of names; what cannot be loaded raises."""
    return [each.load() for each in sorted(entry_points(group=group), key=lambda each: each.name)]
