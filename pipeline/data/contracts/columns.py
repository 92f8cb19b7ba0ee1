"""Columns of Delta's types: how a parser's types become them, and how two sets of columns join."""

from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused
from pipeline.base.names import shown

_UINT64: Final = pa.decimal128(20, 0)


def delta_schema(parsed: pa.Schema) -> pa.Schema:
    """Convert parsed columns to the nearest Delta types, every one nullable.

    Integers become int64, float and double float64, so that a field may widen in place (docs/decisions/0007); uint64
    becomes decimal(20, 0), durations and times of day whole microseconds. A message without fields is true where it is
    present.
    """
    return pa.schema(_delta_fields(parsed))


def members(kind: pa.DataType | None) -> list[pa.Field]:
    """Return the fields of the messages that a column holds, one each, as a list, or as a map's values."""
    if kind is None:
        return []
    if pa.types.is_list(kind):
        return members(kind.value_type)
    if pa.types.is_map(kind):
        return members(kind.item_type)
    return list(kind) if pa.types.is_struct(kind) else []


def holds_type(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a column is of a wanted type, or contains it."""
    return is_wanted(kind) or any(holds_type(kind.field(index).type, is_wanted) for index in range(kind.num_fields))


def type_text(kind: pa.DataType) -> str:
    """Return a column's type in the words of docs/data.md."""
    if pa.types.is_struct(kind):
        inside = ", ".join(f"{each.name}: {type_text(each.type)}" for each in members(kind))
        return f"struct<{inside}>"
    if pa.types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return {"int64": "long", "bool": "boolean", "date32[day]": "date"}.get(str(kind), str(kind))


def merge(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """Return the union of two sets of columns, at every depth: the old ones in their order, then what is new.

    Raises:
        Refused: naming the column whose types do not go together.
    """
    return pa.schema(_merge_fields(list(old), list(new), ""))


def cast(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the target's columns, cast to its types; missing ones are null.

    A message without fields is cast to whether it is present.
    """
    if not len(target):
        return batch.select([])  # which still knows its number of rows
    held = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = []
    for field in target:
        values = held.get(field.name)
        if values is None:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(values if values.type == field.type else cast_values(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def cast_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values cast to a type.

    A cast by pyarrow 21 to 23, one of which a Databricks runtime has, leaves the keys of maps uncounted: joining two
    such arrays then aborts the process ("Map array keys array should have no nulls"). So keys are counted here.
    """
    made = (_presences(values) if holds_type(values.type, _is_hollow) else values).cast(kind)
    _count_keys(made)
    return made


def _is_hollow(kind: pa.DataType) -> bool:
    """Return whether a type is that of messages without fields."""
    return bool(pa.types.is_struct(kind) and not kind.num_fields)


def _presences(values: pa.Array) -> pa.Array:
    """Return values with true for each message without fields, at any depth."""
    if values.offset:
        values = pa.concat_arrays([values])  # Arrow accepts a mask for whole arrays only
    kind, nulls = values.type, values.is_null()
    if _is_hollow(kind):
        return pc.if_else(nulls, pa.scalar(None, pa.bool_()), pa.scalar(value=True))
    if pa.types.is_struct(kind):
        inside = [_presences(values.field(index)) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(inside, names=[each.name for each in kind], mask=nulls)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(values.offsets, _presences(values.values), mask=nulls)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(values.offsets, values.keys, _presences(values.items), mask=nulls)
    return values


def _count_keys(values: pa.Array) -> None:
    if pa.types.is_map(values.type):
        assert values.keys.null_count == 0
        _count_keys(values.items)
    elif pa.types.is_list(values.type):
        _count_keys(values.values)
    elif pa.types.is_struct(values.type):
        for index in range(values.type.num_fields):
            _count_keys(values.field(index))


def _delta_fields(fields: Iterable[pa.Field]) -> list[pa.Field]:
    return [pa.field(field.name, _delta_type(field.type)) for field in fields]


def _delta_type(kind: pa.DataType) -> pa.DataType:
    if kind in {pa.int32(), pa.uint32()} or pa.types.is_duration(kind) or pa.types.is_time(kind):
        return pa.int64()
    if kind == pa.float32():
        return pa.float64()
    if kind == pa.uint64():
        return _UINT64
    if pa.types.is_struct(kind):
        return pa.bool_() if _is_hollow(kind) else pa.struct(_delta_fields(kind))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _delta_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_delta_type(kind.key_type), _delta_type(kind.item_type))
    return kind


def _merge_fields(old: list[pa.Field], new: list[pa.Field], prefix: str) -> list[pa.Field]:
    result = {field.name: field for field in old}
    spelled = {name.lower(): name for name in result}
    for field in new:
        path = f"{prefix}{field.name}"
        if (twin := spelled.setdefault(field.name.lower(), field.name)) != field.name:
            raise Refused(f"The column {path} differs from {shown(twin)} only by case. Give the field another name.")
        held = result.get(field.name)
        result[field.name] = pa.field(field.name, field.type if held is None else _merged(held.type, field.type, path))
    return list(result.values())


def _merged(old: pa.DataType, new: pa.DataType, path: str) -> pa.DataType:
    if old == new:
        return old
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_merge_fields(list(old), list(new), f"{path}."))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(pa.field("element", _merged(old.value_type, new.value_type, f"{path}.element")))
    if pa.types.is_map(old) and pa.types.is_map(new):
        key = _merged(old.key_type, new.key_type, f"{path}.key")
        return pa.map_(key, _merged(old.item_type, new.item_type, f"{path}.value"))
    raise Refused(f"The column {path} is {old} in an earlier schema and {new} in a later one. Keep the earlier type.")
