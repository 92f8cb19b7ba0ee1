"""A change of access as a kind of operation: what every process knows of it; only the controller knows its steps."""

from typing import Final

from pipeline.control.operations.definition import Level, OperationDefinition
from pipeline.control.roles import Role
from pipeline.store.database.states import OperationKind
from pipeline.store.operations import Intent


def _weigh(intent: Intent) -> Level:
    """Return 1 where one cell is given, 2 where one is taken, 3 where it is several, or a group with its members."""
    known = sum(True in each[2:] for each in intent.preview["effects"])  # who gains or loses read access
    if max(len(intent.parameters["intents"]), known) > 1:
        return 3
    return 1 if _verb(intent) == "grant" else 2


def _verb(intent: Intent) -> str:
    gives = {bool(each["read"]) for each in intent.parameters.get("intents", ())}  # audit entries have none
    if not gives:
        return intent.kind
    return "change" if len(gives) != 1 else "grant" if gives == {True} else "revoke"


ACCESS: Final = OperationDefinition(
    OperationKind.ACCESS,
    Role.ACCESS_ADMIN,
    _weigh,
    undone_by="turnout grants undo",
    verb=_verb,
    counts="cell",
    has_own_reasons=True,
    has_items=True,
)
