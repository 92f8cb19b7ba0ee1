"""Causes that games share: an act of a person, their driver, their group's load. Pure; called by `judging.py`."""

from dataclasses import replace
from typing import Final

from listeners.status import Status
from pipeline.health.incidents.causes import Action, Finding
from pipeline.health.incidents.drivers import RESTART_SECONDS, starts_after_death
from pipeline.health.incidents.evidence import (
    Evidence,
    GameWindow,
    GroupWindow,
    OpenOperation,
    Point,
)
from pipeline.health.incidents.texts import (
    MAX_NAME,
    cut,
    neighbours,
    of_all,
    of_game,
    of_group,
    percent,
    source_is_well,
    source_trouble,
    times_usual,
    troubled_neighbours,
)
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.database.states import Cause

FALLING: Final = -0.05
"""A backlog recovers, and needs no other cause, if its age falls at least this fast, in seconds per second."""

LEAST_TREND: Final = 3
"""Looks at a backlog that are needed to tell whether it falls."""

_FALL_SECONDS: Final = 60.0
_LEAST_FALL_SECONDS: Final = 8.0  # ages jump by a batch: of less, as of looks half a second apart, they say nothing

SLOW_COMMIT_SECONDS: Final = 2.0
SLOW_COMMIT_TIMES: Final = 4.0
"""A commit is slow above these seconds and above this multiple of the usual."""

FULL_SHARE: Final = 0.85
SURGE_TIMES: Final = 1.5
"""A group is at its limit from this share of its capacity on, or from this multiple of its usual rows."""

SLOW_SHARE: Final = 0.7
"""A driver is slow below this share of its usual rows at an unchanged input."""

STILL_SECONDS: Final = 60.0
"""A driver that lives stands still after these seconds without progress while bronze has more."""

GRACE_SECONDS: Final = 120.0
"""Seconds after a driver's start in which its games may be late by the rows that waited for it."""

CONTROLLER: Final = "(controller)"
_ENDS_A_DRIVER: Final = frozenset({"stop", "restart"})
_BEAT_SECONDS: Final = 15.0  # of a driver that is silent the last heartbeat is known, not its end


# ------------------------------------------------------------------------------------------------ what people have done


def stopped_on_purpose(window: GameWindow, group: GroupWindow | None, evidence: Evidence) -> Finding | None:
    """Judge a game that was paused, or whose group was stopped, on purpose."""
    seen = window.seen
    if seen.paused_by is not None and seen.status == Status.PAUSED:
        since = "" if seen.paused_at is None else f" {duration(evidence.now - seen.paused_at)} ago"
        return of_game(
            Cause.OPERATOR, "{} paused on purpose", window, (f"{cut(seen.paused_by, MAX_NAME)} paused it{since}",),
            (), Action("Resume…", "game", {"game": seen.game_key}), None, is_fact=True,
        )  # fmt: skip
    if group is not None and group.seen.desired == "stopped" and not group.seen.liveness.is_live:
        name = group.seen.name
        return of_all(
            Cause.OPERATOR, f"Group {name} is stopped on purpose", (f"its {group.games} games stand still",), (),
            Action("Start group…", "groups", {"steer": name, "do": "start"}), None, scope=f"group {name}", is_fact=True,
            past=f"Group {name} was stopped on purpose",
        )  # fmt: skip
    return None


def operation(window: GameWindow, group: GroupWindow | None, evidence: Evidence) -> Finding | None:
    """Judge a game that is late while a person has it, or its group, changed.

    That its driver is gone is another cause, of all games of the group, unless the operation ended the driver.
    """
    seen = window.seen
    operation = seen.operation or (None if group is None else group.seen.operation)
    if operation is None or operation.actor == CONTROLLER:
        return None
    if not seen.in_trouble or seen.waits_for_ingest or seen.failure is not None:
        return None
    if group is not None and not _is_explained(group, evidence.now):
        return None
    who = cut(operation.actor, MAX_NAME)
    since = duration(evidence.now - operation.requested_at)
    stuck = ("it needs a person",) if operation.is_stuck else ()
    found = of_all(
        Cause.OPERATOR, f"{operation.kind.capitalize()} by {who} is not done yet",
        (f"{who} requested {operation.kind} {since} ago", *stuck), (), open_operation(operation),
        "turnoutoperationneedsperson" if operation.is_stuck else None, scope=f"operation {operation.operation_id[:8]}",
        past=f"{operation.kind.capitalize()} by {who} made games late",
    )  # fmt: skip
    is_its_work = seen.since is not None and seen.since >= operation.requested_at
    is_young = evidence.now - operation.requested_at < RESTART_SECONDS
    return replace(found, is_expected=is_its_work and is_young and not operation.is_stuck)


def _is_explained(group: GroupWindow, now: float) -> bool:
    """Return whether a group's driver is there, or is gone by the work of an operation that is at it now."""
    driver, liveness, operation = group.seen, group.seen.liveness, group.seen.operation
    ended_at = liveness.since
    if starts_after_death(driver):
        ended_at = driver.last_death_at
    elif liveness.is_live or liveness.state == "not_started":
        return True
    if operation is None or operation.is_stuck or operation.is_planned or operation.kind not in _ENDS_A_DRIVER:
        return False
    is_inferred = liveness.state == "unknown" and not liveness.has_lost_lease
    latest = operation.requested_at - (_BEAT_SECONDS if is_inferred else 0.0)
    return (now if ended_at is None else ended_at) >= latest


def is_recovering(window: GameWindow, group: GroupWindow | None, evidence: Evidence) -> bool:
    """Return whether its backlog shrinks, or its driver has just started."""
    if window.seen.is_failing:
        return False
    since = None if group is None else group.seen.liveness.since
    is_young = since is not None and evidence.now - since < GRACE_SECONDS
    return is_young or is_falling(window.trend)


def late_stream(window: GameWindow, group: GroupWindow | None, evidence: Evidence) -> Finding:
    """Judge a stream that is late or stands still though its driver lives and nothing fails."""
    seen = window.seen
    found = None
    if group is not None:
        found = _slow_commits(window, group, evidence)
        if found is None and group.is_mostly_troubled:
            found = _busy_group(group, evidence)
    if found is None:
        found = _surge(window, group, evidence)
    if found is not None:
        return found
    age = "unknown" if seen.backlog_seconds is None else duration(seen.backlog_seconds)
    evidences = [f"status {seen.status}, age of its backlog {age}"]
    if seen.segments:
        longest = sorted(seen.segments.items(), key=lambda each: -each[1])[:2]
        evidences.append(f"its latency is {' and '.join(f'{seconds:.1f} s {name}' for name, seconds in longest)}")
    elif group is not None and group.commit_seconds is not None:
        evidences.append(f"commits of group {group.seen.name} take {group.commit_seconds:.1f} s")
    if seen.last_error is not None:
        evidences.append(cut(f"last error: {seen.last_error}"))
    elif seen.rows_per_second is not None:
        evidences.append(f"it lands {seen.rows_per_second:,.1f} rows/s")
    if seen.reason is not None:
        evidences.append(cut(seen.reason))
    evidences += [*troubled_neighbours(window, group), *source_trouble(evidence)]
    runbook = "turnoutstreamstalled" if seen.status == Status.STALLED else "turnoutlatencyoverobjective"
    return of_game(
        Cause.UNDETERMINED, f"{_HOW.get(seen.status, '{} late')}, cause not determined", window, evidences,
        tuple(dict.fromkeys((*neighbours(window, group, evidence), *source_is_well(evidence)))),
        Action("Open game", "game", {"game": seen.game_key}), runbook,
        scope="" if group is None else f"group {group.seen.name}",
        past=f"{_HOW_PAST.get(seen.status, _HOW.get(seen.status, '{} late'))}, cause not determined",
    )  # fmt: skip


_HOW: Final = {
    Status.AT_RISK: "{} at risk of being late", Status.STALLED: "{} stood still", Status.UNKNOWN: "Nothing known of {}",
    Status.FAILED: "Commits of {} failed", Status.CRASH_LOOP: "Commits of {} failed", Status.MISSING: "{} not read",
}  # fmt: skip


_HOW_PAST: Final = {
    Status.AT_RISK: "{} was at risk of being late", Status.UNKNOWN: "Nothing was known of {}",
    Status.MISSING: "{} was not read",
}  # fmt: skip


def _slow_commits(window: GameWindow, group: GroupWindow, evidence: Evidence) -> Finding | None:
    usual, now = group.usual_commit_seconds, group.commit_seconds
    own = window.seen.commit_seconds
    if usual is None:
        return None
    limit = max(SLOW_COMMIT_SECONDS, SLOW_COMMIT_TIMES * usual)
    if now is not None and now >= limit:
        found = of_group(
            Cause.STORAGE, f"Commits of group {group.seen.name} became slow", group,
            (f"a commit takes {now:.1f} s, usually {usual:.1f} s",), evidence, "turnoutlatencyoverobjective",
        )  # fmt: skip
        return replace(found, action=None, advice="Look at what its storage does; a restart makes no commit faster")
    if own is not None and own >= limit:
        return of_game(
            Cause.STORAGE, "Commits of {} became slow", window,
            (f"a commit takes {own:.1f} s, usually {usual:.1f} s", *troubled_neighbours(window, group)),
            neighbours(window, group, evidence), Action("Open game", "game", {"game": window.seen.game_key}),
            "turnoutlatencyoverobjective",
        )  # fmt: skip
    return None


def _busy_group(group: GroupWindow, evidence: Evidence) -> Finding | None:
    name, rate, usual = group.seen.name, group.rows_per_second, group.usual_rows_per_second
    source = evidence.source
    if group.still_seconds >= STILL_SECONDS:
        return of_group(
            Cause.DRIVER_SLOW, f"The driver of group {name} stood still", group,
            (f"it lives and has passed nothing for {duration(group.still_seconds)}",), evidence, "turnoutstreamstalled",
        )  # fmt: skip
    arriving, usually = source.seen.rows_per_second, source.usual_rows_per_second
    is_surge = arriving is not None and usually is not None and arriving >= SURGE_TIMES * usually > 0
    share = group.load_share
    if (share is not None and share >= FULL_SHARE) or is_surge:
        evidences = [f"{group.troubled} of its {group.games} games are late"]
        if share is not None:
            evidences.append(f"estimated load {percent(share)} of its {group.seen.capacity_cores:g} cores")
        if is_surge and (times := times_usual(arriving, usually)) is not None:
            evidences.append(f"{arriving:,.0f} rows/s reach bronze, {times}")
        return of_group(
            Cause.CAPACITY, f"Group {name} reached its limit", group, evidences, evidence,
            "turnoutlatencyoverobjective", restarts=False,
        )  # fmt: skip
    is_less = rate is not None and usual is not None and rate < SLOW_SHARE * usual
    is_fed = arriving is None or usually is None or arriving >= SLOW_SHARE * usually
    if is_less and is_fed:
        return of_group(
            Cause.DRIVER_SLOW, f"The driver of group {name} became slow", group,
            (f"it lands {rate:,.0f} rows/s, usually {usual:,.0f}", f"{group.troubled} of its {group.games} games late"),
            evidence, "turnoutlatencyoverobjective",
        )  # fmt: skip
    return None


def _surge(window: GameWindow, group: GroupWindow | None, evidence: Evidence) -> Finding | None:
    rate, usual = window.seen.rows_per_second, window.usual_rows_per_second
    if rate is None or not usual or rate < 2 * SURGE_TIMES * usual:
        return None
    return of_game(
        Cause.CAPACITY, "Rows of {} came faster than they were written", window,
        (f"it lands {rate:,.0f} rows/s, usually {usual:,.0f}", *troubled_neighbours(window, group)),
        neighbours(window, group, evidence),
        Action("Plan a move…", "groups", {"steer": window.seen.group or ""}), "turnoutlatencyoverobjective",
    )  # fmt: skip


def is_falling(trend: tuple[Point, ...]) -> bool:
    """Return whether the age of a backlog fell over the last minute, or the last three looks where they are rare.

    Unknown is not falling.
    """
    known = [(each.at, each.backlog_seconds) for each in trend if each.backlog_seconds is not None]
    if not known or trend[-1].backlog_seconds is None:
        return False
    last_at, last = known[-1]
    earlier = [each for each in known[:-1] if last_at - each[0] <= _FALL_SECONDS]
    if len(earlier) < LEAST_TREND - 1:
        earlier = [each for each in known[-3:-1] if last_at - each[0] <= 2 * _FALL_SECONDS]  # heartbeats of 30 s
    if len(earlier) < LEAST_TREND - 1:
        return False
    at, age = earlier[0]
    return last_at - at >= _LEAST_FALL_SECONDS and (last - age) / (last_at - at) <= FALLING


def open_operation(operation: OpenOperation) -> Action:
    """Return the link to an operation's page."""
    return Action("Open operation", "operations", {"operation": operation.operation_id[:8]})
