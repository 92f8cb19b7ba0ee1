"""The columns of a game's table by field, after some schemas: the memory behind a plan.

A pure function of the schemas and their placements. Nothing is ever removed: a removed field keeps its number or name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

from pipeline.contracts.formats.supported import message
from pipeline.contracts.model import Field, FieldId, Kind, Message, Reserved
from pipeline.contracts.schemas import FieldPlacement, Schema

Registered: TypeAlias = tuple[tuple[Schema, FieldPlacement], ...]
"""A game's schemas that land, in the order of their registration, each with its placement."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One column (or member of a struct) of a field."""

    column: str
    name: str  # of the newest field in it
    names: frozenset[str]  # of all fields ever in it
    kind: Kind  # of the newest field
    optional: bool  # the newest field may be absent
    labels: Mapping[FieldId, str]  # the names of an enum's values, also of removed ones
    inside: "Level | None"  # its members, when it holds messages
    turn: int  # the schema that used it last


@dataclass(frozen=True, slots=True)
class Level:
    """The columns of a table, or the members of one struct in it."""

    slots: Mapping[FieldId, tuple[Slot, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # by field, in the order of arrival
    newest: frozenset[FieldId] = frozenset()  # the fields of the newest schema
    reserved: Reserved = field(default_factory=Reserved)

    def leaves(self) -> int:
        """Return the number of its leaf columns."""
        held = [slot for slots in self.slots.values() for slot in slots]
        return sum(1 if slot.inside is None else max(1, slot.inside.leaves()) for slot in held)


_NOTHING: Final = Slot("", "", frozenset(), Kind("", "", "", None), optional=False, labels={}, inside=None, turn=-1)


@lru_cache(maxsize=4096)
def layout(registered: Registered) -> Level:
    """Return the columns of a game after these schemas."""
    level = Level()
    for turn, (schema, placement) in enumerate(registered):
        level = _Taking(turn, dict(placement.names)).message(level, message(schema), "")
    return level


def newest(slots: tuple[Slot, ...]) -> Slot:
    """Return the last column of a field."""
    return max(slots, key=lambda slot: slot.turn)


@dataclass(frozen=True, slots=True)
class _Taking:
    """The application of one schema."""

    turn: int
    names: Mapping[str, str]  # of its placement

    def message(self, level: Level, new: Message, prefix: str) -> Level:
        """Return the level after a message."""
        slots = dict(level.slots)
        for each in new.fields:
            existing = slots.get(each.id, ())
            path = f"{prefix}{each.name}"
            column = self.names.get(path, each.name)
            before = next((slot for slot in existing if slot.column == column), None)
            slot = self._slot(before or _NOTHING, each, column, path)
            kept = tuple(slot if other is before else other for other in existing)
            slots[each.id] = kept if before is not None else (*existing, slot)
        newest = frozenset(each.id for each in new.fields)
        return Level(slots, newest, _joined(level.reserved, new.reserved))

    def _slot(self, before: Slot, each: Field, column: str, path: str) -> Slot:
        labels = {**before.labels, **each.labels}
        inside = None
        if each.inside is not None:
            inside = self.message(before.inside or Level(), each.inside, f"{path}.")
        return Slot(column, each.name, before.names | {each.name}, each.kind, each.optional, labels, inside, self.turn)


def _joined(one: Reserved, other: Reserved) -> Reserved:
    return Reserved(tuple(sorted({*one.ranges, *other.ranges})), one.names | other.names)
