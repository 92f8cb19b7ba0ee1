"""A test worker that dies ends the run with its reason, and what it started goes with it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_WORKER: Final = b"PYTEST_XDIST_WORKER"  # variables that xdist sets in a worker, so its processes inherit them
_RUN: Final = b"PYTEST_XDIST_TESTRUNUID"


def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Kill the processes of a worker that died, whichever it started and however; `-n` says why the run ends."""
    if error is None:
        return
    of = {_WORKER: node.workerinput["workerid"].encode(), _RUN: node.workerinput["testrunuid"].encode()}
    while left := list(_processes(of)):  # again, as one may have started another one meanwhile
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _processes(of: dict[bytes, bytes]) -> Iterator[int]:
    """Yield the processes that run with these variables; those of others cannot be read, and zombies have none."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = dict(each.partition(b"=")[::2] for each in (folder / "environ").read_bytes().split(b"\0"))
        except OSError:
            continue
        if environ.items() >= of.items() and int(folder.name) != os.getpid():
            yield int(folder.name)
