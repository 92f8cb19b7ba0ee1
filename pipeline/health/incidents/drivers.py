"""Causes of a group's driver: it is gone, starts again, or its query fails. Pure; called by `judging.py`."""

from dataclasses import replace
from typing import Final

from listeners.status import Status
from pipeline.health.incidents.causes import CONTROLLER_WORD, Acting, Action, Finding
from pipeline.health.incidents.evidence import Evidence, GameWindow, GroupSeen, GroupWindow
from pipeline.health.incidents.own import is_storage, storage_advice
from pipeline.health.incidents.texts import MAX_NAME, cut, of_game, of_group, source_is_well
from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.database.states import Cause, OperationKind
from pipeline.store.rows import START_LIMIT_SECONDS

MENDS_SECONDS: Final = 180.0
"""Seconds for which the controller is left to start a driver again; then a person is offered the restart."""

RESTART_SECONDS: Final = 60.0
"""Seconds in which a driver that ended in order may be started again, and an operation may be done."""

_QUIET_SECONDS: Final = 15.0  # without a heartbeat

_THEN: Final = "its driver tries again by itself"


def driver(window: GameWindow, group: GroupWindow | None, evidence: Evidence) -> Finding | None:
    """Judge whether there is a driver, and whether its query runs."""
    seen = window.seen
    if group is None:
        if seen.status != Status.MISSING:
            return None
        return of_game(
            Cause.DRIVER_GONE, "No group carries {}", window, (cut(seen.reason or "it has no group"),),
            source_is_well(evidence), Action("Plan a move…", "groups", {}), "turnoutstreamdown", scope="no group",
            is_fact=True, past="No group carried {}",
        )  # fmt: skip
    driver, name = group.seen, group.seen.name
    liveness = driver.liveness
    if driver.is_skewed:
        return of_group(
            Cause.DRIVER_SLOW, f"The clock of group {name} is wrong", group, (cut(liveness.reason or "it is skewed"),),
            evidence, "turnoutgroupdown", is_fact=True, past=f"The clock of group {name} was wrong",
        )  # fmt: skip
    if liveness.is_live:
        return _restarted(window, group, evidence) or _failing_query(window, group, evidence)
    if driver.is_awaited or not (seen.in_trouble or seen.status.is_recovering):
        return None
    text = liveness.reason or liveness.state
    evidences = [f"its driver {cut(text)}"]
    if driver.deaths > 1:
        evidences.append(f"it died {driver.deaths} times within the last hour")
    if driver.last_death and driver.last_death not in text:
        evidences.append(f"the last end: {cut(driver.last_death)}")
    if evidence.mass_failure is not None:
        evidences.append(cut(evidence.mass_failure))
    if liveness.state == "failed" and is_storage(text):
        found = of_group(
            Cause.STORAGE, f"The driver of group {name} failed on storage", group, evidences, evidence,
            "turnoutgroupdown", is_fact=True,
        )  # fmt: skip
        return replace(found, action=None, advice=storage_advice(text, driver.host, _THEN))
    titles = {
        "failed": f"The driver of group {name} failed", "not_started": f"The driver of group {name} was never started",
        "unknown": f"The driver of group {name} fell silent",
    }  # fmt: skip
    evidences.append(_who_starts(driver, evidence.now))
    if driver.operation is not None:
        evidences.append(f"{driver.operation.kind} by {cut(driver.operation.actor, MAX_NAME)} is not done yet")
    found = _handed_over(driver, evidence.now, of_group(
        Cause.DRIVER_GONE, titles.get(liveness.state, f"Group {name} lost its driver"), group, evidences, evidence,
        "turnoutgroupdown", is_fact=liveness.state != "unknown" or liveness.has_lost_lease,
    ))  # fmt: skip
    return replace(found, is_expected=restarts(liveness, evidence.now))


def _who_starts(driver: GroupSeen, now: float) -> str:
    if not driver.is_started_here:
        return "turnout does not start it"
    if driver.no_controller is not None:
        return f"{driver.no_controller}, so nothing starts it again"
    if driver.is_given_up:
        return "the controller has given it up"
    if not _may_hang(driver, now):
        return "the controller starts it again"
    operation = driver.operation
    restarts = operation is not None and operation.kind == OperationKind.RESTART and not operation.is_stuck
    return f"it may hang: {'the restart that is under way' if restarts else 'a restart'} ends it"


def _may_hang(driver: GroupSeen, now: float) -> bool:
    """Return whether its process may be there, so that the controller does not start another one yet.

    A lost lease does not tell: a frozen process loses it as well. That of a dead one is taken away, soon after a beat.
    """
    if driver.liveness.state != "unknown":
        return False
    is_quiet = driver.heartbeat_at is None or now - driver.heartbeat_at > _QUIET_SECONDS
    return is_quiet or not driver.liveness.has_lost_lease


def _handed_over(driver: GroupSeen, now: float, found: Finding) -> Finding:
    """Say who starts a driver that is gone; a restart is offered where turnout can do it, and nobody is at it."""
    name, since = driver.name, driver.liveness.since
    if not driver.is_started_here:
        started = f"Start it where it ran, such as by `turnout groups run {name}`; its games go on from their cursors"
        return replace(found, action=None, advice=started)
    if driver.no_controller is not None:
        return replace(found, action=None, advice="Start `turnout controller run`, which starts the driver again")
    if driver.is_given_up or _may_hang(driver, now) or since is None or now - since > MENDS_SECONDS:
        return found
    return replace(found, action=None, acting=_starting(CONTROLLER_WORD, driver.liveness, since))


def _starting(by: str, liveness: Liveness, since: float) -> Acting:
    """Return who starts a driver again: since nothing works any more, also once the new process has reported."""
    return Acting(by, f"{by} starts its driver again", since if liveness.gone_since is None else liveness.gone_since)


def restarts(liveness: Liveness, now: float) -> bool:
    """Return whether a driver ended in order so shortly ago that it may be on its way back, as in a deployment."""
    return liveness.state == "stopped" and liveness.since is not None and 0 <= now - liveness.since < RESTART_SECONDS


def _restarted(window: GameWindow, group: GroupWindow, evidence: Evidence) -> Finding | None:
    """Judge a driver that is being started after a death: between two looks it may have been dead for a second."""
    seen, driver = window.seen, group.seen
    if not starts_after_death(driver) or not (seen.in_trouble or seen.status.is_recovering):
        return None
    assert driver.last_death_at is not None, "it starts after it"
    ago = duration(evidence.now - driver.last_death_at)
    evidences = [f"its driver ended {ago} ago: {cut(driver.last_death or 'how is not known')}", "it starts again"]
    if driver.deaths > 1:
        evidences.append(f"it died {driver.deaths} times within the last hour")
    found = of_group(
        Cause.DRIVER_GONE, f"Group {driver.name} lost its driver", group, evidences, evidence, "turnoutgroupdown",
        is_fact=True,
    )  # fmt: skip
    by = CONTROLLER_WORD if driver.is_started_here else "what started it"
    return replace(found, action=None, acting=_starting(by, driver.liveness, driver.liveness.since or evidence.now))


def _failing_query(window: GameWindow, group: GroupWindow, evidence: Evidence) -> Finding | None:
    """Judge the query that a group's streams share: it fails, or is not there, although their driver lives."""
    seen, name = window.seen, group.seen.name
    if seen.failure is not None or not seen.is_failing or seen.status == Status.STALLED:
        return None
    if not group.is_mostly_troubled:
        return None
    error = seen.last_error or "no error was reported"
    evidences = (f"its query fails: {cut(error)}", f"{group.troubled} of its {group.games} games stand still")
    if is_storage(error):
        title = f"The driver of group {name} failed on storage"
        found = of_group(Cause.STORAGE, title, group, evidences, evidence, "turnoutstreamdown", is_fact=True)
        return replace(found, action=None, advice=storage_advice(error, group.seen.host, _THEN))
    title = f"The query of group {name} stopped"
    return of_group(Cause.DRIVER_GONE, title, group, evidences, evidence, "turnoutstreamdown", is_fact=True)


def starts_after_death(driver: GroupSeen) -> bool:
    """Return whether a driver is being started after a death a short while ago."""
    liveness, died_at = driver.liveness, driver.last_death_at
    if liveness.state != "starting" or died_at is None or liveness.since is None:
        return False
    return liveness.since - died_at <= START_LIMIT_SECONDS
