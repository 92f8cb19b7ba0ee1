"""The superset of an event type's undeclared documents: which column takes which kind of value at which path. Pure.

It only grows: a slot keeps its name and kind for good, and a value that a slot takes is never taken by a later one. So
where a document's values land is the same for every superset that covers it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from pipeline.data.contracts.formats.json.columns import suffix
from pipeline.data.contracts.formats.json.scalar import Fraction, Whole
from pipeline.data.contracts.formats.json.shapes import (
    LIST,
    MAP,
    MARK,
    MOST_MEMBERS,
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
)
from pipeline.data.contracts.formats.json.types import JsonArray, JsonMap, Object, Property, Scalar, Type
from pipeline.data.contracts.known import LONGEST_BASE

STRUCT: Final = "struct"
MOST_COLUMNS: Final = 1000
"""Most leaf columns of one event type."""
OTHER: Final = f"{MARK}other"
"""The property of a document that lands whole, as text."""
OTHER_COLUMN: Final = "__other__"
WHOLE_DOCUMENT: Final = Shape(frozenset({OTHER}))
"""The shape of a document that lands whole, whatever it holds."""

_LEAST_BYTES: Final = 6  # of a fact: `"k":1,`
_PLAIN: Final = ("boolean", "text", "whole", "fraction")
_RANK: Final = (STRUCT, "text", "double", "long", "boolean", "digits", "json")
_TYPES: Final = {
    "text": "string", "digits": "string", "json": "string", "double": "number", "long": "integer", "boolean": "boolean",
}  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


@dataclass(frozen=True, slots=True)
class Slot:
    """One column, or a struct of columns: it takes one kind of the values at a path."""

    kind: str  # what is around, then a name of _RANK
    name: str  # of the column or member; a struct's too
    since: int  # the superset that opened it: 1, 2, …
    members: "Level | None" = None  # of a struct
    full: int = 0  # the superset since which a struct gets no more members; 0: it may get some


@dataclass(frozen=True, slots=True)
class Level:
    """The slots of each key of an object, in the order of their opening."""

    slots: Mapping[str, tuple[Slot, ...]] = field(default_factory=lambda: MappingProxyType({}))
    _plain: Mapping[str, "_Plain"] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_plain", {key: _plain_of(slots) for key, slots in self.slots.items()})

    def of(self, key: str) -> tuple[Slot, ...]:
        """Return the slots of a key; none where it is new."""
        return self.slots.get(key, ())

    def surely_takes(self, key: str, value: Any) -> bool:
        """Return whether there is a slot for all of a value; False may mean that it takes a longer look."""
        return value is None or self._plain.get(key, _UNKNOWN).takes(value)


@dataclass(frozen=True, slots=True)
class _Plain:
    """What some slots take, for a quick look: kinds with nothing around them, members, and elements of arrays."""

    kinds: frozenset[str] = frozenset()
    level: Level | None = None
    elements: "_Plain | None" = None

    def takes(self, value: Any) -> bool:
        kind = type(value)
        if kind is str:
            return "text" in self.kinds and value.isascii()
        if kind is Whole:
            return len(value) <= SHORT and "whole" in self.kinds
        if kind is Fraction:
            return is_short(value) and "fraction" in self.kinds
        if kind is bool:
            return "boolean" in self.kinds
        if kind is dict and self.level is not None:
            takes = self.level.surely_takes
            return all(takes(key, each) for key, each in value.items())
        if kind is list and self.elements is not None:
            return len(set(map(type, value))) <= 1 and all(map(self.elements.takes, value))
        return False


@dataclass(frozen=True, slots=True)
class Superset:
    """All slots of one event type after some registrations."""

    version: int = 0  # how many
    root: Level = Level()
    other: int = 0  # the superset since which documents may land whole; 0: none has to yet
    closed: int = 0  # the superset since which all that is not covered does; 0: it may grow
    most_columns: int = MOST_COLUMNS  # the same for all supersets of a type, as it decides where rows land

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
        if size < self.most_columns * _LEAST_BYTES:
            return False
        return sum(count(shape_of(value, ())) for value in document.values()) > self.most_columns

    def grown(self, new: Shape, *, other: bool = False, closed: bool = False) -> "Superset":
        """Return the next superset, which covers these facts too.

        Args:
            new: facts beyond this superset, joined.
            other: documents land whole from now on where they must.
            closed: all documents do that this superset does not cover.
        """
        version = self.version + 1
        root = _grown_level(self.root, new.objects.get(ROOT, {}), version, top=True)
        lands = self.other or (version if other or closed else 0)
        ends = self.closed or (version if closed else 0)
        return replace(self, version=version, root=root, other=lands, closed=ends)

    def declared(self) -> Object:
        """Return a declared schema with a property for each slot, by which documents are decoded."""
        whole = [Property(OTHER, Scalar("string", nullable=True), required=False)] if self.other else []
        made_of = _declared(self.root)
        return replace(made_of, nullable=False, properties=(*whole, *made_of.properties))

    def columns(self) -> int:
        """Return the number of leaf columns."""
        return _leaves(self.root)


_UNKNOWN: Final = _Plain()


def _plain_of(slots: Sequence[Slot], outer: str = "") -> _Plain:
    held, struct = {each.kind for each in slots}, struct_at(slots, outer)
    kinds = [each for each in _PLAIN if slot_kind(f"{outer}{each}", slots, held) is not None]
    elements = None if outer else _plain_of(slots, LIST)
    return _Plain(frozenset(kinds), None if struct is None else struct.members, elements)


def property_key(key: str, place: int) -> str:
    """Return the property of a key's slot: the key itself for its first one."""
    return key if place == 0 else f"{key}{MARK}{place + 1}"


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
    if not shape:
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


def _grown_level(level: Level, new: Mapping[str, Shape], version: int, *, top: bool = False) -> Level:
    taken = {slot.name.lower() for slots in level.slots.values() for slot in slots}
    grown = dict(level.slots)
    for key, shape in sorted(new.items()):
        slots = list(grown.get(key, ()))
        base = slots[0].name if slots else _free_name(key, taken, top=top)
        grown[key] = _grown(slots, shape, base, taken, version)
    return Level(dict(sorted(grown.items())))


def _grown(slots: list[Slot], shape: Shape, base: str, taken: set[str], version: int) -> tuple[Slot, ...]:
    """Return a key's slots after new facts; names of new ones are added to `taken`."""
    kinds, objects = set(shape.kinds), {outer: dict(members) for outer, members in shape.objects.items()}
    for place, slot in enumerate(slots):
        if slot.members is not None:
            outer = slot.kind[: -len(STRUCT)]
            slots[place] = _grown_struct(slot, slot.members, outer, kinds, objects, version)
    wanted = {f"{outer}{STRUCT}" for outer in objects} | _columns_for(kinds, slots)
    for kind in sorted(wanted - {each.kind for each in slots}, key=_rank):
        name = base if not slots else _side_name(base, len(slots) + 1, taken)
        taken.add(name.lower())
        inside = _grown_level(Level(), objects[kind[: -len(STRUCT)]], version) if kind.endswith(STRUCT) else None
        slots.append(Slot(kind, name, version, inside))
    return tuple(slots)


def _grown_struct(
    slot: Slot, level: Level, outer: str, kinds: set[str], objects: dict[str, dict[str, Shape]], version: int
) -> Slot:
    """Return a struct with new members; those for which it has no room become facts of the map beside it."""
    new, full = objects.pop(outer, {}), slot.full
    keys = sorted(new.keys() - level.slots.keys())
    room = set(keys if full == 0 else ()) & set(keys[: MOST_MEMBERS - len(level.slots)])
    if not full and len(room) < len(keys):
        full = version
    beside = NOTHING
    for key in keys:
        beside = beside if key in room else joined(beside, new[key])
    # So many keys were new that their facts came as those of a map.
    begin = outer + MAP
    came = {each for each in [*kinds, *objects] if each.startswith(begin)}
    if came:
        full = full or version
        wide = Shape(
            frozenset(each.removeprefix(begin) for each in came & kinds),
            {each.removeprefix(begin): objects.pop(each) for each in came & objects.keys()},
        )
        kinds -= came
        beside = joined(beside, wide)
    moved = around(outer + REST, beside)
    kinds |= moved.kinds
    objects |= {each: dict(members) for each, members in moved.objects.items()}
    inside = {key: each for key, each in new.items() if key in level.slots or key in room}
    return replace(slot, members=_grown_level(level, inside, version), full=full)


def _columns_for(kinds: Iterable[str], slots: Sequence[Slot]) -> set[str]:
    held = {each.kind for each in slots}
    found = set[str]()
    for kind in set(kinds):
        if slot_kind(kind, slots, held) is not None:
            continue
        outer, leaf = cut(kind)
        doubles = f"{outer}double" in held or f"{outer}fraction" in kinds
        if leaf == "long" and f"{outer}long" not in held and doubles and not outer.endswith(LIST):
            found.add(f"{outer}digits")
        else:
            found.add(outer + {"whole": "long", "fraction": "double"}.get(leaf, leaf))
    return found


def _rank(kind: str) -> tuple[int, int, str]:
    outer, leaf = cut(kind)
    return len(outer), _RANK.index(leaf), kind


def _free_name(key: str, taken: set[str], *, top: bool) -> str:
    name = key
    if not _NAME.fullmatch(key) or key.lower() in taken or (top and key.startswith("_")):
        base = re.sub(r"[^A-Za-z0-9_]", "_", key)[:LONGEST_BASE]
        if not base[:1].isalpha() and (top or not base.startswith("_")):
            base = f"field{base}"
        name = f"{base}__{suffix(key)}"
    return name if name.lower() not in taken else _side_name(name, 2, taken)


def _side_name(base: str, number: int, taken: set[str]) -> str:
    base = base[:LONGEST_BASE]
    while f"{base}__v{number}".lower() in taken:
        number += 1
    return f"{base}__v{number}"


def _leaves(level: Level) -> int:
    return sum(
        1 if each.members is None else max(1, _leaves(each.members)) for slots in level.slots.values() for each in slots
    )


def _declared(level: Level) -> Object:
    listed = [
        Property(property_key(key, place), _type(slot), required=False)
        for key, slots in level.slots.items()
        for place, slot in enumerate(slots)
    ]
    return Object(tuple(sorted(listed, key=lambda each: each.key)), nullable=True)


def _type(slot: Slot) -> Type:
    outer, leaf = cut(slot.kind)
    held: Type = Scalar(_TYPES[leaf], nullable=True) if slot.members is None else _declared(slot.members)
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
