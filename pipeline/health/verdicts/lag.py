"""How long the oldest row a stream has not yet applied has been waiting in bronze.

Called by the group driver for each game at each evaluation; knows neither clock nor store.
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import inf

from listeners.sample import Lane


def backlog_age(
    lane: Lane,
    cursor_seq: int,
    frontier_seq: int | None,
    last_seq: int,
    commits: Sequence[tuple[int, float]],
    now: float,
) -> float | None:
    """Return the age in seconds of the first bronze commit this stream has not passed; 0 when nothing waits.

    A stream in lane RUN has passed `max(cursor, frontier)`: the pass covers its quiet stretches. Any other lane has
    passed only its own cursor. Nothing waits when the game's last seq is passed. Otherwise the first commit after
    the passed seq counts, even when it holds rows of other games only, so the age is never too low.

    `commits` is the ring of the newest bronze commits, sorted (seq, committed_at). When the ring starts after the
    first unpassed commit, the age is unknown and the result is None: `now - oldest` would be only a lower bound, and
    an age capped by the length of a ring looks like a lag that stopped growing. `backlog_age_at_least` gives that
    bound to callers that show it as one. Read the ring after `last_seq`: a ring that ends before it is unknown too.
    """
    passed = _passed(lane, cursor_seq, frontier_seq)
    if last_seq <= passed:
        return 0.0
    first = bisect_left(commits, (passed + 1, -inf))
    if first == len(commits):
        return None
    if first == 0 and commits[0][0] != passed + 1:
        return None
    return max(0.0, now - commits[first][1])


def backlog_age_at_least(commits: Sequence[tuple[int, float]], now: float) -> float | None:
    """Return the seconds a backlog older than the whole ring has waited at least; None when the ring is empty."""
    return max(0.0, now - commits[0][1]) if commits else None


def seconds_left(earlier: tuple[float, float | None], later: tuple[float, float | None]) -> float | None:
    """Return after how many seconds a lag that falls as it did between two looks (at, lag) is gone.

    None where there is nothing to tell it from: a lag is unknown, no time has passed, or it does not fall.
    """
    (then, was), (now, still) = earlier, later
    if was is None or still is None or now <= then or still >= was:
        return None
    return still * (now - then) / (was - still)


def _passed(lane: Lane, cursor_seq: int, frontier_seq: int | None) -> int:
    if lane == Lane.RUN and frontier_seq is not None:
        return max(cursor_seq, frontier_seq)
    return cursor_seq
