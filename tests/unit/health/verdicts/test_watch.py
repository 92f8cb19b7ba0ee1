import time
from dataclasses import replace

import pytest

from listeners.sample import LATENCY_EDGES_SECONDS, GameResult, Lane, Segments, StreamState, TypeRows
from pipeline.health.verdicts.status import StreamFacts
from pipeline.health.verdicts.watch import WINDOW_OBSERVATIONS, StreamReading, Transition, Watch

START = 50_000.0
BUCKETS = len(LATENCY_EDGES_SECONDS) + 1
FACTS = StreamFacts(
    desired="running",
    driver_active=True,
    last_run_failed=None,
    failed_runs_15min=0,
    lane=Lane.RUN,
    started_at=START - 3_600,
    trigger_seconds=5.0,
    pass_p95_seconds=4.0,
    objective_seconds=60.0,
    pass_active_since=None,
)


def reading(*, cursor: int = 1, age: float | None = 0.0, facts: StreamFacts = FACTS) -> StreamReading:
    return StreamReading(facts, cursor, cursor, age)


def result(
    at: float | None, rows: int = 10, *, bucket: int = 1, key: str = "g", error: str | None = None
) -> GameResult:
    counts = [0] * BUCKETS
    counts[bucket] = rows
    return GameResult(key, Lane.RUN, 1, 1, rows, {"unknown_schema": 2}, 1, 100, at, 0.1, tuple(counts), error)


def one(states: list[StreamState]) -> StreamState:
    (state,) = states
    return state


def test_rates_and_latency_are_those_of_their_windows() -> None:
    """Rows per second cover the last 60 s and the p95 the last 5 min; totals cover everything."""
    watch = Watch("a")
    watch.observe(START, {"g": reading()}, [])
    later = one(watch.observe(START + 100, {"g": reading()}, [result(START + 30, 600), result(START + 90, 60)]))
    assert later.rows_per_second == 1.0
    assert later.rows_total == 660
    assert later.rejects_total == 4
    assert later.last_commit_at == START + 90
    assert later.latency_p95_seconds is not None
    assert 0.5 < later.latency_p95_seconds <= 1.0
    quiet = one(watch.observe(START + 500, {"g": reading()}, []))
    assert quiet.rows_per_second == 0.0
    assert quiet.latency_p95_seconds is None
    assert quiet.rows_total == 660


def test_rows_by_event_type_are_those_of_five_minutes() -> None:
    """A state tells what each event type did in the last five minutes; a failed result's rows come again."""
    watch = Watch("a")
    watch.observe(START, {"g": reading()}, [])
    both = replace(result(START + 10, 5), types={"t.A": TypeRows(3, 1), "t.B": TypeRows(2, 0)})
    failed = replace(result(None, 5, error="away"), types={"t.A": TypeRows(9, 9)})
    again = replace(result(START + 200, 4), types={"t.A": TypeRows(4, 0)})
    state = one(watch.observe(START + 205, {"g": reading()}, [both, failed, again]))
    assert state.types == {"t.A": TypeRows(7, 1), "t.B": TypeRows(2, 0)}
    assert one(watch.observe(START + 315, {"g": reading()}, [])).types == {"t.A": TypeRows(4, 0)}
    assert one(watch.observe(START + 600, {"g": reading()}, [])).types == {}


def test_latencies_have_windows_of_five_minutes_and_of_one() -> None:
    """p50, p95 and p99 cover five minutes, the last minute has a p99 of its own, and none is known without rows."""
    watch = Watch("a")
    watch.observe(START, {"g": reading()}, [])
    results = [result(START + 10, 98, bucket=1), result(START + 10, 2, bucket=9), result(START + 90, 10, bucket=0)]
    state = one(watch.observe(START + 100, {"g": reading()}, results))
    assert (state.latency_p50_seconds, state.latency_p95_seconds) == (45 / 98 / 2 + 0.5, 94.5 / 98 / 2 + 0.5)
    assert state.latency_p99_seconds is not None
    assert 120 < state.latency_p99_seconds <= 300
    assert state.latency_p99_last_minute_seconds == 0.495
    quiet = one(watch.observe(START + 200, {"g": reading()}, []))
    assert (quiet.latency_p99_last_minute_seconds, quiet.latency_p95_seconds) == (None, state.latency_p95_seconds)
    silent = one(watch.observe(START + 500, {"g": reading()}, []))
    assert (silent.latency_p50_seconds, silent.latency_p95_seconds, silent.latency_p99_seconds) == (None, None, None)


def test_rows_that_were_caught_up_are_no_latency() -> None:
    """A stream that has only caught up has landed rows, and no latency of now."""
    caught_up = replace(result(START, 5_000), latency_counts=(0,) * BUCKETS, caught_up_rows=5_000)
    state = one(Watch("a").observe(START + 1, {"g": reading()}, [caught_up]))
    assert (state.rows_total, state.latency_p95_seconds, state.latency_p99_last_minute_seconds) == (5_000, None, None)


def test_segments_are_means_over_the_rows_of_five_minutes() -> None:
    """A result weighs as many rows as it has latencies; upstream has its own, and an unknown one is None."""
    watch = Watch("a")
    results = [
        replace(result(START, 30), segments_seconds=Segments(1.0, 2.0, 0.5, 40.0)),
        replace(result(START + 200, 10), segments_seconds=Segments(5.0, 6.0, 0.1, None)),
        result(START + 200, 1_000),
    ]
    state = one(watch.observe(START + 200, {"g": reading()}, results))
    assert (state.queue_seconds, state.process_seconds, state.upstream_seconds) == (2.0, 3.0, 40.0)
    assert state.commit_seconds == pytest.approx(0.4)
    later = one(watch.observe(START + 310, {"g": reading()}, []))
    assert (later.queue_seconds, later.process_seconds, later.upstream_seconds) == (5.0, 6.0, None)
    quiet = one(watch.observe(START + 600, {"g": reading()}, []))
    assert (quiet.queue_seconds, quiet.process_seconds, quiet.commit_seconds) == (None, None, None)


def test_bytes_and_commits_are_counted_as_rows_are() -> None:
    """What a stream costs is told beside its rows, over the same 60 s; a commit without rows counts, a failure not."""
    watch = Watch("a")
    first = one(watch.observe(START, {"g": reading()}, []))
    assert (first.bytes_per_second, first.commits_per_second) == (None, None)
    results = [result(START + 30), result(START + 70), result(START + 80, 0), result(START + 90, error="disk full")]
    later = one(watch.observe(START + 100, {"g": reading()}, results))
    assert (later.bytes_per_second, later.commits_per_second) == (200 / 60, 2 / 60)
    quiet = one(watch.observe(START + 500, {"g": reading()}, []))
    assert (quiet.bytes_per_second, quiet.commits_per_second) == (0.0, 0.0)


def test_a_first_look_knows_no_rate() -> None:
    """Before any time has passed the rate is unknown, not 0."""
    state = one(Watch("a").observe(START, {"g": reading()}, []))
    assert state.rows_per_second is None
    assert state.latency_p95_seconds is None
    assert state.last_commit_at is None


def test_latency_beyond_the_last_edge_counts_as_the_last_edge() -> None:
    """Rows in the open bucket are told as at least the last edge, never as unknown."""
    watch = Watch("a")
    state = one(watch.observe(START, {"g": reading()}, [result(START, 5, bucket=BUCKETS - 1)]))
    assert state.latency_p95_seconds == LATENCY_EDGES_SECONDS[-1]


def test_an_unknown_age_stays_unknown_in_the_state() -> None:
    """None is passed on as None."""
    assert one(Watch("a").observe(START, {"g": reading(age=None)}, [])).backlog_age_seconds is None


def test_transitions_are_told_once_with_their_detail() -> None:
    """A change of the settled status is one transition; status_since is when it happened."""
    watch = Watch("a")
    watch.observe(START, {"g": reading()}, [])
    assert [(each.from_status, each.to_status) for each in watch.transitions] == [(None, "RUNNING")]
    dead = replace(FACTS, driver_active=False, last_run_failed="disk full")
    state = one(watch.observe(START + 5, {"g": reading(facts=dead)}, []))
    detail = "The group's query has ended with an error: disk full."
    assert watch.transitions == (Transition("g", START + 5, "RUNNING", "FAILED", detail),)
    assert (state.status, state.status_since, state.last_error) == ("FAILED", START + 5, "disk full")
    assert one(watch.observe(START + 10, {"g": reading(facts=dead)}, [])).status_since == START + 5
    assert not watch.transitions


def test_a_stuck_stream_stalls_although_the_window_is_bounded() -> None:
    """However often and however long it is watched, a stream that stands still with rows waiting becomes STALLED."""
    slow = replace(FACTS, trigger_seconds=200.0, objective_seconds=1e6)
    for step, facts in ((1.0, FACTS), (5.0, FACTS), (15.0, FACTS), (5.0, slow)):
        watch, status, now = Watch("a"), "", START
        while now < START + 700:
            status = one(watch.observe(now, {"g": reading(age=30.0 + now - START, facts=facts)}, [])).status
            now += step
        assert status == "STALLED"
        assert len(watch._streams["g"].window) <= WINDOW_OBSERVATIONS


def test_a_resumed_stream_is_not_stalled_by_its_pause() -> None:
    """Standing still while paused is not held against the stream afterwards."""
    watch, parked = Watch("a"), replace(FACTS, desired="paused", lane=Lane.PAUSED)
    for at in range(0, 600, 5):
        watch.observe(START + at, {"g": reading(cursor=7, age=float(at), facts=parked)}, [])
    resumed = replace(FACTS, lane=Lane.CATCHUP)
    for at in range(600, 700, 5):
        state = one(watch.observe(START + at, {"g": reading(cursor=7, age=float(at), facts=resumed)}, []))
        assert state.status != "STALLED"
    assert state.status == "LAGGING"


def test_a_catch_up_that_finds_no_rows_moves() -> None:
    """Reading bronze on without rows of the game is progress, although the cursor stays."""
    watch, catchup = Watch("a"), replace(FACTS, lane=Lane.CATCHUP)
    for at in range(0, 400, 5):
        reported = replace(reading(cursor=7, age=50.0, facts=catchup), complete_through_seq=8 + at)
        state = one(watch.observe(START + at, {"g": reported}, []))
    assert (state.status, state.cursor_seq) == ("CATCHING_UP", 7)


def test_a_new_game_backfills_until_it_joins_the_pass() -> None:
    """From cursor 0 to lane RUN a catch-up is a backfill, not a lag."""
    watch, catchup = Watch("a"), replace(FACTS, lane=Lane.CATCHUP)
    for at in range(0, 60, 5):
        state = one(watch.observe(START + at, {"g": reading(cursor=at, age=9_000.0, facts=catchup)}, []))
        assert state.status == "BACKFILLING"
    for at in range(60, 90, 5):
        state = one(watch.observe(START + at, {"g": reading(cursor=at)}, []))
    assert state.status == "RUNNING"


def test_errors_stay_until_the_next_commit() -> None:
    """The last error is shown, also as the reason of a parked stream, until a commit succeeds."""
    watch = Watch("a")
    failed = result(None, 10, error="schema 7 is broken")
    state = one(watch.observe(START, {"g": reading()}, [failed]))
    assert (state.last_error, state.rows_total, state.rejects_total) == ("schema 7 is broken", 0, 0)
    parked = replace(FACTS, lane=Lane.QUARANTINED)
    watch.observe(START + 5, {"g": reading(facts=parked)}, [])
    assert "schema 7 is broken" in watch.transitions[0].detail
    assert one(watch.observe(START + 10, {"g": reading()}, [result(START + 9)])).last_error is None


def test_a_stream_that_landed_is_not_failed_and_not_late() -> None:
    """The report after a commit ends that it failed, and an age within the objective is not late."""
    watch = Watch("a")
    failing = replace(FACTS, lane=Lane.CATCHUP, last_attempt_failed="disk full")
    for at in range(0, 120, 5):
        watch.observe(START + at, {"g": reading(age=100.0 + at, facts=failing)}, [])
    state = one(watch.observe(START + 120, {"g": reading(cursor=9, age=4.9)}, [result(START + 118)]))
    assert (state.status, state.status_since, state.last_error) == ("RUNNING", START + 120, None)
    state = one(watch.observe(START + 125, {"g": reading(cursor=9, age=9.9, facts=failing)}, []))
    assert state.status == "FAILED"


def test_a_game_that_was_given_away_is_forgotten() -> None:
    """A moved game leaves no state behind, and a late result of it is not counted."""
    watch = Watch("a")
    watch.observe(START, {"g": reading(), "h": reading()}, [result(START)])
    states = watch.observe(START + 5, {"h": reading()}, [result(START + 4)])
    assert [state.game_key for state in states] == ["h"]
    assert one(watch.observe(START + 10, {"g": reading()}, [])).rows_total == 0


def test_a_thousand_games_are_judged_in_a_blink() -> None:
    """An evaluation costs the same for each game, however many there are: 1,000 take far less than a second."""
    watch, spent = Watch("a"), []
    keys = [f"g{number}" for number in range(1_000)]
    for step in range(12):
        now = START + 5 * step
        readings = dict.fromkeys(keys, reading(cursor=step, age=70.0 + step))
        results = [result(now, key=key) for key in keys]
        before = time.process_time()
        watch.observe(now, readings, results)
        spent.append(time.process_time() - before)
    assert min(spent[8:]) < 0.5  # 0.03 to 0.05 here; what grows with the square of the games takes tens of seconds
