"""Guards what latency counts: no row is lost, and what waited for a start or an outage says nothing of now."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listeners.sample import LATENCY_EDGES_SECONDS, Segments
from pipeline.health.verdicts.latency import Arrival, Start, measure, spread
from pipeline.health.verdicts.status import PASS_LIMIT_SECONDS
from pipeline.store.rows import BronzeCommit

NOW = 10_000.0
LONG_AGO = -math.inf

_TIMES = st.floats(NOW - 4_000, NOW)
_ARRIVALS = st.lists(
    st.builds(
        lambda seq, rows, one, other: Arrival(seq, rows, min(one, other), max(one, other)),
        st.integers(1, 9), st.integers(1, 500), _TIMES, _TIMES,
    ),
    max_size=8,
)  # fmt: skip
_SINCE = st.none() | _TIMES
_COMMITS = st.dictionaries(st.integers(1, 9), st.tuples(_TIMES, _SINCE)).map(
    lambda known: {seq: BronzeCommit(seq, *each) for seq, each in known.items()}
)


def counted(*arrivals: Arrival, since: float = LONG_AGO, commits: tuple[BronzeCommit, ...] = ()) -> tuple[int, int]:
    """Return how many rows count and how many were caught up."""
    found = measure(arrivals, NOW, 1.0, since, {each.seq: each for each in commits})
    return sum(found.counts), found.caught_up


@given(_ARRIVALS, _COMMITS, _TIMES, _TIMES)
@pytest.mark.proves("G214")
def test_every_row_counts_or_was_caught_up(
    arrivals: list[Arrival], commits: dict[int, BronzeCommit], one: float, other: float
) -> None:
    """No row is lost or counted twice, and a later start never lets fewer rows be caught up."""
    early, late = (measure(arrivals, NOW, 1.0, since, commits) for since in sorted((one, other)))
    for found in (early, late):
        assert sum(found.counts) + found.caught_up == sum(each.rows for each in arrivals)
        assert min(found.counts) >= 0
    assert early.caught_up <= late.caught_up


def test_rows_of_one_commit_are_parted_by_their_source_time() -> None:
    """It is rows that were caught up, not passes: of a commit with rows from before and after a start some count."""
    assert counted(Arrival(1, 100, NOW - 20, NOW - 10), since=NOW - 18) == (80, 20)
    assert counted(Arrival(1, 100, NOW - 20, NOW - 10), since=NOW - 10) == (0, 100)
    assert counted(Arrival(1, 100, NOW - 20, NOW - 10), since=NOW - 20) == (100, 0)
    assert counted(Arrival(1, 7, NOW - 5, NOW - 5), since=NOW - 5) == (7, 0)
    assert counted(Arrival(1, 7, NOW - 5, NOW - 5), since=NOW - 4) == (0, 7)
    found = measure([Arrival(1, 1_000, NOW - 100, NOW)], NOW, 0.0, NOW - 10, {})
    assert (found.caught_up, sum(found.counts[:5])) == (900, 100), "none that counts is older than the start"


@pytest.mark.proves("G214")
def test_a_backlog_of_before_the_start_is_not_the_latency_of_now() -> None:
    """Minutes that rows waited for a driver are in no bucket; later rows are in their own."""
    arrivals = [Arrival(1, 9_000, NOW - 900, NOW - 40), Arrival(2, 10, NOW - 3, NOW - 2)]
    found = measure(arrivals, NOW, 0.0, NOW - 30, {})
    assert (found.caught_up, found.counts[3]) == (9_000, 10)
    assert sum(found.counts) == 10


def test_ingest_was_there_from_the_moment_that_each_commit_states() -> None:
    """Rows waited for ingest as for a driver; a commit of which nothing is known has the newest start that is known."""
    rows = Arrival(4, 10, NOW - 60, NOW - 50)
    assert counted(rows, commits=(BronzeCommit(4, NOW - 5, NOW - 40),)) == (0, 10)
    assert counted(rows, commits=(BronzeCommit(4, NOW - 5, NOW - 70),)) == (10, 0)
    assert counted(rows, commits=(BronzeCommit(4, NOW - 5, None),)) == (10, 0), "nobody says that ingest was away"
    assert counted(rows, commits=(BronzeCommit(3, NOW - 45, NOW - 40),)) == (0, 10)
    assert counted(rows, since=NOW - 40, commits=(BronzeCommit(4, NOW - 5, NOW - 70),)) == (0, 10)


def test_a_start_lasts_until_the_first_batch_has_ended() -> None:
    """All rows wait for a reader that has not begun; after its first batch none does, however slow the second is."""
    start = Start()
    assert start.over_at == math.inf
    start.note(NOW)
    assert start.over_at == NOW + PASS_LIMIT_SECONDS
    start.end(NOW + 20)
    start.end(NOW + 90)
    assert start.over_at == NOW + 20
    start.note(NOW + 500)
    assert start.over_at == NOW + 500 + PASS_LIMIT_SECONDS, "a query that is started again starts again"


def test_a_first_batch_that_takes_minutes_makes_rows_late() -> None:
    """A start is no excuse for ever: rows that arrive five minutes after it and wait are late, and counts."""
    start = Start()
    start.note(NOW)
    start.end(NOW + 600)
    assert start.over_at == NOW + PASS_LIMIT_SECONDS
    start.note(NOW)
    assert start.over_at == NOW + PASS_LIMIT_SECONDS, "neither is a batch that comes when the source is quiet"


def test_segments_are_means_over_the_rows_that_count() -> None:
    """Queue, process and commit add up to the mean latency; rows that were caught up weigh nothing."""
    commits = {1: BronzeCommit(1, NOW - 8, None), 2: BronzeCommit(2, NOW - 3, None), 3: BronzeCommit(3, NOW - 2, None)}
    arrivals = [
        Arrival(1, 1_000, NOW - 900, NOW - 800, 9_000.0, 1_000),
        Arrival(2, 30, NOW - 6, NOW - 4, 60.0, 30),
        Arrival(3, 10, NOW - 3, NOW - 3),
    ]
    found = measure(arrivals, NOW, 1.0, NOW - 500, commits)
    assert found.segments == Segments((30 * 2 + 10 * 1) / 40, (30 * 2 + 10 * 1) / 40, 1.0, 2.0)
    mean = (30 * 5 + 10 * 3) / 40
    assert sum(found.segments[:3]) == pytest.approx(mean)


def test_segments_of_unknown_commits_are_unknown() -> None:
    """Without the store nobody knows when rows came into bronze: that is None, not 0; no clock makes it negative."""
    rows = Arrival(2, 30, NOW - 6, NOW - 4)
    assert measure([rows], NOW, 1.0, LONG_AGO, {}).segments is None
    assert measure([], NOW, 1.0, LONG_AGO, {}).segments is None
    ahead = measure([rows], NOW, 1.0, LONG_AGO, {2: BronzeCommit(2, NOW - 50, None)}).segments
    assert ahead == Segments(0.0, 49.0, 1.0, None)


@given(
    st.lists(st.tuples(st.integers(1, 500), st.floats(0, 4000), st.floats(0, 4000)), max_size=8),
    st.floats(4000, 5000),
)
def test_every_row_has_one_latency(arrivals: list[tuple[int, float, float]], now: float) -> None:
    """The histogram neither loses nor invents a row, whatever the spread of arrivals."""
    ordered = [(rows, min(a, b), max(a, b)) for rows, a, b in arrivals]
    counts = spread(ordered, now, LATENCY_EDGES_SECONDS)
    assert sum(rows for rows, _, _ in arrivals) == sum(counts)
    assert min(counts) >= 0


def test_rows_lie_in_the_buckets_of_their_latency() -> None:
    """Ten rows between 0 and 10 seconds old are spread evenly; a source clock ahead of ours is no latency."""
    assert (spread([(10, 90.0, 100.0)], 100.0, (1.0, 3.0, 20.0))[0:2]) == (1, 2)
    assert spread([(4, 105.0, 110.0)], 100.0, (1.0,)) == (4, 0)
