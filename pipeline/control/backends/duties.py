"""What the controller keeps running, as a backend takes it: a duty, such as a group's driver."""

from typing import Protocol

from listeners.process_kinds import described
from pipeline.store.processes.runs import RunsAs


class Duty(RunsAs, Protocol):
    """One thing that a backend can run; a `Group` is one. No two have the same kind and name."""

    @property
    def desired(self) -> str:
        """Return `stopped` where it should not run."""

    @property
    def spark_master(self) -> str | None:
        """Return its own Spark master, None where it has none."""


def log_name(kind: str, name: str) -> str:
    """Return the name of the file in the environment's folder of logs that has a duty's output."""
    return f"{described(kind, name).replace(' ', '-')}.log"
