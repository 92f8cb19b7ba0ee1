"""What the controller, commands and pages do with each kind of process: ours, and those that other planes hand over.

`pipeline.health.kinds` says how a kind is judged. A plane beside control names its `ControlledKind` in an entry point.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from sqlalchemy import Engine

from listeners.process_kinds import MAINTENANCE as UPKEEP
from listeners.process_kinds import ONLY
from pipeline.base import extensions
from pipeline.control.backends.duties import Duty
from pipeline.health.incidents.causes import Action
from pipeline.health.kinds import registry
from pipeline.health.kinds.controller import CONTROLLER
from pipeline.health.kinds.groups import GROUPS
from pipeline.health.kinds.ingest import INGEST
from pipeline.health.kinds.maintenance import MAINTENANCE
from pipeline.health.verdicts.processes import ProcessKind
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Settings
from pipeline.store.backends import backend_kind
from pipeline.store.groups import read_groups
from pipeline.store.processes.runs import open_runs


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Maintenance of all tables, of which there is one."""

    backend: str
    desired: str = "running"
    kind: str = UPKEEP
    name: str = ONLY
    spark_master: str | None = None


def groups(engine: Engine) -> list[Duty]:
    """Return every group, by name: its driver is run where it has a backend."""
    return [group for _, group in sorted(read_groups(engine).items())]


def upkeep(engine: Engine, wanted: Maintenance) -> list[Duty]:
    """Return maintenance where the controller should run it, or end what one has started before it was turned off.

    A process that others have started has no run: it is never ended, and where it does maintenance none is started.
    """
    backend = backend_kind(wanted.backend)
    if backend.starts and not backend.is_job:  # a job of a workspace runs by its own schedule
        return [Upkeep(wanted.backend)]
    return [Upkeep("local", "stopped")] if open_runs(engine, UPKEEP) else []


@dataclass(frozen=True, slots=True)
class Tile:
    """How a page shows a process at which a person should look."""

    step: Callable[[str, str], Action] | None = None  # the page that helps: of its name, and of that as it is shown


@dataclass(frozen=True, slots=True)
class ControlledKind:
    """One kind of process: what starts it, what ends it, and how a page shows it."""

    kind: ProcessKind
    duties: Callable[[Engine, Settings], Sequence[Duty]] = lambda _engine, _settings: ()
    """The processes of it that the controller keeps running, or ends."""

    command: Callable[[str], tuple[str, ...]] | None = None  # the turnout command that runs a duty, by its name
    adopts: bool = False  # a process of it that no controller started becomes a duty's
    ends_hung: bool = True  # one that hangs is killed: what started it starts it again
    restart_command: Callable[[str], str] | None = None  # by which a person has one started again after many deaths
    stop_command: Callable[[str], str] | None = None  # by which a person stops one that runs as a job of a workspace
    tile: Tile = Tile()


_OWN: Final = (
    ControlledKind(CONTROLLER, ends_hung=False),
    ControlledKind(INGEST),
    ControlledKind(
        GROUPS,
        duties=lambda engine, _: groups(engine),
        command=lambda name: ("groups", "run", name),
        adopts=True,
        restart_command=lambda name: f"turnout groups restart {name}",
        stop_command=lambda name: f"turnout groups stop {name}",
        tile=Tile(
            step=lambda name, shown: Action(f"Open group {shown}", "groups", {"steer": name}),
        ),
    ),
    ControlledKind(
        MAINTENANCE,
        duties=lambda engine, settings: upkeep(engine, settings.maintenance),
        command=lambda _: ("maintain",),
    ),
)
"""The order is the one in which commands list and stop processes."""


@cache
def registered() -> tuple[ControlledKind, ...]:
    """Return every kind of process, ours first."""
    return (*_OWN, *extensions.registered(extensions.PROCESSES))


def find(name: str) -> ControlledKind:
    """Return a kind by its name; an unknown kind is left alone."""
    known = next((each for each in registered() if each.kind.name == name), None)
    return known or ControlledKind(registry.find(name), ends_hung=False)


def duties_of(engine: Engine, settings: Settings) -> list[Duty]:
    """Return all that the controller keeps running: drivers of groups, maintenance, and what other planes add."""
    return [duty for each in registered() for duty in each.duties(engine, settings)]


def arguments(duty: Duty, run_id: int) -> tuple[str, ...]:
    """Return the words of the turnout command that does a duty, as a run of the control store."""
    command = find(duty.kind).command
    assert command is not None, "a kind with duties has a command"
    return (*command(duty.name), "--run-id", str(run_id))
