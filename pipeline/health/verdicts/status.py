"""Which of the 12 statuses a stream has, from a window of observations; called by the watch of a group.

Pure: `now` is an argument. Unknown is never green, and a number nobody knows is never 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from listeners.sample import Lane
from listeners.status import Status

CRASH_LOOP_RUNS: Final = 3
PATIENCE_SECONDS: Final = 120.0
PASS_LIMIT_SECONDS: Final = 300.0
TREND_OBSERVATIONS: Final = 10
FALLING_SLOPE: Final = -0.05
LATE_OBSERVATIONS: Final = 2
LATE_AMONG: Final = 3
SLOPE_POINTS: Final = 3
RISK_SHARE: Final = 0.25
RISK_HORIZON_SECONDS: Final = 1800.0
WORSEN_AFTER: Final = 2
IMPROVE_AFTER: Final = 3


@dataclass(frozen=True, slots=True)
class Observation:
    """Where a stream stood at one instant."""

    at: float  # Unix seconds
    cursor_seq: int  # the last seq this stream itself has passed
    backlog_age_seconds: float | None  # None is unknown, 0 is "nothing waits"
    frontier_seq: int | None  # None before the first pass of the driver


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What is known of a stream besides its positions."""

    desired: Literal["running", "paused"]
    driver_active: bool  # the group's query is active
    last_run_failed: str | None  # why the last run ended, or why the stream is parked; one line
    failed_runs_15min: int
    lane: Lane
    started_at: float  # when the group's query was last started
    trigger_seconds: float
    pass_p95_seconds: float | None  # None before enough passes ended
    objective_seconds: float  # source time to table commit
    pass_active_since: float | None  # None: no pass is at work now
    last_attempt_failed: str | None = None  # why, of a stream that is behind; None after an attempt that did not
    waits_for: str | None = None  # "waits for schema …": what its next rows lack; None: nothing
    backfilling: bool = False  # it reads the whole past: a new game or a rebuild


@dataclass(frozen=True, slots=True)
class StatusVerdict:
    """One evaluation's status and the sentence, with numbers, that explains it."""

    status: Status
    detail: str
    is_level: bool = False  # nothing waits, or less than a quarter of what the objective allows


@dataclass(frozen=True, slots=True)
class Settled:
    """A status after hysteresis, and the change that is still being confirmed."""

    status: Status
    since: float
    detail: str
    pending: StatusVerdict | None = None
    agreeing: int = 0  # consecutive verdicts that were all worse, or all better, than `status`


def judge_stream(window: Sequence[Observation], facts: StreamFacts, now: float) -> StatusVerdict:
    """Return the stream's status; the first rule that matches wins, the order puts the surest evidence first.

    The driver judges its own streams, and the window's last observation is of `now`: a driver that is silent is judged
    by those who read its heartbeat.

    A = newest backlog age, E = max(trigger, p95 of passes), patience = max(120 s, 3E), slope = Theil's of the last
    10 ages. "Position" is max(cursor, frontier) in lane RUN and the cursor in any other lane: a stuck catch-up must
    not look alive because its group moves on. Observations from before `started_at` belong to an earlier run.

    | status      | rule                                                                                             |
    |-------------|--------------------------------------------------------------------------------------------------|
    | PAUSED      | desired paused, and the lane is PAUSED or the query is not active                                |
    | CRASH_LOOP  | at least 3 failed runs in 15 minutes                                                             |
    | FAILED      | the lane is QUARANTINED, or the query is not active and its last run failed                      |
    | MISSING     | should run, but the query is not active or the lane is PAUSED                                    |
    | FAILED      | the last attempt to bring on the rows that wait failed                                           |
    | LAGGING     | A is not 0, and the next rows wait for a schema that its registry has not given yet        |
    | STARTING    | no progress seen in this run, and patience not used up or its first pass still at work           |
    | STALLED     | A is not 0, and no move for the patience without a pass at work, or one pass > max(300 s, 5·p95) |
    | BACKFILLING | A is not 0 and the stream reads its whole past                                                   |
    | UNKNOWN     | A unknown, lane RUN, and no move seen in the window                                              |
    | CATCHING_UP | A unknown but it moves; or A > objective and slope <= -0.05; or lane CATCHUP and else AT_RISK     |
    | LAGGING     | A > objective now, and in 2 of the last 3 observations                                           |
    | AT_RISK     | A > objective now; or the last 10 ages >= objective/4 and they never fell, or reach it in 30 min |
    | RUNNING     | otherwise: A is known and small                                                                  |
    """
    if (verdict := _judge_driver(facts)) is not None:
        return verdict
    if window[-1].backlog_age_seconds == 0:
        return StatusVerdict(
            Status.RUNNING,
            f"Nothing waits: everything up to seq {_position(window[-1], facts.lane)} is applied.",
            is_level=True,
        )
    run = [seen for seen in window if seen.at >= facts.started_at]
    return _judge_movement(run, facts, now) or _judge_age(run, facts)


def settle(
    previous: Settled | None, verdict: StatusVerdict, now: float, last_commit_at: float | None = None
) -> Settled:
    """Return the settled status after one more verdict.

    A first verdict stands at once. Then the status worsens after 2 consecutive worse verdicts (PAUSED, FAILED,
    CRASH_LOOP and UNKNOWN at once, PAUSED also from STARTING) and improves after 3 consecutive better ones. Of verdicts
    that differ, the one nearest to the present status is taken: it is what all of them agree on, so differing bad news
    can never keep a status green. That rows do not reach their table, or have not yet since the start, ends at the
    first verdict without it after a commit. A catch-up ends at the first verdict of a level stream: it begins above the
    objective, and ends at once below a quarter of it, so nothing in between makes it flap.
    """
    if previous is None:
        return Settled(verdict.status, now, verdict.detail)
    has_landed = last_commit_at is not None and last_commit_at > previous.since
    is_without_rows = previous.status.is_bad or previous.status == Status.STARTING
    if has_landed and is_without_rows and not verdict.status.is_bad:
        since = previous.since if verdict.status == previous.status else now
        return Settled(verdict.status, since, verdict.detail)
    if previous.status == Status.CATCHING_UP and verdict.status == Status.RUNNING and verdict.is_level:
        return Settled(verdict.status, now, verdict.detail)
    change = verdict.status.severity - previous.status.severity
    if change == 0:
        return Settled(previous.status, previous.since, verdict.detail)
    if verdict.status.holds_at_once and (change > 0 or previous.status == Status.STARTING):
        return Settled(verdict.status, now, verdict.detail)
    pending, agreeing = verdict, 1
    if previous.pending is not None:
        before = previous.pending.status.severity - previous.status.severity
        if (before > 0) == (change > 0):
            agreeing = previous.agreeing + 1
            pending = previous.pending if abs(before) < abs(change) else verdict
    if agreeing >= (WORSEN_AFTER if change > 0 else IMPROVE_AFTER):
        return Settled(pending.status, now, pending.detail)
    return Settled(previous.status, previous.since, previous.detail, pending, agreeing)


def patience_seconds(facts: StreamFacts) -> float:
    """Return how long a stream may stand still with rows waiting before it counts as stalled."""
    return max(PATIENCE_SECONDS, 3 * max(facts.trigger_seconds, facts.pass_p95_seconds or 0.0))


def _judge_driver(facts: StreamFacts) -> StatusVerdict | None:
    """Rules that need no observation: does the query run, and did it fail."""
    if facts.desired == "paused" and (facts.lane == Lane.PAUSED or not facts.driver_active):
        return StatusVerdict(Status.PAUSED, "The stream is paused as asked.")
    reason = facts.last_run_failed or "no error was reported"
    if facts.failed_runs_15min >= CRASH_LOOP_RUNS:
        return StatusVerdict(Status.CRASH_LOOP, f"{facts.failed_runs_15min} runs failed within 15 minutes: {reason}.")
    if facts.lane == Lane.QUARANTINED:
        return StatusVerdict(Status.FAILED, f"The stream is parked until a person retries it: {reason}.")
    if not facts.driver_active and facts.last_run_failed is not None:
        return StatusVerdict(Status.FAILED, f"The group's query has ended with an error: {reason}.")
    if not facts.driver_active:
        return StatusVerdict(
            Status.MISSING, "The stream should run, but the group's query is not active and reported no error."
        )
    if facts.lane == Lane.PAUSED:
        return StatusVerdict(Status.MISSING, "The stream should run, but its driver still keeps it paused.")
    if facts.last_attempt_failed is not None:
        return StatusVerdict(
            Status.FAILED, f"Its rows do not reach its table, and are tried again: {facts.last_attempt_failed}."
        )
    return None


def _judge_movement(run: Sequence[Observation], facts: StreamFacts, now: float) -> StatusVerdict | None:
    """Rules about progress of this run; None when the stream moves or nothing waits."""
    patience, run_age = patience_seconds(facts), now - facts.started_at
    newest = run[-1]
    if facts.waits_for is not None:
        age = _age_text(newest.backlog_age_seconds)
        return StatusVerdict(Status.LAGGING, f"Rows wait ({age}): the stream {facts.waits_for}.")
    limit = max(PASS_LIMIT_SECONDS, 5 * (facts.pass_p95_seconds or 0.0))
    if facts.pass_active_since is not None and now - facts.pass_active_since > limit:
        busy = now - facts.pass_active_since
        return StatusVerdict(
            Status.STALLED, f"One pass has been at work for {busy:.0f} s; {limit:.0f} s are the limit."
        )
    since = _still_since(run, facts.lane)
    # A pass at work is given its own limit above, so only the stillness before it began is counted here.
    idle = (now if facts.pass_active_since is None else facts.pass_active_since) - since
    if idle >= patience:
        return StatusVerdict(
            Status.STALLED,
            f"Rows wait ({_age_text(newest.backlog_age_seconds)}), but nothing has moved past seq "
            f"{_position(newest, facts.lane)} for {now - since:.0f} s; {patience:.0f} s are allowed.",
        )
    first_pass = newest.frontier_seq is None and facts.pass_active_since is not None
    if since == run[0].at and (run_age < patience or first_pass):
        return StatusVerdict(Status.STARTING, f"The run is {run_age:.0f} s old and has made no progress yet.")
    return None


def _judge_age(run: Sequence[Observation], facts: StreamFacts) -> StatusVerdict:
    """Rules about how far behind a moving stream is."""
    age, objective = run[-1].backlog_age_seconds, facts.objective_seconds
    if facts.backfilling:
        return StatusVerdict(
            Status.BACKFILLING, f"Reads its whole past, now at seq {run[-1].cursor_seq} ({_age_text(age)})."
        )
    if age is None:
        if facts.lane == Lane.CATCHUP or _moved(run, facts.lane):
            position = _position(run[-1], facts.lane)
            return StatusVerdict(
                Status.CATCHING_UP, f"Moves, now at seq {position}, but how old the backlog is is unknown."
            )
        return StatusVerdict(Status.UNKNOWN, "Rows wait, but how long they have been waiting is unknown.")
    late = age > objective
    trend = run[-TREND_OBSERVATIONS:]
    falling = _slope(trend) if late else None
    if late and falling is not None and falling <= FALLING_SLOPE:
        done = age / -falling
        return StatusVerdict(
            Status.CATCHING_UP, f"{age:.0f} s behind (objective {objective:g} s), done in {done:.0f} s at this pace."
        )
    risk = None if late else _risk(trend, age, objective)
    if facts.lane == Lane.CATCHUP and (risk is not None or (late and falling is None)):
        return StatusVerdict(Status.CATCHING_UP, f"Reads its backlog, {age:.0f} s behind, objective {objective:g} s.")
    recent = [seen.backlog_age_seconds for seen in run[-LATE_AMONG:]]
    if late and sum(1 for each in recent if each is not None and each > objective) >= LATE_OBSERVATIONS:
        return StatusVerdict(
            Status.LAGGING, f"{age:.0f} s behind, over the objective of {objective:g} s and not falling."
        )
    if late:
        return StatusVerdict(Status.AT_RISK, f"{age:.0f} s behind, just over the objective of {objective:g} s.")
    return risk or StatusVerdict(
        Status.RUNNING, f"{age:.1f} s behind, objective {objective:g} s.", is_level=age < RISK_SHARE * objective
    )


def _risk(trend: Sequence[Observation], age: float, objective: float) -> StatusVerdict | None:
    """Return whether a stream within its objective is on the way out of it."""
    ages = [seen.backlog_age_seconds for seen in trend]
    known = [each for each in ages if each is not None and each >= RISK_SHARE * objective]
    if len(known) < TREND_OBSERVATIONS:
        return None
    if all(later >= earlier for earlier, later in pairwise(known)):
        return StatusVerdict(Status.AT_RISK, f"{age:.0f} s behind and never falling, objective {objective:g} s.")
    slope = _slope(trend)
    if slope is not None and slope > 0 and age + slope * RISK_HORIZON_SECONDS >= objective:
        reach = (objective - age) / slope
        return StatusVerdict(
            Status.AT_RISK, f"{age:.0f} s behind; over the objective of {objective:g} s in {reach:.0f} s."
        )
    return None


def _position(seen: Observation, lane: Lane) -> int:
    if lane == Lane.RUN and seen.frontier_seq is not None:
        return max(seen.cursor_seq, seen.frontier_seq)
    return seen.cursor_seq


def _moved(run: Sequence[Observation], lane: Lane) -> bool:
    newest = _position(run[-1], lane)
    return any(_position(seen, lane) != newest for seen in run)


def _still_since(run: Sequence[Observation], lane: Lane) -> float:
    """Return since when the position has not changed while rows were waiting."""
    position, since = _position(run[-1], lane), run[-1].at
    for seen in reversed(run):
        if seen.backlog_age_seconds == 0 or _position(seen, lane) != position:
            break
        since = seen.at
    return since


def _slope(trend: Sequence[Observation]) -> float | None:
    """Return the slope of the ages in seconds per second, robust to outliers; None with fewer than 3 known ages.

    Theil's incomplete method: the median over pairs half a window apart, which costs a ninth of all pairs.
    """
    points = [(seen.at, seen.backlog_age_seconds) for seen in trend if seen.backlog_age_seconds is not None]
    if len(points) < SLOPE_POINTS:
        return None
    half = len(points) // 2
    pairs = zip(points[:half], points[-half:], strict=True)
    slopes = sorted((late[1] - early[1]) / (late[0] - early[0]) for early, late in pairs if late[0] > early[0])
    return slopes[len(slopes) // 2] if slopes else None


def _age_text(age: float | None) -> str:
    return "age unknown" if age is None else f"oldest {age:.0f} s"
