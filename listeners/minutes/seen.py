"""Which numbered rows of a metrics table were read: a retry may double a batch, a merge moves rows to new files."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_KEPT: Final = 4_000_000  # rows of one writer: more than a driver of 1,000 games writes in two days


class Seen:
    """The rows that were read, by writer and number. Numbers far below a writer's newest count as read."""

    def __init__(self) -> None:
        """Begin without any."""
        self._writers: dict[str, _Marks] = {}

    def mark(self, writer: str, numbers: NDArray[np.int64], newest_at: float) -> NDArray[np.bool_]:
        """Mark these rows as read and tell which of them were not; a row that is twice among them is new once.

        `newest_at`: a time that none of them is later than, by which `forget` knows a writer that has ended.
        """
        if not len(numbers):
            return np.zeros(0, np.bool_)
        marks = self._writers.get(writer)
        if marks is None:
            marks = self._writers[writer] = _Marks(int(numbers.min()))
        marks.newest_at = max(marks.newest_at, newest_at)
        return marks.mark(numbers)

    def has_new(self, writer: str, numbers: NDArray[np.int64]) -> bool:
        """Return whether any of these rows was not read."""
        marks = self._writers.get(writer)
        return bool(len(numbers)) if marks is None else marks.has_new(numbers)

    def forget(self, before: float) -> None:
        """Forget the writers without rows since then: their rows are out of every window."""
        self._writers = {writer: marks for writer, marks in self._writers.items() if marks.newest_at >= before}


class _Marks:
    """One writer's rows: a mark for each number from `base` on."""

    def __init__(self, base: int) -> None:
        self.newest_at = float("-inf")
        self._base = base
        self._marks: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def mark(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        self._make_room(int(numbers.min()), int(numbers.max()) + 1)
        places = numbers - self._base
        fresh = places >= 0
        fresh[fresh] = ~self._marks[places[fresh]]
        if not (np.diff(numbers) > 0).all():
            first = np.zeros(len(numbers), np.bool_)
            first[np.unique(numbers, return_index=True)[1]] = True
            fresh &= first
        self._marks[places[fresh]] = True
        return fresh

    def has_new(self, numbers: NDArray[np.int64]) -> bool:
        end = self._base + len(self._marks)
        known = (numbers >= self._base) & (numbers < end)
        is_unmarked = not self._marks[numbers[known] - self._base].all()
        return bool(is_unmarked or (numbers[~known] >= end - _KEPT).any())

    def _make_room(self, low: int, end: int) -> None:
        old_end = self._base + len(self._marks)
        new_end = max(old_end, end)
        base = max(min(self._base, low), new_end - _KEPT)
        if base == self._base and new_end == old_end:
            return
        marks = np.zeros(new_end - base, np.bool_)
        begin = max(base, self._base)
        if begin < old_end:
            marks[begin - base : old_end - base] = self._marks[begin - self._base :]
        self._base, self._marks = base, marks
