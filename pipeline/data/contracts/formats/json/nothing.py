"""Makes null of what holds nothing, in columns: empty objects and arrays, and those of nulls only. Pure.

What is decoded as it is written, and what was written again, is the same after this.
"""

import itertools
import operator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def without_nothing(values: pa.Array) -> pa.Array:
    """Return an array with null for each value that holds nothing; entries of a map without a value are left out.

    It is the array itself where nothing changes, which is seen quickly.
    """
    if pa.types.is_struct(values.type):
        given = [values.field(place) for place in range(values.type.num_fields)]
        members = [without_nothing(each) for each in given]
        if any(each.null_count == 0 for each in members) and all(map(operator.is_, members, given)):
            return values
        nulls = values.is_null()
        empty = nulls if not members else _all([each.is_null() for each in members])
        return pa.StructArray.from_arrays(members, fields=list(values.type), mask=pc.or_(nulls, empty))
    if pa.types.is_map(values.type):
        return _map(values)
    if pa.types.is_list(values.type):
        given = values.values
        inner = without_nothing(given)
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        empty = _held(inner, values.offsets) == 0
        if inner is given and not (empty & ~nulls).any():
            return values
        mask = pa.array(nulls | empty)
        return pa.ListArray.from_arrays(_plain(values.offsets), inner, type=values.type, mask=mask)
    return values


def _all(masks: list[pa.Array]) -> pa.Array:
    found = masks[0]
    for each in masks[1:]:
        found = pc.and_(found, each)
    return found


def _plain(offsets: pa.Array) -> pa.Array:
    """Return offsets as an array of their own: Arrow takes a mask for such only."""
    return pa.array(offsets.to_numpy())


def _held(inner: pa.Array, offsets: pa.Array) -> np.ndarray:
    """Return for each list how many of its values are not null."""
    if inner.null_count == 0:
        return np.diff(offsets.to_numpy())
    before = np.concatenate([[0], np.cumsum(inner.is_valid().to_numpy(zero_copy_only=False))])
    result: np.ndarray = np.diff(before[offsets.to_numpy()])
    return result


def _map(values: pa.MapArray) -> pa.Array:
    items = without_nothing(values.items)
    counts, kept = _held(items, values.offsets), items.is_valid()
    counts[values.is_null().to_numpy(zero_copy_only=False)] = 0
    first = values.offsets.to_numpy()
    inside = np.zeros(len(items), dtype=np.bool_)
    for start, end in itertools.pairwise(first):
        inside[start:end] = True
    kept = pc.and_(kept, pa.array(inside))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    mask = pa.array(counts == 0)
    return pa.MapArray.from_arrays(offsets, values.keys.filter(kept), items.filter(kept), type=values.type, mask=mask)
