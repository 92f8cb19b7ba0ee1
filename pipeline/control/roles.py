"""Who may steer what: checked when it is asked for, and again when it is begun, since roles may change in between."""

from typing import Final

from pipeline.errors import Refused
from pipeline.settings import Roles

CONTROLLER: Final = "(controller)"
"""The actor of what the controller asks of itself; no user of a system is called so."""

_OPERATOR: Final = frozenset({"pause", "resume", "retry", "replay", "rebuild", "restart", "resume operation", "close"})
"""What puts a stream or a group in order where it is; the rest changes who carries what and needs a mover."""


def role_of(kind: str) -> str:
    """Return the role that a kind of operation, or another act, needs."""
    return "operator" if kind in _OPERATOR else "mover"


def may(roles: Roles, actor: str, kind: str) -> bool:
    """Tell whether somebody has the role for it; a mover has the operator's as well."""
    if actor == CONTROLLER:
        return True
    if not roles.operators and not roles.movers:
        return True  # nobody is named: whoever reaches this environment may
    return actor in roles.movers or (role_of(kind) == "operator" and actor in roles.operators)


def roles_of(roles: Roles, actor: str) -> tuple[str, ...] | None:
    """Return the roles somebody has; None where nobody is named, and so everybody may."""
    if not roles.operators and not roles.movers:
        return None
    named = {"mover": roles.movers, "operator": roles.operators}
    return tuple(role for role, actors in named.items() if actor in actors)


def require(roles: Roles, actor: str, kind: str) -> None:
    """Go on only where somebody has the role for it.

    Raises:
        Refused: they have not.
    """
    if not may(roles, actor, kind):
        role = role_of(kind)
        raise Refused(
            f"{actor!r} may not {kind}: it needs the role {role}. The setting roles.{role}s names who has it: ask one."
        )
