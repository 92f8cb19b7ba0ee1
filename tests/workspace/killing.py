"""Ends an apply like a power cut: in a process of its own that is killed at a fail-point, or after a request."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.base import failpoints
from pipeline.platforms.databricks.workspace.client import Workspace


def ends_at(hit: int, act: Callable[[], object], log: Path, *, of_requests: str | None = None) -> str | None:
    """Do something in a copy of this process that dies by SIGKILL at its `hit`-th fail-point.

    `of_requests` counts requests that have changed something instead, whose path ends so. Returns the point's name, or
    the path; None where it was done with fewer.
    """
    log.write_text("", "utf-8")
    child = os.fork()
    if child == 0:
        _live(hit, act, log, of_requests=of_requests)
    _, status = os.waitpid(child, 0)
    said = log.read_text("utf-8")
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, said
        return said
    assert os.WEXITSTATUS(status) == 0, said
    return None


def _live(hit: int, act: Callable[[], object], log: Path, *, of_requests: str | None) -> None:
    seen = 0

    def count(point: str) -> None:
        nonlocal seen
        seen += 1
        if seen == hit:
            log.write_text(point, "utf-8")
            os.kill(os.getpid(), signal.SIGKILL)

    send = Workspace.send

    def count_sent(self: Workspace, method: str, path: str, *more: Any, **named: Any) -> dict[str, Any]:
        answer = send(self, method, path, *more, **named)
        if method != "GET" and path.endswith(of_requests or ""):
            count(path)
        return answer

    code = 1
    try:
        if of_requests is not None:
            Workspace.send = count_sent  # type: ignore[method-assign]
        else:
            failpoints.on_hit = count
        act()
        code = 0
    except BaseException:  # noqa: BLE001 - the parent shows it
        log.write_text(traceback.format_exc(), "utf-8")
    finally:
        sys.stdout.flush()
        os._exit(code)
