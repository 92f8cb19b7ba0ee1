"""Makes a failing schedule short: the fewest switches between tasks with which it still fails alike."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

from tests.model.schedule_life import ScheduleVerdict

Segments = Sequence[tuple[str, int]]
_MAX_RUNS: Final = 400
_MAX_LINES: Final = 200  # where nothing lands any more, the rest is waiting


def minimised(found: ScheduleVerdict, run: Callable[[Segments], ScheduleVerdict]) -> ScheduleVerdict:
    """Return the shortest schedule found that fails like this one."""
    best, runs = found, 0

    def fails(segments: Segments) -> bool:
        nonlocal best, runs
        runs += 1
        verdict = run(segments)
        if verdict.kind != found.kind:
            return False
        if len(verdict.segments) < len(best.segments):
            best = verdict
        return True

    segments = _prefix(list(found.segments), fails)
    size = max(len(segments) // 2, 1)
    while runs < _MAX_RUNS:
        smaller = _without_some(segments, size, fails, lambda: runs < _MAX_RUNS)
        if len(smaller) == len(segments):
            if size == 1:
                break
            size = max(size // 2, 1)
        segments = smaller
    return best


def _prefix(segments: list[tuple[str, int]], fails: Callable[[Segments], bool]) -> list[tuple[str, int]]:
    """Return the shortest beginning found after which the rest may go on without a switch."""
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        if fails(segments[:middle]):
            high = middle
        else:
            low = middle + 1
    return segments[:high]


def _without_some(
    segments: list[tuple[str, int]], size: int, fails: Callable[[Segments], bool], may_go_on: Callable[[], bool]
) -> list[tuple[str, int]]:
    at = 0
    while at < len(segments) and may_go_on():
        shorter = segments[:at] + segments[at + size :]
        if fails(shorter):
            segments = shorter
        else:
            at += size
    return segments


def report_lines(verdict: ScheduleVerdict) -> Iterator[str]:
    """Yield the course of a schedule as lines: who goes on, and to which points."""
    yield f"seed {verdict.seed}: {verdict.scenario}"
    yield f"{len(verdict.segments)} switches, {verdict.steps} points"
    lines = []
    for name, group in groupby(verdict.trace, key=lambda each: each[0]):
        points = [point for point, _ in groupby(point for _, point in group)]
        lines.append(f"  {name}: {' → '.join(points)}")
    yield from lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        yield f"  and {len(lines) - _MAX_LINES} more"
    yield from (f"PROBLEM {problem}" for problem in verdict.problems)
    if not verdict.problems:
        yield "nothing is wrong"
