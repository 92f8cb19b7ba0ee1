"""Ends an apply like a power cut: in a process of its own that is killed at a fail-point, whatever it was doing."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from pipeline import failpoints


def ends_at(hit: int, act: Callable[[], object], log: Path) -> str | None:
    """Do something in a copy of this process that dies by SIGKILL at its `hit`-th fail-point.

    Returns the point's name, or None where it was done before so many points.
    """
    log.write_text("", "utf-8")
    child = os.fork()
    if child == 0:
        _live(hit, act, log)
    _, status = os.waitpid(child, 0)
    said = log.read_text("utf-8")
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, said
        return said
    assert os.WEXITSTATUS(status) == 0, said
    return None


def _live(hit: int, act: Callable[[], object], log: Path) -> None:
    seen = 0

    def count(point: str) -> None:
        nonlocal seen
        seen += 1
        if seen == hit:
            log.write_text(point, "utf-8")
            os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        failpoints.on_hit = count
        act()
        code = 0
    except BaseException:  # noqa: BLE001 - the parent shows it
        log.write_text(traceback.format_exc(), "utf-8")
    finally:
        sys.stdout.flush()
        os._exit(code)
