"""What a game's new name takes over from the old one: its schemas. Pure; called by the operation `onboard`.

A key belongs to one name for ever, and quarantine, rebuild and verify find rows by it: the new name is a game of its
own, whose table goes on where the old one ends.
"""

from collections.abc import Iterable, Iterator

from pipeline.base.names import GameKey
from pipeline.data.contracts.catalogue.versions import Version
from pipeline.data.contracts.formats.supported import FORMATS
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.schemas import SchemaSet


def lines(old: str) -> tuple[str, ...]:
    """Return what becomes of the old name, as lines for people."""
    return (
        f"new name of {old}: it gets that game's schemas whose rows land, in a table of its own",
        f"not carried over: output contracts that name {old}, merged columns, and choices about variations",
        f"{old} keeps its name and table, and what it still sends lands there; retire it when it sends nothing more",
    )


def registrations(
    schemas: SchemaSet, versions: Iterable[Version], old: GameKey, name: str, actor: str
) -> Iterator[Registration]:
    """Yield registrations of a game's schemas whose rows land, as they came, with their policies, for its new name.

    Shapes nobody declared are found again. Where the first type has no other schemas, further types wait as new ones
    do: the first schema of a game says which type's fields are columns of its table.
    """
    policies = {each.schema_id: each.policies for each in versions}
    for each in game_types(schemas, old):
        landing = [(schema, at) for schema, at in each.schemas if schema.format in FORMATS and at.quarantined is None]
        if each.state == "first" and not landing:
            return
        for schema, at in landing if each.state in {"first", "accepted"} else ():
            yield Registration(
                name,
                schema.message,
                schema.definition,
                policies.get(schema.schema_id, DEFAULTS),
                format=schema.format,
                actor=actor,
                continues=at.continues,
                new_type=each.state == "accepted",
            )
