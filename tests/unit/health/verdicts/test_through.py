"""The time through which a game is complete, as pages say it."""

import pytest

from pipeline.health.verdicts.through import bronze_time, game_time
from pipeline.store.rows import ThroughReading

READING = ThroughReading(60.0, ((1, 10.0), (4, 20.0), (7, 30.0)))


@pytest.mark.parametrize(
    ("last_seq", "cursor", "now", "at"),
    [
        (7, 7, 60.0, 30.0),
        (3, 3, 60.0, 30.0),  # a quiet game has all of bronze
        (3, 9, 60.0, 30.0),
        (0, None, 60.0, 30.0),  # bronze has no row of it
        (6, 5, 60.0, 20.0),
        (6, 4, 60.0, 20.0),
        (6, 3, 60.0, 10.0),
        (6, 0, 60.0, None),
        (6, None, 60.0, None),  # no driver has reported it
        (7, 7, 29.0, 20.0),  # the clock went back
        (7, 7, 9.0, None),
    ],
)
def test_a_game_is_complete_through_what_its_cursor_has_passed(
    last_seq: int, cursor: int | None, now: float, at: float | None
) -> None:
    """L8: a time is shown where the reported cursor has passed all rows of the game up to its seq, and no later one."""
    assert game_time(READING, last_seq, cursor, now) == at


def test_an_unknown_time_is_no_time() -> None:
    """L8: before ingest has reported a time there is none, never zero."""
    assert game_time(None, 0, 0, 60.0) is None
    assert game_time(ThroughReading(60.0, ()), 0, 0, 60.0) is None
    assert (bronze_time(None, 60.0), bronze_time(READING, 60.0)) == (None, 30.0)
