"""Acts that are no operations: they are written at once, and need a role, some of them a reason."""

from enum import StrEnum
from typing import Self

from pipeline.control.roles import Role


class DirectAct(StrEnum):
    """One act, as refusals name it, and the role that may do it."""

    role: Role
    needs_reason: bool

    def __new__(cls, name: str, role: Role, needs_reason: bool = False) -> Self:
        """Make a member from its row below."""
        act = str.__new__(cls, name)
        act._value_ = name
        act.role, act.needs_reason = role, needs_reason
        return act

    PROPOSE_GAME = "propose a game", Role.OPERATOR, True
    REJECT_GAME = "reject a game", Role.OPERATOR
    CHANGE_RULES = "apply onboarding rules", Role.MOVER, True
    CHANGE_CONTRACTS = "apply output contracts", Role.OPERATOR, True
    CHANGE_DERIVED = "apply derived streams", Role.OPERATOR, True
    CHANGE_PRODUCERS = "apply edge producers", Role.MOVER, True
    REVOKE_PRODUCER = "revoke an edge producer", Role.OPERATOR, True
    CLOSE_DAY = "close a day", Role.OPERATOR
    REOPEN_DAY = "reopen a day", Role.OPERATOR, True
    APPROVE_REOPENING = "approve a reopening", Role.OPERATOR
    REJECT_REOPENING = "reject a reopening", Role.OPERATOR, True
    REGISTER_SCHEMA = "register a schema", Role.OPERATOR
    APPROVE_SCHEMA = "approve a schema", Role.OPERATOR
    REJECT_SCHEMA = "reject a schema", Role.OPERATOR, True
    TRUST_REGISTRY = "trust a registry", Role.OPERATOR, True
    GIVE_UP_REGISTRY = "give up a registry", Role.OPERATOR, True
    ACCEPT_LOSS = "accept lost schemas", Role.OPERATOR, True
    SET_OWN_QUERY = "set an own query", Role.OPERATOR
    ADOPT_SOURCE = "adopt a source", Role.OPERATOR
    ACCEPT_GAP = "accept a gap", Role.OPERATOR, True
    CREATE_GROUP = "create a group", Role.MOVER
    CHANGE_GROUP = "change a group", Role.MOVER
    REMOVE_GROUP = "remove a group", Role.MOVER, True
    STOP_ENVIRONMENT = "stop the environment", Role.MOVER
    SET_PRIORITY = "set a priority", Role.MOVER, True
    DECIDE_REQUEST = "decide about a request", Role.ACCESS_ADMIN
    IGNORE_DRIFT = "ignore drift", Role.ACCESS_ADMIN, True
    UNIGNORE_DRIFT = "stop ignoring drift", Role.ACCESS_ADMIN, True
    BREAK_IT = "break the demo", Role.OPERATOR
    ADD_USER = "add a user", Role.ACCESS_ADMIN
    RELOCATE_TABLES = "relocate tables", Role.ACCESS_ADMIN, True
