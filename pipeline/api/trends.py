"""The history of one game: its passes folded into a few points, so that a day draws as fast as a quarter of an hour.

`trend` is pure: a table and two moments in, values out.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from listeners import history
from listeners.metrics_schema import STATUS_EVENT, STREAM_BATCH, MetricsTable
from listeners.quantile import quantile
from listeners.sample import LATENCY_EDGES_SECONDS
from pipeline.base.errors import Refused, first_line
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.scratch import DatabaseError
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths

BINS: Final = 60
_MAX_TRANSITIONS: Final = 5_000  # of the whole fleet; beyond it the oldest are left out


@dataclass(frozen=True, slots=True)
class Point:
    """What the passes of one slice of time did; None where it is unknown."""

    at: float  # Unix seconds, the slice's end
    passes: int
    rows: int
    rejects: int
    latency_p95_seconds: float | None
    commit_seconds: float | None  # the slowest commit of the slice


@dataclass(frozen=True, slots=True)
class Trend:
    """One game's passes between two moments (Unix seconds)."""

    since: float
    until: float
    points: tuple[Point, ...]  # of the slices in which something was committed
    rows: int
    rejects: Mapping[str, int]  # refused rows by reason code, most first
    broken: Mapping[str, int]  # rows that break a rule of an output contract, by rule, landed or refused
    failed_passes: int  # passes that committed nothing and said why
    latency_seconds: tuple[float | None, float | None, float | None]  # p50, p95, p99

    @property
    def slice_seconds(self) -> float:
        """The width of one slice of time."""
        return (self.until - self.since) / BINS


def game_trend(paths: Paths, game_key: str, seconds: float) -> Trend:
    """Read what the passes of the last `seconds` did for a game.

    Raises:
        Refused: there is no history to read.
    """
    now = time.time()
    with _reading(paths.metrics, STREAM_BATCH):
        return trend(history.passes(paths.metrics, game_key, now - seconds), now - seconds, now)


def transitions(paths: Paths, seconds: float) -> pa.Table:
    """Read all games' changes of status in the last `seconds`, newest first.

    Raises:
        Refused: there is no history to read.
    """
    with _reading(paths.metrics, STATUS_EVENT):
        return history.transitions(paths.metrics, time.time() - seconds, _MAX_TRANSITIONS)


@contextmanager
def _reading(folder: Location, table: MetricsTable) -> Iterator[None]:
    """Turn a missing or unreadable history into a reason for people."""
    if not exists(folder / table.name):
        raise Refused("No history yet. It appears a few seconds after a cluster group's driver has started.")
    try:
        yield
    except (DeltaError, pa.ArrowException, DatabaseError, OSError) as error:
        raise Refused(
            f"The history cannot be read: {first_line(error)}. Streams are not affected. Check {folder}."
        ) from error


def trend(passes: pa.Table, since: float, until: float) -> Trend:
    """Fold the `history.passes` of one game between the two moments; rows of a failed pass come again later."""
    rows = passes.select(_COLUMNS).to_pylist()
    width = (until - since) / BINS
    slices: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if row["committed_at"] is not None:
            place = int((row["committed_at"].timestamp() - since) / width)
            slices.setdefault(min(BINS - 1, max(0, place)), []).append(row)
    kept = [row for members in slices.values() for row in members]
    counts = _summed(kept)
    reasons, broken = Counter[str](), Counter[str]()
    for row in kept:
        reasons.update(dict(row["reject_reasons"] or ()))
        broken.update(dict(row["broken"] or ()))
    return Trend(
        since=since,
        until=until,
        points=tuple(_point(since + (place + 1) * width, slices[place]) for place in sorted(slices)),
        rows=sum(row["rows"] for row in kept),
        rejects=dict(reasons.most_common()),
        broken=dict(broken.most_common()),
        failed_passes=sum(row["error"] is not None for row in rows),
        latency_seconds=(quantile(counts, 0.5), quantile(counts, 0.95), quantile(counts, 0.99)),
    )


_COLUMNS: Final = [
    "committed_at", "rows", "rejects", "reject_reasons", "broken", "latency_counts", "commit_seconds", "error",
]  # fmt: skip


def _point(at: float, members: list[dict[str, Any]]) -> Point:
    return Point(
        at=at,
        passes=len(members),
        rows=sum(row["rows"] for row in members),
        rejects=sum(row["rejects"] for row in members),
        latency_p95_seconds=quantile(_summed(members), 0.95),
        commit_seconds=max(row["commit_seconds"] for row in members),
    )


def _summed(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Add up the latency histograms of some passes, bucket by bucket."""
    none = [0] * (len(LATENCY_EDGES_SECONDS) + 1)
    return [sum(bucket) for bucket in zip(none, *(row["latency_counts"] for row in rows), strict=True)]
