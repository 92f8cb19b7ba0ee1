from collections.abc import Sequence

import pytest

from listeners.sample import Lane
from pipeline.health.verdicts.lag import backlog_age, backlog_age_at_least, seconds_left

NOW = 1_000.0
RING = [(5, 900.0), (6, 910.0), (9, 940.0), (12, 970.0)]


@pytest.mark.parametrize(
    ("lane", "cursor", "frontier", "last", "ring", "expected"),
    [
        pytest.param("RUN", 12, 12, 12, RING, 0.0, id="everything applied"),
        pytest.param("RUN", 3, 12, 12, RING, 0.0, id="quiet stretch covered by the pass"),
        pytest.param("RUN", 3, None, 3, (), 0.0, id="quiet game, nothing known of bronze"),
        pytest.param("RUN", 3, 6, 12, RING, 60.0, id="the pass reached 6: the next commit is 9"),
        pytest.param("RUN", 6, 3, 12, RING, 60.0, id="a cursor ahead of the frontier counts"),
        pytest.param("CATCHUP", 5, 12, 12, RING, 90.0, id="the group's frontier does not help a catch-up"),
        pytest.param("PAUSED", 5, 12, 12, RING, 90.0, id="nor a paused stream"),
        pytest.param("QUARANTINED", 9, 12, 12, RING, 30.0, id="nor a parked one"),
        pytest.param("RUN", 4, None, 12, RING, 100.0, id="the ring begins exactly at the next seq"),
        pytest.param("RUN", 3, None, 12, RING, None, id="the ring begins too late: the oldest may be older"),
        pytest.param("CATCHUP", 0, 12, 12, RING, None, id="a rebuild starts before the ring"),
        pytest.param("RUN", 12, 12, 13, RING, None, id="the ring does not hold the waiting commit yet"),
        pytest.param("RUN", 0, None, 4, (), None, id="an empty ring tells nothing"),
        pytest.param("RUN", 0, None, 1, [(1, NOW + 5)], 0.0, id="a commit from the future is not younger than now"),
    ],
)
def test_backlog_age_is_that_of_the_first_unpassed_commit_or_unknown(
    lane: Lane, cursor: int, frontier: int | None, last: int, ring: Sequence[tuple[int, float]], expected: float | None
) -> None:
    """The age is exact when the ring holds the first unpassed commit, 0 only when nothing waits, else unknown."""
    assert expected == backlog_age(lane, cursor, frontier, last, ring, NOW)


def test_lower_bound_is_the_age_of_the_ring() -> None:
    """A backlog older than the ring is at least as old as the ring's first commit; an empty ring bounds nothing."""
    assert backlog_age_at_least(RING, NOW) == 100.0
    assert backlog_age_at_least((), NOW) is None


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        pytest.param((100.0, 300.0), (120.0, 100.0), 10.0, id="200 s in 20 s, 100 s are left"),
        pytest.param((100.0, 300.0), (120.0, 0.0), 0.0, id="gone"),
        pytest.param((100.0, 300.0), (120.0, 300.0), None, id="does not fall"),
        pytest.param((100.0, 300.0), (120.0, 310.0), None, id="grows"),
        pytest.param((100.0, None), (120.0, 10.0), None, id="was unknown"),
        pytest.param((100.0, 300.0), (120.0, None), None, id="is unknown"),
        pytest.param((100.0, 300.0), (100.0, 200.0), None, id="no time has passed"),
    ],
)
def test_the_time_left_follows_from_a_falling_lag_only(
    earlier: tuple[float, float | None], later: tuple[float, float | None], expected: float | None
) -> None:
    """An estimate is made of two looks at a lag that falls; of anything else there is none."""
    assert seconds_left(earlier, later) == expected
