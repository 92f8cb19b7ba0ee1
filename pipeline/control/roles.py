"""Who may steer what: checked when it is requested, and again when it is begun, since roles may change in between."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.settings.access import Access
from pipeline.settings.tree import Roles, Settings
from pipeline.store.members import members

CONTROLLER: Final = "(controller)"
"""The actor of what the controller asks of itself; no user of a system is called so."""

_GROUP: Final = "group:"
"""Begins a name in the settings that is a group of the catalog."""

FRESH_SECONDS: Final = 60.0
"""What the catalog showed counts for this time after two looks of the controller were due."""


class Role(StrEnum):
    """What a person may be. A mover may do what an operator may; an access admin is neither."""

    OPERATOR = "operator"  # puts a stream or a group in order where it is
    MOVER = "mover"  # changes who carries what
    ACCESS_ADMIN = "access_admin"  # changes who may read


def groups_of(roles: Roles) -> frozenset[str]:
    """Return the groups of the catalog that roles are given to."""
    named = (*roles.operators, *roles.movers, *roles.access_admins)
    return frozenset(each.removeprefix(_GROUP) for each in named if each.startswith(_GROUP))


def current(settings: Settings, engine: Engine) -> Roles:
    """Return the roles with groups replaced by their members, as the controller last read them from the catalog.

    A group that was not read for a minute more than the time of two looks has nobody in it: a role is never held by an
    old snapshot.
    """
    roles = settings.roles
    groups = groups_of(roles)
    if not groups:
        return roles
    by_group = members(engine, groups, FRESH_SECONDS + 2 * settings.access.refresh_seconds)
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


def may(roles: Roles, actor: str, role: Role) -> bool:
    """Return whether a person has a role."""
    if actor == CONTROLLER:
        return True
    had = roles_of(roles, actor)
    return had is None or role in had  # None: no roles are set, so everybody who reaches this environment may


def roles_of(roles: Roles, actor: str) -> tuple[Role, ...] | None:
    """Return the roles a person has, a mover the operator's as well; None where nobody is named: everybody may."""
    named = {
        Role.MOVER: roles.movers,
        Role.OPERATOR: (*roles.operators, *roles.movers),
        Role.ACCESS_ADMIN: roles.access_admins,
    }
    if not any(named.values()):
        return None
    return tuple(role for role, actors in named.items() if any(same_person(actor, each) for each in actors))


def same_person(one: str, other: str) -> bool:
    """Return whether two names of actors are one person's."""
    return _folded(one) == _folded(other)


def is_self(access: Access, one: str, other: str) -> bool:
    """Return whether two names of actors are one person's, also where `access.identities` gives both one principal.

    One person has a system's name at the command line and an e-mail address in a Databricks App.
    """
    return not _names(access, one).isdisjoint(_names(access, other))


def _names(access: Access, actor: str) -> set[str]:
    """Return an actor's own name and those of their principals, as they are compared."""
    return {_folded(actor), *(_folded(name) for each, name in access.identities.items() if same_person(each, actor))}


def _folded(name: str) -> str:
    """Return a name as it is compared: e-mail addresses without case, as directories do, users of a system exactly.

    Only of the letters A to Z: other rules of case make one person of two addresses, such as straße@ and strasse@.
    """
    return "".join(each.lower() if each.isascii() else each for each in name) if "@" in name else name


def require(roles: Roles, actor: str, role: Role, act: str) -> None:
    """Go on only where a person has the role for an act.

    Raises:
        Refused: they have not.
    """
    if not may(roles, actor, role):
        raise Refused(
            f"{actor!r} may not {act}: it needs the role {role}. The setting roles.{role}s names who has it: ask one."
        )


def require_current(settings: Settings, engine: Engine, actor: str, role: Role, act: str) -> None:
    """Go on only where a person has the role for an act at this moment.

    Raises:
        Refused: they have not.
    """
    require(current(settings, engine), actor, role, act)
