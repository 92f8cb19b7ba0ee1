"""The backend `local`: processes on this machine, which go on when their controller ends."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from listeners.process_kinds import described
from pipeline.base import private_files
from pipeline.base.errors import Refused, Transient
from pipeline.control.backends.backend import Limits, RunState
from pipeline.control.backends.duties import Duty, log_name
from pipeline.platforms.local.signals import STOP_SECONDS
from pipeline.store.processes.leases import Process
from pipeline.store.rows import START_LIMIT_SECONDS


class Local:
    """Runs each duty as a process beside the controller; see `Backend`."""

    limits: Final = Limits(STOP_SECONDS, START_LIMIT_SECONDS, starts_at_once=3)
    starts_once: Final = False

    def __init__(self, logs: Path, command: Callable[[Duty, int], Sequence[str]], environ: Mapping[str, str]) -> None:
        """Start `command` of a duty and a run id with these variables; its output goes to `logs/group-NAME.log`."""
        self._logs, self._command, self._environ = logs, command, environ
        self._children: dict[str, subprocess.Popen[bytes]] = {}  # ours, of whose end the system tells only us

    def start(self, duty: Duty, run_id: int, token: str) -> str:  # noqa: ARG002 - each start is a process of its own
        """Start a process in a session of its own; see `Backend`."""
        private_files.make_folder(self._logs)
        master = {} if duty.spark_master is None else {"TURNOUT_SPARK__MASTER": duty.spark_master}
        try:
            with (self._logs / log_name(duty.kind, duty.name)).open("ab") as log:
                child = subprocess.Popen(
                    self._command(duty, run_id), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env={**self._environ, **master}, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise Transient(f"the process of {described(duty.kind, duty.name)} cannot be started: {error}") from error
        reference = reference_of(Process.of(child.pid))
        self._children[reference] = child
        return reference

    def observe(self, references: Collection[str]) -> Mapping[str, RunState]:
        """See `Backend`; of another machine's or container's process nobody here knows."""
        return {reference: self._observe(reference) for reference in references}

    def stop(self, reference: str) -> None:
        """See `Backend`: SIGTERM, to the driver alone."""
        self._signal(reference, signal.SIGTERM)

    def kill(self, reference: str) -> None:
        """See `Backend`: SIGKILL, to the driver and what it has started."""
        self._signal(reference, signal.SIGKILL)

    def find(self, process: Process) -> str | None:
        """See `Backend`; ourselves nobody ends, and nobody here ends what is elsewhere."""
        return None if process == Process.this() or not process.is_here() else reference_of(process)

    def _observe(self, reference: str) -> RunState:
        child = self._children.get(reference)
        if child is not None:
            code = child.poll()
            return RunState(is_alive=True) if code is None else RunState(is_alive=False, about=_ending(code))
        unknown = "it has ended; how is known only to the controller that started it"
        process = process_of(reference)
        if process is None or not process.is_here():
            return RunState(is_alive=None, about=unknown, by_lease=True)
        return RunState(is_alive=not process.is_dead(), about=unknown)

    def _signal(self, reference: str, number: signal.Signals) -> None:
        process = process_of(reference)
        if process is None or not self._observe(reference).is_alive:
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
    """Return the reference by which the `local` backend finds a process again."""
    return json.dumps(asdict(process), sort_keys=True)


def process_of(reference: str) -> Process | None:
    """Return a reference's process; None if the reference is invalid."""
    try:
        process = Process(**json.loads(reference))
        return process if process.makes_sense else None
    except (ValueError, TypeError):
        return None


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    known = {each.value: each.name for each in signal.Signals}  # not those between SIGRTMIN and SIGRTMAX
    return f"killed by {known.get(-code, f'signal {-code}')}"
