"""What a game's new name takes over from the old one: its schemas. Pure; called by the operation `onboard`.

A key belongs to one name for ever, and quarantine, rebuild and verify find rows by it: the new name is a game of its
own, whose table goes on where the old one ends.
"""

from collections.abc import Iterator

from pipeline.base.names import GameKey
from pipeline.data.contracts.formats.supported import FORMATS
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.schemas import SchemaSet


def lines(old: str) -> tuple[str, ...]:
    """Return what becomes of the old name, as lines for people."""
    return (
        f"new name of {old}: it gets that game's newest schema of each event type, in a table of its own",
        f"{old} keeps its name and table, and what it still sends lands there; retire it when it sends nothing more",
    )


def registrations(schemas: SchemaSet, old: GameKey, name: str, actor: str) -> Iterator[Registration]:
    """Yield the registrations of a game's newest schemas for its new name; shapes nobody declared are found again."""
    for each in game_types(schemas, old):
        schema = each.schemas[-1][0]
        if each.state in {"first", "accepted"} and schema.format in FORMATS:
            new_type = each.state == "accepted"
            yield Registration(
                name, schema.message, schema.definition, format=schema.format, actor=actor, new_type=new_type
            )
