"""The table of games as Arrow: few bytes, numbers as texts for people, trends as whole numbers.

Pure. An unknown value is null, which the table shows as a dash.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from app import formatting
from app.fleet.incidents import reason
from listeners.series import FloatArray, IntArray, Series
from pipeline.signals.incidents import Incident
from pipeline.store.fleet import Fleet, GameRow

MOST: Final = 300
"""Most rows on screen: a thousand with their trends would be 230 kB."""

POINTS: Final = 20
"""Most points of a trend."""

_LEAST_POINTS: Final = 2  # fewer are no line

_LONGEST: Final = 160  # characters of a cause
_MOST_SECONDS: Final = int(np.iinfo(np.int16).max)


def table(
    fleet: Fleet,
    rows: Sequence[GameRow],
    labels: Mapping[str, str],
    series: Series | None,
    incidents: Sequence[Incident] | None,
) -> pa.Table:
    """Return a line per game in the order given; without a series there are no trends."""
    now = fleet.read_at
    findings = {key: each.finding for each in incidents or () if each.ended_at is None for key in each.games}
    live = [row.live for row in rows]
    reported = [row.reported for row in rows]
    found = [findings.get(row.game_key) for row in rows]
    places = _places(series, rows)
    columns = {
        "status": _pills([formatting.status_text(row.verdict.status) for row in rows]),
        "game": pa.array([labels[row.game_key] for row in rows], pa.string()),
        "group": _texts([None if row.group is None else formatting.shown(row.group, 40) for row in rows]),
        "since": _texts([_ago(row.verdict.since, now) for row in rows]),
        "backlog": _texts([_duration(row.lag_seconds) for row in rows]),
        "backlog_trend": _trends(None if series is None else _backlogs(series), places, pa.int16()),
        "p99": _texts([None if each is None else _duration(each.latency_p99_seconds) for each in live]),
        "rows": _texts([None if each is None else _rate(each.rows_per_second) for each in live]),
        "rows_trend": _trends(None if series is None else _landed(series), places, pa.int32()),
        "commit": _texts([None if each is None else _ago(each.last_commit_at, now) for each in reported]),
        "cause": _texts(
            [
                formatting.shown(finding.title, _LONGEST) if finding is not None else _why(row)
                for row, finding in zip(rows, found, strict=True)
            ]
        ),
        "next": _texts(
            [
                formatting.shown(finding.action.label, 40) if finding is not None and finding.action else None
                for finding in found
            ]
        ),
    }
    return pa.table(columns)


def _why(row: GameRow) -> str | None:
    why = reason(row)
    return None if why is None else formatting.shown(why, _LONGEST)


def _texts(values: Sequence[str | None]) -> pa.Array:
    return pa.array(values, pa.string())


def _pills(words: Sequence[str]) -> pa.Array:
    return pa.ListArray.from_arrays(np.arange(len(words) + 1, dtype=np.int32), pa.array(words, pa.string()))


def _ago(at: float | None, now: float) -> str | None:
    """Return how long ago it was; a moment ahead of the store's clock has no age."""
    return None if at is None or at > now + 1 else formatting.age(now - at)


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else formatting.duration(seconds)


def _rate(value: float | None) -> str | None:
    return None if value is None else formatting.rate(value)


def _places(series: Series | None, rows: Sequence[GameRow]) -> list[int | None]:
    place = {} if series is None else {key: number for number, key in enumerate(series.games)}
    return [place.get(row.game_key) for row in rows]


def _starts(series: Series) -> IntArray:
    """Return where the slots of each point begin."""
    return np.unique(np.linspace(0, series.slots, POINTS, endpoint=False).astype(np.int64))


def _backlogs(series: Series) -> FloatArray:
    """Return per game the largest backlog of each point in seconds; nan where nobody knew it."""
    folded: FloatArray = np.fmax.reduceat(series.backlog, _starts(series), axis=1)
    return np.minimum(folded, _MOST_SECONDS)


def _landed(series: Series) -> FloatArray:
    """Return per game the rows a minute that landed in each point; nan where its driver did not report."""
    starts = _starts(series)
    rows = np.add.reduceat(series.rows, starts, axis=1)
    seconds = np.add.reduceat(series.known * series.seconds, starts, axis=1)
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
