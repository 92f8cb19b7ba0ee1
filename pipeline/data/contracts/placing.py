"""Lays decoded columns out as a game's table has them."""

import pyarrow as pa

from pipeline.data.contracts.columns import cast, merge
from pipeline.data.contracts.schemas import FieldPlacement, Schema
from pipeline.data.contracts.shape import placed_columns


def pad(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the target's columns: reordered, missing ones (also nested) null. Free when equal.

    Raises:
        ValueError: the batch has a column, at any depth, that the target lacks.
        Refused: a column has another type in the target.
    """
    if batch.schema.equals(target):
        return batch
    if merge(target, batch.schema) != target:
        raise ValueError(f"the batch holds columns that the target lacks; it has {', '.join(batch.schema.names)}")
    return cast(batch, target)


def placed(batch: pa.RecordBatch, schema: Schema, placement: FieldPlacement) -> pa.RecordBatch:
    """Rename a schema's decoded columns as in a game's table; values stay untouched."""
    if placement.struct is not None and batch.num_columns:
        target = placed_columns(schema, placement)
        inside = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        return pa.RecordBatch.from_arrays([_retitled(inside, target.field(0).type)], schema=target)
    if not placement.names:
        return batch
    target = placed_columns(schema, placement)
    arrays = [_retitled(values, each.type) for values, each in zip(batch.columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _retitled(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with other names of the same members."""
    if values.type == kind:
        return values
    if values.offset:
        values = pa.concat_arrays([values])  # Arrow accepts a mask for whole arrays only
    nulls = values.is_null()
    if pa.types.is_struct(kind):
        inside = [_retitled(values.field(index), kind.field(index).type) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(inside, fields=list(kind), mask=nulls)
    if pa.types.is_map(kind):
        items = _retitled(values.items, kind.item_type)
        return pa.MapArray.from_arrays(values.offsets, values.keys, items, type=kind, mask=nulls)
    return pa.ListArray.from_arrays(values.offsets, _retitled(values.values, kind.value_type), type=kind, mask=nulls)
