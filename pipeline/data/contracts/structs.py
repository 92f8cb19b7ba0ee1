"""The event types of one table: the first one's fields are its columns, each further one has a struct column. Pure."""

import re
from collections.abc import Collection, Iterable
from typing import Final

from pipeline.base.errors import Refused
from pipeline.data.contracts.declared_types import without_older
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.known import LONGEST_BASE
from pipeline.data.contracts.layout import Registered, layout
from pipeline.data.contracts.model import MAX_TABLE_COLUMNS
from pipeline.data.contracts.schemas import FieldPlacement, Schema

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def by_struct(placed: Iterable[tuple[Schema, FieldPlacement]]) -> dict[str | None, Registered]:
    """Return a game's schemas by the struct column of their event type, None for the first type.

    Those of another type that have no column are left out, and supersets whose columns a later one has.
    """
    found: dict[str | None, list[tuple[Schema, FieldPlacement]]] = {}
    for schema, at in without_older(placed):
        if not at.other_type or at.withdrawn:
            found.setdefault(at.struct, []).append((schema, at))
    return {struct: tuple(held) for struct, held in found.items()}


def require_room(placed: Iterable[tuple[Schema, FieldPlacement]]) -> None:
    """Check that a table's columns are not too many, over all event types.

    Raises:
        Refused: they are.
    """
    if (spread := leaves(placed)) > MAX_TABLE_COLUMNS:
        raise Refused(
            f"The game's table would spread into {spread} columns over all event types, at most {MAX_TABLE_COLUMNS} "
            f"are supported. Send the type as a game of its own."
        )


def leaves(placed: Iterable[tuple[Schema, FieldPlacement]]) -> int:
    """Return the number of leaf columns of a table, over all event types."""
    return sum(layout(held).leaves() for held in by_struct(placed).values())


def taken_names(placed: Iterable[tuple[Schema, FieldPlacement]]) -> frozenset[str]:
    """Return the names that a further struct column cannot have, in lower case."""
    held = by_struct(placed)
    flat = layout(held.get(None, ())).columns()
    return frozenset({*(each.lower() for each in flat), *(each.lower() for each in held if each is not None)})


def free_name(message: str, taken: Collection[str]) -> str:
    """Return the name of a further event type's column: its short name, or its full name where that is taken."""
    full = event_type(message)
    names = [_column(full.rsplit(".", 1)[-1]), _column(full)]
    number = 2
    while (name := names.pop(0)) in taken:
        if not names:
            names, number = [f"{_column(full)}__{number}"], number + 1
    return name


def _column(name: str) -> str:
    made = re.sub(r"[^a-z0-9_]", "_", _HUMP.sub("_", name).lower()).strip("_")[:LONGEST_BASE]
    return made if made[:1].isalpha() else f"type_{made}"
