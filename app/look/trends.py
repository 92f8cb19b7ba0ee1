"""The trends of games in tables, as Arrow: few points, whole numbers, a list per game.

Pure. The table draws no gaps, as a list with one would be shown as text: a trend is the newest points known in a row.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from listeners.series import FloatArray, IntArray, Series

POINTS: Final = 20
"""Most points of a trend."""

_LEAST_POINTS: Final = 2  # fewer are no line
_MOST_SECONDS: Final = int(np.iinfo(np.int16).max)


def backlogs(series: Series | None, games: Sequence[str]) -> pa.Array:
    """Return the largest backlog of each point in seconds, a list per game; null where it is not known."""
    return _trends(
        None if series is None or not series.slots else _backlogs(series), _places(series, games), pa.int16()
    )


def landed(series: Series | None, games: Sequence[str]) -> pa.Array:
    """Return the rows a minute that landed in each point, a list per game; null where it is not known."""
    return _trends(None if series is None or not series.slots else _landed(series), _places(series, games), pa.int32())


def _places(series: Series | None, games: Sequence[str]) -> list[int | None]:
    place = {} if series is None else {key: number for number, key in enumerate(series.games)}
    return [place.get(key) for key in games]


def _starts(series: Series) -> IntArray:
    """Return where the slots of each point begin."""
    return np.unique(np.linspace(0, series.slots, POINTS, endpoint=False).astype(np.int64))


def _backlogs(series: Series) -> FloatArray:
    """Return per game the largest backlog of each point in seconds; nan where nobody knew it."""
    folded: FloatArray = np.fmax.reduceat(series.backlog, _starts(series), axis=1)
    return np.minimum(folded, _MOST_SECONDS)


def _landed(series: Series) -> FloatArray:
    """Return per game the rows a minute that landed in the slots of each point of which its driver reported all.

    nan where there is no such slot: a driver that was killed takes its report with it, and the next one reports 0.
    """
    starts, whole = _starts(series), series.whole
    rows = np.add.reduceat(series.rows * whole, starts, axis=1)
    seconds = np.add.reduceat(whole * series.seconds, starts, axis=1)
    a_minute: FloatArray = np.divide(60 * rows, seconds, out=np.full(rows.shape, np.nan), where=seconds > 0)
    return a_minute


def _trends(values: FloatArray | None, places: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Return a list of whole numbers per game: the newest points in a row that are known, null below two of them.

    The table draws no gaps: a list with one would be shown as text.
    """
    if values is None or not values.size:
        return pa.nulls(len(places), pa.list_(kind))
    width = values.shape[1]
    picked = values[[0 if place is None else place for place in places]]
    missing = np.isnan(picked)
    missing[[number for number, place in enumerate(places) if place is None]] = True
    from_the_end = np.argmax(missing[:, ::-1], axis=1)
    lengths = np.where(missing.any(axis=1), from_the_end, width)
    lengths[lengths < _LEAST_POINTS] = 0
    kept = np.arange(width) >= (width - lengths)[:, np.newaxis]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    whole = pa.array(picked[kept].round().astype(np.int64), pa.int64()).cast(kind)
    return pa.ListArray.from_arrays(pa.array(offsets), whole, mask=pa.array(lengths == 0))
