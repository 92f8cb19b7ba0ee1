"""What starts and ends drivers of cluster groups, and maintenance: one protocol, of which each backend is a kind.

A backend keeps nothing that a controller which follows this one needs: all of that is in the reference it gives, and
in the run's id, which the driver gets and writes into its lease.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from pipeline.control.backends.duties import Duty
from pipeline.store.processes.leases import Process


@dataclass(frozen=True, slots=True)
class RunState:
    """What a backend knows of one run."""

    is_alive: bool | None  # None: it cannot be known now
    about: str = ""  # how it ended, as far as anybody can know, or why that cannot be known
    by_lease: bool = False  # nothing here will ever know: it lives as long as its driver has the lease
    is_harmless: bool = False  # it ended without having begun, since another run was in its way: no death


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a backend's runs take, in seconds."""

    stop_seconds: float
    """From the request to end until the controller kills a run: it may hang, and no row depends on it."""

    start_seconds: float
    """From the start until the driver reports."""

    starts_at_once: int
    """The most that may be starting at the same time."""


class Backend(Protocol):
    """Starts and ends runs of duties. Each call returns at once; its result is seen by observing again."""

    @property
    def limits(self) -> Limits:
        """Return how long its runs take to start and to end."""

    @property
    def starts_once(self) -> bool:
        """Return whether a second start with the same token gives the run of the first one."""

    def start(self, duty: Duty, run_id: int, token: str) -> str:
        """Start a run for it, and hand its id to the driver; return the reference that finds it again.

        `token` is the run's own for ever: ids come again where the control store is restored from a copy.

        Raises:
            Transient: it cannot be started now, or it is not known whether it was.
            Refused: it cannot be started until a person has done something.
        """

    def observe(self, references: Collection[str]) -> Mapping[str, RunState]:
        """Return what is known of each of these runs now."""

    def stop(self, reference: str) -> None:
        """Ask a run to end in order, beside the request in the control store; does nothing where it has ended.

        Raises:
            Refused: we may not.
            Transient: it cannot be done now.
        """

    def kill(self, reference: str) -> None:
        """End a run without asking; does nothing where it has ended.

        Raises:
            Refused: we may not.
            Transient: it cannot be done now.
        """

    def find(self, process: Process) -> str | None:
        """Return the reference of a process that has a lease and that this backend may not have started.

        None where the backend cannot end such a process.
        """
