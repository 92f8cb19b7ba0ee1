"""Finds fields with another wire type than their definition's, in parsed messages.

A parser treats such a field as unknown, and silently returns its default.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

_FIXED32: Final = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32)
_FIXED64: Final = (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64)
_LENGTH: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)
_WIRE_TYPES: Final[dict[int, int]] = {
    **dict.fromkeys(range(1, 19), 0),  # varints, except the following
    **dict.fromkeys(_FIXED64, 1),
    **dict.fromkeys(_LENGTH, 2),
    FieldDescriptor.TYPE_GROUP: 3,
    **dict.fromkeys(_FIXED32, 5),
}

_Kind: TypeAlias = Literal["one", "many", "by key"]


class Flaw(NamedTuple):
    """Why a message is bad."""

    detail: str
    path: str = ""  # of the field, empty where it is not known


class Mistyped:
    """The checks for messages of one definition and for those inside them."""

    def __init__(self, message: Descriptor, by_name: dict[str, "Mistyped"] | None = None) -> None:
        """Prepare for a message's definition; `by_name` holds those of the outer messages, by full name."""
        by_name = {} if by_name is None else by_name
        by_name[message.full_name] = self
        self._wire_types = {each.number: _WIRE_TYPES[each.type] for each in message.fields}
        self._names = {each.number: each.name for each in message.fields}
        self._inside = [(each.name, *inner) for each in message.fields if (inner := _inner(each, by_name)) is not None]

    def find(self, parsed: Any) -> Flaw | None:
        """Return the field with a wrong wire type, None without one."""
        if (unknown := UnknownFieldSet(parsed)) and (wrong := self._wrong(unknown)):
            return wrong
        for name, kind, below in self._inside:
            for inner in _held(parsed, name, kind):
                if wrong := below.find(inner):
                    return Flaw(f"in {name}: {wrong.detail}", f"{name}.{wrong.path}")
        return None

    def _wrong(self, unknown: UnknownFieldSet) -> Flaw | None:
        for index in range(len(unknown)):
            each = unknown[index]
            if each.wire_type != self._wire_types.get(each.field_number, each.wire_type):
                why = f"field {each.field_number} has wire type {each.wire_type}, which differs from the schema"
                return Flaw(why, self._names[each.field_number])
        return None


def _held(parsed: Any, name: str, kind: _Kind) -> Iterable[Any]:
    if kind == "one":
        # By the class: a field may be called `HasField`, and then the message's own attribute is that field.
        return (getattr(parsed, name),) if type(parsed).HasField(parsed, name) else ()
    held: Iterable[Any] = getattr(parsed, name).values() if kind == "by key" else getattr(parsed, name)
    return held


def _inner(field: FieldDescriptor, by_name: dict[str, Mistyped]) -> tuple[_Kind, Mistyped] | None:
    """Return how a field holds messages and their checks, None where it holds none."""
    inner = field.message_type
    kind: _Kind = "many" if field.is_repeated else "one"
    if inner is not None and inner.GetOptions().map_entry:
        inner, kind = inner.fields_by_name["value"].message_type, "by key"
    if inner is None:
        return None
    return kind, by_name.get(inner.full_name) or Mistyped(inner, by_name)
