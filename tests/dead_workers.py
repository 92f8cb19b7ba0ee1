"""A test worker that dies ends the run with its reason, and what it started goes with it.

The reason is the signal and the Python stack of the thread that crashed. Both stand at the end of the log, beside the
name of the test: CI keeps the end of a long log only.
"""

import faulthandler
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

_WORKER: Final = b"PYTEST_XDIST_WORKER"  # variables that xdist sets in a worker, so its processes inherit them
_RUN: Final = b"PYTEST_XDIST_TESTRUNUID"
_INPUT: Final = "crash_file"
_OTHERS: Final = 3  # innermost calls that are shown of threads which did not crash
_REASONS: Final = pytest.StashKey[list[str]]()


def pytest_configure_node(node: Any) -> None:
    """Give a new worker a file for its last words."""
    made, name = tempfile.mkstemp(prefix="turnout-crash-")
    os.close(made)
    node.workerinput[_INPUT] = name


@pytest.hookimpl(trylast=True)  # after pytest's own plugin, which writes to a log that others write to
def pytest_configure(config: pytest.Config) -> None:
    """Let a worker that crashes write the stacks of its threads into its file."""
    if (name := getattr(config, "workerinput", {}).get(_INPUT)) is not None:
        faulthandler.enable(os.open(name, os.O_WRONLY))


def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Keep what a dead worker said, and kill its processes, whichever it started and however; `-n` ends the run."""
    file = Path(node.workerinput[_INPUT])
    said = file.read_text("utf-8", "replace")
    file.unlink()
    if error is None:
        return
    node.config.stash.setdefault(_REASONS, []).append(f"{node.gateway.id} {_ended(node)}\n{_crash(said)}")
    of = {_WORKER: node.workerinput["workerid"].encode(), _RUN: node.workerinput["testrunuid"].encode()}
    while left := list(_processes(of)):  # again, as one may have started another one meanwhile
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why workers died, behind all failures."""
    for reason in terminalreporter.config.stash.get(_REASONS, []):
        terminalreporter.section("a worker died")
        terminalreporter.write_line(reason)


def _ended(node: Any) -> str:
    """Return how the process of a worker ended."""
    try:
        code = node.gateway._io.popen.wait(10)
    except subprocess.TimeoutExpired:
        return "closed its channel and runs on"
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _crash(said: str) -> str:
    """Return the whole stack of the thread that crashed, and then where the others were."""
    heading, *threads = said.partition("\n\nExtension modules:")[0].split("\n\n")
    first = [each for each in threads if each.startswith("Current thread")]
    others = ["\n".join(each.splitlines()[: 1 + _OTHERS]) for each in threads if each not in first]
    if not threads:
        heading = "It said nothing: it was killed, or it ended itself."
    elif not first:
        heading += "\nThe thread that crashed runs no Python: it is one of a library's own."
    return "\n\n".join([heading.strip(), *first, *others])


def _processes(of: dict[bytes, bytes]) -> Iterator[int]:
    """Yield the processes that run with these variables; those of others cannot be read, and zombies have none."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = dict(each.partition(b"=")[::2] for each in (folder / "environ").read_bytes().split(b"\0"))
        except OSError:
            continue
        if environ.items() >= of.items() and int(folder.name) != os.getpid():
            yield int(folder.name)
