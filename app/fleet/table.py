"""The table of games as Arrow: few bytes, numbers as texts for people, trends as whole numbers.

Pure. An unknown value is null, which the table shows as a dash.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from app import formatting
from app.fleet.incidents import reason
from app.look import trends
from listeners.series import Series
from pipeline.base.texts import complete_through
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.incidents.incidents import Incident

MOST: Final = 300
"""Most rows on screen: a thousand with their trends would be 230 kB."""

_LONGEST: Final = 160  # characters of a cause


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
    keys = [row.game_key for row in rows]
    columns = {
        "status": _pills([formatting.status_text(row.verdict.status) for row in rows]),
        "game": pa.array([labels[row.game_key] for row in rows], pa.string()),
        "group": _texts([None if row.group is None else formatting.shown(row.group, 40) for row in rows]),
        "since": _texts([_ago(row.verdict.since, now) for row in rows]),
        "backlog": _texts([_duration(row.lag_seconds) for row in rows]),
        "backlog_trend": trends.backlogs(series, keys),
        "p99": _texts([None if each is None else _duration(each.latency_p99_seconds) for each in live]),
        "rows": _texts([None if each is None else _rate(each.rows_per_second) for each in live]),
        "rows_trend": trends.landed(series, keys),
        "commit": _texts([None if each is None else _ago(each.last_commit_at, now) for each in reported]),
        "through": _texts([_through(row.through_at, now) for row in rows]),
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


def _through(at: float | None, now: float) -> str | None:
    """Return up to when a game is complete, and how far that is behind."""
    found = complete_through(at, now)
    return None if found is None else f"{found[0]} · {found[1]}"


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else formatting.duration(seconds)


def _rate(value: float | None) -> str | None:
    return None if value is None else formatting.rate(value)
