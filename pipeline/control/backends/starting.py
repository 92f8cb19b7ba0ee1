"""Backends that start something: the limits of each, and what makes it for a controller."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from pipeline.control.backends.backend import Backend, Limits
from pipeline.control.backends.databricks import Databricks
from pipeline.control.backends.duties import Duty
from pipeline.control.backends.local import Local
from pipeline.lake.storage.mounts import is_databricks
from pipeline.platforms.databricks.workspace.client import open_workspace
from pipeline.settings.tree import Paths, Settings

Command: TypeAlias = Callable[[Duty, int], Sequence[str]]
"""Returns the command line of a duty, as a run of the control store."""

_PATIENCE_SECONDS: Final = 5  # with a workspace that does not answer: the groups of this machine wait as long


@dataclass(frozen=True, slots=True)
class StartingBackend:
    """One backend: how long its runs take, and what makes it; None where it starts nothing on this machine."""

    limits: Limits
    make: Callable[[Settings, Paths, Command], Backend | None]


def _local(_settings: Settings, paths: Paths, command: Command) -> Backend | None:
    """Make it, but not in a workspace, where a controller starts nothing beside itself on its own cluster."""
    return None if is_databricks(os.environ) else Local(paths.logs, command, os.environ)


def _databricks(settings: Settings, _paths: Paths, _command: Command) -> Backend:
    connect = partial(open_workspace, patience_seconds=_PATIENCE_SECONDS, answer_seconds=_PATIENCE_SECONDS)
    return Databricks(settings.environment, connect)


STARTING: Final[Mapping[str, StartingBackend]] = {
    "local": StartingBackend(Local.limits, _local),
    "databricks": StartingBackend(Databricks.limits, _databricks),
}
"""The backends by name; `pipeline.store.backends` has all of them, also `none`."""


def make_backends(settings: Settings, paths: Paths, command: Command) -> dict[str, Backend]:
    """Return what a controller on this machine starts things with, by name."""
    made = ((name, each.make(settings, paths, command)) for name, each in STARTING.items())
    return {name: backend for name, backend in made if backend is not None}
