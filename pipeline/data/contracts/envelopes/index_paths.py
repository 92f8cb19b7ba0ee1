"""Confluent's message-index paths, which name the message of a protobuf payload. Pure, vectorised, called in tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.data.contracts.decoded import Refusal
from pipeline.data.contracts.envelopes.spans import (
    Flags,
    Places,
    between,
    content,
    first_bytes,
    nulled,
    starts_and_ends,
)

MAX_INDEXES: Final = 32
"""Most steps of a message-index path: one for each level of nested messages."""

_MAX_INDEX: Final = 2**31 - 1
_VARINT_BYTES: Final = 5  # hold 32 bits


@dataclass(frozen=True, slots=True)
class IndexPaths:
    """The message-index paths at the beginning of Confluent's protobuf bodies."""

    paths: pa.BinaryArray  # canonical, see `path_bytes`; null where bad
    rests: pa.BinaryArray  # what follows: the message; null where bad
    bad: list[Refusal]


def path_bytes(indexes: Sequence[int]) -> bytes:
    """Return a message-index path as Confluent's client writes it: count and indexes in zigzag, [0] as one byte 0."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(2 * number) for number in (len(indexes), *indexes))


def index_path(bodies: pa.BinaryArray) -> IndexPaths:
    """Read the message-index path at the beginning of each body. Long spellings of a path give its canonical bytes."""
    starts, ends = starts_and_ends(bodies)
    data = content(bodies)
    first = first_bytes(bodies, starts, ends)
    after = np.where(first == 0, starts + 1, starts)
    rows = np.flatnonzero(first != 0)
    good = np.ones(len(bodies), np.bool_)
    after[rows], good[rows] = _after_paths(data, starts[rows], ends[rows])
    after = np.where(good, after, starts)
    spelled = between(bodies, starts, after).dictionary_encode()
    canonical = [canonical_path(each) if each else None for each in spelled.dictionary.to_pylist()]
    bad = np.flatnonzero(~good).tolist()
    paths = pa.array(canonical, pa.binary()).take(spelled.indices)
    detail = f"no message-index path: a count of 1 to {MAX_INDEXES} and as many indexes"
    return IndexPaths(
        paths, nulled(between(bodies, after, ends), bad), [Refusal(row, "malformed_framing", detail) for row in bad]
    )


def _after_paths(data: npt.NDArray[np.uint8], starts: Places, ends: Places) -> tuple[Places, Flags]:
    """Return where the paths end, and which of them are good."""
    counts, places, good = _varints(data, starts, ends)
    good &= (counts % 2 == 0) & (counts <= 2 * MAX_INDEXES)
    left = np.where(good, np.maximum(counts // 2, 0), 0)
    while (rows := np.flatnonzero(left)).size:
        indexes, places[rows], fine = _varints(data, places[rows], ends[rows])
        good[rows] = fine & (indexes % 2 == 0) & (indexes <= 2 * _MAX_INDEX)  # an odd one is negative
        left[rows] = np.where(good[rows], left[rows] - 1, 0)
    return places, good


def _varints(data: npt.NDArray[np.uint8], places: Places, ends: Places) -> tuple[Places, Places, Flags]:
    """Return the numbers at these places, where they end, and which ended inside of their row."""
    numbers, places = np.zeros(len(places), np.int64), places.copy()
    open_, good = np.ones(len(places), np.bool_), np.zeros(len(places), np.bool_)
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        rows = np.flatnonzero(open_ & (places < ends))
        read = data[places[rows]].astype(np.int64)
        numbers[rows] |= (read & 0x7F) << shift
        places[rows] += 1
        last = rows[read < 0x80]
        open_[last], good[last] = False, True
    return numbers, places, good


def canonical_path(spelled: bytes) -> bytes | None:
    """Return the canonical bytes of a path; None for bytes that are none, or more than one."""
    if spelled == b"\0":
        return spelled
    data, end = np.frombuffer(spelled or b"\0", np.uint8), np.array([len(spelled)])
    after, good = _after_paths(data, np.zeros(1, np.int64), end)
    if not good[0] or after[0] != len(spelled):
        return None
    numbers, place = [], np.zeros(1, np.int64)
    while place[0] < len(spelled):
        number, place, _ = _varints(data, place, end)
        numbers.append(int(number[0]) // 2)
    return path_bytes(numbers[1:] or [0])  # no indexes are the first message


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
