"""A payload's definition without its format: what evolution, layouts and plans work on. Pure values.

A format turns a schema into a `Message`; nothing outside of the format's own folder looks at its definitions.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

import pyarrow as pa

from pipeline.data.contracts.columns import members

MAX_COLUMNS: Final = 1000
"""Most leaf columns of a payload; a few messages that use each other twice would make millions."""
MAX_TABLE_COLUMNS: Final = 5000
"""Most leaf columns of a table over all event types: each commit that adds some writes them all into its log."""
MAX_DEPTH: Final = 32
"""Most levels of nested messages."""

_LARGEST_NUMBER: Final = 2**29 - 1  # of a field of protobuf

FieldId: TypeAlias = int | str
"""What identifies a field among those of its message, over all versions: protobuf's number, Avro's name."""

_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (-(2**31), 2**31 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(2**63), 2**63 - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, 2**32 - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, 2**64 - 1)),
}
_WIDER: Final = frozenset({("float", "double"), ("date", "timestamp")})
_FAMILIES: Final[Mapping[str, str]] = {  # kinds of numbers that one type of column holds as they are
    **{name: "integer" for name, (_, high) in _RANGES.items() if high < 2**63},
    **dict.fromkeys(("float", "double"), "floating"),
}


def noun(identity: FieldId) -> str:
    """Return what kind of thing identifies a field, for a report."""
    return "number" if isinstance(identity, int) else "name"


def remark(identity: FieldId, more: str = "") -> str:
    """Return a number in brackets, to follow a name in a report; nothing where the name itself identifies."""
    return f" (number {identity}{more})" if isinstance(identity, int) else ""


def rank(identity: FieldId) -> tuple[int, str]:
    """Return the place of a field or value in a report: by number, or by name."""
    return (identity, "") if isinstance(identity, int) else (0, identity)


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a field. Messages are compared by content, not by name."""

    text: str  # in an operator's words
    shape: str  # empty, "repeated" or "map of <key>"
    values: str  # of each value: a scalar's name in protobuf's words, or "message", also for a record
    type: pa.DataType | None  # of its column, None without values
    promotes: frozenset[str] = frozenset()
    """Further values that the format reads as these: for Avro's double int32, int64 and float. Tables may differ."""
    misreads: frozenset[str] = frozenset()
    """Values and shapes of which some bytes, read as these, are a wrong value: for protobuf's sint32 int32."""

    def follows(self, old: "Kind") -> bool:
        """Return whether this kind widens the old one, or both are numbers that one column holds as they are.

        Each row is decoded by the schema that wrote it, so in a column of long or double neither kind harms the other.
        """
        numbers = _FAMILIES.get(self.values, "this") == _FAMILIES.get(old.values, "old")
        return self.widens(old) or (numbers and self._shaped_as(old))

    def widens(self, old: "Kind") -> bool:
        """Return whether every value of the old kind is also one of this kind."""
        if not self._shaped_as(old):
            return False
        if self.values in _RANGES and old.values in _RANGES:
            (low, high), (old_low, old_high) = _RANGES[self.values], _RANGES[old.values]
            if low <= old_low and old_high <= high:
                return True
        if old.values in self.promotes or (old.values, self.values) in _WIDER:
            return True
        if self.values == old.values == "message":
            return True  # one without fields, whose column says whether it is present, and one with fields
        return self.values == old.values and self.lies_in(old)

    def remark(self, old: "Kind") -> str:
        """Return what can change a value although one column holds both kinds, to follow a report; else nothing."""
        if (old.values, self.values) == ("double", "float"):
            return "; new values have a float's precision"
        if self.misreads.isdisjoint({old.values, old.shape}):
            return ""
        return "; a row that names the wrong version would have a wrong value"

    def _shaped_as(self, old: "Kind") -> bool:
        return self.shape == old.shape or (_has_whole_keys(self.shape) and _has_whole_keys(old.shape))

    def lies_in(self, old: "Kind") -> bool:
        """Return whether a column of the old kind can hold this one's values as it is; structs gain members."""
        return self.type == old.type or all(each is None or members(each) for each in (self.type, old.type))


def _has_whole_keys(shape: str) -> bool:
    """Return whether values lie in a map with keys of long."""
    return shape.startswith("map of ") and _FAMILIES.get(shape.removeprefix("map of ")) == "integer"


@dataclass(frozen=True, slots=True)
class Reserved:
    """Reserved numbers and names of a message."""

    ranges: tuple[tuple[int, int], ...] = ()  # first number, and the one after the last
    names: frozenset[str] = frozenset()

    def numbered(self, number: FieldId) -> bool:
        """Return whether a number is reserved; names are not numbers."""
        return isinstance(number, int) and any(first <= number < end for first, end in self.ranges)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message."""

    id: FieldId
    name: str  # under which it is decoded
    given: str  # as its author wrote it; differs from `name` where another field has it but for case or underscores
    kind: Kind
    optional: bool  # it may be absent
    suffix: str  # tells its column from another one of the same name, such as f3
    labels: Mapping[FieldId, str] = field(default_factory=lambda: MappingProxyType({}))
    """An enum's values: the text in the column by what identifies it, protobuf's number or Avro's symbol itself."""
    aliases: frozenset[str] = frozenset()  # names it had before
    inside: "Message | None" = None  # of the messages that it holds: one, a list of them, or a map's values


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a payload, or of a message inside it; it never contains itself."""

    fields: tuple[Field, ...]  # in the order of their ids where these are numbers, else as declared
    reserved: Reserved = Reserved()
    open: tuple[tuple[int, int], ...] = ()
    """Numbers of extensions that the definition lacks: first number, and the one after the last. Their values are
    ignored."""
    aliases: frozenset[str] = frozenset()  # full names it had before
    unchecked: tuple[str, ...] = ()  # sentences on what of the definition restricts values and is not applied


def ranges_text(ranges: Iterable[tuple[int, int]]) -> list[str]:
    """Return ranges of numbers as people write them; each is its first number and the one after its last."""
    lasts = [(first, "max" if end > _LARGEST_NUMBER else str(end - 1)) for first, end in ranges]
    return [last if last == str(first) else f"{first} to {last}" for first, last in lasts]


def remarks(message: Message, path: str = "") -> Iterator[str]:
    """Yield what a plan says of a definition itself: where its payloads may hold values that no column gets."""
    if message.open:
        numbers = ", ".join(ranges_text(message.open))
        within = f" of {path}" if path else ""
        yield f"extensions {numbers}{within} are not in the definition: turnout ignores them"
    yield from message.unchecked
    for each in message.fields:
        if each.inside is not None:
            yield from remarks(each.inside, f"{path}.{each.name}" if path else each.name)
