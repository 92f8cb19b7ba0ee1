"""Reads the items of arrays and maps from many payloads at once: the first of each, then the second, and so on."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Rows
from pipeline.data.contracts.formats.avro.cursor import Cursor, Some


@dataclass(frozen=True, slots=True)
class Items:
    """The items of each payload, one behind the other."""

    offsets: pa.Int32Array  # where those of each payload begin, and where the last ones end
    owners: Rows  # which of the payloads each item belongs to
    members: tuple[pa.Array, ...]  # an array of items, or of keys and one of values


def read_items(cursor: Cursor, rows: Some, read: Callable[[Some], tuple[pa.Array, ...]]) -> Items:
    """Read the blocks of an array or map; `read` reads one item of these payloads."""
    blocks = _Blocks(cursor, rows)
    owners: list[Rows] = []
    parts: list[tuple[pa.Array, ...]] = []
    while len(active := blocks.begin()):
        parts.append(read(blocks.some(active)))
        owners.append(active)
        blocks.left[active] -= 1
    if not parts:
        parts, owners = [read(np.empty(0, dtype=np.int64))], [np.empty(0, dtype=np.int64)]
    every, members = owners[0], parts[0]
    if len(parts) > 1:
        every = np.concatenate(owners)
        order = np.argsort(every, kind="stable")
        every, taken = every[order], pa.array(order)
        members = tuple(pa.concat_arrays(each).take(taken) for each in zip(*parts, strict=True))
    offsets = np.zeros(cursor.count(rows) + 1, dtype=np.int32)
    np.cumsum(np.bincount(every, minlength=cursor.count(rows)), out=offsets[1:])
    return Items(pa.array(offsets), every, members)


def skip_weightless(cursor: Cursor, rows: Some) -> None:
    """Read the blocks of an array whose items have no bytes; only their number in a payload has a limit."""
    blocks = _Blocks(cursor, rows)
    while len(active := blocks.begin()):
        counts = np.minimum(blocks.left[active], MAX_PAYLOAD_BYTES + 1)
        places = blocks.places[active]
        cursor.weightless[places] += counts
        cursor.doubt(places, cursor.weightless[places] > MAX_PAYLOAD_BYTES)
        blocks.left[active] = 0


class _Blocks:
    """How many items are left in the present block of each payload's array."""

    def __init__(self, cursor: Cursor, rows: Some) -> None:
        self.places = cursor.places(rows)
        self.left: npt.NDArray[np.int64] = np.zeros(len(self.places), dtype=np.int64)
        self._cursor = cursor
        self._rows = rows
        self._active: Rows = np.arange(len(self.places))
        self._ends: Rows = np.full(len(self.places), -1)  # of blocks that state their size

    def some(self, active: Rows) -> Some:
        """Return which payloads of the cursor these are."""
        return self._rows if len(active) == len(self.places) else self.places[active]

    def begin(self) -> Rows:
        """Return which of the payloads have one more item; a step that does not pay is left to the scalar decoder."""
        ended = self._active[self.left[self._active] == 0]
        if len(ended):
            self._next_block(ended)
        active = self._active
        self._active = active = active[(self.left[active] > 0) & ~self._cursor.doubtful[self.places[active]]]
        if len(active) and not self._cursor.allows(len(active)):
            self._cursor.doubt(self.places[active], np.ones(len(active), dtype=np.bool_))
            self._active = active[:0]
        return self._active

    def _next_block(self, ended: Rows) -> None:
        cursor, some = self._cursor, self.some(ended)
        ends = self._ends[ended]
        cursor.doubt(some, (ends >= 0) & (ends != cursor.at[some]))
        counts = cursor.varint(some)
        ends = np.full(len(ended), -1)
        sized = np.flatnonzero(counts < 0)
        if len(sized):
            places = self.places[ended[sized]]
            sizes = cursor.varint(places)
            ends[sized] = cursor.at[places] + np.minimum(sizes, cursor.end[places])
            counts[sized] = -counts[sized]
            cursor.doubt(places, (sizes < 0) | (counts[sized] < 0))
        self.left[ended] = counts
        self._ends[ended] = ends
