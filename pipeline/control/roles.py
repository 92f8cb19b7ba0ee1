"""Who may steer what: checked when it is requested, and again when it is begun, since roles may change in between."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Engine

from pipeline.errors import Refused
from pipeline.settings import Roles, Settings
from pipeline.store.members import members

CONTROLLER: Final = "(controller)"
"""The actor of what the controller asks of itself; no user of a system is called so."""

_GROUP: Final = "group:"
"""Begins a name in the settings that is a group of the catalog."""

_FRESH_SECONDS: Final = 60.0

_OPERATOR: Final = frozenset(
    {
        "pause", "resume", "retry", "replay", "dedupe", "rebuild", "restart",
        "approve a game", "reject a game", "register a schema", "set an own query", "accept a gap", "adopt a source",
    }
)  # fmt: skip
"""What puts a stream or a group in order where it is; the rest changes who carries what and needs a mover.

Who resumes, closes or cancels an operation needs the role of its kind, as who asks for one.
"""

ACCESS: Final = "access"
"""The kind of an operation that changes who may read."""

_ACCESS: Final = frozenset({ACCESS, "decide about a request", "ignore drift", "add a user"})
"""What changes who may read; it needs an access admin, and a mover is none."""


def groups_of(roles: Roles) -> frozenset[str]:
    """Return the groups of the catalog that roles are given to."""
    named = (*roles.operators, *roles.movers, *roles.access_admins)
    return frozenset(each.removeprefix(_GROUP) for each in named if each.startswith(_GROUP))


def current(settings: Settings, engine: Engine) -> Roles:
    """Return the roles with groups replaced by who is in them, as the controller last read it from the catalog.

    A group that was not read for a minute more than the time of two looks has nobody in it: a role is never held by an
    old picture.
    """
    roles = settings.roles
    groups = groups_of(roles)
    if not groups:
        return roles
    by_group = members(engine, groups, _FRESH_SECONDS + 2 * settings.access.refresh_seconds)
    actors: dict[str, list[str]] = {}
    for actor, principal in settings.access.identities.items():
        actors.setdefault(principal.casefold(), []).append(actor)

    def expanded(names: Sequence[str]) -> tuple[str, ...]:
        expanded_names: list[str] = []
        for name in names:
            people = sorted(by_group.get(name.removeprefix(_GROUP), ())) if name.startswith(_GROUP) else []
            expanded_names += [name, *people, *(actor for each in people for actor in actors.get(each.casefold(), ()))]
        return tuple(dict.fromkeys(expanded_names))

    return Roles(expanded(roles.operators), expanded(roles.movers), expanded(roles.access_admins))


def role_of(kind: str) -> str:
    """Return the role that a kind of operation, or another act, needs."""
    if kind in _ACCESS:
        return "access_admin"
    return "operator" if kind in _OPERATOR else "mover"


def may(roles: Roles, actor: str, kind: str) -> bool:
    """Return whether a person has the role for it."""
    if actor == CONTROLLER:
        return True
    had = roles_of(roles, actor)
    return had is None or role_of(kind) in had  # None: no roles are set, so everybody who reaches this environment may


def roles_of(roles: Roles, actor: str) -> tuple[str, ...] | None:
    """Return the roles a person has, a mover the operator's as well; None where nobody is named: everybody may."""
    named = {
        "mover": roles.movers,
        "operator": (*roles.operators, *roles.movers),
        "access_admin": roles.access_admins,
    }
    if not any(named.values()):
        return None
    return tuple(role for role, actors in named.items() if any(same_person(actor, each) for each in actors))


def same_person(one: str, other: str) -> bool:
    """Return whether two names of actors are one person's."""
    return _folded(one) == _folded(other)


def _folded(name: str) -> str:
    """Return a name as it is compared: e-mail addresses without case, as directories do, users of a system exactly.

    Only of the letters A to Z: other rules of case make one person of two addresses, such as straße@ and strasse@.
    """
    return "".join(each.lower() if each.isascii() else each for each in name) if "@" in name else name


def require(roles: Roles, actor: str, kind: str) -> None:
    """Go on only where a person has the role for it.

    Raises:
        Refused: they have not.
    """
    if not may(roles, actor, kind):
        role = role_of(kind)
        raise Refused(
            f"{actor!r} may not {kind}: it needs the role {role}. The setting roles.{role}s names who has it: ask one."
        )


def require_current(settings: Settings, engine: Engine, actor: str, kind: str) -> None:
    """Go on only where a person has the role for it at this moment.

    Raises:
        Refused: they have not.
    """
    require(current(settings, engine), actor, kind)
