"""Guards that minutes add up to what drivers saw, in whatever order it arrives, and that unknown is not 0."""

from collections import Counter, defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from listeners.minutes.fold import GRACE_SECONDS, Minutes
from listeners.sample import (
    CHUNK,
    GameResult,
    IngestMinute,
    Lane,
    PassResult,
    StreamMinute,
    StreamState,
)
from listeners.series import BUCKETS
from listeners.status import STATUSES, Status

NOW = 1_767_600_000.0  # 2026-01-05 08:00, a whole minute
NONE = (0,) * BUCKETS


def result(key: str = "chess_a", at: float | None = NOW + 1, **changes: Any) -> GameResult:
    values = {
        "lane": Lane.RUN,
        "seq_from": 1,
        "seq_to": 1,
        "rows": 4,
        "rejects": {"malformed_payload": 1, "unknown_schema": 1},
        "files": 1,
        "bytes": 100,
        "committed_at": at,
        "commit_seconds": 0.1,
        "latency_counts": (0, 3, *NONE[2:]),
        "caught_up_rows": 1,
    }
    return GameResult(key, **{**values, **changes})


def passed(*games: GameResult, at: float = NOW + 2, batch_id: int = 1, group: str = "eu-1") -> PassResult:
    return PassResult(group, "run", batch_id, at - 2, at, 1, games)


def state(key: str = "chess_a", status: str = "RUNNING", age: float | None = 0.0, at: float = NOW + 1) -> StreamState:
    return StreamState(key, "eu-1", Lane.RUN, status, at, 1, None, age, None, None, 0, 0, None, at)


def test_a_minute_has_what_was_seen_in_it() -> None:
    """Series: a minute sums results and chunks, and keeps the worst status and the largest backlog."""
    minutes = Minutes()
    minutes.add_pass(passed(result()), NOW + 3)
    minutes.add_pass(passed(result(at=NOW + 8), batch_id=CHUNK), NOW + 9)
    minutes.add_states([state(status="LAGGING", age=70.04)], NOW + 1)
    minutes.add_states([state(age=None, at=NOW + 6)], NOW + 6)
    assert minutes.close(NOW + 60) == ()
    assert minutes.close(NOW + 60 + GRACE_SECONDS) == [
        StreamMinute(NOW, "chess_a", "eu-1", 8, 2, 4, 2, (0, 6, *NONE[2:]), 70.0, "LAGGING")
    ]
    assert len(minutes) == 0


def test_unreported_numbers_are_unknown() -> None:
    """Series: a result alone has no status and no backlog; a failed result adds nothing, for its rows come again."""
    minutes = Minutes()
    refused_only = result(at=None, rows=0, latency_counts=NONE, caught_up_rows=0)
    minutes.add_pass(passed(refused_only, result("go_b", error="store down")), NOW + 3)
    assert minutes.release() == [StreamMinute(NOW, "chess_a", "eu-1", 0, 0, 2, 0, (), None, None)]


def test_a_result_after_the_end_makes_a_further_row() -> None:
    """Series: a slow pass loses no row of a minute that is closed already."""
    minutes = Minutes()
    minutes.add_states([state()], NOW + 1)
    assert [row.at for row in minutes.close(NOW + 70)] == [NOW]
    minutes.add_pass(passed(result(at=NOW + 59)), NOW + 90)
    (late,) = minutes.close(NOW + 90)
    assert isinstance(late, StreamMinute)
    assert (late.at, late.rows, late.status) == (NOW, 4, None)


def test_a_time_in_the_future_counts_now() -> None:
    """Series: a clock that was set back opens no minute that would stay open."""
    minutes = Minutes()
    minutes.add_pass(passed(result(at=NOW + 86_400)), NOW + 5)
    minutes.add_states([state("go_b", at=NOW + 86_400)], NOW + 5)
    closed = minutes.close(NOW + 65)
    assert [(row.at, row.game_key) for row in closed if isinstance(row, StreamMinute)] == [
        (NOW, "chess_a"),
        (NOW, "go_b"),
    ]


def test_a_minute_stays_open_for_results_on_their_way() -> None:
    """Series: closing one minute does not close the next one before its time."""
    minutes = Minutes()
    minutes.add_states([state(), state(at=NOW + 61)], NOW + 61)
    assert [row.at for row in minutes.close(NOW + 120 + GRACE_SECONDS / 2)] == [NOW]
    assert [row.at for row in minutes.close(NOW + 120 + GRACE_SECONDS)] == [NOW + 60]


def test_ingest_without_rows_is_zero_and_without_a_driver_unknown() -> None:
    """Series: a heartbeat makes a minute of 0 rows; without one there is no row at all."""
    minutes = Minutes()
    minutes.add_heartbeat(None, NOW + 4)
    minutes.add_heartbeat(7.06, NOW + 181)
    minutes.add_heartbeat(None, NOW + 186)
    minutes.add_landed(NOW + 200, 100, 3, NOW + 201)
    minutes.add_landed(NOW + 210, 50, 0, NOW + 211)
    assert minutes.close(NOW + 240 + GRACE_SECONDS) == [
        IngestMinute(NOW, 0, 0, 0),
        IngestMinute(NOW + 180, 150, 3, 2, 7.1),
    ]


RESULTS = st.tuples(
    st.sampled_from("abc"),
    st.integers(-90, 400),  # seconds from NOW to its commit
    st.integers(0, 50),
    st.integers(0, 5),
    st.lists(st.integers(0, 9), min_size=BUCKETS, max_size=BUCKETS).map(tuple),
    st.booleans(),
)
STATES = st.tuples(
    st.sampled_from("abc"), st.integers(0, 400), st.sampled_from(STATUSES), st.none() | st.floats(0, 999).map(round)
)


@given(st.lists(RESULTS | STATES, max_size=40), st.lists(st.integers(0, 600), max_size=8), st.randoms())
def test_the_minutes_add_up_to_a_naive_sum(items: list[Any], closings: list[int], rng: Any) -> None:
    """Series: whenever minutes close and in whatever order items come, the rows of each minute and game add up."""
    minutes = Minutes()
    rows: list[Any] = []
    work = [*items, *closings]
    rng.shuffle(work)
    sums: dict[tuple[float, str], Counter[Any]] = defaultdict(Counter)
    worst: dict[tuple[float, str], tuple[int, float]] = {}
    for item in work:
        if isinstance(item, int):
            rows += minutes.close(NOW + item)
            continue
        key = ((NOW + item[1]) // 60 * 60, item[0])
        if len(item) == 4:
            minutes.add_states([state(item[0], item[2], item[3], NOW + item[1])], NOW + 600)
            rank, age = worst.get(key, (-1, -1.0))
            worst[key] = (max(rank, Status(item[2]).severity), max(age, -1.0 if item[3] is None else item[3]))
            continue
        _, at, landed, refused, counts, failed = item
        error = "no" if failed else None
        game = result(item[0], NOW + at, rows=landed, rejects={"r": refused}, latency_counts=counts, error=error)
        minutes.add_pass(passed(game), NOW + 600)
        if not failed:
            sums[key].update(rows=landed, refused=refused, commits=1, caught_up=1)
            sums[key].update(dict(enumerate(counts)))
    rows += minutes.release()
    found: dict[tuple[float, str], Counter[Any]] = defaultdict(Counter)
    found_worst: dict[tuple[float, str], tuple[int, float]] = {}
    for row in rows:
        assert isinstance(row, StreamMinute)
        key = (row.at, row.game_key)
        found[key].update(rows=row.rows, refused=row.refused, commits=row.commits, caught_up=row.caught_up_rows)
        found[key].update(dict(enumerate(row.latency_counts)))
        if row.status is not None:
            rank, age = found_worst.get(key, (-1, -1.0))
            mine = -1.0 if row.backlog_age_seconds is None else row.backlog_age_seconds
            found_worst[key] = (max(rank, Status(row.status).severity), max(age, mine))
    assert {key: +counter for key, counter in sums.items() if +counter} == {
        key: +counter for key, counter in found.items() if +counter
    }
    assert worst == found_worst
