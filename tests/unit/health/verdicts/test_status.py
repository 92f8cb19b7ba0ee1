from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listeners.sample import Lane
from listeners.status import STATUSES, Status
from pipeline.health.verdicts.status import Observation, Settled, StatusVerdict, StreamFacts, judge_stream, settle

NOW = 10_000.0
HEALTHY = StreamFacts(
    desired="running",
    driver_active=True,
    last_run_failed=None,
    failed_runs_15min=0,
    lane=Lane.RUN,
    started_at=NOW - 3_600,
    trigger_seconds=5.0,
    pass_p95_seconds=4.0,
    objective_seconds=60.0,
    pass_active_since=None,
)


def seen(
    ages: Sequence[float | None], *, step: float = 15.0, moving: bool = True, frontier: bool = True
) -> list[Observation]:
    """Return observations up to now with these backlog ages, whose cursor (and frontier) move or stand still."""
    first = NOW - step * (len(ages) - 1)
    return [
        Observation(first + at * step, 100 + at if moving else 100, age, 200 + at if frontier else None)
        for at, age in enumerate(ages)
    ]


def stuck(count: int, age: float | None = 30.0, *, step: float = 15.0) -> list[Observation]:
    return [Observation(NOW - step * (count - 1 - at), 100, age, 100) for at in range(count)]


def _with(**changes: Any) -> StreamFacts:
    return replace(HEALTHY, **changes)


CASES = [
    ("paused as asked", seen([500.0]), _with(desired="paused", lane=Lane.PAUSED), "PAUSED"),
    ("paused, query gone", seen([500.0]), _with(desired="paused", driver_active=False), "PAUSED"),
    ("pause asked, not yet taken up", seen([3.0]), _with(desired="paused"), "RUNNING"),
    ("3 failed runs", seen([0.0]), _with(failed_runs_15min=3, last_run_failed="boom"), "CRASH_LOOP"),
    ("2 failed runs, running again", seen([0.0]), _with(failed_runs_15min=2, last_run_failed="boom"), "RUNNING"),
    ("query ended with an error", seen([0.0]), _with(driver_active=False, last_run_failed="boom"), "FAILED"),
    ("parked after its retries", seen([9.0]), _with(lane=Lane.QUARANTINED), "FAILED"),
    (
        "its commits fail, within the objective",
        seen([3.0]),
        _with(lane=Lane.CATCHUP, last_attempt_failed="boom"),
        "FAILED",
    ),
    ("its commits fail, newly started", seen([0.0]), _with(started_at=NOW - 9, last_attempt_failed="boom"), "FAILED"),
    ("query gone without an error", seen([0.0]), _with(driver_active=False), "MISSING"),
    ("should run, lane still paused", seen([0.0]), _with(lane=Lane.PAUSED), "MISSING"),
    (
        "waits for a schema",
        stuck(20),
        _with(lane=Lane.CATCHUP, waits_for="waits for schema 7 of registry main"),
        "LAGGING",
    ),
    ("waited for a schema, nothing waits now", seen([0.0]), _with(waits_for="waits for schema 7"), "RUNNING"),
    ("its commits fail while it waits", seen([9.0]), _with(last_attempt_failed="boom", waits_for="waits"), "FAILED"),
    ("young, rows wait, nothing moved", stuck(2), _with(started_at=NOW - 20), "STARTING"),
    ("young with a slow trigger", stuck(9), _with(started_at=NOW - 200, trigger_seconds=100.0), "STARTING"),
    (
        "first pass still at work",
        [Observation(NOW, 100, 190.0, None)],
        _with(started_at=NOW - 200, pass_active_since=NOW - 190),
        "STARTING",
    ),
    ("young, nothing waits", seen([0.0]), _with(started_at=NOW - 20), "RUNNING"),
    ("rows waited in an earlier run only", stuck(9), _with(started_at=NOW), "STARTING"),
    ("start expired", stuck(9), _with(started_at=NOW - 121), "STALLED"),
    ("an old run first seen just now", seen([3.0]), HEALTHY, "RUNNING"),
    ("an old run first seen just now, age unknown", seen([None]), HEALTHY, "UNKNOWN"),
    ("moved once, then stood 120 s", [Observation(NOW - 200, 99, 5.0, 99), *stuck(9)], HEALTHY, "STALLED"),
    ("moved once, then stood 105 s", [Observation(NOW - 200, 99, 5.0, 99), *stuck(8)], HEALTHY, "RUNNING"),
    ("stood still with an unknown age", [Observation(NOW - 200, 99, 5.0, 99), *stuck(9, None)], HEALTHY, "STALLED"),
    ("catch-up stuck while its group moves", seen([30.0] * 10, moving=False), _with(lane=Lane.CATCHUP), "STALLED"),
    ("quiet stream while its group moves", seen([0.0] * 10, moving=False), HEALTHY, "RUNNING"),
    ("at head for long, then a row", [*stuck(12, 0.0), Observation(NOW + 1, 100, 1.0, 100)], HEALTHY, "RUNNING"),
    ("quiet group at head", stuck(40, 0.0), HEALTHY, "RUNNING"),
    (
        "stood still only since a pass began",
        [Observation(NOW - 200, 99, 5.0, 99), *stuck(12)],
        _with(pass_active_since=NOW - 170),
        "AT_RISK",
    ),
    ("one pass for 301 s", seen([30.0] * 3), _with(pass_active_since=NOW - 301), "STALLED"),
    (
        "one pass for 301 s, passes are long",
        seen([5.0] * 3),
        _with(pass_active_since=NOW - 301, pass_p95_seconds=70.0),
        "RUNNING",
    ),
    ("one pass for 301 s, nothing waits", seen([0.0] * 3), _with(pass_active_since=NOW - 301), "RUNNING"),
    ("new game reads its past", seen([900.0] * 5), _with(lane=Lane.CATCHUP, backfilling=True), "BACKFILLING"),
    ("backfill of unknown age", seen([None] * 5), _with(lane=Lane.CATCHUP, backfilling=True), "BACKFILLING"),
    ("backfill done", seen([0.0]), _with(lane=Lane.CATCHUP, backfilling=True), "RUNNING"),
    ("unknown age, catching up", seen([None] * 5, frontier=False), _with(lane=Lane.CATCHUP), "CATCHING_UP"),
    ("unknown age, moving", seen([None] * 5), HEALTHY, "CATCHING_UP"),
    ("unknown age, not moving", [Observation(NOW - 30, 9, 0.0, 9), Observation(NOW, 9, None, 9)], HEALTHY, "UNKNOWN"),
    ("far behind and falling", seen([900.0 - 20 * at for at in range(10)]), HEALTHY, "CATCHING_UP"),
    ("catch-up within the objective", seen([20.0] * 4), _with(lane=Lane.CATCHUP), "RUNNING"),
    ("catch-up within the objective, never falling", seen([50.0] * 10), _with(lane=Lane.CATCHUP), "CATCHING_UP"),
    ("catch-up over the objective, no slope yet", seen([70.0] * 2), _with(lane=Lane.CATCHUP), "CATCHING_UP"),
    (
        "catch-up over the objective, growing",
        seen([70.0 + 15 * at for at in range(5)]),
        _with(lane=Lane.CATCHUP),
        "LAGGING",
    ),
    ("behind and growing", seen([70.0 + 15 * at for at in range(10)]), HEALTHY, "LAGGING"),
    ("behind and falling too slowly", seen([100.0 - 0.4 * at for at in range(10)]), HEALTHY, "LAGGING"),
    ("over in 2 of the last 3", seen([10.0, 61.0, 10.0, 61.0]), HEALTHY, "LAGGING"),
    ("over twice, and within the objective now", seen([219.0, 224.0, 229.0, 4.9]), HEALTHY, "RUNNING"),
    ("over once", seen([5.0, 5.0, 5.0, 61.0]), HEALTHY, "AT_RISK"),
    ("never falling above a quarter", seen([16.0] * 10), HEALTHY, "AT_RISK"),
    ("never falling below a quarter", seen([14.0] * 10), HEALTHY, "RUNNING"),
    ("never falling, 9 observations", seen([16.0] * 9), HEALTHY, "RUNNING"),
    ("rising unevenly", seen([20.0, 19.0, 22, 21, 24, 23, 26, 25, 28, 27]), HEALTHY, "AT_RISK"),
    ("falling unevenly", seen([28.0, 29, 26, 27, 24, 25, 22, 23, 20, 21]), HEALTHY, "RUNNING"),
    ("saw-tooth of the trigger", seen([1.0, 6.0] * 5), HEALTHY, "RUNNING"),
    ("within the objective", seen([7.0]), HEALTHY, "RUNNING"),
]


@pytest.mark.parametrize(("window", "facts", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_judge_follows_its_table(window: list[Observation], facts: StreamFacts, expected: str) -> None:
    """The first rule of the table that matches gives the status, with one sentence of detail."""
    verdict = judge_stream(window, facts, NOW)
    assert expected == verdict.status, verdict.detail
    assert verdict.detail.endswith(".")
    assert "\n" not in verdict.detail


def test_table_of_cases_covers_every_status() -> None:
    """No status is without a case."""
    assert set(STATUSES) == {case[3] for case in CASES}


def test_detail_carries_the_error_and_the_numbers() -> None:
    """An operator reads why and how much in the verdict itself."""
    assert "disk full" in judge_stream(seen([0.0]), _with(driver_active=False, last_run_failed="disk full"), NOW).detail
    late = judge_stream(seen([900.0 - 15 * at for at in range(10)]), HEALTHY, NOW)
    assert late.detail == "765 s behind (objective 60 s), done in 765 s at this pace."


_AGES = st.one_of(st.none(), st.just(0.0), st.floats(0, 1e6))
_FACTS = st.builds(
    StreamFacts,
    desired=st.sampled_from(("running", "paused")),
    driver_active=st.booleans(),
    last_run_failed=st.one_of(st.none(), st.just("boom")),
    failed_runs_15min=st.integers(0, 5),
    lane=st.sampled_from(Lane),
    started_at=st.floats(NOW - 5_000, NOW),
    trigger_seconds=st.floats(0.1, 600),
    pass_p95_seconds=st.one_of(st.none(), st.floats(0, 600)),
    objective_seconds=st.floats(0.1, 3_600),
    pass_active_since=st.one_of(st.none(), st.floats(NOW - 2_000, NOW)),
    last_attempt_failed=st.one_of(st.none(), st.just("boom")),
    backfilling=st.booleans(),
)
_WINDOWS = st.lists(
    st.builds(
        Observation,
        at=st.floats(NOW - 600, NOW),
        cursor_seq=st.integers(0, 50),
        backlog_age_seconds=_AGES,
        frontier_seq=st.one_of(st.none(), st.integers(0, 50)),
    ),
    min_size=1,
    max_size=20,
).map(lambda window: [*sorted(window[:-1], key=lambda each: each.at), replace(window[-1], at=NOW)])


@settings(deadline=None)  # the machine may be busy
@given(window=_WINDOWS, facts=_FACTS)
@pytest.mark.proves("G129")
def test_judge_is_total_and_green_needs_evidence(window: list[Observation], facts: StreamFacts) -> None:
    """Every input has one of the 12 statuses; RUNNING needs an active query and a known age."""
    verdict = judge_stream(window, facts, NOW)
    assert verdict.status in STATUSES
    assert verdict.detail
    if verdict.status == "RUNNING":
        assert facts.driver_active
        assert facts.lane in ("RUN", "CATCHUP")
        assert facts.last_attempt_failed is None
        age = window[-1].backlog_age_seconds
        assert age is not None
        assert age <= facts.objective_seconds


@settings(deadline=None)  # the machine may be busy
@given(window=_WINDOWS, facts=_FACTS)
def test_an_unknown_age_is_never_green(window: list[Observation], facts: StreamFacts) -> None:
    """Forgetting the newest age never makes a stream RUNNING."""
    blind = [*window[:-1], replace(window[-1], backlog_age_seconds=None)]
    assert judge_stream(blind, facts, NOW).status not in ("RUNNING", "AT_RISK")


def _settled(statuses: Sequence[str]) -> list[Settled]:
    """Return the settled status after each verdict, one per 5 seconds."""
    history: list[Settled] = []
    for at, status in enumerate(statuses):
        history.append(
            settle(history[-1] if history else None, StatusVerdict(Status(status), f"{status} {at}."), 5.0 * at)
        )
    return history


def _shown(statuses: Sequence[str]) -> list[str]:
    return [settled.status for settled in _settled(statuses)]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["RUNNING", "LAGGING", "LAGGING"], ["RUNNING", "RUNNING", "LAGGING"]),
        (["RUNNING", "LAGGING", "RUNNING", "LAGGING"], ["RUNNING"] * 4),
        (["LAGGING", "RUNNING", "RUNNING", "RUNNING"], ["LAGGING", "LAGGING", "LAGGING", "RUNNING"]),
        (["RUNNING", "FAILED"], ["RUNNING", "FAILED"]),
        (["RUNNING", "PAUSED"], ["RUNNING", "PAUSED"]),
        (["STARTING", "PAUSED"], ["STARTING", "PAUSED"]),
        (["LAGGING", "CRASH_LOOP"], ["LAGGING", "CRASH_LOOP"]),
        (["RUNNING", "UNKNOWN", "RUNNING", "RUNNING"], ["RUNNING", "UNKNOWN", "UNKNOWN", "UNKNOWN"]),
        (["RUNNING", "LAGGING", "STALLED"], ["RUNNING", "RUNNING", "LAGGING"]),
        (["RUNNING", "STALLED", "LAGGING"], ["RUNNING", "RUNNING", "LAGGING"]),
        (["FAILED", "RUNNING", "LAGGING", "RUNNING"], ["FAILED", "FAILED", "FAILED", "LAGGING"]),
        (["LAGGING", "RUNNING", "STALLED", "RUNNING", "RUNNING"], ["LAGGING"] * 5),
    ],
)
def test_settle_worsens_after_two_and_improves_after_three(verdicts: list[str], expected: list[str]) -> None:
    """Worse needs 2 agreeing verdicts, better 3, and PAUSED, FAILED, CRASH_LOOP and UNKNOWN none."""
    assert expected == _shown(verdicts)


def test_a_landing_ends_that_rows_do_not_reach_their_table() -> None:
    """A stream is shown as failed until its driver's next report after a commit, and as failed again at once."""
    failed = Settled(Status.FAILED, 100.0, "Failed.")
    level, bad = (StatusVerdict(status, f"{status}.") for status in (Status.RUNNING, Status.STALLED))
    landed = settle(failed, level, 220.0, 216.0)
    assert (landed.status, landed.since) == ("RUNNING", 220.0)
    assert settle(failed, level, 220.0, 99.0).status == "FAILED", "it landed before it failed"
    assert settle(failed, level, 220.0).status == "FAILED"
    assert settle(failed, bad, 220.0, 216.0).status == "FAILED"
    starting = Settled(Status.STARTING, 100.0, "Starts.")
    assert [settle(starting, level, 105.0, at).status for at in (None, 104.0)] == ["STARTING", "RUNNING"]
    late = Settled(Status.LAGGING, 100.0, "Late.")
    assert settle(late, level, 220.0, 216.0).status == "LAGGING", "it landed all the time"
    assert settle(landed, StatusVerdict(Status.FAILED, "Again."), 225.0, 216.0).status == "FAILED"


def test_a_catch_up_ends_once_the_stream_is_level() -> None:
    """A stream with a backlog of 2 s does not catch up; close to its objective three verdicts must agree, as ever."""
    behind = Settled(Status.CATCHING_UP, 100.0, "Behind.")
    for age, shown in (
        (0.0, "RUNNING"),
        (2.0, "RUNNING"),
        (14.9, "RUNNING"),
        (15.0, "CATCHING_UP"),
        (59.0, "CATCHING_UP"),
    ):
        level = judge_stream(seen([age]), _with(lane=Lane.CATCHUP), NOW)
        assert (level.status, settle(behind, level, 105.0).status) == ("RUNNING", shown)
    ended = settle(behind, judge_stream(seen([2.0]), HEALTHY, NOW), 105.0)
    again = StatusVerdict(Status.CATCHING_UP, "Behind.")
    assert [settle(ended, again, 110.0).status, settle(settle(ended, again, 110.0), again, 115.0).status] == [
        "RUNNING",
        "CATCHING_UP",
    ], "one look makes nothing worse"


def test_settled_since_is_when_the_status_changed() -> None:
    """`since` stays while the status stays, and the detail is the newest of that status."""
    steps = _settled(["RUNNING", "LAGGING", "LAGGING", "LAGGING"])
    assert [step.since for step in steps] == [0.0, 0.0, 10.0, 10.0]
    assert steps[-1].detail == "LAGGING 3."


_STATUS = st.sampled_from(STATUSES)


@settings(deadline=None)  # the machine may be busy
@given(first=_STATUS, second=_STATUS, rounds=st.integers(2, 30))
def test_settle_never_flaps_on_alternating_input(first: str, second: str, rounds: int) -> None:
    """Two verdicts in turn change the settled status at most once, whatever they are."""
    shown = _shown([first, second] * rounds)
    assert sum(1 for before, after in pairwise(shown) if before != after) <= 1


@settings(deadline=None)  # the machine may be busy
@given(verdicts=st.lists(_STATUS, min_size=1, max_size=30))
def test_settled_green_needs_green_evidence(verdicts: list[str]) -> None:
    """RUNNING is shown only after a RUNNING verdict, and never over two bad verdicts in a row."""
    shown = _shown(verdicts)
    for at, status in enumerate(shown):
        if status == "RUNNING":
            assert "RUNNING" in verdicts[max(0, at - 3) : at + 1]
            assert "RUNNING" in verdicts[max(0, at - 1) : at + 1]
