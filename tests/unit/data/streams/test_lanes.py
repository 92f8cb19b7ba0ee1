import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import InterfaceError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from pipeline.data.streams.lanes import (
    BUDGET,
    HEALTHY_SECONDS,
    Failure,
    classify,
    failed,
    failure_of,
    is_shared,
    lane,
    may_run,
    succeeded,
)
from pipeline.store.stream_control import StreamControl

KINDS = st.sampled_from(["transient", "poison", "fatal"])
DICE = st.floats(0, 1, exclude_max=True)


def test_what_was_asked_outranks_what_failed_and_both_outrank_where_a_stream_stands() -> None:
    """The four lanes: paused, parked, behind, in the pass."""
    parked = StreamControl(parked_at=1.0)
    assert lane(StreamControl("paused", parked_at=1.0), behind=True) == "PAUSED"
    assert lane(parked, behind=True) == "QUARANTINED"
    assert lane(StreamControl(), behind=True) == "CATCHUP"
    assert lane(StreamControl(), behind=False) == "RUN"
    assert [may_run(each, 5) for each in (parked, StreamControl("paused"), StreamControl(retry_at=6))] == [False] * 3


@given(KINDS, st.lists(DICE, min_size=1, max_size=12))
@pytest.mark.proves("D12", "G55")
def test_a_stream_is_parked_when_its_budget_is_used_up_and_not_before(kind: str, dice: list[float]) -> None:
    """D12: retries are bounded: after the budget of the class in a row the stream waits for a person."""
    decision, now = StreamControl(), 1_000.0
    for number, roll in enumerate(dice, 1):
        decision = failed(decision, Failure(kind, "why"), now, roll)  # type: ignore[arg-type]
        assert (decision.parked_at is not None) == (number >= BUDGET[kind])
        assert now + 2.5 <= decision.retry_at <= now + 300  # not by their difference, which is rounded once more
        now = decision.retry_at


@given(KINDS, DICE)
def test_old_failures_no_longer_count(kind: str, dice: float) -> None:
    """Ten healthy minutes give the whole budget back, and so does a commit."""
    now, worn = 10_000.0, StreamControl(failures=BUDGET[kind] - 1, failed_at=10_000.0 - HEALTHY_SECONDS - 1)
    assert failed(worn, Failure(kind, "why"), now, dice).failures == 1  # type: ignore[arg-type]
    assert succeeded(StreamControl("paused", failures=2, evidence="why", retry_at=9)) == StreamControl("paused")


def test_retries_wait_longer_each_time() -> None:
    """Backoff: a lasting cause is retried at growing intervals."""
    decision, waits = StreamControl(), []
    for _ in range(9):
        decision = failed(decision, Failure("transient", "disk full"), 0.0, 0.0)
        waits.append(decision.retry_at)
    assert waits == [2.5, 5, 10, 20, 40, 80, 150, 150, 150]


@given(st.integers(1, 9), DICE, st.floats(0, 300), st.floats(0, 7_200))
@pytest.mark.proves("D9")
def test_a_clock_that_is_set_back_lengthens_no_wait(failures: int, dice: float, passed: float, back: float) -> None:
    """D9: what is left of a wait is never longer than the wait, whenever and however far the clock is set back."""
    decision, then = StreamControl(), 1e6
    for _ in range(failures):
        decision = failed(decision, Failure("transient", "disk full"), then, dice)
    now, wait = then + passed - back, decision.retry_at - then
    assert may_run(decision, now) or may_run(decision, now + wait + 1e-3)
    assert may_run(decision, then - 3_600)
    assert not may_run(decision, then)


@given(st.floats(0, 1e6), DICE)
def test_an_expected_failure_costs_nothing(now: float, dice: float) -> None:
    """Another owner's commit is no fault of the stream: it is read again at once."""
    assert failed(StreamControl(), Failure("expected", "conflict"), now, dice) == StreamControl()


@pytest.mark.proves("D16", "G55")
def test_a_shared_cause_is_charged_to_nobody() -> None:
    """D16: full storage fails every stream at once: parking them all would need a person for each."""
    assert is_shared(4, 10)
    assert not is_shared(2, 2)
    assert not is_shared(3, 10)
    spared = failed(StreamControl(), Failure("transient", "disk full"), 0.0, 0.5, charged=False)
    assert (spared.failures, spared.parked_at) == (0, None)
    assert spared.retry_at > 0


def test_failures_have_a_class() -> None:
    """Storage and stores come back by themselves; rows and schemas do not."""
    assert classify(OSError(28, "No space left on device")) == "transient"
    assert classify(NoConnectionFree("QueuePool limit of size 2 overflow 2 reached")) == "transient"
    assert classify(InterfaceError("SELECT 1", {}, Exception("the connection is closed"))) == "transient"
    assert classify(ValueError("a column has two types")) == "poison"


def test_the_evidence_of_a_failure_of_the_jvm_is_its_cause() -> None:
    """Errors of Spark's writer begin with the name of a call, which does not help an operator."""
    reported = "An error occurred while calling o7.commit.\n: a.IOException: No space left on device\n\tat a.B"
    assert failure_of(Exception(reported)).evidence == "Exception: a.IOException: No space left on device"
