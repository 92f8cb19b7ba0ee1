"""Decodes payloads of one schema into columns of Delta's types; a bad payload becomes a refusal, never an exception."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.contracts.dates import impossible_date
from pipeline.contracts.messages import describe, with_distinct_names
from pipeline.contracts.nested import parents, union_rows
from pipeline.contracts.parsing import Parser, Refusal, Rows
from pipeline.contracts.required import has_required, missing_required
from pipeline.contracts.schemas import FieldPlacement, Schema
from pipeline.contracts.shape import delta_schema, holds_type, merge, placed_columns

MAX_PAYLOAD_BYTES: Final = 1024 * 1024
"""Largest payload that is decoded."""

_FIRST_TIME: Final = -62_135_596_800_000_000  # microseconds: the year 1
_LAST_TIME: Final = 253_402_300_799_999_999  # microseconds: the end of the year 9999
_FIRST_DAY: Final = -719_162  # days since 1970: the first one of the year 1
_LAST_DAY: Final = 2_932_896  # the last one of the year 9999
_LONGEST: Final = 315_576_000_000_000_000  # microseconds: what protobuf allows a Duration, 10,000 years


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of decoding an array of payloads."""

    batch: pa.RecordBatch  # the good ones, in order, with the decoder's `arrow_schema`
    rows: Rows  # their places in the array
    refused: list[Refusal]  # every other row, in order


class Decoder:
    """Decodes payloads of one schema. Whether a payload is refused depends on it alone.

    Refused are: no bytes (`empty_payload`); bytes that are not the message, lack a required field, give a field another
    wire type, are larger than MAX_PAYLOAD_BYTES, or hold a time outside the years 1 to 9999, a duration beyond 10,000
    years (no reader of the table could show them) or an impossible date (`malformed_payload`). All others have the
    values of protobuf's rules.
    """

    def __init__(self, schema: Schema) -> None:
        """Prepare for a schema.

        Raises:
            Refused: its definition is not valid or has no form as columns.
        """
        self._message = with_distinct_names(schema.message, schema.descriptor)
        self._given = describe(schema.message, schema.descriptor)
        self._parser = Parser(self._message, exact=True)
        self.arrow_schema: pa.Schema = delta_schema(self._parser.schema)
        self._timed: Final = [field.name for field in self._parser.schema if holds_type(field.type, _is_time)]

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode payloads; null counts as empty."""
        sizes = pc.fill_null(pc.binary_length(payloads), 0).to_numpy(zero_copy_only=False)
        refused = [Refusal(row, "empty_payload", "the payload is empty") for row in np.flatnonzero(sizes == 0).tolist()]
        refused += [
            _malformed(row, f"larger than {MAX_PAYLOAD_BYTES} bytes: {sizes[row]}")
            for row in np.flatnonzero(sizes > MAX_PAYLOAD_BYTES).tolist()
        ]
        rows = np.flatnonzero((sizes > 0) & (sizes <= MAX_PAYLOAD_BYTES)).astype(np.int64)
        parsed = self._parser.parse(payloads.take(pa.array(rows)) if refused else payloads)
        refused += [_malformed(int(rows[row]), detail) for row, detail in parsed.bad]
        batch, rows = parsed.batch, rows[parsed.rows]
        if flaws := self._flaws(batch, payloads, rows):
            refused += [_malformed(int(rows[row]), detail) for row, detail in flaws.items()]
            kept = np.setdiff1d(np.arange(len(rows)), list(flaws), assume_unique=True)
            batch, rows = batch.take(pa.array(kept)), rows[kept]
        return Decoded(_cast(batch, self.arrow_schema), rows, sorted(refused))

    def _flaws(self, batch: pa.RecordBatch, payloads: pa.BinaryArray, rows: Rows) -> dict[int, str]:
        """Return the parsed rows that are refused nevertheless, each with the reason."""
        doubtful = union_rows([_rows_with(batch.column(name), _doubtful_date) for name in self._timed])
        plain = {row: self._parser.plain(payloads[int(rows[row])].as_py()) for row in doubtful.tolist()}
        dates = {row: impossible_date(self._message, parsed) for row, parsed in plain.items()}
        flaws = {row: f"an impossible date in {name}" for row, name in dates.items() if name is not None}
        flaws |= {row: f"a time out of range in {name}" for row, name in self._unreal_times(batch).items()}
        if has_required(self._given):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            missing = missing_required(self._given, self._message, columns)
            flaws |= {row: f"the required field {path} is missing" for row, path in missing.items()}
        return flaws

    def _unreal_times(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Return the rows with a time or duration out of range, each with the first column that has one."""
        reasons: dict[int, str] = {}
        for name in self._timed:
            for row in _rows_with(batch.column(name), _out_of_range).tolist():
                reasons.setdefault(row, name)
        return reasons


@lru_cache(maxsize=2048)
def decoder(schema: Schema) -> Decoder:
    """Return this process's decoder of a schema.

    Raises:
        Refused: the schema's definition is not valid or has no form as columns.
    """
    return Decoder(schema)


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
    return _cast(batch, target)


def placed(batch: pa.RecordBatch, schema: Schema, placement: FieldPlacement) -> pa.RecordBatch:
    """Rename a schema's decoded columns as in a game's table; values stay untouched."""
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


def _cast(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    held = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = []
    for field in target:
        values = held.get(field.name)
        if values is None:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(values if values.type == field.type else values.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _malformed(row: int, detail: str) -> Refusal:
    return Refusal(row, "malformed_payload", detail)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_date(kind))


def _rows_with(values: pa.Array, odd: Callable[[pa.Array], npt.NDArray[np.bool_] | None]) -> Rows:
    """Return the rows of an array with an odd value at any depth; `odd` is None where it cannot be."""
    kind = values.type
    if (those := odd(values)) is not None:
        return np.flatnonzero(those).astype(np.int64)
    if pa.types.is_struct(kind):
        return union_rows([_rows_with(member, odd) for member in values.flatten()])
    if pa.types.is_list(kind):
        return parents(values, _rows_with(values.values, odd))
    if pa.types.is_map(kind):
        return parents(values, union_rows([_rows_with(values.keys, odd), _rows_with(values.items, odd)]))
    return np.empty(0, dtype=np.int64)


def _out_of_range(values: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Return which times and durations are out of range, None without any."""
    kind = values.type
    if pa.types.is_date(kind):
        first, last, whole = _FIRST_DAY, _LAST_DAY, pa.int32()
    elif pa.types.is_timestamp(kind):
        first, last, whole = _FIRST_TIME, _LAST_TIME, pa.int64()
    elif pa.types.is_duration(kind):
        first, last, whole = -_LONGEST, _LONGEST, pa.int64()
    else:
        return None
    numbers = pc.fill_null(values.cast(whole), 0).to_numpy(zero_copy_only=False)
    return np.asarray((numbers < first) | (numbers > last))


def _doubtful_date(values: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Return which dates may be impossible, None without any: the Arrow parser turns those into day 0."""
    if not pa.types.is_date(values.type):
        return None
    return np.asarray(pc.fill_null(values.cast(pa.int32()), 1).to_numpy(zero_copy_only=False) == 0)
