"""Joins the columns that hold the single values of one key, as a person chooses, and parts them again. Pure.

A rebuild moves the values: each row that has one gets the id of the merge, so earlier ids mean what they meant.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pipeline.data.contracts.formats.json.shapes import cut
from pipeline.data.contracts.formats.json.superset import ANY, Level, Slot, Superset

DOUBLE: Final = "double"
KINDS: Final = (DOUBLE, ANY)
"""What a merge gives: doubles from whole numbers and doubles, else text."""
_NUMBERS: Final = frozenset({"long", DOUBLE})


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one key's single values."""

    path: str  # of the first one, in the table or in the struct of its event type; in lists and structs with dots
    slots: tuple[Slot, ...]

    @property
    def may_be_double(self) -> bool:
        """Whether all are numbers that doubles may hold."""
        return {each.kind for each in self.slots} == _NUMBERS


def columns_of_keys(superset: Superset) -> Iterator[Columns]:
    """Yield the columns of each key that has one for single values."""
    yield from _of_level(superset.root, "")


def merges(superset: Superset) -> dict[str, int]:
    """Return the paths of the columns that are merged now, each with the version that merged it."""
    return {each.path: slot.since for each in columns_of_keys(superset) for slot in each.slots if slot.joined}


def merged(superset: Superset, path: str, kind: str) -> Superset:
    """Return the next superset, in which one slot takes what several took; the superset itself without several.

    Args:
        superset: the one before.
        path: of the first column, see `Columns`.
        kind: one of KINDS.

    Raises:
        ValueError: it is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"no kind of merged columns: {kind!r}")
    version = superset.version + 1

    def join(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        single = singles(slots)
        if len(single) < 2 or (kind == DOUBLE and {each.kind for each in single} != _NUMBERS):
            return slots
        one = Slot(kind, single[0].name, version, joined=single)
        return tuple(one if each is single[0] else each for each in slots if each is single[0] or each not in single)

    return _changed(superset, path, join)


def parted(superset: Superset, path: str, since: int) -> Superset:
    """Return the next superset, with the slots that the superset `since` joined; the superset itself without them."""

    def part(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        found: list[Slot] = []
        for each in slots:
            found += each.joined if each.joined and each.since == since else [each]
        return tuple(found)

    return _changed(superset, path, part)


def column_type(kind: str) -> str:
    """Return the type of the column of single values of a kind."""
    return kind if kind in {"long", DOUBLE, "boolean"} else "string"


def singles(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """Return the slots of single values: nothing is around them, and they have no members."""
    return tuple(each for each in slots if each.members is None and not cut(each.kind)[0])


def _of_level(level: Level, prefix: str) -> Iterator[Columns]:
    for slots in level.slots.values():
        if single := singles(slots):
            yield Columns(f"{prefix}{single[0].name}", single)
        for each in slots:
            if each.members is not None:
                yield from _of_level(each.members, f"{prefix}{each.name}.")


def _changed(superset: Superset, path: str, change: Callable[[tuple[Slot, ...]], tuple[Slot, ...]]) -> Superset:
    root = _in_level(superset.root, path, change)
    return superset if root == superset.root else replace(superset, version=superset.version + 1, root=root)


def _in_level(level: Level, path: str, change: Callable[[tuple[Slot, ...]], tuple[Slot, ...]]) -> Level:
    first, _, rest = path.partition(".")
    found = dict(level.slots)
    for key, slots in level.slots.items():
        if not rest and any(each.name == first for each in singles(slots)):
            found[key] = change(slots)
        elif rest:
            found[key] = tuple(
                each if each.members is None or each.name != first
                else replace(each, members=_in_level(each.members, rest, change))
                for each in slots
            )  # fmt: skip
    return Level(found)
