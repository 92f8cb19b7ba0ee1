"""When a record came that waits in a topic, whatever clock its time is of."""

import pytest

from pipeline.data.ingest.sources.topic_backlog import arrived

LOOKS = [(100.0, {0: 5}), (110.0, {0: 5}), (120.0, {0: 9}), (130.0, {0: 9})]


@pytest.mark.parametrize(
    ("offset", "stamped", "came"),
    [
        (5, 115.0, 115.0),
        (5, 3.0, 110.0),  # sent late, or by a clock behind: it was not there at 110
        (5, 139.0, 120.0),  # by a clock ahead: it was there at 120
        (5, 9e9, 110.0),  # the year 2255: no time at all
        (5, None, 110.0),
        (9, 3.0, 130.0),
        (9, 139.0, 139.0),
        (9, 145.0, 140.0),  # a clock that is ahead a little
        (2, 3.0, 3.0),  # there since before the first look
        (2, 139.0, 100.0),
        (2, None, None),
        (2, 9e9, None),
    ],
)
def test_a_record_came_within_what_was_seen(offset: int, stamped: float | None, came: float | None) -> None:
    """A producer's clock neither hides a backlog nor makes one up; where nothing tells the time it is unknown."""
    assert arrived(LOOKS, 0, offset, stamped, 140.0) == came


def test_a_first_look_has_only_the_records_time() -> None:
    """After a restart of ingest the age of a backlog is what its first record says."""
    assert (arrived([], 0, 5, 3.0, 140.0), arrived([], 0, 5, None, 140.0)) == (3.0, None)
