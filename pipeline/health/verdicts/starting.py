"""Whether an environment starts as a whole: then a process that has not started yet is awaited, and missed by nobody.

Pure; times are Unix seconds by the store's clock.
"""

from typing import Final

from pipeline.health.verdicts.liveness import DriverFacts, Liveness
from pipeline.store.rows import CLOCK_BOUND_SECONDS, START_LIMIT_SECONDS

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


def is_awaited(liveness: Liveness, since: float | None) -> bool:
    """Return whether a process is on its way with an environment that starts since then; None: it does not start.

    One that ended in order after that moment is not.
    """
    return since is not None and liveness.state in _NOT_YET and (liveness.since is None or liveness.since < since)


def _is_young(at: float, now: float) -> bool:
    return -CLOCK_BOUND_SECONDS <= now - at <= START_LIMIT_SECONDS
