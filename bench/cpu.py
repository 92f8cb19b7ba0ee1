"""CPU time and memory of whole process trees by what they do, as the measuring processes take them.

Drivers report the CPU time of their own tree by the same reading, `listeners.process_cpu`.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from listeners.process_cpu import TICKS_PER_SECOND, ProcessStat, parse_stat, read_all, tree

__all__ = [
    "ProcessStat", "TreeUse", "by_role", "parse_busy", "parse_stat", "read_all", "read_busy", "read_trees",
    "shared_out", "total", "tree",
]  # fmt: skip

_PROC: Final = Path("/proc")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class TreeUse:
    """What a process tree has used so far, and holds now."""

    cpu_seconds: float
    rss_bytes: int
    threads: int
    processes: int


def total(processes: Iterable[ProcessStat]) -> TreeUse:
    """Add processes up."""
    members = list(processes)
    return TreeUse(
        cpu_seconds=sum(member.ticks for member in members) / TICKS_PER_SECOND,
        rss_bytes=sum(member.rss_pages for member in members) * _PAGE_BYTES,
        threads=sum(member.threads for member in members),
        processes=len(members),
    )


def shared_out(processes: Iterable[ProcessStat]) -> int:
    """Return the bytes that processes hold, a page of several divided among them (proc(5), Pss).

    Workers are forked and share most of what they have loaded; resident memory counts that for each of them.
    """
    kilobytes = 0
    for member in processes:
        with suppress(OSError):  # it has ended
            lines = (_PROC / str(member.pid) / "smaps_rollup").read_text("utf-8").splitlines()
            kilobytes += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return 1024 * kilobytes


def by_role(processes: Iterable[ProcessStat], root: int) -> dict[str, float]:
    """Return a tree's CPU seconds by role: the Python driver itself, its JVM, and everything else as workers."""
    seconds = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    for member in processes:
        role = "driver" if member.pid == root else "jvm" if member.command == "java" else "workers"
        seconds[role] += member.ticks / TICKS_PER_SECOND
    return seconds


def parse_busy(first_line: str) -> float:
    """Return the CPU seconds the machine was busy since it started, from the first line of /proc/stat."""
    user, nice, system, _idle, _iowait, irq, soft_irq = (int(ticks) for ticks in first_line.split()[1:8])
    return (user + nice + system + irq + soft_irq) / TICKS_PER_SECOND


def read_trees(roots: Mapping[str, int]) -> dict[str, TreeUse]:
    """Return what each named tree uses, all from one look at the machine."""
    stats = read_all()
    return {name: total(tree(stats, root)) for name, root in roots.items()}


def read_busy() -> float:
    """Return the CPU seconds the machine was busy since it started."""
    with (_PROC / "stat").open("r", encoding="utf-8") as lines:
        return parse_busy(lines.readline())
