"""What the controller keeps running: the driver of each group that has a backend, and maintenance."""

from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Engine

from pipeline.settings.tree import Maintenance
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
    kind: str = "maintenance"
    name: str = "main"
    spark_master: str | None = None


def upkeep(engine: Engine, wanted: Maintenance) -> list[Duty]:
    """Return maintenance where the controller should run it, or end what one has started before it was turned off.

    A process that others have started has no run: it is never ended, and where it does maintenance none is started.
    """
    if wanted.backend not in {"none", "databricks"}:  # a job of a workspace runs by its own schedule
        return [Upkeep(wanted.backend)]
    return [Upkeep("local", "stopped")] if open_runs(engine, "maintenance") else []


def described(kind: str, name: str) -> str:
    """Return the name of a duty for people."""
    return f"group {name}" if kind == "group" else kind


def log_name(kind: str, name: str) -> str:
    """Return the name of the file in the environment's folder of logs that has a duty's output."""
    return f"{described(kind, name).replace(' ', '-')}.log"


def arguments(duty: Duty, run_id: int) -> tuple[str, ...]:
    """Return the words of the turnout command that does it, as a run of the control store."""
    command = ("groups", "run", duty.name) if duty.kind == "group" else ("maintain",)
    return (*command, "--run-id", str(run_id))
