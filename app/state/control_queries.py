"""Data of the steering pages: games with their assignments and decisions, groups, operations, the audit log.

Caches over `pipeline.api`, shared by all viewers; each raises `Refused` where the control store cannot be read.
"""

from typing import Final

from app.state import services
from app.state.services import Environment, cached, kept
from pipeline.api import acts, audit, histories, operations
from pipeline.api import steering as steering_queries
from pipeline.api.audit import AuditFilter, Log
from pipeline.api.operations import OneOperation, OperationList
from pipeline.api.steering import ControlState

__all__ = [
    "AuditFilter",
    "ControlState",
    "Log",
    "OneOperation",
    "OperationList",
    "audit_log",
    "facts",
    "forget_verdict",
    "game_history",
    "journal",
    "one_operation",
    "steering",
    "verify_audit",
    "waiting_rows",
]


@kept(seconds=2, by_acts=True)
def steering(environment: Environment) -> ControlState:
    """Read what decides about moves of games and changes of groups, with the fleet that the headlines are made of.

    Raises:
        Refused: the control store cannot be read.
    """
    return steering_queries.read(services.opened(environment), services.fleet(environment))


facts: Final = cached(operations.facts, seconds=3, most=50, by_acts=True)
journal: Final = cached(operations.journal, seconds=1, by_acts=True)
one_operation: Final = cached(operations.one, seconds=1, most=50, by_acts=True)
game_history: Final = cached(histories.of_game, seconds=2, most=50, by_acts=True)
waiting_rows: Final = cached(acts.waiting_rows, seconds=5, most=20, by_acts=True)
audit_log: Final = cached(audit.log, seconds=5, most=4)
verify_audit: Final = cached(audit.verify, seconds=600)
"""It reads the whole log, so it is kept until `forget_verdict`."""


def forget_verdict() -> None:
    """Look through the whole audit log again at the next `verify_audit`."""
    verify_audit.clear()
