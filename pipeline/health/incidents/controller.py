"""A controller that is needed and does not run: one incident, so that an outage leaves a trace when it is over. Pure.

It is about no stream, so it is judged beside the causes of games, and its incident has no games. While no controller
runs, ingest judges.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pipeline.health.incidents.causes import Finding
from pipeline.health.incidents.drivers import restarts
from pipeline.health.incidents.incidents import Incident
from pipeline.health.incidents.texts import of_all
from pipeline.health.verdicts.processes import DriverState
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.database.states import Cause

_TITLES: Final = {"unknown": "The controller fell silent", "failed": "The controller failed"}
_WAITS: Final = "drivers that die are not started again, operations wait, and grants do not expire"


def judge_controller(state: DriverState | None, now: float) -> Finding | None:
    """Return that the controller is missed; None where it runs, nobody needs it, or it is on its way in order."""
    if state is None or not state.is_problem or state.liveness.is_live or restarts(state.liveness, now):
        return None
    found = of_all(
        Cause.CONTROLLER, _TITLES.get(state.liveness.state, "No controller runs"),
        (f"the controller {state.liveness.reason or state.liveness.state}", _WAITS), ("streams go on without it",),
        None, "turnoutcontrollerdown", scope="controller", is_fact=True,
    )  # fmt: skip
    return replace(found, advice="Start turnout controller run, or the service that runs it")


def keep_controller(
    before: Sequence[Incident], state: DriverState | None, now: float, new_id: Callable[[], str]
) -> tuple[Incident, ...]:
    """Return the incident of the controller after a look; `before` has those that are open or ended just now."""
    finding = judge_controller(state, now)
    still_open = sorted((each for each in before if each.ended_at is None), key=lambda each: each.since)
    if finding is None:
        return tuple(_ended(each, now) for each in still_open)
    since = None if state is None else state.liveness.since
    new = Incident(new_id(), finding, (), None, now if since is None else min(since, now), None, None, "late", now)
    first, *others = still_open or [new]
    return (replace(first, finding=finding), *(_ended(each, now) for each in others))


def _ended(incident: Incident, now: float) -> Incident:
    said = (f"no controller ran for {duration(now - incident.since)}", _WAITS)
    finding = replace(incident.finding, title="No controller ran", evidence=said, advice=None)
    return replace(incident, finding=finding, ended_at=now, tone="recovering")
