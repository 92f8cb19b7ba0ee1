"""Checks of an act before it is submitted: what is in its way, who carries it out, and what mends itself meanwhile.

They inform; the gate decides when it is submitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.api.environment import OpenEnvironment
from pipeline.base.texts import join_limited, visible
from pipeline.control import gate
from pipeline.control.operations.definition import describe_open
from pipeline.health.facts.incidents import read_incidents
from pipeline.health.facts.liveness import judge_controller
from pipeline.health.verdicts.liveness import controller_absence
from pipeline.store.assignments import GameAssignment
from pipeline.store.operations import Intent, open_by_target
from pipeline.store.processes.leases import store_time

_DISTURBS = 2  # the level from which on an act may do harm to what recovers


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; raw names are in it."""

    is_well: bool
    text: str


def checks(
    environment: OpenEnvironment, intent: Intent, assignments: Mapping[str, GameAssignment]
) -> tuple[Check, ...]:
    """Look at an intent's targets and at the controller.

    Raises:
        Refused: the control store cannot be read.
    """
    store = environment.engine
    busy = open_by_target(store, intent.targets)
    found = [
        Check(False, f"{join_limited(sorted({describe_open(each) for each in busy.values()}))} has to end first")
        if busy
        else Check(True, "no other operation is about them")
    ]
    absence = controller_absence(judge_controller(store, environment.settings.metrics))
    found.append(
        Check(True, "a controller runs, which carries it out") if absence is None
        else Check(False, f"{absence}, so it waits")
    )  # fmt: skip
    if gate.level(intent) >= _DISTURBS:
        found += _mending(environment, intent, assignments)
    return tuple(found)


def _mending(environment: OpenEnvironment, intent: Intent, assignments: Mapping[str, GameAssignment]) -> list[Check]:
    """Return the incidents about its games that an operation or the controller mends now, or that recover."""
    names = {target.partition(":")[2] for target in intent.targets if target.startswith("group:")}
    own = {target.partition(":")[2] for target in intent.targets} - names
    own |= {key for key, each in assignments.items() if each.group in names}
    now = store_time(environment.engine)
    return [
        Check(False, f"{visible(each.finding.title, 120)}: {visible(progress, 160)}")
        for each in read_incidents(environment.engine, now)
        if (progress := each.progress(now)) is not None and own & set(each.games)
    ]
