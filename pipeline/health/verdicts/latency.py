"""How long landed rows took, which of them waited for a start or an outage to end, and in which segments. Pure.

Ingest and the drivers note their starts here; a pass measures each game's rows after their commit. Times are Unix
seconds.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from listeners.sample import LATENCY_EDGES_SECONDS, Segments
from pipeline.health.verdicts.status import PASS_LIMIT_SECONDS
from pipeline.store.rows import BronzeCommit

_NOWHERE: Final = -math.inf


class Start:
    """The last start of a reader of rows: from when on rows did not wait for it to begin reading.

    It lasts from the reader's start to the end of its first batch, but at most `PASS_LIMIT_SECONDS`, as a stream starts
    at most: what comes later and waits is late. Written by the reader's thread, read by others.
    """

    def __init__(self) -> None:
        """Note a reader that has not begun: all rows wait for it."""
        self._begun, self._ended = math.inf, math.inf

    def note(self, now: float) -> None:
        """Note that the reader was started, for the first time or again."""
        self._ended = math.inf
        self._begun = now

    def end(self, now: float) -> None:
        """Note the end of a batch; the first one after a start ends it."""
        self._ended = min(self._ended, now)

    @property
    def over_at(self) -> float:
        """When it was over, or will be at the latest; infinite before the reader has begun."""
        return min(self._ended, self._begun + PASS_LIMIT_SECONDS)


class Arrival(NamedTuple):
    """The landed rows of one game in one bronze commit whose source time is known."""

    seq: int
    rows: int
    oldest: float  # source time
    newest: float
    upstream_seconds: float = 0.0  # from event time to source time, summed over `upstream_rows`
    upstream_rows: int = 0  # those whose event time is known and at most a day before the source time


class Measured(NamedTuple):
    """The landed rows of one commit of one game."""

    counts: tuple[int, ...]  # rows by bucket of LATENCY_EDGES_SECONDS, without those caught up
    caught_up: int
    segments: Segments | None  # means of the counted rows; None without any whose bronze commit is known


@dataclass(slots=True)
class _Sums:
    rows: int = 0
    queue: float = 0.0
    process: float = 0.0
    upstream: float = 0.0
    upstream_rows: int = 0


def measure(
    arrivals: Sequence[Arrival],
    committed_at: float,
    commit_seconds: float,
    read_since: float,
    commits: Mapping[int, BronzeCommit],
) -> Measured:
    """Measure the rows of one commit to a game's table.

    A row was caught up if its source time lies before the moment from which on everything that reads it was there:
    it waited for a start, or for an outage to end. Such rows are counted, and say nothing of the latency now. The rows
    of one bronze commit count as evenly spread between the oldest and the newest.

    Args:
        arrivals: the rows, by bronze commit.
        committed_at: when the commit to the table was done.
        commit_seconds: how long that commit took.
        read_since: from when on the driver, its query and this stream were there.
        commits: the bronze commits, as far as they are known; from when on ingest was there stands in them.
    """
    newest_start = max((each.read_since or _NOWHERE for each in commits.values()), default=_NOWHERE)
    begun_at = committed_at - commit_seconds
    counted: list[tuple[int, float, float]] = []
    caught_up, sums = 0, _Sums()
    for arrival in arrivals:
        commit = commits.get(arrival.seq)
        ingest_since = newest_start if commit is None else commit.read_since or _NOWHERE
        since = max(read_since, ingest_since)
        waited = _rows_before(arrival, since)
        caught_up += waited
        rows = arrival.rows - waited
        if not rows:
            continue
        oldest = max(arrival.oldest, since) if waited else arrival.oldest
        counted.append((rows, oldest, arrival.newest))
        sums.upstream += arrival.upstream_seconds
        sums.upstream_rows += arrival.upstream_rows
        if commit is not None:
            sums.rows += rows
            sums.queue += rows * max(0.0, commit.committed_at - (oldest + arrival.newest) / 2)
            sums.process += rows * max(0.0, begun_at - commit.committed_at)
    return Measured(
        spread(counted, committed_at, LATENCY_EDGES_SECONDS), caught_up, _segments(sums, max(0.0, commit_seconds))
    )


def spread(
    arrivals: Sequence[tuple[int, float, float]], committed_at: float, edges: Sequence[float]
) -> tuple[int, ...]:
    """Count rows per latency bucket, with a last bucket above every edge.

    Each arrival is (rows, oldest, newest source time) of one bronze commit; its rows count as evenly spread between the
    two. A source clock ahead of ours counts as no latency.
    """
    counts = [0] * (len(edges) + 1)
    for rows, oldest, newest in arrivals:
        high, low = max(committed_at - oldest, 0.0), max(committed_at - newest, 0.0)
        placed = 0
        for index in range(bisect_left(edges, low), bisect_left(edges, high) + 1):
            upper = edges[index] if index < len(edges) else high
            share = 1.0 if high <= upper or high == low else (upper - low) / (high - low)
            upto = rows if index == bisect_left(edges, high) else round(rows * share)
            counts[index] += upto - placed
            placed = upto
    return tuple(counts)


def _rows_before(arrival: Arrival, moment: float) -> int:
    """Return how many of the rows have a source time before a moment."""
    if arrival.oldest >= moment:
        return 0
    if arrival.newest < moment:
        return arrival.rows
    return round(arrival.rows * (moment - arrival.oldest) / (arrival.newest - arrival.oldest))


def _segments(sums: _Sums, commit_seconds: float) -> Segments | None:
    if not sums.rows:
        return None
    upstream = sums.upstream / sums.upstream_rows if sums.upstream_rows else None
    return Segments(sums.queue / sums.rows, sums.process / sums.rows, commit_seconds, upstream)
