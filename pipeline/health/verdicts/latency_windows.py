"""The latencies of one stream over a window that moves, as the watch of its group keeps them. Pure."""

from collections import deque
from operator import add, sub
from typing import Final

from listeners.quantile import quantiles
from listeners.sample import LATENCY_EDGES_SECONDS, Segments

_NO_ROWS: Final = (0.0,) * 6


class LatencyWindow:
    """The rows by latency bucket of a window that moves; a result fills few buckets, so that only those cost time."""

    def __init__(self, seconds: float) -> None:
        """Begin with no rows."""
        self._seconds = seconds
        self._results: deque[tuple[float, list[tuple[int, int]]]] = deque()
        self._counts = [0] * (len(LATENCY_EDGES_SECONDS) + 1)

    def add(self, at: float, filled: list[tuple[int, int]]) -> None:
        """Count a result's rows: (bucket, rows)."""
        self._results.append((at, filled))
        for bucket, rows in filled:
            self._counts[bucket] += rows

    def forget_old(self, now: float) -> None:
        """Drop what lies before the window."""
        results, since = self._results, now - self._seconds
        while results and results[0][0] <= since:
            for bucket, rows in results.popleft()[1]:
                self._counts[bucket] -= rows

    def quantiles(self, *shares: float) -> tuple[float | None, ...]:
        """Return the latencies below which these shares of the rows were, ascending; None without rows."""
        return quantiles(self._counts, shares) if self._results else (None,) * len(shares)


class SegmentWindow:
    """Where the latency of the rows of a window that moves comes from."""

    def __init__(self, seconds: float) -> None:
        """Begin with no rows."""
        self._seconds = seconds
        self._results: deque[tuple[float, tuple[float, ...]]] = deque()
        self._sums: tuple[float, ...] = _NO_ROWS

    def add(self, at: float, segments: Segments, rows: int) -> None:
        """Count a result's rows."""
        queue, process, commit, upstream = segments
        dated = 0 if upstream is None else rows
        parts = (rows, rows * queue, rows * process, rows * commit, dated, dated * (upstream or 0.0))
        self._results.append((at, parts))
        self._sums = tuple(map(add, self._sums, parts))

    def forget_old(self, now: float) -> None:
        """Drop what lies before the window."""
        while self._results and self._results[0][0] <= now - self._seconds:
            self._sums = tuple(map(sub, self._sums, self._results.popleft()[1]))
        if not self._results:
            self._sums = _NO_ROWS  # without what rounding left

    def means(self) -> Segments | None:
        """Return the means over the rows, None where no row's segments are known."""
        rows, queue, process, commit, dated, upstream = self._sums
        if rows < 1:
            return None
        before = max(0.0, upstream / dated) if dated >= 1 else None
        return Segments(max(0.0, queue / rows), max(0.0, process / rows), max(0.0, commit / rows), before)
