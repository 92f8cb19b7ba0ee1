"""Extensions by packages above this one, found by their entry points, since imports go one way."""

import tomllib
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

_PROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"

COMMANDS: Final = "turnout.commands"
"""Entry points here are functions without arguments that return a sequence of click commands."""

CHECKS: Final = "turnout.checks"
"""Entry points here are functions of settings, paths, keys of games and the environment's variables; they return what a
catalog says of the tables of these games, see `platforms.local.catalog_checks`."""

CONTROLLER: Final = "turnout.controller"
"""Entry points here are classes like `Extension` of `control.operations.executor`, made with its `ControlContext`."""

PROCESSES: Final = "turnout.processes"
"""Entry points here are kinds of processes, each a `ControlledKind` of `control.kinds.definition`."""

DATABASES: Final = "turnout.databases"
"""Entry points here are modules with `claims`, which tells whether a `store.url` is theirs, and `open_engine`, which
returns a SQLAlchemy engine for the URL, the environment's variables and the options of its pool."""

PEOPLE: Final = "turnout.people"
"""Entry points here are functions of an environment's paths. They return the names of the people as whom the user who
started the dashboard may act too; None: they are busy, and answer in a moment."""


def registered(group: str) -> list[Any]:
    """Return the objects registered under a group, ordered by name; a failure to load raises."""
    found = entry_points(group=group) or _of_source(group)
    return [each.load() for each in sorted(found, key=lambda each: each.name)]


def _of_source(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of a source folder that nobody has installed."""
    if not _PROJECT.exists():
        return ()
    declared = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]["entry-points"].get(group, {})
    return [EntryPoint(name, value, group) for name, value in declared.items()]
