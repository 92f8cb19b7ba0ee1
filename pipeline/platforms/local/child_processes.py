"""Child processes of a run on one machine: each with its own log, watched, started again, all stopped at the end."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.base import private_files

_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1


@dataclass
class Child:
    """One process and how it is started again."""

    name: str
    command: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    held: bool = False  # its end is wanted: nobody starts it again


class Children:
    """Starts processes and, used as a context manager, leaves none behind."""

    def __init__(self, logs: Path, environ: dict[str, str] | None = None) -> None:
        """Keep each child's output in `logs/<name>.log`."""
        self._logs = logs
        self._environ = {**os.environ, **(environ or {})}
        self._children: dict[str, Child] = {}
        private_files.make_folder(logs)

    def __enter__(self) -> Self:
        """Begin; what is started from here on ends with the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all children."""
        self.stop()

    def start(self, name: str, command: Sequence[str]) -> Child:
        """Start a process in a session of its own, so that Ctrl-C reaches only us and we end it in order."""
        child = self._children.setdefault(name, Child(name, list(command), self._logs / f"{name}.log"))
        child.command = list(command)
        with child.log.open("ab") as log:
            child.process = subprocess.Popen(
                child.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call, before any thread of the child
            )
        child.held = False
        return child

    def hold(self, name: str, seconds: float) -> None:
        """Ask a child to end, and wait at most `seconds`; `dead` leaves it out until it is started again."""
        self._children[name].held = True
        self.end(name, seconds)

    def wait(self, names: Sequence[str], stop: threading.Event) -> dict[str, int]:
        """Wait until these children have ended or `stop` is set; return exit codes of those that have."""
        codes: dict[str, int] = {}
        while len(codes) < len(names) and not stop.wait(_POLL_SECONDS):
            for name in names:
                process = self._children[name].process
                code = process.poll() if process else None
                if code is not None:
                    codes[name] = code
        return codes

    def dead(self) -> list[Child]:
        """Return the children that have ended on their own."""
        return [
            child
            for child in self._children.values()
            if child.process and child.process.poll() is not None and not child.held
        ]

    def forget(self, name: str) -> None:
        """Stop watching a child that has ended."""
        del self._children[name]

    def tail(self, name: str, lines: int = 15) -> str:
        """Return the end of a child's log."""
        text = self._children[name].log.read_text("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])

    def end(self, name: str, seconds: float) -> None:
        """Ask one child to end, and wait at most `seconds`; `stop` sees to it that it has ended."""
        process = self._children[name].process
        if process is not None:
            _signal(self._children[name], signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)

    def stop(self) -> None:
        """Ask all children to end, the last started first; kill those that have not after a while."""
        running = [child for child in reversed(self._children.values()) if child.process]
        for child in running:
            _signal(child, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        for child in running:
            try:
                if child.process:
                    child.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass  # killed below, with whatever it started
            _signal(child, signal.SIGKILL)
            if child.process:
                child.process.wait()


def _end_with_parent() -> None:
    """Let the kernel end this child when we are killed without a chance to do it; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def turnout(*arguments: str) -> list[str]:
    """Return the command line of a turnout command on this very Python."""
    return [sys.executable, "-m", "pipeline", *arguments]


def _signal(child: Child, number: signal.Signals) -> None:
    """Send a signal: SIGTERM to the child alone, SIGKILL to everything it started."""
    if child.process is None:
        return
    try:
        if number == signal.SIGKILL:
            os.killpg(child.process.pid, number)
        elif child.process.poll() is None:
            child.process.send_signal(number)
    except ProcessLookupError:
        return  # it has ended, and so has all it started
