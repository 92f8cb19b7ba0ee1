"""Finds the first superset of a chain that covers a document: in decoded columns, for many at once. Pure.

The newest superset holds all earlier ones, since each slot keeps the number of the one that opened it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.formats.json.shapes import LIST, MAP, REST, is_member
from pipeline.data.contracts.formats.json.superset import OTHER, Level, Slot, Superset, properties, struct_at

_FIRST: Final = 1
_WHOLE: Final = 2**62  # in place of the version of a document that lands whole


def first_versions(superset: Superset, batch: pa.RecordBatch, document: Callable[[int], bytes]) -> Rows:
    """Return the version of the first superset that covers each document.

    Args:
        superset: the newest one.
        batch: the documents' columns, in which what holds nothing is null.
        document: gives the one of a row as it came.
    """
    if superset.version <= _FIRST or not batch.num_columns:
        return np.full(batch.num_rows, _FIRST, np.int64)
    found = _of_level(batch.columns, superset.root, batch.num_rows, whole=bool(superset.other))
    if superset.other:
        for row in np.flatnonzero(found == _WHOLE).tolist():
            found[row] = _of_whole(superset, document(row))
    return np.maximum(found, _FIRST)


def first_version(superset: Superset, document: bytes, as_of: Callable[[int], Superset]) -> int:
    """Return the same for one document, which the newest superset covers; `as_of` gives what versions had of it."""
    read, size = superset.read(document), len(document)
    if superset.must_land_whole(read, size):
        return superset.other
    if superset.closed and replace(superset, closed=0).beyond(read, size):
        return superset.closed
    low, high = _FIRST, max(_FIRST, superset.version)
    while low < high:  # what one takes, each later one takes
        middle = (low + high) // 2
        if replace(as_of(middle), closed=0).beyond(read, size):
            low = middle + 1
        else:
            high = middle
    return low


def _of_whole(superset: Superset, document: bytes) -> int:
    """Return the version since which a document lands whole."""
    return superset.other if superset.must_land_whole(superset.read(document), len(document)) else superset.closed


def _of_level(columns: Sequence[pa.Array], level: Level, count: int, *, whole: bool = False) -> Rows:
    found = np.zeros(count, np.int64)
    for values, (slot, slots) in zip(columns, _in_order(level, whole=whole), strict=True):
        if slot is not None and slot.since <= _FIRST and slot.members is None and REST not in slot.kind:
            continue  # which says nothing: every document has the first version at least
        own = np.where(_valid(values), _WHOLE, 0) if slot is None else _of_slot(values, slot, slots, "")
        found = np.maximum(found, own)
    return found


def _in_order(level: Level, *, whole: bool) -> Iterator[tuple[Slot | None, tuple[Slot, ...]]]:
    """Yield each slot, and those of its key, in the order of their columns; None is that of whole documents."""
    listed: list[tuple[str, Slot | None, tuple[Slot, ...]]] = [(OTHER, None, ())] if whole else []
    for key, slots in level.slots.items():
        listed += [(own, slot, slots) for own, slot in zip(properties(key, slots), slots, strict=True)]
    for _, slot, slots in sorted(listed, key=lambda each: each[0]):
        yield slot, slots


def _of_slot(values: pa.Array, slot: Slot, slots: Sequence[Slot], outer: str) -> Rows:
    """Return the version of each value, 0 for null; `outer` is what is around them by now."""
    rest = slot.kind[len(outer) :]
    valid = _valid(values)
    if rest.startswith(LIST):
        inner = _of_slot(values.values, slot, slots, outer + LIST)
        return np.where(valid, _most(inner, values.offsets), 0)
    for begin in (MAP, REST):
        if rest.startswith(begin):
            inner = _of_slot(values.items, slot, slots, outer + begin)
            if begin == REST and (struct := struct_at(slots, outer)) is not None and struct.full > slot.since:
                inner = np.where(_are_members(values.keys) & (inner > 0), np.maximum(inner, struct.full), inner)
            return np.where(valid, _most(inner, values.offsets), 0)
    if slot.members is None:
        return np.where(valid, slot.since, 0)
    members = [values.field(place) for place in range(values.type.num_fields)]
    return np.where(valid, np.maximum(slot.since, _of_level(members, slot.members, len(values))), 0)


def _are_members(keys: pa.Array) -> Rows:
    """Return which keys of a map beside a struct would have been members of it before it was full."""
    distinct = keys.dictionary_encode()
    known = np.array([is_member(each) for each in distinct.dictionary.to_pylist()], dtype=np.bool_)
    result: Rows = known[distinct.indices.to_numpy()]
    return result


def _most(inner: Rows, offsets: pa.Array) -> Rows:
    """Return the highest number of each list, 0 of an empty one."""
    bounds = offsets.to_numpy()
    counts = np.diff(bounds)
    if not len(counts):
        return np.zeros(0, np.int64)
    most: Rows = np.maximum.reduceat(np.append(inner[: bounds[-1]], 0), bounds[:-1])
    return np.where(counts > 0, most, 0)


def _valid(values: pa.Array) -> Rows:
    result: Rows = values.is_valid().to_numpy(zero_copy_only=False)
    return result
