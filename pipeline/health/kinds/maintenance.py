"""Maintenance: the process that compacts tables and removes what nobody reads any more."""

from collections.abc import Sequence
from typing import Final

from listeners.process_kinds import MAINTENANCE as KIND
from listeners.process_kinds import ONLY
from pipeline.health.verdicts.alert import Alert
from pipeline.health.verdicts.processes import DriverState, FleetFacts, ProcessKind, how


def _judge(facts: FleetFacts) -> Sequence[DriverState]:
    judged = facts.upkeep.judge(facts.judge(KIND, ONLY), facts.now)
    return [] if judged is None else [DriverState(KIND, ONLY, *judged)]


def _problem(state: DriverState, facts: FleetFacts) -> str:
    return facts.upkeep.problem(state.liveness, facts.now)


def _notes(state: DriverState, facts: FleetFacts) -> Sequence[str]:
    return [facts.upkeep.overdue(facts.now) or f"maintenance {how(state.liveness)}"] if state.is_problem else ()


MAINTENANCE: Final = ProcessKind(
    KIND,
    _judge,
    _problem,
    _notes,
    is_late=True,
    is_overdue=lambda facts: facts.upkeep.overdue(facts.now) is not None,
    alert=Alert(
        "TurnoutMaintenanceOverdue",
        "ticket",
        "max(turnout_maintenance_overdue_seconds) > 0\nor\n"
        '0 * (absent(turnout_maintenance_overdue_seconds) and on () (count(up{job="turnout"}) > 0))',
        "15m",
        "Tables are not maintained",
        "{{ if eq $value 0.0 }}Whether rounds end well is not known{{ else }}A round that ends well has been due "
        "for {{ $value | humanizeDuration }}{{ end }}. `turnout status` says more.",
        "/",
    ),
)
