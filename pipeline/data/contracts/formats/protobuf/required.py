"""Finds messages without a required field, among decoded columns."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from pipeline.data.contracts.formats.protobuf.fields import by_number, struct_of
from pipeline.data.contracts.nested import parent_of_each


@lru_cache(maxsize=4096)
def has_required(message: Descriptor) -> bool:
    """Return whether a message has a required field, at any depth; it must not contain itself."""
    inside = (struct_of(each) for each in message.fields)
    return any(each.is_required for each in message.fields) or any(has_required(each) for each in inside if each)


def missing_required(given: Descriptor, decoded: Descriptor, columns: Mapping[str, pa.Array]) -> dict[int, str]:
    """Return the rows without a required field, at any depth, each with the path of the first such field.

    Args:
        given: the definition as it was given.
        decoded: the same with the names that the columns have.
        columns: the messages, none of which is null.
    """
    missing: dict[int, str] = {}
    for each in by_number(given):
        name = decoded.fields_by_number[each.number].name
        if each.is_required:
            nulls = np.flatnonzero(columns[name].is_null().to_numpy(zero_copy_only=False))
            missing = dict.fromkeys(nulls.tolist(), str(each.name)) | missing
        inner, inner_decoded = struct_of(each), struct_of(decoded.fields_by_number[each.number])
        if inner is not None and inner_decoded is not None and has_required(inner):
            inside = _inside(inner, inner_decoded, columns[name])
            missing = {row: f"{each.name}.{path}" for row, path in inside.items()} | missing
    return missing


def _inside(given: Descriptor, decoded: Descriptor, values: pa.Array) -> dict[int, str]:
    """Return the rows of a column whose messages lack a required field, each with that field's path."""
    if pa.types.is_struct(values.type):
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        held = values if len(present) == len(values) else values.take(pa.array(present))
        missing = missing_required(given, decoded, dict(zip(held.type.names, held.flatten(), strict=True)))
        return {int(present[row]): path for row, path in missing.items()}
    missing = _inside(given, decoded, values.items if pa.types.is_map(values.type) else values.values)
    children = np.array(sorted(missing, reverse=True), dtype=np.int64)
    rows = parent_of_each(values, children)
    first = dict(zip(rows.tolist(), children.tolist(), strict=True))  # the lowest child comes last
    return {row: missing[child] for row, child in first.items() if 0 <= row < len(values)}
