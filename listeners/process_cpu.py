"""CPU time of a process and all below it, read from /proc: a driver with its JVM and its Python workers.

A tree's CPU time is what its living processes used plus what they inherited from children that have ended, so
short-lived helper processes count as well. Where there is no /proc, nothing is known.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from listeners.sample import CpuUse

_PROC: Final = Path("/proc")
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/<pid>/stat, as far as it is used here."""

    pid: int
    parent: int
    command: str
    ticks: int  # utime + stime + cutime + cstime, in clock ticks
    threads: int
    rss_pages: int


class TreeCpu:
    """Measures the CPU time of a process and all below it between looks. Calls come from one thread.

    Args:
        read: returns the tree's CPU seconds so far, None where they cannot be read; by default of this process.
    """

    def __init__(self, read: Callable[[], float | None] | None = None) -> None:
        self._read = read or tree_cpu_seconds
        self._seconds, self._looked_at = self._read(), time.monotonic()
        self._lower: float | None = None  # read last, where that was less than `_seconds`
        self.total = self._seconds
        """CPU seconds so far, never less than before; None where nothing is known."""

    def look(self, now: float) -> CpuUse | None:
        """Return what was used since the last look, which ends at `now` (Unix seconds); None where nobody knows.

        A child that ends while the tree is read may be missing once; one that is given away takes its CPU time along.
        So what is missing counts as nothing used, and as gone once two looks lack it.
        """
        seconds, looked_at = self._read(), time.monotonic()
        before, lower, since = self._seconds, self._lower, self._looked_at
        self._seconds, self._lower, self._looked_at = seconds, None, looked_at
        if seconds is None or before is None or looked_at <= since:
            return None
        if seconds < before and lower is None:
            self._seconds, self._lower = before, seconds
        used = max(0.0, seconds - (before if lower is None or seconds >= before else lower))
        self.total = (self.total or 0.0) + used
        return CpuUse(now - (looked_at - since), now, used)


def tree_cpu_seconds(root: int | None = None) -> float | None:
    """Return the CPU seconds that a process, by default this one, and all below it used; None where nobody knows."""
    try:
        members = tree(read_all(), os.getpid() if root is None else root)
    except OSError:  # this system has no /proc
        return None
    return sum(each.ticks for each in members) / TICKS_PER_SECOND if members else None


def parse_stat(line: str) -> ProcessStat:
    """Parse one line of /proc/<pid>/stat; the command may hold blanks and brackets.

    Raises:
        ValueError: the line has another form.
    """
    head, bracket, rest = line.rpartition(")")
    pid, opened, command = head.partition(" (")
    fields = rest.split()
    if not bracket or not opened or len(fields) < 22:
        raise ValueError(f"not a line of /proc/<pid>/stat: {line[:80]!r}")
    return ProcessStat(
        pid=int(pid),
        parent=int(fields[1]),
        command=command,
        ticks=sum(int(ticks) for ticks in fields[11:15]),
        threads=int(fields[17]),
        rss_pages=int(fields[21]),
    )


def tree(stats: Iterable[ProcessStat], root: int) -> list[ProcessStat]:
    """Return the root process and everything below it; empty when the root is gone."""
    known = {stat.pid: stat for stat in stats}
    below: dict[int, list[int]] = {}
    for stat in known.values():
        below.setdefault(stat.parent, []).append(stat.pid)
    found: list[ProcessStat] = []
    waiting = [root] if root in known else []
    while waiting:
        pid = waiting.pop()
        found.append(known[pid])
        waiting += below.get(pid, [])
    return found


def read_all() -> list[ProcessStat]:
    """Return every process of the machine; those that end meanwhile are left out.

    Raises:
        OSError: this system has no /proc.
    """
    stats = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                stats.append(parse_stat((entry / "stat").read_text("utf-8", "replace")))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return stats
