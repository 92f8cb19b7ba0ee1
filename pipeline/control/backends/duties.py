"""What the controller keeps running, as a backend takes it: a group's driver, or maintenance."""

from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Engine

from listeners.process_kinds import MAINTENANCE, ONLY, described
from pipeline.settings.tree import Maintenance
from pipeline.store.groups import read_groups
from pipeline.store.processes.runs import RunsAs, open_runs


class Duty(RunsAs, Protocol):
    """One thing that a backend can run; a `Group` is one. No two have the same kind and name."""

    @property
    def desired(self) -> str:
        """Return `stopped` where it should not run."""

    @property
    def spark_master(self) -> str | None:
        """Return its own Spark master, None where it has none."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Maintenance of all tables, of which there is one."""

    backend: str
    desired: str = "running"
    kind: str = MAINTENANCE
    name: str = ONLY
    spark_master: str | None = None


def groups(engine: Engine) -> list[Duty]:
    """Return every group, by name: its driver is run where it has a backend."""
    return [group for _, group in sorted(read_groups(engine).items())]


def upkeep(engine: Engine, wanted: Maintenance) -> list[Duty]:
    """Return maintenance where the controller should run it, or end what one has started before it was turned off.

    A process that others have started has no run: it is never ended, and where it does maintenance none is started.
    """
    if wanted.backend not in {"none", "databricks"}:  # a job of a workspace runs by its own schedule
        return [Upkeep(wanted.backend)]
    return [Upkeep("local", "stopped")] if open_runs(engine, MAINTENANCE) else []


def log_name(kind: str, name: str) -> str:
    """Return the name of the file in the environment's folder of logs that has a duty's output."""
    return f"{described(kind, name).replace(' ', '-')}.log"
