"""Why a message fits no table, whatever the policies: recursion, groups, too many columns, none at all."""

from dataclasses import dataclass, field
from functools import lru_cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pipeline.contracts.formats.protobuf.fields import SCALAR_MESSAGES, by_number
from pipeline.contracts.model import MAX_COLUMNS, MAX_DEPTH


@lru_cache(maxsize=4096)
def defects(message: Descriptor) -> tuple[str, ...]:
    """Return why a message fits no table, each reason with the path of a field; nothing when it fits."""
    measure = _Measure()
    spread = measure.message(message, "", ())
    if measure.reasons:
        return tuple(measure.reasons)
    if spread.depth > MAX_DEPTH:
        return (f"{message.name}: nests messages {spread.depth} levels deep, at most {MAX_DEPTH} are supported",)
    if spread.columns > MAX_COLUMNS:
        return (f"{message.name}: spreads into {spread.columns} columns, at most {MAX_COLUMNS} are supported",)
    if spread.hollow:
        return (f"{message.name}: has no field that a table can hold",)
    return ()


@dataclass(frozen=True, slots=True)
class _Spread:
    columns: int  # a message without fields counts as one, or a few of them could stand for millions of members
    depth: int
    hollow: bool  # nothing below has a value


@dataclass(slots=True)
class _Measure:
    """Checks every reachable message once and counts its columns and levels."""

    reasons: list[str] = field(default_factory=list)
    done: dict[str, _Spread] = field(default_factory=dict)

    def message(self, message: Descriptor, prefix: str, above: tuple[str, ...]) -> _Spread:
        if message.full_name in self.done:
            return self.done[message.full_name]
        columns, depth, hollow = 0, 0, True
        for each in by_number(message):
            inner = each.message_type
            if each.type == FieldDescriptor.TYPE_GROUP:
                self.reasons.append(f"{prefix}{each.name}: is a group, use a message instead")
            elif inner is None or inner.full_name in SCALAR_MESSAGES:
                columns, hollow = columns + 1, False
            else:
                inside = self._inner(inner, f"{prefix}{each.name}", (*above, message.full_name))
                columns, depth = columns + max(1, inside.columns), max(depth, inside.depth)
                hollow = hollow and inside.hollow
        self.done[message.full_name] = _Spread(columns, depth + 1, hollow)
        return self.done[message.full_name]

    def _inner(self, inner: Descriptor, path: str, above: tuple[str, ...]) -> _Spread:
        if inner.full_name in above:
            self.reasons.append(f"{path}: contains itself ({inner.full_name}), a table cannot hold a recursive type")
        elif len(above) > MAX_DEPTH:  # stops here too, before the interpreter's own stack ends
            self.reasons.append(f"{path}: lies deeper than {MAX_DEPTH} messages")
        else:
            return self.message(inner, f"{path}.", above)
        return _Spread(0, 0, hollow=True)
