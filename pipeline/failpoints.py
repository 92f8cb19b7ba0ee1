"""Named places where a test can make the process fail, so that the laws are proved under fire.

Nothing happens unless the environment names a folder (`TURNOUT_FAILPOINTS`). Its file `armed` has one fault per line,
`<point> <crash|raise|hang> <n>`: at the n-th hit of the point, counted over all processes that share the folder.
Each hit of a point is a line in `<point>.hits`, each fault that went off a line in `fired`.
"""

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

ENVIRON: Final = "TURNOUT_FAILPOINTS"
POINTS: Final = (
    "after_bronze_write",
    "after_schema_pin",
    "after_quarantine_write",
    "mid_data_files",
    "between_table_commits",
    "after_table_commits",
    "in_schema_change",
    "in_catch_up",
    "in_rebuild_switch",
    "in_replay",
    "in_dedupe",
    "in_maintenance",
)
ACTIONS: Final = ("crash", "raise", "hang")
HANG_SECONDS: Final = 30.0


class Injected(Exception):
    """The fault a test asked for."""


def hit(point: str) -> None:
    """Count that the process came here, and fail if a fault is armed for this time.

    Raises:
        Injected: the armed fault is `raise`.
        ValueError: there is no such point.
    """
    place = os.environ.get(ENVIRON)
    if not place:
        return
    if point not in POINTS:
        raise ValueError(f"no fail-point is called {point}")
    folder = Path(place)
    number = _append(folder / f"{point}.hits", f"{os.getpid()} {time.time()}")
    for action in _armed(folder, point, number):
        _append(folder / "fired", f"{point} {action} {number}")
        _fail(action, point)


def _append(file: Path, line: str) -> int:
    """Append a line and return how many the file has; atomic between processes."""
    with file.open("a+", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        handle.write(line + "\n")
        handle.flush()
        handle.seek(0)
        return sum(1 for _ in handle)


def _armed(folder: Path, point: str, number: int) -> list[str]:
    try:
        lines = (folder / "armed").read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    faults = [line.split() for line in lines if line.strip()]
    return [action for where, action, at in faults if where == point and int(at) == number]


def _fail(action: str, point: str) -> None:
    if action == "raise":
        raise Injected(f"fail-point {point}")
    if action == "hang":
        time.sleep(HANG_SECONDS)
        return
    _kill_session()


def _kill_session() -> None:
    """Kill the driver, its JVM and its workers: all that share this process's session, this one last."""
    session = os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
