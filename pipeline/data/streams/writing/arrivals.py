"""When the landed rows of each game and bronze commit came into the source: part of an executor's work. Pure."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.health.verdicts.latency import Arrival
from pipeline.lake.delta.bronze import whole

_MOST_MICROS: Final = np.iinfo(np.int64).max
_MOST_UPSTREAM_MICROS: Final = 86_400e6  # an event that is a day older was sent again, or its clock is wrong


def arrivals(games: np.ndarray, table: pa.Table) -> Iterator[tuple[int, Arrival]]:
    """Yield each game with its rows of one bronze commit, where the source time of any is known.

    Args:
        games: each row's game, as a number.
        table: the rows in their table's columns, ordered by game and seq, so that each pair is one run of rows.
    """
    if not table.num_rows:
        return
    seqs = table.column("_seq").to_numpy()
    is_first = np.ones(len(seqs), dtype=bool)
    is_first[1:] = (games[1:] != games[:-1]) | (seqs[1:] != seqs[:-1])
    firsts = np.flatnonzero(is_first)
    times, known = _micros(table.column("_source_time"))
    events, dated = _micros(table.column("_event_time"))
    late = times - events.astype(np.float64)  # a payload's time may be anything: floats do not overflow
    counted = known & dated & (np.abs(late) <= _MOST_UPSTREAM_MICROS)
    of_runs = (
        games[firsts],
        seqs[firsts],
        np.add.reduceat(known, firsts, dtype=np.int64),
        np.minimum.reduceat(np.where(known, times, _MOST_MICROS), firsts) / 1e6,
        np.maximum.reduceat(np.where(known, times, -_MOST_MICROS), firsts) / 1e6,
        np.add.reduceat(np.where(counted, np.maximum(late, 0.0), 0.0), firsts) / 1e6,
        np.add.reduceat(counted, firsts, dtype=np.int64),
    )
    for game, *numbers in zip(*(each.tolist() for each in of_runs), strict=True):
        arrival = Arrival(*numbers)
        if arrival.rows:
            yield game, arrival


def _micros(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return times in microseconds, 0 for null, and which are not null."""
    times = whole(column).cast(pa.int64())
    if not times.null_count:
        return times.to_numpy(), np.ones(len(times), dtype=bool)
    return pc.fill_null(times, 0).to_numpy(zero_copy_only=False), pc.is_valid(times).to_numpy(zero_copy_only=False)
