"""May a new schema follow an old one? A pure decision over two message definitions.

A game's table only ever grows: a field keeps its number, name and type for good. Removing a field is breaking in this
version, reserved or not: old rows have the column, so keep the field and stop filling it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

MAX_COLUMNS: Final = 1000
"""Most leaf columns a payload may spread into; a few messages that use each other twice would make millions."""
MAX_DEPTH: Final = 32
"""Most levels of nested messages."""

SCALAR_MESSAGES: Final = frozenset(  # messages that become one column
    {
        "google.protobuf.BoolValue",
        "google.protobuf.BytesValue",
        "google.protobuf.DoubleValue",
        "google.protobuf.Duration",
        "google.protobuf.FloatValue",
        "google.protobuf.Int32Value",
        "google.protobuf.Int64Value",
        "google.protobuf.StringValue",
        "google.protobuf.Timestamp",
        "google.protobuf.UInt32Value",
        "google.protobuf.UInt64Value",
        "google.type.Date",
        "google.type.TimeOfDay",
    }
)

_KINDS: Final[Mapping[int, str]] = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


@dataclass(frozen=True, slots=True)
class Same:
    """Both describe the same table and read the same bytes alike."""


@dataclass(frozen=True, slots=True)
class Additive:
    """The new schema only adds; `fields` names what, by path."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Breaking:
    """The new schema cannot follow; each reason begins with the path of a field."""

    reasons: tuple[str, ...]


Change: TypeAlias = Same | Additive | Breaking


def compare(old: Descriptor, new: Descriptor) -> Change:
    """Tell what the new definition of a payload changes, with everything reachable from it.

    Names of messages and files, comments, the order of declarations and moves into a oneof do not matter: neither the
    bytes nor the table know of them. That a field may now be absent counts as an addition.
    """
    walk = _Walk()
    walk.messages(old, new, "")
    earlier = frozenset(defects(old))
    reasons = [*walk.reasons, *(reason for reason in defects(new) if reason not in earlier)]
    if reasons:
        return Breaking(tuple(reasons))
    return Additive(tuple(walk.added)) if walk.added else Same()


@lru_cache(maxsize=4096)
def defects(message: Descriptor) -> tuple[str, ...]:
    """Return why no table can hold such a payload, each reason with the path of a field; nothing when one can."""
    measure = _Measure()
    columns, depth = measure.message(message, "", ())
    if measure.reasons:
        return tuple(measure.reasons)
    if depth > MAX_DEPTH:
        return (f"{message.name}: nests messages {depth} levels deep, at most {MAX_DEPTH} are supported",)
    if columns > MAX_COLUMNS:
        return (f"{message.name}: spreads into {columns} columns, at most {MAX_COLUMNS} are supported",)
    if not columns:
        return (f"{message.name}: has no field that a table can hold",)
    return ()


@dataclass(slots=True)
class _Walk:
    """Collects what differs between two definitions; each pair of messages is visited once."""

    added: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def messages(self, old: Descriptor, new: Descriptor, prefix: str) -> None:
        if (pair := (old.full_name, new.full_name)) in self.seen:
            return
        self.seen.add(pair)
        for before in _by_number(old):
            after = new.fields_by_number.get(before.number)
            if after is None:
                moved = new.fields_by_name.get(before.name)
                self.reasons.append(
                    f"{prefix}{before.name}: its number changed from {before.number} to {moved.number}"
                    if moved
                    else f"{prefix}{before.name}: removed (number {before.number}); keep it and stop filling it"
                )
            else:
                self.fields(before, after, prefix)
        self.added += [f"{prefix}{each.name}" for each in _by_number(new) if each.number not in old.fields_by_number]

    def fields(self, old: FieldDescriptor, new: FieldDescriptor, prefix: str) -> None:
        path = f"{prefix}{old.name}"
        if old.name != new.name:
            self.reasons.append(f"{path}: its number {old.number} now belongs to the name {new.name}")
        if (before := _kind(old)) != (after := _kind(new)):
            self.reasons.append(f"{path}: its type changed from {before} to {after}")
            return
        if old.has_presence != new.has_presence and not old.is_repeated:
            self.added.append(f"{path} (may be absent)" if new.has_presence else f"{path} (is never absent)")
        if old.enum_type is not None and new.enum_type is not None:
            self.enums(old.enum_type, new.enum_type, path)
        if (inner := _struct(old)) is not None and (newer := _struct(new)) is not None:
            self.messages(inner, newer, f"{path}.")

    def enums(self, old: EnumDescriptor, new: EnumDescriptor, path: str) -> None:
        # A column holds the value's name: the first declared one when several share a number.
        before, after = _value_names(old), _value_names(new)
        for number, name in sorted(before.items()):
            if number not in after:
                self.reasons.append(f"{path}: its value {name} was removed (number {number}); keep it")
            elif after[number] != name:
                self.reasons.append(f"{path}: its value {number} was renamed from {name} to {after[number]}")
        self.added += [f"{path}={name}" for number, name in sorted(after.items()) if number not in before]


@dataclass(slots=True)
class _Measure:
    """Checks every reachable message once and counts the columns and levels it spreads into."""

    reasons: list[str] = field(default_factory=list)
    done: dict[str, tuple[int, int]] = field(default_factory=dict)

    def message(self, message: Descriptor, prefix: str, above: tuple[str, ...]) -> tuple[int, int]:
        if message.full_name in self.done:
            return self.done[message.full_name]
        self.reasons += _name_defects(message, prefix)
        columns, depth = 0, 0
        for each in _by_number(message):
            if each.type == FieldDescriptor.TYPE_GROUP:
                self.reasons.append(f"{prefix}{each.name}: is a group, use a message instead")
            elif (inner := _struct(each)) is None:
                columns += 1
            else:
                inside = self._inner(inner, f"{prefix}{each.name}", (*above, message.full_name))
                columns, depth = columns + inside[0], max(depth, inside[1])
        self.done[message.full_name] = columns, depth + 1
        return columns, depth + 1

    def _inner(self, inner: Descriptor, path: str, above: tuple[str, ...]) -> tuple[int, int]:
        if inner.full_name in above:
            self.reasons.append(f"{path}: contains itself ({inner.full_name}), a table cannot hold a recursive type")
        elif len(above) > MAX_DEPTH:  # stops here too, before the interpreter's own stack ends
            self.reasons.append(f"{path}: lies deeper than {MAX_DEPTH} messages")
        else:
            return self.message(inner, f"{path}.", above)
        return 0, 0


def _name_defects(message: Descriptor, prefix: str) -> Iterator[str]:
    twins: dict[str, str] = {}
    for each in _by_number(message):
        if not _NAME.fullmatch(each.name):
            yield f"{prefix}{each.name}: a column needs a name of at most 255 letters, digits and '_'"
        if not prefix and each.name.startswith("_"):
            yield f"{each.name}: names that begin with '_' belong to the table's own columns"
        twin = twins.setdefault(each.name.lower(), each.name)
        if twin != each.name:
            yield f"{prefix}{each.name}: differs from {twin} only by case, a table cannot tell them apart"


def _by_number(message: Descriptor) -> list[FieldDescriptor]:
    return [message.fields_by_number[number] for number in sorted(message.fields_by_number)]


def _struct(each: FieldDescriptor) -> Descriptor | None:
    """Return the message that a field spreads into columns, None when the field is one column."""
    inner = each.message_type
    return None if inner is None or inner.full_name in SCALAR_MESSAGES else inner


def _kind(each: FieldDescriptor) -> str:
    """Return what a field is, as a person writes it; messages are compared by content, not by name."""
    inner = each.message_type
    if inner is not None and inner.GetOptions().map_entry:
        entry = inner.fields_by_name
        return f"map<{_kind(entry['key'])}, {_kind(entry['value'])}>"
    kind = inner.full_name if inner is not None and inner.full_name in SCALAR_MESSAGES else _KINDS[each.type]
    return f"repeated {kind}" if each.is_repeated else kind


def _value_names(enum: EnumDescriptor) -> dict[int, str]:
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return names
