"""Reads one thing after the other in many payloads at once: a position in each, moved by numpy.

Every read checks the end of its own payload. A payload that fails is doubtful: its position stays at its own end, its
values mean nothing, and the scalar decoder judges it. No read touches a neighbour.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.data.contracts.decoded import Rows

AllRows: TypeAlias = slice
Some: TypeAlias = Rows | AllRows
"""Which payloads: their places, ascending, or all of them."""

Bytes: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]

ALL: Final = slice(None)
_PAD: Final = 16  # bytes on both sides, so that reads of whole words never leave the buffer
_THIN: Final = 128
"""A step over fewer payloads costs more in numpy than in the scalar decoder."""
_ONE: Final = np.uint64(1)


class Cursor:
    """The positions in a part of an array of payloads."""

    def __init__(self, payloads: pa.BinaryArray) -> None:
        """Begin at the start of each payload; none is null."""
        every = np.frombuffer(payloads.buffers()[1], dtype=np.int32)
        offsets: Rows = every[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        padded = np.zeros(last - first + 2 * _PAD, dtype=np.uint8)
        if last > first:
            padded[_PAD:-_PAD] = np.frombuffer(payloads.buffers()[2], dtype=np.uint8)[first:last]
        self.data: Bytes = padded
        self._buffer = pa.py_buffer(padded)
        self.at: Rows = offsets[:-1] - first + _PAD
        self.end: Rows = offsets[1:] - first + _PAD
        self.doubtful: Mask = np.zeros(len(self.at), dtype=np.bool_)
        self.weightless: Rows = np.zeros(len(self.at), dtype=np.int64)  # items without bytes that were skipped
        self._thin_steps = 64 + len(self.at) // 64  # what is left of them

    def count(self, rows: Some) -> int:
        """Return the number of these payloads."""
        return len(self.at) if isinstance(rows, slice) else len(rows)

    def places(self, rows: Some) -> Rows:
        """Return the places of these payloads."""
        return np.arange(len(self.at)) if isinstance(rows, slice) else rows

    def doubt(self, rows: Some, those: Mask) -> None:
        """Leave those of these payloads to the scalar decoder."""
        if those.any():
            found = self.places(rows)[those]
            self.doubtful[found] = True
            self.at[found] = self.end[found]

    def allows(self, rows: int) -> bool:
        """Return whether one more step over `rows` payloads pays; a few thin steps always do."""
        if rows >= _THIN:
            return True
        self._thin_steps -= 1
        return self._thin_steps >= 0

    def skip(self, rows: Some, sizes: Rows | int) -> tuple[Rows, Rows]:
        """Move behind `sizes` bytes; return where they start and end, which is the same where they are doubtful."""
        starts = self.at[rows]
        ends = starts + sizes
        over = (ends > self.end[rows]) | (ends < starts)
        if over.any():
            ends = np.where(over, starts, ends)
        self._move(rows, ends)
        self.doubt(rows, over)
        return starts, ends

    def _move(self, rows: Some, to: Rows) -> None:
        if isinstance(rows, slice):
            self.at = to  # not in place: callers hold the positions before
        else:
            self.at[rows] = to

    def varint(self, rows: Some, most: int = 10) -> Rows:
        """Read zigzag numbers of at most `most` bytes; 5 for an int, whose range is checked as well."""
        at = self.at[rows]
        first = self.data[at]
        over = at >= self.end[rows]
        value = (first & 0x7F).astype(np.uint64)
        longer = np.flatnonzero((first > 0x7F) & ~over)
        at = at + 1
        if len(longer):
            self._longer(rows, at, value, longer, over, most)
        numbers: Rows = (value >> _ONE).view(np.int64) ^ -(value & _ONE).view(np.int64)
        if most == 5:
            over |= (numbers < -(2**31)) | (numbers >= 2**31)
        numbers[over] = 0
        self._move(rows, at)
        self.doubt(rows, over)
        return numbers

    def _longer(self, rows: Some, at: Rows, value: npt.NDArray[np.uint64], longer: Rows, over: Mask, most: int) -> None:
        """Read the bytes after the first of these, changing positions, values and failures in place."""
        end = self.end[rows]
        for index in range(1, most):
            here = at[longer]
            past = here >= end[longer]
            each = self.data[here]
            if index == 9:
                past |= each > 1  # beyond 64 bits
            if past.any():
                over[longer[past]] = True
                longer, each = longer[~past], each[~past]
            at[longer] += 1
            value[longer] |= (each & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * index)
            longer = longer[each > 0x7F]
            if not len(longer):
                return
        over[longer] = True

    def sized(self, rows: Some) -> tuple[Rows, Rows]:
        """Read a length and move behind that many bytes; return where they start and end."""
        sizes = self.varint(rows)
        return self.skip(rows, np.where(sizes < 0, np.iinfo(np.int64).max // 2, sizes))

    def one_byte(self, rows: Some) -> Bytes:
        """Read one byte of each payload."""
        starts, _ = self.skip(rows, 1)
        found: Bytes = self.data[starts]
        return found

    def words(self, at: Rows, kind: str) -> npt.NDArray[np.generic]:
        """Return the words of a numpy type such as `<f8` at these positions, which need not be aligned."""
        size = np.dtype(kind).itemsize
        view = np.ndarray((len(self.data) - size + 1,), kind, self.data, strides=(1,))
        found: npt.NDArray[np.generic] = view[at]
        return found

    def slices(self, starts: Rows, ends: Rows) -> pa.BinaryArray:
        """Return the bytes between ascending positions: one copy, by Arrow."""
        count = len(starts)
        if not count:
            return pa.array([], pa.binary())
        offsets = np.empty(2 * count, dtype=np.int32)
        offsets[0::2], offsets[1::2] = starts, ends
        every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), self._buffer])
        return every.take(pa.array(np.arange(0, 2 * count - 1, 2)))

    def finish(self) -> Rows:
        """Return the places of the payloads that the scalar decoder must judge, those with bytes left among them."""
        return np.flatnonzero(self.doubtful | (self.at != self.end)).astype(np.int64)
