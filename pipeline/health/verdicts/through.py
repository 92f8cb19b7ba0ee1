"""How far bronze and a game are complete, from the reports of ingest and drivers. Pure; for people, not for jobs.

`turnout wait` reads the tables' logs instead: a time here is never later than its answer.
"""

from bisect import bisect_right

from pipeline.store.rows import ThroughReading


def bronze_time(reading: ThroughReading | None, now: float) -> float | None:
    """Return the time through which bronze has all of its source, None where none is known."""
    return _newest(reading, None, now)


def game_time(reading: ThroughReading | None, last_seq: int, cursor: int | None, now: float) -> float | None:
    """Return the time through which a game's table has all of its source, None where none is known.

    Args:
        reading: read before the next two.
        last_seq: the last seq in which bronze has rows of the game.
        cursor: of its table; None where no driver has reported it.
        now: a time that is later does not count: the clock went back.
    """
    reached = cursor or 0
    return _newest(reading, None if reached >= last_seq else reached, now)


def record_time(reading: ThroughReading | None, last_seq: int, now: float) -> float | None:
    """Return a time after which the source got a game's newest record, None where none is known.

    Its record in `last_seq` is none of those that bronze had before, and so none of those that the source had by then.
    """
    return _newest(reading, last_seq - 1, now)


def _newest(reading: ThroughReading | None, most: int | None, now: float) -> float | None:
    if reading is None:
        return None
    pairs = reading.pairs
    end = len(pairs) if most is None else bisect_right(pairs, most, key=lambda pair: pair[0])
    return next((at for _, at in reversed(pairs[:end]) if at <= now), None)
