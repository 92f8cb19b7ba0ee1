"""Adds up rows of the minute tables in the latest slots of time. Pure: Arrow data in, a Series out; it reads no clock.

Bounded: a fixed number of slots, and only games with a report in them, each with a line for each group that had it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from listeners.minutes.writers import Writers
from listeners.series import BUCKETS, FloatArray, IntArray, Series, by_game
from listeners.status import Status

_SUMS: Final = {"rows": "rows", "caught_up": "caught_up_rows", "refused": "refused", "commits": "commits"}
_SEVERITIES: Final[Mapping[str, int]] = {status: status.severity for status in Status}
_UNKNOWN: Final = Status.UNKNOWN.severity  # a status that only a newer version has
_ROOM: Final = 64  # games and groups for which there is room at first
_INGEST: Final = "ingest"


class Window:
    """The sums of the latest slots.

    Args:
        slot_seconds: the width of a slot.
        slots: how many there are.
        replaced_at: Unix seconds: since when the tables are other ones than those that were read before; None: never.
    """

    def __init__(self, slot_seconds: int, slots: int, replaced_at: float | None = None) -> None:
        self._slot_seconds, self._slots, self._replaced_at = slot_seconds, slots, replaced_at
        self._first: int | None = None  # slots since 1970 before the first one here
        self._places: dict[tuple[str, str], int] = {}  # of (game, group) in the arrays
        self._newest: list[tuple[int, int, int]] = []  # of each place: the latest report's slot, and when it came
        self._came = 0  # how often rows came
        self._arrays = _empty(_ROOM, slots)
        self._ingest: FloatArray = np.full((3, slots), np.nan)  # rows, refused, largest backlog
        self._cpu: dict[tuple[str, str], FloatArray] = {}  # by kind and name of a driver: CPU seconds, measured ones
        self._partly: dict[tuple[str, str], int] = {}  # drivers measured in part, and the latest slot of that
        self._writers, self._ingest_writers = Writers(), Writers()

    @property
    def since(self) -> float:
        """Unix seconds: the beginning of the first slot; nothing older is kept."""
        return (self._first or 0) * self._slot_seconds

    def move(self, until: float) -> None:
        """Forget what lies before the slots of which the last one has the moment before `until` (Unix seconds)."""
        first = -int(-until // self._slot_seconds) - self._slots
        if self._first is not None and first > self._first:
            self._shift(min(first - self._first, self._slots))
        if self._first is None or first > self._first:
            self._first = first

    def add_streams(self, rows: pa.Table) -> None:
        """Add rows of the table `stream_minute`; those outside of the slots are left out."""
        slots, inside = self._slots_of(rows)
        rows, slots = rows.filter(pa.array(inside)), slots[inside]
        if not rows.num_rows:
            return
        self._writers.add(rows)
        lines, at = self._lines_of(rows, slots), self._arrays
        flat = lines * self._slots + slots
        for name, column in _SUMS.items():
            np.add.at(at[name].reshape(-1), flat, _numbers(rows, column, 0))
        np.fmax.at(at["backlog"].reshape(-1), flat, _numbers(rows, "backlog_age_seconds", np.nan))
        codes, values = encoded(rows["status"])
        ranks = np.array([-1 if each is None else _SEVERITIES.get(each, _UNKNOWN) for each in values], np.int64)
        np.maximum.at(at["status"].reshape(-1), flat, ranks[codes])
        counted, counts = _counts(rows["latency_counts"])
        _add_rows(at["counts"].reshape(-1, BUCKETS), flat[counted], counts)

    def add_ingest(self, rows: pa.Table) -> None:
        """Add rows of the table `ingest_minute`; those outside of the slots are left out."""
        slots, inside = self._slots_of(rows)
        rows, slots = rows.filter(pa.array(inside)), slots[inside]
        self._ingest_writers.add(rows, _INGEST)
        for sums, column in zip(self._ingest, ("rows", "refused"), strict=False):
            sums[slots] = np.nan_to_num(sums[slots])
            np.add.at(sums, slots, _numbers(rows, column, 0))
        np.fmax.at(self._ingest[2], slots, _numbers(rows, "backlog_age_seconds", np.nan))

    def add_processes(self, rows: pa.Table) -> None:
        """Add rows of the table `process_minute`; those outside of the slots are left out."""
        slots, inside = self._slots_of(rows)
        columns = [rows[name].to_pylist() for name in ("kind", "name", "cpu_seconds", "measured_seconds", "is_whole")]
        for slot, is_inside, kind, name, cpu, measured, is_whole in zip(
            slots.tolist(), inside.tolist(), *columns, strict=True
        ):
            if is_inside and is_whole:
                sums = self._cpu.setdefault((kind, name), np.zeros((2, self._slots)))
                sums[:, slot] += cpu or 0.0, measured or 0.0
            elif is_inside:
                self._partly[kind, name] = max(slot, self._partly.get((kind, name), 0))

    def series(self, slots: int, until: float) -> Series:
        """Return the last `slots` slots, of which the minutes before `until` (Unix seconds) are closed."""
        begin = self._slots - slots
        kept = {name: array[: len(self._places), begin:] for name, array in self._arrays.items()}
        reported = _reported(kept)
        order = [line for line in sorted(self._places) if reported[self._places[line]]]
        at = [self._places[line] for line in order]
        arrays = {name: _fixed(array[at]) for name, array in kept.items()}
        ingest = _fixed(self._ingest[:, begin:].copy())
        since = self.since + begin * self._slot_seconds
        partial = self._writers.partial(since, self._slot_seconds, slots, until)
        partial_events = self._ingest_writers.partial(since, self._slot_seconds, slots, until).get(_INGEST)
        lines = Series(
            since=since,
            slot_seconds=self._slot_seconds,
            games=tuple(game for game, _ in order),
            groups=tuple(group for _, group in order),
            events=ingest[0],
            refused_early=ingest[1],
            source_backlog=ingest[2],
            until=until,
            replaced_at=self._replaced_at,
            partial={group: _fixed(marked) for group, marked in partial.items()},
            partial_events=None if partial_events is None else _fixed(partial_events),
            cores={
                process: _fixed(np.divide(cpu, measured, out=np.full(slots, np.nan), where=measured > 0))
                for process, (cpu, measured) in ((each, sums[:, begin:]) for each, sums in self._cpu.items())
                if measured.any()
            },
            partly_measured=frozenset(process for process, latest in self._partly.items() if latest >= begin),
            **arrays,
        )
        return by_game(lines, [self._newest[each] for each in at])

    def _slots_of(self, rows: pa.Table) -> tuple[IntArray, NDArray[np.bool_]]:
        """Return each row's slot, counted from the first one here, and whether it is one of ours."""
        micros = pc.cast(rows["minute"], pa.int64()).to_numpy()
        slots: IntArray = micros // (self._slot_seconds * 1_000_000) - (self._first or 0)
        return slots, (slots >= 0) & (slots < self._slots)

    def _lines_of(self, rows: pa.Table, slots: IntArray) -> IntArray:
        """Return each row's place in the arrays; a new game, or one in a new group, gets one."""
        game_codes, games = encoded(rows["game_key"])
        group_codes, groups = encoded(rows["cluster_group"])
        codes = game_codes * len(groups) + group_codes
        # Of each line the row of its latest slot: the order sorts by line, then by slot.
        order = np.lexsort((slots, codes))
        last = order[np.flatnonzero(np.append(codes[order][1:] != codes[order][:-1], True))]
        places: IntArray = np.zeros(len(games) * len(groups), np.int64)
        self._came += 1
        for row in last.tolist():
            line = games[game_codes[row]], groups[group_codes[row]] or ""
            place = places[codes[row]] = self._places.setdefault(line, len(self._places))
            newest = (int(slots[row]), self._came, row)
            if place == len(self._newest):
                self._newest.append(newest)
            else:
                self._newest[place] = max(self._newest[place], newest)
        room = len(self._arrays["rows"])
        if len(self._places) > room:
            more = _empty(max(len(self._places) - room, room), self._slots)
            self._arrays = {name: np.concatenate([array, more[name]]) for name, array in self._arrays.items()}
        found: IntArray = places[codes]
        return found

    def _shift(self, slots: int) -> None:
        """Drop the oldest slots, and the lines that then have no report."""
        whole = {name: array[: len(self._places), slots:] for name, array in self._arrays.items()}
        at = np.flatnonzero(_reported(whole))
        arrays = _empty(max(len(at), _ROOM), self._slots)
        for name, array in arrays.items():
            array[: len(at), : self._slots - slots] = whole[name][at]
        self._arrays = arrays
        lines, newest = list(self._places), self._newest
        self._places = {lines[old]: new for new, old in enumerate(at.tolist())}
        self._newest = [(newest[old][0] - slots, *newest[old][1:]) for old in at.tolist()]
        ingest: FloatArray = np.full_like(self._ingest, np.nan)
        ingest[:, : self._slots - slots] = self._ingest[:, slots:]
        self._ingest = ingest
        none = np.zeros((2, slots))
        cpu = {process: np.concatenate([sums[:, slots:], none], axis=1) for process, sums in self._cpu.items()}
        self._cpu = {process: sums for process, sums in cpu.items() if sums[1].any()}
        partly = {process: latest - slots for process, latest in self._partly.items()}
        self._partly = {process: latest for process, latest in partly.items() if latest >= 0}
        for writers in (self._writers, self._ingest_writers):
            writers.forget(self.since + slots * self._slot_seconds)


def encoded(column: pa.ChunkedArray) -> tuple[IntArray, Sequence[Any]]:
    """Return a column as codes and their values; null is a value."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode("encode")
    one = column.unify_dictionaries().combine_chunks()
    one = one.chunk(0) if isinstance(one, pa.ChunkedArray) else one
    values = [*one.dictionary.to_pylist(), None]
    return pc.fill_null(one.indices, len(values) - 1).to_numpy(zero_copy_only=False).astype(np.int64), values


def _empty(lines: int, slots: int) -> dict[str, Any]:
    shape = (lines, slots)
    sums: dict[str, Any] = {name: np.zeros(shape, np.int64) for name in _SUMS}
    return sums | {
        "counts": np.zeros((*shape, BUCKETS), np.int64),
        "backlog": np.full(shape, np.nan),
        "status": np.full(shape, -1, np.int64),
    }


def _reported(arrays: dict[str, Any]) -> NDArray[np.bool_]:
    """Return which lines had a report in these slots."""
    known = (arrays["status"] >= 0) | (arrays["rows"] > 0) | (arrays["refused"] > 0) | (arrays["commits"] > 0)
    answer: NDArray[np.bool_] = known.any(axis=1)
    return answer


def _numbers(rows: pa.Table, name: str, missing: float) -> NDArray[Any]:
    numbers: NDArray[Any] = pc.fill_null(rows[name], missing).to_numpy()
    return numbers


def _counts(column: pa.ChunkedArray) -> tuple[IntArray, IntArray]:
    """Return which rows have latency counts, and these; another number of buckets is another version's."""
    is_ours = pc.fill_null(pc.equal(pc.list_value_length(column), BUCKETS), False)
    counted = np.flatnonzero(is_ours.to_numpy())
    if not len(counted):
        return counted, np.zeros((0, BUCKETS), np.int64)
    values = column.take(pa.array(counted)).combine_chunks().flatten()
    return counted, values.to_numpy(zero_copy_only=False).reshape(-1, BUCKETS).astype(np.int64)


def _add_rows(sums: IntArray, at: IntArray, more: IntArray) -> None:
    """Add each row of numbers to the row of `sums` that it belongs to; faster than `np.add.at` for whole rows."""
    if not len(at):
        return
    order = np.argsort(at, kind="stable")
    places = at[order]
    begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
    sums[places[begins]] += np.add.reduceat(more[order], begins, axis=0)


def _fixed(array: Any) -> Any:
    """Forbid changes: all viewers share it."""
    array.flags.writeable = False
    return array
