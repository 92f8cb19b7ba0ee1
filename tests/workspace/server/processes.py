"""Processes of this machine that stand for a cluster's or an app's: each in a session of its own, none outlives us.

Only the main thread starts them: the kernel's signal at a parent's death is bound to the thread that forked.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pipeline.base.failpoints import ENVIRON
from tests.checkout import ROOT

_PR_SET_PDEATHSIG: Final = 1


class Processes:
    """Starts processes, polls and kills them, by a name that the caller chooses."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], environ: Mapping[str, str], cwd: Path, log: Path) -> int:
        """Start a process, its output appended to `log`; return its id.

        Raises:
            OSError: it cannot be started.
        """
        cwd.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd,
                env={**inherited(), **environ}, start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one system call, before any thread of the child
            )  # fmt: skip
        self._running[name] = process
        return process.pid

    def code(self, name: str) -> int | None:
        """Return the exit code of a process that has ended, and None before."""
        return self._running[name].poll()

    def is_known(self, name: str) -> bool:
        """Return whether a process of this name was started and not forgotten."""
        return name in self._running

    def pid(self, name: str) -> int:
        """Return the process's id."""
        return self._running[name].pid

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process and to all that it started."""
        if (process := self._running.get(name)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def forget(self, name: str) -> None:
        """Kill a process with all that it started, and give its name free."""
        self.signal(name, signal.SIGKILL)
        if (process := self._running.pop(name, None)) is not None:
            process.wait()

    def end(self) -> None:
        """Kill all."""
        for name in list(self._running):
            self.forget(name)


def inherited() -> dict[str, str]:
    """Return the variables that a process gets from this machine: no settings of turnout, no workspace."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == ENVIRON or not re.match(r"DATABRICKS_|TURNOUT_\w*__|PG[A-Z]+$|STANDIN_", name)
    }
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def end_with_parent() -> None:
    """Let the kernel kill this child when the stand-in dies; Linux only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
