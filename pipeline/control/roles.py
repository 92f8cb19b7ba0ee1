"""Who may steer what: checked when it is asked for, and again when it is begun, since roles may change in between."""

from typing import Final

from pipeline.errors import Refused
from pipeline.settings import Roles

CONTROLLER: Final = "(controller)"
"""The actor of what the controller asks of itself; no user of a system is called so."""

_OPERATOR: Final = frozenset({"pause", "resume", "retry", "replay", "rebuild", "restart", "resume operation", "close"})
"""What puts a stream or a group in order where it is; the rest changes who carries what and needs a mover."""

_ACCESS: Final = frozenset({"access", "decide about a request", "ignore drift"})
"""What changes who may read; it needs an access admin, and a mover is none."""


def role_of(kind: str) -> str:
    """Return the role that a kind of operation, or another act, needs."""
    if kind in _ACCESS:
        return "access_admin"
    return "operator" if kind in _OPERATOR else "mover"


def may(roles: Roles, actor: str, kind: str) -> bool:
    """Tell whether somebody has the role for it."""
    if actor == CONTROLLER:
        return True
    had = roles_of(roles, actor)
    return had is None or role_of(kind) in had  # None: nobody is named, whoever reaches this environment may


def roles_of(roles: Roles, actor: str) -> tuple[str, ...] | None:
    """Return the roles somebody has, a mover the operator's as well; None where nobody is named: everybody may."""
    named = {
        "mover": roles.movers,
        "operator": (*roles.operators, *roles.movers),
        "access_admin": roles.access_admins,
    }
    if not any(named.values()):
        return None
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
