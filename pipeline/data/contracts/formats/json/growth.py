"""The growth of a superset: slots for new facts, with names that no other slot has. Pure.

It depends on the superset and on the set of new facts only, not on the order in which they came.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pipeline.data.contracts.formats.json.columns import suffix
from pipeline.data.contracts.formats.json.shapes import (
    LIST,
    MAP,
    MOST_MEMBERS,
    NOTHING,
    REST,
    ROOT,
    Shape,
    around,
    cut,
    joined,
)
from pipeline.data.contracts.formats.json.superset import STRUCT, Level, Slot, Superset, slot_kind
from pipeline.data.contracts.known import LONGEST_BASE

_RANK: Final = (STRUCT, "text", "double", "long", "boolean", "digits", "json")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


def grown(
    superset: Superset,
    new: Shape,
    *,
    other: bool = False,
    closed: bool = False,
    taken: frozenset[str] = frozenset(),
) -> Superset:
    """Return the next superset, which covers these facts too.

    Args:
        superset: the one before.
        new: facts beyond that one, joined.
        other: documents land whole from now on where they must.
        closed: all documents do that this superset does not cover.
        taken: names, in lower case, of the table's columns that are not this event type's; no new column has one.
    """
    version = superset.version + 1
    root = _grown_level(superset.root, new.objects.get(ROOT, {}), version, top=True, others=taken)
    lands = superset.other or (version if other or closed else 0)
    ends = superset.closed or (version if closed else 0)
    return replace(superset, version=version, root=root, other=lands, closed=ends)


def as_of(superset: Superset, version: int) -> Superset:
    """Return the superset that a later one grew from: each holds its history."""

    def then(since: int) -> int:
        return since if since <= version else 0

    def level(now: Level) -> Level:
        kept = {
            key: tuple(map(slot, filter(lambda each: each.since <= version, each))) for key, each in now.slots.items()
        }
        return Level({key: slots for key, slots in kept.items() if slots})

    def slot(now: Slot) -> Slot:
        return now if now.members is None else replace(now, members=level(now.members), full=then(now.full))

    root = level(superset.root)
    return replace(superset, version=version, root=root, other=then(superset.other), closed=then(superset.closed))


def _grown_level(
    level: Level, new: Mapping[str, Shape], version: int, *, top: bool = False, others: frozenset[str] = frozenset()
) -> Level:
    taken = {name.lower() for slots in level.slots.values() for slot in slots for name in names_of(slot)} | others
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
    # More than 300 keys were new at once: their facts came as those of a map.
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


def names_of(slot: Slot) -> Iterator[str]:
    """Yield the name of a slot, and those of the slots that a merge joined in it."""
    yield slot.name
    for each in slot.joined:
        yield from names_of(each)


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
