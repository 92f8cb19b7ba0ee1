"""Why a message fits no table, whatever the policies: recursion, groups, false names, too many columns, none at all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pipeline.data.contracts.formats.protobuf.fields import SCALAR_MESSAGES, by_number
from pipeline.data.contracts.formats.protobuf.well_known import WELL_KNOWN_FILES
from pipeline.data.contracts.model import MAX_COLUMNS, MAX_DEPTH

_NO_KEYS: Final = (  # the types that a map's keys cannot have
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_FLOAT,
    FieldDescriptor.TYPE_GROUP,
    FieldDescriptor.TYPE_MESSAGE,
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_ENUM,
)
_GOOGLES_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {  # all are int32, numbered from 1
    "google.type.Date": ("year", "month", "day"),
    "google.type.TimeOfDay": ("hours", "minutes", "seconds", "nanos"),
}


@lru_cache(maxsize=4096)
def defects(message: Descriptor) -> tuple[str, ...]:
    """Return why a message fits no table, each reason with the path of a field; nothing when it fits."""
    if message.GetOptions().map_entry:
        return (f"{message.name}: is the entry of a map",)
    measure = _Measure()
    spread = measure.message(message, "", ())
    if measure.reasons:
        return tuple(measure.reasons)
    if spread.depth > MAX_DEPTH:
        return (f"{message.name}: nests messages {spread.depth} levels deep, at most {MAX_DEPTH} are supported",)
    if spread.columns > MAX_COLUMNS:
        return (f"{message.name}: spreads into {spread.columns} columns, at most {MAX_COLUMNS} are supported",)
    return ()


@dataclass(frozen=True, slots=True)
class _Spread:
    columns: int  # a message without fields counts as one, or a few of them could stand for millions of members
    depth: int


@dataclass(slots=True)
class _Measure:
    """Checks every reachable message once and counts its columns and levels."""

    reasons: list[str] = field(default_factory=list)
    done: dict[str, _Spread] = field(default_factory=dict)

    def message(self, message: Descriptor, prefix: str, above: tuple[str, ...]) -> _Spread:
        if message.full_name in self.done:
            return self.done[message.full_name]
        columns, depth = 0, 0
        for each in by_number(message):
            inner = each.message_type
            if each.type == FieldDescriptor.TYPE_GROUP:
                self.reasons.append(f"{prefix}{each.name}: is a group, use a message instead")
            elif each.is_repeated and each.is_required:
                self.reasons.append(f"{prefix}{each.name}: is repeated, so it cannot be required")
            elif inner is not None and inner.GetOptions().map_entry and not _is_map(each, inner):
                self.reasons.append(f"{prefix}{each.name}: uses the entry of a map, declare it as map<key, value>")
            elif inner is not None and _is_forged(inner):
                self.reasons.append(f"{prefix}{each.name}: is not Google's {inner.full_name}, rename its message")
            elif inner is None or inner.full_name in SCALAR_MESSAGES:
                columns += 1
            else:
                inside = self._inner(inner, f"{prefix}{each.name}", (*above, message.full_name))
                columns, depth = columns + max(1, inside.columns), max(depth, inside.depth)
        self.done[message.full_name] = _Spread(columns, depth + 1)
        return self.done[message.full_name]

    def _inner(self, inner: Descriptor, path: str, above: tuple[str, ...]) -> _Spread:
        if inner.full_name in above:
            self.reasons.append(f"{path}: contains itself ({inner.full_name}), a table cannot hold a recursive type")
        elif len(above) > MAX_DEPTH:  # stops here too, before the interpreter's own stack ends
            self.reasons.append(f"{path}: lies deeper than {MAX_DEPTH} messages")
        else:
            return self.message(inner, f"{path}.", above)
        return _Spread(0, 0)


def _is_map(each: FieldDescriptor, entry: Descriptor) -> bool:
    """Return whether a field is a map as compilers define it; with other entries protobuf's parser may crash."""
    if not each.is_repeated or entry.containing_type != each.containing_type or entry.is_extendable:
        return False
    if [(field.number, field.name) for field in by_number(entry)] != [(1, "key"), (2, "value")]:
        return False
    key, value = by_number(entry)
    plain = not any(field.is_repeated or field.is_required or field.containing_oneof for field in (key, value))
    return plain and key.type not in _NO_KEYS and value.type != FieldDescriptor.TYPE_GROUP


def _is_forged(message: Descriptor) -> bool:
    """Return whether a message has the name of one in SCALAR_MESSAGES, and other fields."""
    if message.full_name not in SCALAR_MESSAGES:
        return False
    if message.full_name not in _GOOGLES_FIELDS:
        return message.file.name not in WELL_KNOWN_FILES
    found = [(each.number, each.name, each.type, each.is_repeated) for each in by_number(message)]
    names = enumerate(_GOOGLES_FIELDS[message.full_name], 1)
    return found != [(number, name, FieldDescriptor.TYPE_INT32, False) for number, name in names]
