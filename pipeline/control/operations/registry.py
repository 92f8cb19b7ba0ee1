"""Finds the definition of a kind of operation, and loads its module only then: repairs load libraries of tables."""

from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Final

from pipeline.base import extensions
from pipeline.base.errors import Refused
from pipeline.control.operations.definition import Offer, OperationDefinition
from pipeline.control.operations.facts import GameFacts, GroupFacts
from pipeline.control.roles import Role
from pipeline.store.database.states import OperationKind

_ROOM: Final = "pipeline.control.operations"
_PLACES: Final[Mapping[OperationKind, str]] = {
    OperationKind.ONBOARD: "onboarding:ONBOARD",
    OperationKind.PAUSE: "pauses:PAUSE",
    OperationKind.RESUME: "pauses:RESUME",
    OperationKind.RETRY: "pauses:RETRY",
    OperationKind.REPLAY: "repairs:REPLAY",
    OperationKind.RESTORE: "retirement:RESTORE",
    OperationKind.MOVE: "moves:MOVE",
    OperationKind.DEDUPE: "dedupes:DEDUPE",
    OperationKind.REBUILD: "repairs:REBUILD",
    OperationKind.RETIRE: "retirement:RETIRE",
    OperationKind.START: "groups:START",
    OperationKind.STOP: "groups:STOP",
    OperationKind.RESTART: "groups:RESTART",
    OperationKind.ISOLATE: "isolation:ISOLATE",
    OperationKind.ACCEPT_TYPE: "event_types:ACCEPT",
    OperationKind.WITHDRAW_TYPE: "event_types:WITHDRAW",
    OperationKind.NEST_TYPE: "nested_types:NEST",
    OperationKind.FLATTEN_TYPE: "nested_types:FLATTEN",
    OperationKind.PIN_VARIATIONS: "variations:PIN",
    OperationKind.UNPIN_VARIATIONS: "variations:UNPIN",
    OperationKind.REFUSE_VARIATION: "variations:REFUSE",
    OperationKind.ALLOW_VARIATION: "variations:ALLOW",
    OperationKind.MERGE_COLUMNS: "merged_columns:MERGE",
    OperationKind.PART_COLUMNS: "merged_columns:PART",
    OperationKind.PAUSE_DERIVED: "derived_streams:PAUSE",
    OperationKind.RESUME_DERIVED: "derived_streams:RESUME",
    OperationKind.REPAIR_DERIVED: "derived_streams:REPAIR",
    OperationKind.DECLARE_TYPE: "declarations:DECLARE",
    OperationKind.UNDECLARE_TYPE: "declarations:UNDECLARE",
}
"""All definitions in the order in which pages offer them: the least disruptive first."""


@cache
def find(kind: str) -> OperationDefinition | None:
    """Return the definition of a kind, also of an extension's; None where this version knows none.

    Raises:
        Refused: a kind of this version has no definition, so nobody knows its role: its extension was not found.
    """
    if kind in _PLACES:
        found: OperationDefinition = resolve_name(f"{_ROOM}.{_PLACES[OperationKind(kind)]}")
        return found
    added = (each for extension in extensions.registered(extensions.CONTROLLER) for each in extension.DEFINITIONS)
    found_among = next((each for each in added if each.kind == kind), None)
    if found_among is None and kind in list(OperationKind):
        raise Refused(f"This installation has no definition of operation {kind}. Run `./turnout setup` again.")
    return found_among


def own() -> Iterator[OperationDefinition]:
    """Yield the definitions of this package, the gentlest first."""
    return (each for kind in _PLACES if (each := find(kind)) is not None)


def role_of(kind: str) -> Role:
    """Return the role that a kind of operation needs; what this version does not know needs the stronger one."""
    known = find(kind)
    return Role.MOVER if known is None else known.role


def inverse_of(kind: str) -> str:
    """Return what kind of operation undoes one of this kind, where one does."""
    known = find(kind)
    return kind if known is None or known.inverse is None else known.inverse


def unchanged_by(kind: str) -> str:
    """Return why a kind of operation would leave a game or group alone, as a predicate."""
    known = find(kind)
    return "is in that state already" if known is None else known.unchanged


@cache
def offers_of_game() -> Mapping[str, tuple[OperationDefinition, Offer[GameFacts]]]:
    """Return what can be offered for a game, by name."""
    return {each.of_game.name or each.kind: (each, each.of_game) for each in own() if each.of_game is not None}


@cache
def offers_of_group() -> Mapping[str, tuple[OperationDefinition, Offer[GroupFacts]]]:
    """Return what can be offered for a group, by name."""
    return {each.of_group.name or each.kind: (each, each.of_group) for each in own() if each.of_group is not None}
