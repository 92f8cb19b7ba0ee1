"""The columns of a game's table by field, after some schemas: the memory behind a plan.

A pure function of the schemas and their placements. Nothing is ever removed: a removed field keeps its number or name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

from pipeline.contracts.event_types import Numbering
from pipeline.contracts.formats.supported import message
from pipeline.contracts.model import Field, FieldId, Kind, Message, Reserved
from pipeline.contracts.schemas import FieldPlacement, Schema

Registered: TypeAlias = tuple[tuple[Schema, FieldPlacement], ...]
"""A game's schemas that land, in the order of their registration, each with its placement."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One column (or member of a struct), as a field of one numbering uses it."""

    column: str
    name: str  # of the newest field in it
    names: frozenset[str]  # of all fields ever in it
    kind: Kind  # of the newest field
    optional: bool  # the newest field may be absent
    labels: Mapping[FieldId, str]  # the names of an enum's values, also of removed ones
    turn: int  # the schema that used it last


@dataclass(frozen=True, slots=True)
class Known:
    """The fields of one numbering in a level. A field that is renamed by an alias keeps the id that it had first."""

    slots: Mapping[FieldId, tuple[Slot, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # by first id, in the order of arrival
    firsts: Mapping[FieldId, FieldId] = field(default_factory=lambda: MappingProxyType({}))  # later id → first id
    newest: frozenset[FieldId] = frozenset()  # the fields of the numbering's newest schema
    reserved: Reserved = field(default_factory=Reserved)

    def first(self, identity: FieldId) -> FieldId | None:
        """Return the first id of a known field, None when no schema had the id."""
        first = self.firsts.get(identity, identity)
        return first if first in self.slots else None

    def continued(self, new: Message) -> dict[FieldId, FieldId]:
        """Return the first id of each field of a message, its own where it continues none.

        An alias counts where the field's own id is unknown, and no other field of the message has the alias as its id.
        """
        ids = {each.id for each in new.fields}
        found: dict[FieldId, FieldId] = {}
        for each in new.fields:
            tried = [each.id, *sorted(each.aliases - ids)]
            known = (first for identity in tried if (first := self.first(identity)) is not None)
            found[each.id] = next(known, each.id)
        return found


@dataclass(frozen=True, slots=True)
class Level:
    """The columns of a table, or the members of one struct in it; fields of several numberings may share a column."""

    numberings: Mapping[Numbering, Known] = field(default_factory=lambda: MappingProxyType({}))
    inside: Mapping[str, "Level"] = field(
        default_factory=lambda: MappingProxyType({})
    )  # the members of each column that holds messages

    def of(self, numbering: Numbering) -> Known:
        """Return the fields of a numbering."""
        return self.numberings.get(numbering, _NONE)

    def columns(self) -> Mapping[str, FieldId]:
        """Return each column once, with a field in it."""
        every = [known.slots.items() for known in self.numberings.values()]
        return {slot.column: first for each in every for first, slots in each for slot in slots}

    def leaves(self) -> int:
        """Return the number of its leaf columns."""
        return sum(max(1, self.inside[each].leaves()) if each in self.inside else 1 for each in self.columns())


_NONE: Final = Known()
_NOTHING: Final = Slot("", "", frozenset(), Kind("", "", "", None), optional=False, labels={}, turn=-1)


@lru_cache(maxsize=4096)
def layout(registered: Registered) -> Level:
    """Return the columns of a game after these schemas."""
    level = Level()
    for turn, (schema, placement) in enumerate(registered):
        numbering = Numbering.of(schema.format, schema.message)
        level = _Taking(numbering, turn, dict(placement.names)).message(level, message(schema), "")
    return level


def newest(slots: Iterable[Slot]) -> Slot:
    """Return the column that was used last."""
    return max(slots, key=lambda slot: slot.turn)


@dataclass(frozen=True, slots=True)
class _Taking:
    """The application of one schema."""

    numbering: Numbering
    turn: int
    names: Mapping[str, str]  # of its placement

    def message(self, level: Level, new: Message, prefix: str) -> Level:
        """Return the level after a message."""
        known = level.of(self.numbering)
        slots, inside, firsts = dict(known.slots), dict(level.inside), known.continued(new)
        for each in new.fields:
            existing = slots.get(firsts[each.id], ())
            path = f"{prefix}{each.name}"
            column = self.names.get(path, each.name)
            before = next((slot for slot in existing if slot.column == column), None)
            slot = self._slot(before or _NOTHING, each, column)
            kept = tuple(slot if other is before else other for other in existing)
            slots[firsts[each.id]] = kept if before is not None else (*existing, slot)
            if each.inside is not None:
                inside[column] = self.message(inside.get(column, Level()), each.inside, f"{path}.")
        renamed = {later: first for later, first in firsts.items() if later != first}
        reserved = _joined(known.reserved, new.reserved)
        now = Known(slots, {**known.firsts, **renamed}, frozenset(firsts.values()), reserved)
        return Level({**level.numberings, self.numbering: now}, inside)

    def _slot(self, before: Slot, each: Field, column: str) -> Slot:
        labels = {**before.labels, **each.labels}
        return Slot(column, each.name, before.names | {each.name}, each.kind, each.optional, labels, self.turn)


def _joined(one: Reserved, other: Reserved) -> Reserved:
    return Reserved(tuple(sorted({*one.ranges, *other.ranges})), one.names | other.names)
