"""Which rows are second ones of an event: a kept row with their id lies within W of their source time."""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.lake.delta import parquet

Id: TypeAlias = str | bytes | int

TIME: Final = "_source_time"
_BATCH_ROWS: Final = 65_536


class KeptRows:
    """The source times of kept rows by id, in microseconds: as many as lie near the rows of one chunk."""

    def __init__(self, within: int) -> None:
        """Compare rows by source times that are at most `within` microseconds apart."""
        self._within = within
        self._kept: dict[Id, list[int]] = {}

    def read(
        self, files: Sequence[str], column: pa.Field, ids: Sequence[Id | None], times: Sequence[int | None]
    ) -> None:
        """Read the kept rows in files that some rows, given with ids and times, may be second ones of.

        `column` has the ids in the files.
        """
        wanted: dict[Id, list[int]] = {}
        for each, at in zip(ids, times, strict=True):
            if each is not None and at is not None:
                wanted.setdefault(each, []).append(at)
        if not files or not wanted:
            return
        for near in wanted.values():
            near.sort()
        first = min(near[0] for near in wanted.values()) - self._within
        last = max(near[-1] for near in wanted.values()) + self._within
        known = pa.array(list(wanted), column.type)
        for own, at in _ids_in(files, column):
            may = pc.and_(pc.greater_equal(at, first), pc.less_equal(at, last))
            may = pc.and_(may, pc.is_in(own, known))
            found = own.filter(may).to_pylist(), at.filter(may).to_pylist()
            for each, kept_at in zip(*found, strict=True):
                if _near(wanted[each], kept_at, self._within):
                    self.know(each, kept_at)

    def know(self, each: Id, at: int) -> None:
        """Count with a kept row, by its id and time."""
        insort(self._kept.setdefault(each, []), at)

    def keep(self, rows: Iterable[tuple[Id | None, int | None]]) -> list[bool]:
        """Return for each row, given by id and time in order, whether it is kept; a missing id matches nothing."""
        kept = []
        for each, at in rows:
            if each is None or at is None:
                kept.append(True)
                continue
            others = self._kept.setdefault(each, [])
            kept.append(not _near(others, at, self._within))
            if kept[-1]:
                insort(others, at)
        return kept


def kept_rows(files: Sequence[str], column: pa.Field, first: float) -> Iterator[tuple[list[Id | None], list[int]]]:
    """Yield ids and source times of the kept rows in files that are not before a time, some rows at once."""
    for own, at in _ids_in(files, column):
        chosen = pc.greater_equal(at, math.ceil(first))
        yield own.filter(chosen).to_pylist(), at.filter(chosen).to_pylist()


def _ids_in(files: Sequence[str], column: pa.Field) -> Iterator[tuple[pa.Array, pa.Array]]:
    if not files:
        return
    held = pa.schema([column, (TIME, pa.timestamp("us", "UTC"))])
    scanner = parquet.dataset(files, held).scanner(batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=2)
    for batch in scanner.to_batches():
        yield batch.column(column.name), batch.column(TIME).cast(pa.int64())


def _near(times: Sequence[int], at: int, within: int) -> bool:
    """Return whether one of these times, which are in order, lies within reach."""
    first = bisect_left(times, at - within)
    return first < len(times) and times[first] <= at + within
