"""Whether promises of freshness are kept, by the times that are known."""

import pytest

from pipeline.health.verdicts.freshness import FreshnessVerdict
from pipeline.health.verdicts.through import record_time
from pipeline.store.rows import ThroughReading
from tests.unit.health.verdicts.freshness_world import NOW, verdict


@pytest.mark.parametrize(
    ("found", "stale", "text"),
    [
        (verdict(through=600), False, "complete through 2027-01-15 07:50:00 UTC, 10 min ago; at most 10 min are"),
        (verdict(through=601), True, "10 min ago; at most 10 min are promised"),
        (verdict(), True, "complete through no known time; at most 10 min are promised"),
        (verdict(known=600), False, "complete through no known time; at most 10 min are promised"),
        (verdict(through=9_000, known=60), False, "2 h 30 min ago; at most 10 min are promised"),
        (verdict(through=1, record=3_601, newest=3_600.0), True, "its newest record came within the last 1 h 0 min;"),
        (verdict(through=1, record=3_600, newest=3_600.0), False, "its newest record came within the last 1 h 0 min;"),
        (verdict(within=None, newest=3_600.0), True, "when its newest record came is not known; at most 1 h 0 min are"),
    ],
)
def test_an_unknown_time_is_never_fresh(found: FreshnessVerdict, stale: bool, text: str) -> None:
    """A promise is kept within its limit alone; a game that has just come has had no time to break it."""
    assert found.is_stale == stale
    assert text in " ".join(each.text for each in found.parts)


def test_a_new_game_is_not_said_to_be_fresh() -> None:
    """Until a time is known a promise of a new game is neither kept nor broken."""
    (part,) = verdict(known=60).parts
    assert (part.is_kept, part.is_known) == (True, False)


@pytest.mark.parametrize(
    ("last_seq", "at"), [(1, None), (2, None), (3, NOW - 300), (5, NOW - 60), (9, NOW - 60), (10, NOW - 7)]
)
def test_a_newest_record_came_after_the_pair_before_it(last_seq: int, at: float | None) -> None:
    """A record of a later seq is none of those that bronze had; a pair of its own seq says nothing of it."""
    reading = ThroughReading(NOW, ((2, NOW - 300), (4, NOW - 60), (9, NOW - 7), (12, NOW + 5)))
    assert record_time(reading, last_seq, NOW) == at
    assert record_time(None, last_seq, NOW) is None
