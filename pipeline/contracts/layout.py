"""The columns of a game's table by field number, after some schemas: the memory behind a plan.

A pure function of the schemas and their placements. Nothing is ever removed: a removed field keeps its number.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto

from pipeline.contracts.columns import members
from pipeline.contracts.formats.protobuf.fields import Kind, by_number, enum_of, kind_of, struct_of, value_names
from pipeline.contracts.formats.protobuf.messages import with_distinct_names
from pipeline.contracts.formats.supported import columns
from pipeline.contracts.schemas import FieldPlacement, Schema

Registered: TypeAlias = tuple[tuple[Schema, FieldPlacement], ...]
"""A game's schemas that land, in the order of their registration, each with its placement."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """Reserved numbers and names of a message."""

    ranges: tuple[tuple[int, int], ...] = ()  # first number, and the one after the last
    names: frozenset[str] = frozenset()

    def numbered(self, number: int) -> bool:
        """Return whether a number is reserved."""
        return any(first <= number < end for first, end in self.ranges)


@dataclass(frozen=True, slots=True)
class Slot:
    """One column (or member of a struct) of a field number."""

    column: str
    name: str  # of the newest field in it
    names: frozenset[str]  # of all fields ever in it
    kind: Kind  # of the newest field
    optional: bool  # the newest field may be absent
    labels: Mapping[int, str]  # the names of an enum's values
    inside: "Level | None"  # its members, when it holds messages
    turn: int  # the schema that used it last


@dataclass(frozen=True, slots=True)
class Level:
    """The columns of a table, or the members of one struct in it."""

    slots: Mapping[int, tuple[Slot, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # by field number, in the order of arrival
    newest: frozenset[int] = frozenset()  # field numbers of the newest schema
    reserved: Reserved = Reserved()

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
        message = with_distinct_names(schema.message, schema.definition)
        level = _Taking(turn, dict(placement.names)).message(level, message, columns(schema), "")
    return level


def newest(slots: tuple[Slot, ...]) -> Slot:
    """Return the last column of a field number."""
    return max(slots, key=lambda slot: slot.turn)


@dataclass(frozen=True, slots=True)
class _Taking:
    """The application of one schema."""

    turn: int
    names: Mapping[str, str]  # of its placement

    def message(self, level: Level, message: Descriptor, held: Iterable[pa.Field], prefix: str) -> Level:
        """Return the level after a message; `held` are the columns of its fields."""
        slots = dict(level.slots)
        types = {each.name: each.type for each in held}
        for each in by_number(message):
            existing = slots.get(each.number, ())
            path = f"{prefix}{each.name}"
            column = self.names.get(path, each.name)
            before = next((slot for slot in existing if slot.column == column), None)
            slot = self._slot(before or _NOTHING, each, kind_of(each, types.get(each.name)), column, path)
            kept = tuple(slot if other is before else other for other in existing)
            slots[each.number] = kept if before is not None else (*existing, slot)
        reserved = _joined(level.reserved, reserved_by(message))
        return Level(slots, frozenset(message.fields_by_number), reserved)

    def _slot(self, before: Slot, each: FieldDescriptor, kind: Kind, column: str, path: str) -> Slot:
        inner, enum = struct_of(each), enum_of(each)
        labels = {**before.labels, **(value_names(enum) if enum else {})}
        inside = None
        if inner is not None:
            inside = self.message(before.inside or Level(), inner, members(kind.type), f"{path}.")
        return Slot(column, each.name, before.names | {each.name}, kind, each.has_presence, labels, inside, self.turn)


def reserved_by(message: Descriptor) -> Reserved:
    """Return the reserved numbers and names of a message."""
    proto = DescriptorProto()
    message.CopyToProto(proto)
    return Reserved(tuple((each.start, each.end) for each in proto.reserved_range), frozenset(proto.reserved_name))


def _joined(one: Reserved, other: Reserved) -> Reserved:
    return Reserved(tuple(sorted({*one.ranges, *other.ranges})), one.names | other.names)
