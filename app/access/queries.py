"""Data of the Access page: caches over `grants.api`, shared by all viewers, and how lists name principals.

The snapshot is worked out once, however many look at it. Each raises `Refused` where the control store cannot be read.
"""

from collections.abc import Mapping
from typing import Final

from app import formatting
from app.state import services
from app.state.services import Environment, cached, kept
from grants.api import access
from grants.api.access import AccessState, GrantRecord, PrincipalChoice, ResolvedCatalog
from grants.model import PrincipalKind

__all__ = [
    "KINDS",
    "AccessState",
    "GrantRecord",
    "PrincipalChoice",
    "ResolvedCatalog",
    "drift",
    "history",
    "items",
    "known_catalog",
    "label",
    "label_of",
    "read_access",
]

KINDS: Final[Mapping[PrincipalKind, str]] = {
    "group": "group",
    "user": "user",
    "service_principal": "service principal",
}
_NOT_ACTIVE: Final = ", not active"
_KIND_WIDTH: Final = max(map(len, KINDS.values())) + len(_NOT_ACTIVE)


def label_of(choice: PrincipalChoice) -> str:
    """Return a principal for a list to choose from.

    What follows the name is of one length, in spaces that no browser draws: of the labels that a typed text fits
    equally well, Streamlit takes the shortest, which has to be the one with the shortest name.
    """
    kind = "not in the directory" if choice.kind is None else KINDS[choice.kind]
    state = f"{kind}{'' if choice.active else _NOT_ACTIVE}"
    return f"{formatting.principal_text(choice.name)} · {state:<{_KIND_WIDTH}}"


def label(seen: AccessState, principal: str) -> str:
    """Return a principal, by the folded name, for a list to choose from."""
    choice = seen.everybody.get(principal)
    return formatting.shown(principal, 80) if choice is None else label_of(choice)


@kept(seconds=2, by_acts=True)
def read_access(environment: Environment) -> AccessState:
    """Read what the page looks at."""
    opened = services.opened(environment)
    read_at, problem = access.newest(opened)
    return access.read(opened, None if read_at is None else _known(environment, read_at), problem)


def known_catalog(environment: Environment) -> ResolvedCatalog | None:
    """Return the newest snapshot of the catalog; None where it was never read."""
    read_at, _ = access.newest(services.opened(environment))
    return None if read_at is None else _known(environment, read_at)


@kept()
def _known(environment: Environment, read_at: float) -> ResolvedCatalog:  # noqa: ARG001 - a part of the cache's key
    return access.resolve(services.opened(environment))


drift: Final = cached(access.drift, seconds=5, by={ResolvedCatalog: lambda known: known.observed.read_at}, by_acts=True)
items: Final = cached(access.items, seconds=1, most=50, by_acts=True)


def history(environment: Environment, key: str, principal: str) -> tuple[GrantRecord, ...]:
    """Read what a principal (folded) was ever given of a game by turnout, the newest first."""
    return access.history(services.opened(environment), key, principal)
