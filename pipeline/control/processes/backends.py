"""What starts and ends drivers of cluster groups, and maintenance. Each is of a kind: `local` runs processes beside us.

A backend keeps nothing that a controller which follows this one needs: all of that is in the reference it gives.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from pipeline import private_files
from pipeline.control.processes.duties import Duty, described, log_name
from pipeline.errors import Refused, Transient
from pipeline.store.processes.leases import Process


class Backend(Protocol):
    """Starts and ends runs of duties. Each call returns at once; its result is seen by observing again."""

    def start(self, duty: Duty) -> str:
        """Start a process that does it; return by what it is found again.

        Raises:
            Transient: it cannot be started now.
        """

    def is_alive(self, reference: str) -> bool | None:
        """Tell whether a run has not ended; None where that cannot be known from here."""

    def stop(self, reference: str) -> None:
        """Ask a run to end in order; does nothing where it has.

        Raises:
            Refused: we may not.
        """

    def kill(self, reference: str) -> None:
        """End a run without asking; does nothing where it has ended.

        Raises:
            Refused: we may not.
        """

    def ending(self, reference: str) -> str:
        """Say how a run has ended, as far as anybody can know."""


class Local:
    """Processes on this machine, which go on when their controller ends."""

    def __init__(self, logs: Path, command: Callable[[Duty], Sequence[str]], environ: Mapping[str, str]) -> None:
        """Start `command` of a duty with these variables; its output goes to `logs/group-NAME.log` or the like."""
        self._logs, self._command, self._environ = logs, command, environ
        self._children: dict[str, subprocess.Popen[bytes]] = {}  # ours, of whose end the system tells only us

    def start(self, duty: Duty) -> str:
        """Start a process in a session of its own; see `Backend`."""
        private_files.make_folder(self._logs)
        master = {} if duty.spark_master is None else {"TURNOUT_SPARK__MASTER": duty.spark_master}
        try:
            with (self._logs / log_name(duty.kind, duty.name)).open("ab") as log:
                child = subprocess.Popen(
                    self._command(duty), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env={**self._environ, **master}, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise Transient(f"the process of {described(duty.kind, duty.name)} cannot be started: {error}") from error
        reference = reference_of(Process.of(child.pid))
        self._children[reference] = child
        return reference

    def is_alive(self, reference: str) -> bool | None:
        """See `Backend`; of another machine's or container's process nobody here knows."""
        child = self._children.get(reference)
        if child is not None:
            return child.poll() is None
        process = process_of(reference)
        return None if process is None or not process.is_here() else not process.is_dead()

    def stop(self, reference: str) -> None:
        """See `Backend`: SIGTERM, to the driver alone."""
        self._signal(reference, signal.SIGTERM)

    def kill(self, reference: str) -> None:
        """See `Backend`: SIGKILL, to the driver and what it has started."""
        self._signal(reference, signal.SIGKILL)

    def ending(self, reference: str) -> str:
        """See `Backend`."""
        child = self._children.get(reference)
        code = None if child is None else child.poll()
        if code is None:
            return "it has ended; how is known only to the controller that started it"
        if code >= 0:
            return f"exit code {code}"
        known = {each.value: each.name for each in signal.Signals}  # not those between SIGRTMIN and SIGRTMAX
        return f"killed by {known.get(-code, f'signal {-code}')}"

    def _signal(self, reference: str, number: signal.Signals) -> None:
        process = process_of(reference)
        if process is None or not self.is_alive(reference):
            return
        try:
            if number == signal.SIGKILL and os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, number)
            else:
                os.kill(process.pid, number)
        except ProcessLookupError:
            return  # it has ended just now
        except PermissionError:
            raise Refused(
                f"its process {process.pid} belongs to another user, so it cannot be sent {number.name}. End it as "
                "that user, or run the controller as that user."
            ) from None


def reference_of(process: Process) -> str:
    """Return by what the `local` backend finds a process again."""
    return json.dumps(asdict(process), sort_keys=True)


def process_of(reference: str) -> Process | None:
    """Return the process a reference is of, None where it makes no sense."""
    try:
        process = Process(**json.loads(reference))
        return process if process.makes_sense else None
    except (ValueError, TypeError):
        return None
