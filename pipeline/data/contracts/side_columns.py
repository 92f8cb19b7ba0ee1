"""Columns that hold the values of one JSON property: the first one, and those beside it. Pure.

A value of another type than the first ones lands beside the property's column. A reader wants both as one: numbers as
doubles, all else as text. Lists, structs and maps stay columns of their own.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.formats.supported import columns
from pipeline.data.contracts.schemas import FieldPlacement, Schema


def joined_fields(placed: Sequence[tuple[Schema, FieldPlacement]], own: Iterable[pa.Field]) -> list[list[pa.Field]]:
    """Return an event type's columns in their order, each with those that hold values of the same property.

    Args:
        placed: the type's schemas with their placements.
        own: its columns, or the members of its struct column.
    """
    fields = {each.name: each for each in own}
    scalars = {name for name, each in fields.items() if not pa.types.is_nested(each.type)}
    firsts: dict[str, str] = {}  # by column, the first one of its property
    for names in _properties(placed):
        held = [each for each in dict.fromkeys(names) if each in scalars]
        for name in held:
            firsts.setdefault(name, firsts.get(held[0], held[0]))
    found: dict[str, list[pa.Field]] = {}
    for name, each in fields.items():
        found.setdefault(firsts.get(name, name), []).append(each)
    return list(found.values())


def _properties(placed: Sequence[tuple[Schema, FieldPlacement]]) -> Iterator[list[str]]:
    """Yield the columns of each property that has several, in the order of their opening."""
    declared: dict[str, list[str]] = {}
    for schema, at in placed:
        if schema.format == UNDECLARED:
            yield from ([slot.name for slot in slots] for slots in superset_of(schema).root.slots.values())
        elif schema.format == "json" and at.has_columns:
            names = dict(at.names)
            for name in columns(schema).names:
                declared.setdefault(name, []).append(names.get(name, name))
    yield from declared.values()
