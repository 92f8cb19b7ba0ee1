"""The ids of kept rows, in memory, so that a commit of silver reads none of its own files for them.

They are those of the position that the next commit expects, and of no other one: a step from another position drops
them and reads the files again, so memory decides nothing that the files would not. All tables of a process share one
room; a table without a place in it reads its files.
"""

import hashlib
import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.data.derived.kept import Id, KeptRows

MOST_BYTES: Final = 128 * 1024 * 1024
"""Bytes of ids that one process holds, of all its silver tables: some 5 million rows."""

_ROW_BYTES: Final = 24  # 128 bits of an id, and a time
_BATCH_IDS: Final = 65_536

Position: TypeAlias = tuple[str, int, int, int]
"""The silver table's id, its generation, its cursor, and the number of the attempt that moved it there."""

Rows: TypeAlias = tuple[Sequence[Id | None], Sequence[int | None]]
"""Ids and source times in microseconds of as many rows."""


class IdRoom:
    """What all silver tables of a process may hold."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """Begin empty."""
        self._most, self._sum, self._turns = most_bytes, 0, count(1)
        self._sizes: dict[HeldIds, int] = {}  # the table whose turn is the longest ago first

    @property
    def bytes_held(self) -> int:
        """How much all tables hold."""
        return self._sum

    def turn(self, ids: "HeldIds") -> int:
        """Return the number of a table's turn, and note that it is its last one."""
        if ids in self._sizes:
            self._sizes[ids] = self._sizes.pop(ids)
        return next(self._turns)

    def take(self, ids: "HeldIds", size: int, since: int) -> bool:
        """Let a table hold this many bytes; return whether there is room.

        To make room, tables leave that had no turn since this one's last. Hence tables that are too large together
        do not drive out each other in turn.
        """
        self.leave(ids)
        for other in list(self._sizes):
            if self._sum + size <= self._most or other.last_turn >= since:
                break
            other.drop()
        if self._sum + size > self._most:
            return False
        self._sizes[ids] = size
        self._sum += size
        return True

    def leave(self, ids: "HeldIds") -> None:
        """Free what a table holds."""
        self._sum -= self._sizes.pop(ids, 0)


@dataclass(frozen=True, slots=True)
class SilverMemory:
    """How much a silver table holds in memory."""

    step_rows: int  # most rows of one chunk
    ids: IdRoom = field(default_factory=lambda: IdRoom(0))  # for ids of kept rows; without room files are read


@dataclass(frozen=True, slots=True)
class _Run:
    """Some kept rows, in the order of the first half of their ids' digests."""

    first: npt.NDArray[np.uint64]
    second: npt.NDArray[np.uint64]
    times: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.first)

    def of(self, chosen: npt.NDArray[np.bool_]) -> "_Run":
        return _Run(self.first[chosen], self.second[chosen], self.times[chosen])


class HeldIds:
    """The ids of one silver table."""

    def __init__(self, room: IdRoom, within: int) -> None:
        """Hold them in a room; rows are compared by times that are at most `within` microseconds apart."""
        self._room, self._within = room, within
        self._key = secrets.token_bytes(16)  # so that nobody can make two ids with one digest
        self._position: Position | None = None  # None: nothing is known to be that of a position
        self._low = math.inf  # kept rows from this time on are held
        self._runs: list[_Run] = []
        self._since = self.last_turn = self._retry = 0

    def expect(self, position: Position | None) -> None:
        """Begin a step from a position, None: an unknown one. Ids of another, or of a step that failed, are dropped."""
        if position is None or self._position != position:
            self.drop()
        self._position = None  # until the step has ended well
        self._since, self.last_turn = self.last_turn, self._room.turn(self)

    def reached(self, position: Position) -> None:
        """End a step: what is held is now that of a position."""
        self._position = position

    def drop(self) -> None:
        """Hold nothing."""
        self._runs, self._low, self._position = [], math.inf, None
        self._room.leave(self)

    def fill(self, times: Sequence[int | None], files: Callable[[float], Iterable[Rows]]) -> None:
        """Hold what most rows of these times, of one chunk, are compared with.

        `files` reads all kept rows from a time on.
        """
        known = sorted(each for each in times if each is not None)
        if not known:
            return
        # Rows that are far behind the others are compared by the files: they would need much more to be held.
        first = max(known[len(known) // 20], known[len(known) // 2] - self._within) - self._within
        low = first - self._within // 4
        if self._low <= first:
            if self._low < low - self._within // 4:
                self._low = low
                self._runs = [run for each in self._runs if len(run := each.of(each.times >= low))]
            return
        self.drop()
        if self.last_turn < self._retry or not self._room.take(self, _ROW_BYTES, self._since):
            return
        self._low = low
        for ids, at in files(low):
            self.add(ids, at)
            if self._low == math.inf:  # they are too many, and will be so next time
                self._retry = self.last_turn + 30 * (self.last_turn - self._since)
                return

    def add(self, ids: Sequence[Id | None], times: Sequence[int | None]) -> None:
        """Hold further kept rows too."""
        if self._low == math.inf:
            return
        whole = [(each, at) for each, at in zip(ids, times, strict=True) if each is not None and at is not None]
        chosen = [(each, at) for each, at in whole if at >= self._low]
        for start in range(0, len(chosen), _BATCH_IDS):
            part = chosen[start : start + _BATCH_IDS]
            first, second = self._digests([each for each, _ in part])
            order = np.argsort(first, kind="stable")
            at = np.array([moment for _, moment in part], np.int64)
            self._runs.append(_Run(first[order], second[order], at[order]))
            while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
                self._runs.append(_merged(self._runs.pop(), self._runs.pop()))
        if not self._room.take(self, max(1, sum(map(len, self._runs))) * _ROW_BYTES, self._since):
            self.drop()

    def find(self, ids: Sequence[Id | None], times: Sequence[int | None], known: KeptRows) -> Rows:
        """Add the held rows with one of some ids to `known`; return the rows for which files have to be read."""
        held: Rows
        held, others = _parted(ids, times, self._low + self._within)
        names = list(dict.fromkeys(each for each in held[0] if each is not None))
        if names and self._runs:
            first, second = self._digests(names)
            for run in self._runs:
                begins, ends = (np.searchsorted(run.first, first, side) for side in ("left", "right"))
                for place in np.flatnonzero(begins < ends):
                    for at in range(begins[place], ends[place]):
                        if run.second[at] == second[place]:
                            known.know(names[place], int(run.times[at]))
        return others

    def _digests(self, ids: Sequence[Id]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        made = (hashlib.blake2b(_bytes_of(each), digest_size=16, key=self._key).digest() for each in ids)
        both = np.frombuffer(b"".join(made), np.uint64).reshape(-1, 2)
        return both[:, 0], both[:, 1]


def _bytes_of(each: Id) -> bytes:
    return each if isinstance(each, bytes) else str(each).encode()


def _parted(ids: Sequence[Id | None], times: Sequence[int | None], low: float) -> tuple[Rows, Rows]:
    """Return the rows with id and time from a time on, and those before it."""
    above: tuple[list[Id], list[int]] = ([], [])
    below: tuple[list[Id], list[int]] = ([], [])
    for each, at in zip(ids, times, strict=True):
        if each is not None and at is not None:
            chosen = above if at >= low else below
            chosen[0].append(each)
            chosen[1].append(at)
    return above, below


def _merged(one: _Run, other: _Run) -> _Run:
    first = np.concatenate([one.first, other.first])
    order = np.argsort(first, kind="stable")
    second, times = np.concatenate([one.second, other.second]), np.concatenate([one.times, other.times])
    return _Run(first[order], second[order], times[order])
