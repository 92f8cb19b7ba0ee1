"""Starts: of an environment as a whole, in which nobody misses a process that is awaited, and of a driver's streams.

Pure; times are Unix seconds by the store's clock.
"""

from typing import Final

from listeners.sample import StreamState
from listeners.status import Status
from pipeline.health.verdicts.liveness import DriverFacts, Liveness
from pipeline.store.rows import CLOCK_BOUND_SECONDS, START_LIMIT_SECONDS, Driver

_NOT_YET: Final = frozenset({"not_started", "stopped"})


def starting_since(facts: DriverFacts) -> float | None:
    """Return when the first of all processes that live began, or the first group was made, if that was a moment ago.

    None where a process has lived for longer than `START_LIMIT_SECONDS`: then what is missing did not come up with it.
    """
    known = {*facts.drivers, *facts.leases, *facts.runs}
    lives = [each.since for each in (facts.judge(*key) for key in known) if each.is_live]
    if not all(since is not None and _is_young(since, facts.now) for since in lives):
        return None
    made = (each.created_at for each in facts.groups.values())
    return min((each for each in (*lives, *made) if each is not None and _is_young(each, facts.now)), default=None)


def since_when(reported: StreamState, liveness: Liveness, driver: Driver | None) -> float:
    """Return since when a stream is as reported; with its driver it starts from when nothing worked on it any more."""
    if driver is None or liveness.gone_since is None or reported.status != Status.STARTING:
        return reported.status_since
    starts_with_it = -CLOCK_BOUND_SECONDS <= reported.status_since - driver.started_at <= START_LIMIT_SECONDS
    return liveness.gone_since if starts_with_it else reported.status_since


def is_awaited(liveness: Liveness, since: float | None) -> bool:
    """Return whether a process is on its way with an environment that starts since then; None: it does not start.

    One that ended in order after that moment is not.
    """
    return since is not None and liveness.state in _NOT_YET and (liveness.since is None or liveness.since < since)


def _is_young(at: float, now: float) -> bool:
    return -CLOCK_BOUND_SECONDS <= now - at <= START_LIMIT_SECONDS
