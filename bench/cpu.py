"""CPU time and memory of whole process trees, read from /proc: a driver with its JVM and its Python workers.

Used by the measuring processes only. A tree's CPU time is what its living processes used plus what they inherited
from children that have ended, so short-lived helper processes count as well.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/<pid>/stat, as far as it is used here."""

    pid: int
    parent: int
    command: str
    ticks: int  # utime + stime + cutime + cstime, in clock ticks
    threads: int
    rss_pages: int


@dataclass(frozen=True, slots=True)
class TreeUse:
    """What a process tree has used so far, and holds now."""

    cpu_seconds: float
    rss_bytes: int
    threads: int
    processes: int


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


def total(processes: Iterable[ProcessStat]) -> TreeUse:
    """Add processes up."""
    members = list(processes)
    return TreeUse(
        cpu_seconds=sum(member.ticks for member in members) / _TICKS_PER_SECOND,
        rss_bytes=sum(member.rss_pages for member in members) * _PAGE_BYTES,
        threads=sum(member.threads for member in members),
        processes=len(members),
    )


def by_role(processes: Iterable[ProcessStat], root: int) -> dict[str, float]:
    """Return a tree's CPU seconds by role: the Python driver itself, its JVM, and everything else as workers."""
    seconds = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    for member in processes:
        role = "driver" if member.pid == root else "jvm" if member.command == "java" else "workers"
        seconds[role] += member.ticks / _TICKS_PER_SECOND
    return seconds


def parse_busy(first_line: str) -> float:
    """Return the CPU seconds the machine was busy since it started, from the first line of /proc/stat."""
    user, nice, system, _idle, _iowait, irq, soft_irq = (int(ticks) for ticks in first_line.split()[1:8])
    return (user + nice + system + irq + soft_irq) / _TICKS_PER_SECOND


def read_all() -> list[ProcessStat]:
    """Return every process of the machine; those that end meanwhile are left out."""
    stats = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                stats.append(parse_stat((entry / "stat").read_text("utf-8", "replace")))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return stats


def read_trees(roots: Mapping[str, int]) -> dict[str, TreeUse]:
    """Return what each named tree uses, all from one look at the machine."""
    stats = read_all()
    return {name: total(tree(stats, root)) for name, root in roots.items()}


def read_busy() -> float:
    """Return the CPU seconds the machine was busy since it started."""
    with (_PROC / "stat").open("r", encoding="utf-8") as lines:
        return parse_busy(lines.readline())
