"""The columns of a game's table by field, after some schemas: the memory behind a plan.

A pure function of the schemas and their placements. Nothing is ever removed: a removed field keeps its number or name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

from pipeline.data.contracts.event_types import Numbering
from pipeline.data.contracts.formats.supported import message, numbering
from pipeline.data.contracts.known import FieldSlot, Known, Seen
from pipeline.data.contracts.model import Field, FieldId, Kind, Message, Reserved
from pipeline.data.contracts.schemas import FieldPlacement, Schema

Registered: TypeAlias = tuple[tuple[Schema, FieldPlacement], ...]
"""A game's schemas of its event type, in the order of their registration, each with its placement.

Those whose rows wait have no columns; they show which fields were removed.
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table, or the members of one struct in it; fields of several numberings may share a column."""

    numberings: Mapping[Numbering, Known] = field(default_factory=lambda: MappingProxyType({}))
    inside: Mapping[str, "Layout"] = field(
        default_factory=lambda: MappingProxyType({})
    )  # the members of each column that holds messages

    def of(self, numbering: Numbering) -> Known:
        """Return the fields of a numbering."""
        return self.numberings.get(numbering, _NONE)

    def columns(self) -> Mapping[str, FieldId]:
        """Return each column once, with a field in it."""
        every = [known.slots.items() for known in self.numberings.values()]
        return {slot.column: slot.id for each in every for _, slots in each for slot in slots}

    def leaves(self) -> int:
        """Return the number of its leaf columns."""
        return sum(max(1, self.inside[each].leaves()) if each in self.inside else 1 for each in self.columns())


_NONE: Final = Known()
_NOTHING: Final = FieldSlot("", "", "", frozenset(), Kind("", "", "", None), optional=False, labels={}, turn=-1)


@lru_cache(maxsize=4096)
def layout(registered: Registered) -> Layout:
    """Return the columns of a game after these schemas."""
    level = Layout()
    for turn, (schema, placement) in enumerate(registered):
        if placement.has_columns:
            level = _Taking(numbering(schema), turn, dict(placement.names)).message(level, message(schema), "")
    for turn, (schema, placement) in enumerate(registered):
        if not placement.has_columns:
            level = _waiting(level, message(schema), numbering(schema), turn)
    return level


@dataclass(frozen=True, slots=True)
class _Taking:
    """The application of one schema."""

    numbering: Numbering
    turn: int
    names: Mapping[str, str]  # of its placement

    def message(self, level: Layout, new: Message, prefix: str) -> Layout:
        """Return the level after a message."""
        known = level.of(self.numbering)
        slots, inside, named = dict(known.slots), dict(level.inside), known.named(new)
        holders = {slot.column: first for first, held in known.slots.items() for slot in held}
        firsts: dict[FieldId, FieldId] = {}
        for each in new.fields:
            path = f"{prefix}{each.name}"
            column = self.names.get(path, each.name)
            # The number decides nothing here: what it means depends on ages, which become known later.
            first = holders.get(column, named.get(each.id, known.beside(each, column)))
            if first is None:
                first = f"{each.id} {column}" if each.id in slots else each.id
            firsts[each.id] = first
            existing = slots.get(first, ())
            before = next((slot for slot in existing if slot.column == column), None)
            slot = self._slot(before or _NOTHING, each, column)
            kept = tuple(slot if other is before else other for other in existing)
            slots[first] = kept if before is not None else (*existing, slot)
            if each.inside is not None:
                inside[column] = self.message(inside.get(column, Layout()), each.inside, f"{path}.")
        now = Known(
            slots,
            {**known.ids, **firsts},
            {**known.names, **{each.name: firsts[each.id] for each in new.fields}},
            {**known.pairs, **{(each.id, each.name): firsts[each.id] for each in new.fields}},
            frozenset(firsts.values()),
            _joined(known.reserved, new.reserved),
            {**known.seen, self.turn: {each.id: Seen(firsts[each.id], each.name) for each in new.fields}},
        )
        return Layout({**level.numberings, self.numbering: now}, inside)

    def _slot(self, before: FieldSlot, each: Field, column: str) -> FieldSlot:
        labels = {**before.labels, **each.labels}
        names = before.names | {each.name}
        return FieldSlot(column, each.id, each.name, names, each.kind, each.optional, labels, self.turn)


def _waiting(level: Layout, new: Message, own: Numbering, turn: int) -> Layout:
    """Return a level with the fields of a schema whose rows wait, as far as they are known."""
    if own not in level.numberings:
        return level
    known, inside = level.of(own), dict(level.inside)
    seen = {each.id: Seen(known.pairs.get((each.id, each.name)), each.name) for each in new.fields}
    for each in new.fields:
        first = seen[each.id].first
        if each.inside is not None and first is not None:
            columns = [slot.column for slot in known.slots[first] if slot.column in inside]
            inside |= {column: _waiting(inside[column], each.inside, own, turn) for column in columns}
    return Layout({**level.numberings, own: replace(known, seen={**known.seen, turn: seen})}, inside)


def _joined(one: Reserved, other: Reserved) -> Reserved:
    return Reserved(tuple(sorted({*one.ranges, *other.ranges})), one.names | other.names)
