"""The superset of an event type's undeclared documents: which column takes which kind of value at which path. Pure.

It only grows: a slot keeps its name and kind for good, and a value that a slot takes is never taken by a later one. So
where a document's values land is the same for every superset that covers it. A merge is the one exception: a person
joins slots, and a rebuild moves their values.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from pipeline.data.contracts.formats.json.caps import USUAL, Caps
from pipeline.data.contracts.formats.json.columns import names_of
from pipeline.data.contracts.formats.json.scalar import Fraction, Misfit, Whole, parsed
from pipeline.data.contracts.formats.json.shapes import (
    LIST,
    MAP,
    MARK,
    MOST_WEIGHT,
    NOTHING,
    REST,
    ROOT,
    SHORT,
    Shape,
    around,
    count,
    cut,
    is_member,
    is_short,
    joined,
    kind_of,
    made,
    of_elements,
    require_text,
    weight,
    weight_of_key,
)
from pipeline.data.contracts.formats.json.types import JsonArray, JsonMap, Object, Property, Scalar, Type

STRUCT: Final = "struct"
OTHER: Final = f"{MARK}other"
"""The property of a document that lands whole, as text."""
OTHER_COLUMN: Final = "__other__"
WHOLE_DOCUMENT: Final = Shape(frozenset({OTHER}))
"""The shape of a document that lands whole, whatever it holds."""

_LEAST_BYTES: Final = 6  # of a fact: `"k":1,`
WRITTEN: Final = ("digits", "json")
"""Kinds whose values are texts in columns, and none in documents."""
ANY: Final = "any"
"""The kind of a slot that takes each single value of its key as text: texts as they are, all else as it is written."""
_PLAIN: Final = ("boolean", "text", "whole", "fraction")
_TYPES: Final = {
    "text": "string", "digits": "string", "json": "string", ANY: "string", "double": "number", "long": "integer",
    "boolean": "boolean",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slot:
    """One column, or a struct of columns: it takes one kind of the values at a path."""

    kind: str  # what is around, then a name of _RANK
    name: str  # of the column or member; a struct's too
    since: int  # the superset that opened it: 1, 2, …
    members: "Level | None" = None  # of a struct
    full: int = 0  # the superset since which a struct gets no more members; 0: it may get some
    joined: tuple["Slot", ...] = ()  # those in whose place a person's choice put it; no other column gets their names


@dataclass(frozen=True, slots=True)
class Level:
    """The slots of each key of an object, in the order of their opening."""

    slots: Mapping[str, tuple[Slot, ...]] = field(default_factory=lambda: MappingProxyType({}))
    _plain: Mapping[str, "_Plain"] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_plain", {key: _plain_of(slots, key=key) for key, slots in self.slots.items()})

    def of(self, key: str) -> tuple[Slot, ...]:
        """Return the slots of a key; none where it is new."""
        return self.slots.get(key, ())

    def surely_takes(self, key: str, value: Any) -> bool:
        """Return whether there is a slot for all of a value; False may mean that it takes a longer look."""
        return value is None or self._plain.get(key, _UNKNOWN).takes(value)

    def sure_property(self, key: str, value: Any) -> str | None:
        """Return the property of the slot that takes a value, or an array, as it is; None may need a longer look."""
        plain = self._plain.get(key, _UNKNOWN)
        place = plain.place(value)
        return None if place is None else plain.properties[place]


@dataclass(frozen=True, slots=True)
class _Plain:
    """What some slots take, for a quick look: kinds with nothing around them, members, and elements of arrays."""

    kinds: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # with the place of the slot
    level: Level | None = None
    elements: "_Plain | None" = None
    properties: tuple[str, ...] = ()  # of all slots

    def takes(self, value: Any) -> bool:
        kind = type(value)
        if kind is dict:
            if self.level is None:
                return False
            takes = self.level.surely_takes
            return all(takes(key, each) for key, each in value.items())
        if kind is list and self.elements is not None and self.elements.level is not None:
            return set(map(type, value)) == {dict} and all(map(self.elements.takes, value))
        return self.place(value) is not None

    def place(self, value: Any) -> int | None:
        kind = type(value)
        if kind is str:
            return self.kinds.get("text") if value.isascii() else None
        if kind is Whole:
            return self.kinds.get("whole") if len(value) <= SHORT else None
        if kind is Fraction:
            return self.kinds.get("fraction") if is_short(value) else None
        if kind is bool:
            return self.kinds.get("boolean")
        if kind is list and self.elements is not None and len(set(map(type, value))) == 1:
            places = set(map(self.elements.place, value))
            return places.pop() if len(places) == 1 else None
        return None


@dataclass(frozen=True, slots=True)
class Superset:
    """All slots of one event type after some registrations."""

    version: int = 0  # how many
    root: Level = Level()
    other: int = 0  # the superset since which documents may land whole; 0: none has to yet
    closed: int = 0  # the superset since which all that is not covered does; 0: it may grow
    variations: int = field(default=0, compare=False)  # registered so far: the cap is for all of a type
    pinned: int = 0  # the superset since which it grows no more, as a person chose; 0: it may
    refused: tuple[tuple[str, tuple[str, ...]], ...] = ()  # variations that a person refuses: fingerprint and facts
    caps: Caps = USUAL  # the same for all supersets of a type, as they decide where rows land

    def read(self, document: bytes) -> dict[str, Any]:
        """Return a document's values, with numbers as they are written.

        Raises:
            Misfit: it is not a JSON object, is too large, nests too deep, or has a key twice.
        """
        if len(document) > self.caps.bytes:
            raise Misfit(f"larger than {self.caps.bytes} bytes: {len(document)}")
        found = parsed(document, self.caps.depth)
        if not isinstance(found, dict):
            raise Misfit("the document is not an object")
        return found

    def beyond(self, document: Mapping[str, Any], size: int) -> Shape:
        """Return the facts of a parsed document for which there is no slot; WHOLE_DOCUMENT if it never gets any.

        `size` is the number of its bytes.

        Raises:
            Misfit: it holds text without a form as UTF-8.
        """
        if self.must_land_whole(document, size):
            return NOTHING if self.other else WHOLE_DOCUMENT
        members: dict[str, Shape] = {}
        for key, value in document.items():
            if self.root.surely_takes(key, value):
                continue
            slots = self.root.of(key)
            shape = shape_of(value, slots)
            if not shape:
                continue
            require_text(key)
            if new := uncovered(shape, slots):
                members[key] = new
        if not members:
            return NOTHING
        return NOTHING if self.closed else Shape(frozenset(), {ROOT: members})

    def must_land_whole(self, document: Mapping[str, Any], size: int) -> bool:
        """Return whether a document lands whole under every superset: it alone has too many columns, or an id as a key.

        This depends on the document alone, never on what the superset has.

        Raises:
            Misfit: it holds text without a form as UTF-8.
        """
        if not all(map(is_member, document)) and any(
            not is_member(key) and shape_of(value, ()) for key, value in document.items()
        ):
            return True
        if size < self.least_bytes_of_whole:
            return False
        shapes = [shape_of(value, ()) for value in document.values()]
        return sum(map(count, shapes)) > self.caps.columns or sum(map(weight, shapes)) > MOST_WEIGHT // 2

    @property
    def least_bytes_of_whole(self) -> int:
        """A document of fewer bytes does not have too many columns."""
        return self.caps.columns * _LEAST_BYTES

    def declared(self) -> Object:
        """Return a declared schema with a property for each slot, by which documents are decoded."""
        whole = [Property(OTHER, Scalar("string", nullable=True), required=False)] if self.other else []
        made_of = _declared(self.root)
        every = sorted((*whole, *made_of.properties), key=lambda each: each.key)
        return replace(made_of, nullable=False, properties=tuple(every))

    def column_names(self) -> tuple[tuple[str, str], ...]:
        """Return the columns of properties that are decoded under another name: path and name, as a placement has them.

        See `FieldPlacement.names`.
        """
        return tuple(sorted(_names(self.root, self.declared(), "")))

    def columns(self) -> int:
        """Return the number of leaf columns."""
        return _leaves(self.root)

    def weight(self) -> int:
        """Return what its keys weigh; see MOST_WEIGHT."""
        return _weight(self.root)


_UNKNOWN: Final = _Plain()


def _plain_of(slots: Sequence[Slot], outer: str = "", key: str = "") -> _Plain:
    held, struct = [each.kind for each in slots], struct_at(slots, outer)
    takers = {each: slot_kind(f"{outer}{each}", slots, set(held)) for each in _PLAIN}
    kinds = {each: taker for each, taker in takers.items() if taker is not None and taker != ANY}
    if ANY in held and not outer:
        kinds["text"] = ANY  # all else is written again
    elements = None if outer else _plain_of(slots, LIST)
    places = {kind: held.index(taker) for kind, taker in kinds.items()}
    return _Plain(places, None if struct is None else struct.members, elements, properties(key, slots))


def properties(key: str, slots: Sequence[Slot]) -> tuple[str, ...]:
    """Return the property of each of a key's slots in the declared schema.

    The first one has the key itself, so that most documents fit as they are. A slot of texts that are no texts in
    documents never has it.
    """
    first = next((place for place, slot in enumerate(slots) if cut(slot.kind)[1] not in WRITTEN), None)
    return tuple(key if place == first else f"{key}{MARK}{place + 1}" for place in range(len(slots)))


def struct_at(slots: Sequence[Slot], outer: str) -> Slot | None:
    """Return the struct of objects that have this around them."""
    return next((each for each in slots if each.members is not None and each.kind == f"{outer}{STRUCT}"), None)


def is_map_at(slots: Sequence[Slot], outer: str) -> bool:
    """Return whether objects that have this around them are maps."""
    return any(each.kind.startswith(outer + MAP) for each in slots)


def goes_to_map(key: str, struct: Slot) -> bool:
    """Return whether a key that is not among a struct's members is one of the map beside it."""
    return bool(struct.full) or not is_member(key)


def shape_of(value: Any, slots: Sequence[Slot], outer: str = "") -> Shape:
    """Return the shape of a parsed value, read as its slots say: what is a struct or map there stays one.

    Raises:
        Misfit: it holds text without a form as UTF-8.
    """
    if value is None:
        return NOTHING
    if isinstance(value, list):
        return of_elements([shape_of(each, slots, outer + LIST) for each in value])
    if not isinstance(value, dict):
        return _LEAVES[kind_of(value)]
    struct = struct_at(slots, outer)
    if struct is not None and struct.members is not None:
        return _in_struct(value, struct, struct.members, slots, outer)
    is_map = is_map_at(slots, outer)
    found = {}
    for key, each in value.items():
        require_text(key)
        if shape := shape_of(each, slots, outer + MAP) if is_map else shape_of(each, ()):
            found[key] = shape
    if is_map or not all(map(is_member, found)):
        together = NOTHING
        for shape in found.values():
            together = joined(together, shape)
        return around(MAP, together)
    return made((), {"": found}) if found else NOTHING


def _in_struct(value: Mapping[str, Any], struct: Slot, level: Level, slots: Sequence[Slot], outer: str) -> Shape:
    members: dict[str, Shape] = {}
    rest = NOTHING
    for key, each in value.items():
        require_text(key)
        if key not in level.slots and goes_to_map(key, struct):
            rest = joined(rest, shape_of(each, slots, outer + REST))
        elif shape := shape_of(each, level.of(key)):
            members[key] = shape
    kinds, objects = around(REST, rest).kinds, dict(around(REST, rest).objects)
    return Shape(kinds, objects | {"": members} if members else objects)


def uncovered(shape: Shape, slots: Sequence[Slot]) -> Shape:
    """Return the facts of a shape for which there is no slot."""
    if not shape or not slots:
        return shape
    held = {each.kind for each in slots}
    kinds = [kind for kind in shape.kinds if slot_kind(kind, slots, held) is None]
    objects: dict[str, dict[str, Shape]] = {}
    for outer, members in shape.objects.items():
        struct = struct_at(slots, outer)
        level = Level() if struct is None or struct.members is None else struct.members
        if new := {key: more for key, each in members.items() if (more := uncovered(each, level.of(key)))}:
            objects[outer] = new
    return made(kinds, objects) if kinds or objects else NOTHING


def slot_kind(kind: str, slots: Sequence[Slot], held: set[str]) -> str | None:
    """Return the kind of the slot that takes values of a kind, None without one; `held` are the slots' kinds."""
    outer, leaf = cut(kind)
    if not outer and ANY in held and leaf != STRUCT:
        return ANY
    match leaf:
        case "whole":
            takes = (f"{outer}long", f"{outer}double")
            return next((each.kind for each in slots if each.kind in takes), None)
        case "fraction":
            wanted = f"{outer}double"
        case "long" if f"{outer}long" not in held and f"{outer}double" in held and not outer.endswith(LIST):
            wanted = f"{outer}digits"
        case _:
            wanted = kind
    return wanted if wanted in held else None


def _weight(level: Level) -> int:
    return sum(
        weight_of_key(key) * len(slots) + sum(_weight(each.members) for each in slots if each.members is not None)
        for key, slots in level.slots.items()
    )


def _leaves(level: Level) -> int:
    return sum(
        1 if each.members is None else max(1, _leaves(each.members)) for slots in level.slots.values() for each in slots
    )


def _declared(level: Level) -> Object:
    listed = [
        Property(own, _type(slot), required=False)
        for key, slots in level.slots.items()
        for own, slot in zip(properties(key, slots), slots, strict=True)
    ]
    return Object(tuple(sorted(listed, key=lambda each: each.key)), nullable=True)


def _names(level: Level, declared: Object, path: str) -> Iterator[tuple[str, str]]:
    slots_of = {
        own: slot for key, slots in level.slots.items() for own, slot in zip(properties(key, slots), slots, strict=True)
    }
    for name, each in zip(names_of(declared), declared.properties, strict=True):
        slot = slots_of.get(each.key)
        if (column := OTHER_COLUMN if slot is None else slot.name) != name:
            yield f"{path}{name}", column
        if slot is not None and slot.members is not None:
            yield from _names(slot.members, _declared(slot.members), f"{path}{name}.")


def scalar_of(kind: str) -> Scalar:
    """Return the declared type of values of a kind with nothing around it."""
    return Scalar(_TYPES[kind], nullable=True)


def _type(slot: Slot) -> Type:
    outer, leaf = cut(slot.kind)
    held: Type = scalar_of(leaf) if slot.members is None else _declared(slot.members)
    for each in reversed(re.findall(r"\[\]|\{\+?\}", outer)):
        held = JsonArray(held, nullable=True) if each == LIST else JsonMap(held, nullable=True)
    return held


def lines(superset: Superset) -> Iterator[str]:
    """Yield a line for each slot, by which two supersets can be compared: path, kind, column and version."""
    yield from _lines(superset.root, "", "")


def _lines(level: Level, path: str, columns: str) -> Iterator[str]:
    for key, slots in level.slots.items():
        for slot in slots:
            yield f"{path}{key!r} {slot.kind} {columns}{slot.name} {slot.since} {slot.full}"
            if slot.members is not None:
                yield from _lines(slot.members, f"{path}{key!r}{slot.kind}.", f"{columns}{slot.name}.")


_LEAVES: Final = {kind: Shape(frozenset({kind})) for kind in ("boolean", "text", "whole", "long", "fraction", "digits")}
