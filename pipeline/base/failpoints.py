"""Named places where a test can make the process fail, or let another thread go on, to prove the laws.

Inactive unless the environment names a folder (`TURNOUT_FAILPOINTS`). Its file `armed` has one fault per line, `<point>
<crash|raise|hang> <n>`: at the n-th hit of the point, counted over all processes that share the folder. Each hit of a
point is a line in `<point>.hits`, each triggered fault a line in `fired`. See also `on_hit`.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

ENVIRON: Final = "TURNOUT_FAILPOINTS"
EFFECTS: Final = (
    "deploy_create",
    "deploy_update",
    "deploy_delete",
    "deploy_restart",
    "deploy_journal",
    "make_folder",
    "write_data_file",
    "delete_data_file",
    "create_table",
    "draft_commit",  # the text of a commit, not yet part of the log
    "publish_commit",  # a commit of ours: the draft is linked to its version
    "delete_draft",
    "withdraw_commit",  # a version that log cleanup has already removed
    "mark_data_file",
    "commit_by_delta_rs",
    "commit_by_spark",
    "compact_by_delta_rs",
    "switch_generation",
    "remove_rows",  # rows leave quarantine or a game table, or days of minutes expire
    "add_columns",
    "set_properties",
    "write_checkpoint",  # by delta-rs
    "draft_checkpoint",
    "publish_checkpoint",
    "delete_log_entry",
    "delete_staging",
    "draft_pin",
    "publish_pin",
    "delete_pin",
    "draft_id",  # of a schema, taken beside bronze
    "publish_id",
    "publish_placed",  # a game's registration of a schema, kept there too
    "read_range",  # of bronze, from which the columns of undeclared documents are computed
    "commit_registration",  # of such columns, in the control store
    "put_query_aside",  # a file or folder of Spark's checkpoint
    "delete_query",
    "draft_file",  # a small file that is written whole or not at all
    "publish_file",
    "store_commit",  # a transaction of the control store
)
"""The effects of a driver on the data path; each has a point before it, `before_<effect>`, and one after it."""

PLACES: Final = (
    "after_bronze_write",
    "after_schema_pin",
    "after_registry_answer",
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
"""Points between steps of several effects."""

POINTS: Final = (*PLACES, *(f"{when}_{effect}" for effect in EFFECTS for when in ("before", "after")))
ACTIONS: Final = ("crash", "raise", "hang")
HANG_SECONDS: Final = 30.0


on_hit: Callable[[str], None] | None = None
"""Called with each point's name when a test sets it: a scheduler lets another thread run here, or ends this one."""


class Injected(Exception):
    """A fault set by a test."""


def hit(point: str) -> None:
    """Count a hit of this point, and fail if a fault is armed for it.

    Raises:
        Injected: the armed fault is `raise`.
        ValueError: there is no such point.
    """
    if on_hit is not None:
        on_hit(point)
    place = os.environ.get(ENVIRON)
    if not place:
        return
    if point not in POINTS:
        raise ValueError(f"there is no fail-point {point}")
    folder = Path(place)
    number = _append(folder / f"{point}.hits", f"{os.getpid()} {time.time()}")
    for action in _armed(folder, point, number):
        _append(folder / "fired", f"{point} {action} {number}")
        _fail(action, point)


class effect:  # noqa: N801 - reads as a statement
    """Marks one effect on the world: a point before the block, and one after it unless it raised."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        """Take the effect's name, one of `EFFECTS`."""
        self._name = name

    def __enter__(self) -> None:
        hit(f"before_{self._name}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            hit(f"after_{self._name}")


def _append(file: Path, line: str) -> int:
    """Append a line and return its number, atomically between processes; a stopped process blocks no other."""
    handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(handle, f"{line}\n".encode())
        end = os.lseek(handle, 0, os.SEEK_CUR)  # of this line: the system appends as one step
        return os.pread(handle, end, 0).count(b"\n")
    finally:
        os.close(handle)


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
    """Kill the driver, its JVM and its workers: all processes of this session, this one last."""
    session = os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
