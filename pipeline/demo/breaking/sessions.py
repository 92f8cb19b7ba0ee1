"""Signals to all processes of one driver: those of its session, which a driver of this machine leads. Linux only."""

import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Engine

from listeners.process_kinds import described
from pipeline.base.errors import Refused
from pipeline.store.processes.leases import Process, held_by

_PASSES = 20  # over /proc until no process is left: each pass finds what the one before has started


def find_driver(engine: Engine, kind: str, name: str) -> Process:
    """Return the process that drives a group or ingest now.

    Raises:
        Refused: there is none on this machine, or it is not one of this demo's user.
    """
    what = described(kind, name)
    process = held_by(engine, kind, name)
    if process is None or not process.makes_sense or not process.is_here() or process.is_dead():
        raise Refused(f"There is no driver of {what} to break now. Wait until the page Groups says that it runs.")
    try:
        is_ours = Path(f"/proc/{process.pid}").stat().st_uid == os.geteuid()
        leads = os.getsid(process.pid) == process.pid
    except OSError as error:
        raise Refused(f"The driver of {what} has ended just now. Try again.") from error
    if not is_ours or not leads:
        raise Refused(f"The process {process.pid} of {what} was not started by this demo: it is left alone.")
    return process


def signal_session(leader: Process, number: signal.Signals) -> int:
    """Send a signal to all processes of a driver, also to those that it starts meanwhile; return to how many."""
    reached: set[int] = set()
    for _ in range(_PASSES):
        found = {pid for pid in _members(leader.pid) if pid not in reached}
        if not found:
            break
        for pid in sorted(found, key=lambda each: each != leader.pid):  # who starts others goes first
            with suppress(ProcessLookupError):  # it has ended just now
                os.kill(pid, number)
            reached.add(pid)
    return len(reached)


def limit_files(leader: Process, most: int | None) -> int:
    """Limit the bytes of a file that a driver's Python workers may write, None for no limit; return their number.

    A write above it fails with "File too large", as on a full disk. The driver itself and its JVM go on. A worker in
    which that would end the process is left alone: turnout would blame the record that it was at.
    """
    reached = 0
    for pid in _members(leader.pid):
        place = Path("/proc") / str(pid)
        with suppress(OSError):  # it has ended just now
            is_worker = pid != leader.pid and (place / "exe").samefile(f"/proc/{leader.pid}/exe")
            if is_worker and _ignores_limit(place):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if most is None else most, hard))
                reached += 1
    return reached


def _ignores_limit(place: Path) -> bool:
    """Return whether a process ignores the signal of a write above the limit, as Python does."""
    ignored = next(line for line in (place / "status").read_text().splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> (signal.SIGXFSZ - 1) & 1)


def _members(session: int) -> list[int]:
    """Return the processes of a session, which outlives its leader; never our own."""
    if session == os.getsid(0):
        raise Refused("The driver runs in the session of the demo itself: it is left alone.")
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    members.append(int(entry.name))
            except (ProcessLookupError, PermissionError):
                continue  # it has ended, or is another user's
    return members
