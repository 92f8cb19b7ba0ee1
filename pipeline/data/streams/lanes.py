"""The lane of a stream, and the effect of a failure on it. Pure: `now` and the dice are arguments.

Whether a stream is behind follows from the chain alone and is never stored (law L7); decisions about a stream (paused,
parked, retries used up) are a `StreamControl`, kept in the control store.
"""

from dataclasses import dataclass, replace
from typing import Final

from listeners.sample import Lane
from pipeline.base.reasons import innermost
from pipeline.lake.delta.columns import OtherColumns
from pipeline.lake.delta.foreign import ForeignChange
from pipeline.lake.delta.meanings import OtherMeaning
from pipeline.lake.delta.remade import TableGone
from pipeline.store.database.states import FailureClass
from pipeline.store.stream_control import StreamControl

BUDGET: Final = {"transient": 10, "poison": 3, "fatal": 3}
"""Failures in a row after which a stream is parked."""

HEALTHY_SECONDS: Final = 600.0  # after which earlier failures no longer count
_FIRST_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 300.0
_PASSING: Final = frozenset({"CommitFailedError", "Transient", "OperationalError", "InterfaceError", "TimeoutError"})
"""Names of errors of delta-rs, turnout and the control store's driver and pool."""
_SHARED_SHARE: Final = 0.3  # of a pass's streams fail alike: the cause is shared, and no stream is charged
_SHARED_STREAMS: Final = 3
_EVIDENCE_LIMIT: Final = 500


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of one stream."""

    kind: FailureClass
    evidence: str
    may_quote: bool = False  # the evidence may hold a value of a row, so keep it out of logs
    parks: bool = False  # only a person can remove the cause: no retry, and no other stream's failure excuses it
    is_gone: bool = False  # the table is: it must be opened anew before a row of it is read
    stopped_by: str | None = None  # the rules of an output contract that stopped it, see `StreamControl`
    # Event types whose merged columns differ: it waits for a rebuild that has begun, or for schemas that the control
    # store has lost. It is tried again, and never parks its stream.
    other_columns: frozenset[str] = frozenset()

    @property
    def waits(self) -> bool:
        """Whether its cause ends by itself, so that it is no failure of the stream."""
        return bool(self.other_columns)


def lane(decision: StreamControl, *, behind: bool) -> Lane:
    """Return the lane: requests outrank failures, and both outrank the stream's position."""
    if decision.desired == "paused":
        return Lane.PAUSED
    if decision.parked_at is not None:
        return Lane.QUARANTINED
    return Lane.CATCHUP if behind else Lane.RUN


def may_run(decision: StreamControl, now: float) -> bool:
    """Return whether the stream may be read now, in whichever lane.

    A failure ahead of `now` dates from before the clock was set back; the stream does not wait for the clock.
    """
    waits = decision.retry_at > now and (decision.failed_at is None or decision.failed_at <= now)
    return decision.desired == "running" and decision.parked_at is None and not waits


def failed(
    decision: StreamControl, failure: Failure, now: float, dice: float, *, charged: bool = True
) -> StreamControl:
    """Return the decision after a failure; `dice` in [0, 1) spreads the retries of many streams.

    An expected failure is retried at once. Others wait 5 s, doubled each time up to 300 s, with full jitter, and use up
    the budget of their class; `charged` is False where many streams share the cause. A failure that `parks` needs no
    budget.
    """
    if failure.kind == "expected":
        return decision
    earlier = 0 if decision.failed_at is None or now - decision.failed_at > HEALTHY_SECONDS else decision.failures
    failures = earlier + 1 if charged else earlier
    longest = min(_FIRST_SECONDS * 2.0 ** max(failures - 1, 0), _LONGEST_SECONDS)
    return replace(
        decision,
        failures=failures,
        failure_class=failure.kind,
        evidence=failure.evidence,
        failed_at=now,
        retry_at=now + longest * (0.5 + dice / 2),
        parked_at=now if failure.parks or failures >= BUDGET[failure.kind] else None,
        stopped_by=failure.stopped_by,
    )


def is_foreign(decision: StreamControl) -> bool:
    """Return whether a stream is parked because another writer has changed its table."""
    return decision.parked_at is not None and (decision.evidence or "").startswith(f"{ForeignChange.__name__}: ")


def succeeded(decision: StreamControl) -> StreamControl:
    """Return the decision after a commit: all failures are cleared."""
    if decision.failures == 0 and decision.evidence is None:
        return decision
    return StreamControl(decision.desired, decision.own_query)


def is_shared(failed_alike: int, streams: int) -> bool:
    """Return whether the failures of one class in one pass are enough to have a shared cause, such as full storage."""
    return failed_alike >= _SHARED_STREAMS and failed_alike > _SHARED_SHARE * streams


def classify(error: BaseException) -> FailureClass:
    """Return the class of an exception of a stream's own work."""
    if isinstance(error, OSError):
        return "transient"
    return "transient" if type(error).__name__ in _PASSING else "poison"


def failure_of(error: Exception) -> Failure:
    """Return the failure for an exception of a stream's own work."""
    evidence = f"{type(error).__name__}: {innermost(str(error))}"[:_EVIDENCE_LIMIT]
    is_gone = isinstance(error, TableGone)
    parks = is_gone or isinstance(error, ForeignChange | OtherMeaning)
    if isinstance(error, OtherColumns):
        return Failure("transient", evidence, other_columns=error.types)
    return Failure(classify(error), evidence, parks=parks, is_gone=is_gone)
