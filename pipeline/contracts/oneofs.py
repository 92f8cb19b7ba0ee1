"""Finds messages in which several members of a oneof came: the last one counts, but the Arrow parser keeps them all."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pipeline.contracts.fields import struct_of
from pipeline.contracts.nested import parents, together
from pipeline.contracts.parsing import Rows


@lru_cache(maxsize=4096)
def has_oneof(message: Descriptor) -> bool:
    """Tell whether a message has a oneof of several members, at any depth; it must not contain itself."""
    inside = (struct_of(each) for each in message.fields)
    return any(len(one.fields) > 1 for one in message.oneofs) or any(has_oneof(each) for each in inside if each)


def rows_with_several(message: Descriptor, columns: Mapping[str, pa.Array]) -> Rows:
    """Return the rows in which, at any depth, a oneof has more than one member."""
    found = []
    for one in message.oneofs:
        if len(one.fields) > 1:
            held = [pc.is_valid(columns[each.name]).to_numpy(zero_copy_only=False) for each in one.fields]
            found.append(np.flatnonzero(np.sum(held, axis=0) > 1).astype(np.int64))
    for each in message.fields:
        inner = struct_of(each)
        if inner is not None and has_oneof(inner):
            found.append(_rows_inside(each, inner, columns[each.name]))
    return together(found)


def _rows_inside(each: FieldDescriptor, inner: Descriptor, values: pa.Array) -> Rows:
    if pa.types.is_struct(values.type):
        return rows_with_several(inner, dict(zip(values.type.names, values.flatten(), strict=True)))
    entries = values.items if pa.types.is_map(values.type) else values.values
    return parents(values, _rows_inside(each, inner, entries))
