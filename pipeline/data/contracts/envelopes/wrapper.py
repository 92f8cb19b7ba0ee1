"""Parses wrappers: the outer messages with the game's name. Called by ingest, on every row."""

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.envelopes.envelope import (
    COLUMNS,
    MALFORMED,
    NO_NAME,
    TOMBSTONE,
    Opened,
    spread,
    valid_names,
)
from pipeline.data.contracts.formats.protobuf.messages import describe
from pipeline.data.contracts.formats.protobuf.parsing import Parser
from protos.turnout.v1 import wrapper_pb2
from protos.turnout.v1.wrapper_pb2 import Wrapper

_MESSAGE: Final = Wrapper.DESCRIPTOR.full_name
_EMPTY: Final = (MALFORMED, "the wrapper is empty")
_FIRST_TIME: Final = pa.scalar(-62_135_596_800_000_000, pa.int64())  # microseconds: the year 1
_LAST_TIME: Final = pa.scalar(253_402_300_799_999_999, pa.int64())  # microseconds: the end of the year 9999


class WrapperEnvelope:
    """turnout's own wrapper, where another part of the record may route it."""

    def open(self, values: pa.BinaryArray, *, known_good: bool = False) -> Opened:
        """Parse wrappers as `open_wrappers` does, with names as they are."""
        batch, rows, reasons = _parsed(values, known_good=known_good)
        return spread(batch, rows, len(values), reasons)


def open_wrappers(raw: pa.BinaryArray, *, known_good: bool = False) -> Opened:
    """Parse wrappers. Refused: null (`tombstone`), unreadable or empty ones (`malformed_wrapper`), and invalid names.

    `known_good`: all of them were parsed before and none was refused, so they are not checked again. Absent fields are
    null: the time, both ids, and the sequence, where protobuf does not distinguish 0 from absent, so sequences start at
    1. Values that the columns cannot hold are null, too: a sequence of 2^63 or more, a time outside the years 1 to
    9999; `raw` still has them.
    """
    batch, rows, reasons = _parsed(raw, known_good=known_good)
    valid = valid_names(batch.column("game"))
    if not valid.all():
        reasons |= dict.fromkeys(rows[~valid].tolist(), NO_NAME)
        batch, rows = batch.take(pa.array(np.flatnonzero(valid))), rows[valid]
    return spread(batch, rows, len(raw), reasons)


def _parsed(raw: pa.BinaryArray, *, known_good: bool) -> tuple[pa.RecordBatch, Rows, dict[int, tuple[str, str]]]:
    """Return the wrappers that parse, their places, and by place why the others do not."""
    sizes = pc.fill_null(pc.binary_length(raw), 0).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(sizes).astype(np.int64)
    parsed = _parser().parse(raw if len(rows) == len(raw) else raw.take(pa.array(rows)), known_good=known_good)
    reasons = dict.fromkeys(np.flatnonzero(sizes == 0).tolist(), _EMPTY)
    reasons |= dict.fromkeys(np.flatnonzero(raw.is_null().to_numpy(zero_copy_only=False)).tolist(), TOMBSTONE)
    reasons |= {int(rows[row]): (MALFORMED, flaw.detail) for row, flaw in parsed.bad}
    rows = rows[parsed.rows]
    batch = _typed(parsed.batch, _event_times(parsed.batch, raw, rows))
    return batch, rows, reasons


@lru_cache(maxsize=1)
def _parser() -> Parser:
    """Return a parser of wrappers that keeps all parts of `event_time`, where the Arrow parser keeps the last one.

    A message field may come in any number of parts, which the format's rules merge.
    """
    file = FileDescriptorProto()
    wrapper_pb2.DESCRIPTOR.CopyToProto(file)
    fields = {(message.name, field.name): field for message in file.message_type for field in message.field}
    fields["Wrapper", "event_time"].label = FieldDescriptorProto.LABEL_REPEATED
    return Parser(describe(_MESSAGE, FileDescriptorSet(file=[file]).SerializeToString()))


def _event_times(batch: pa.RecordBatch, raw: pa.BinaryArray, rows: Rows) -> pa.Array:
    """Return the time of each wrapper of the batch, at these rows; null without one."""
    parts = batch.column("event_time")
    counts = pc.fill_null(pc.list_value_length(parts), 0).to_numpy()
    times = parts.values.take(pa.array(parts.offsets.to_numpy()[:-1], mask=counts == 0))
    split = np.flatnonzero(counts > 1)
    if not split.size:
        return times
    merged = [Wrapper.FromString(raw[row].as_py()).SerializeToString() for row in rows[split].tolist()]
    exact = _parser().parse(pa.array(merged, pa.binary()), known_good=True).batch.column("event_time")
    return pc.replace_with_mask(times, pa.array(counts > 1), exact.flatten())


def _typed(batch: pa.RecordBatch, event_times: pa.Array) -> pa.RecordBatch:
    """Convert parsed wrappers to the columns' types, with null for absent and unfit values."""
    columns = {name: batch.column(name) for name in COLUMNS.names if name != "type"}
    columns["type"] = pa.nulls(batch.num_rows, pa.string())
    for name in ("event_id", "producer_id"):
        columns[name] = _null_unless(pc.not_equal(columns[name], ""), columns[name])
    sequence = columns["sequence"]
    fits = pc.and_(pc.greater(sequence, pa.scalar(0, pa.uint64())), pc.less(sequence, pa.scalar(2**63, pa.uint64())))
    columns["sequence"] = _null_unless(fits, sequence).cast(pa.int64())
    moment = event_times.cast(pa.int64())
    real = pc.and_(pc.greater_equal(moment, _FIRST_TIME), pc.less_equal(moment, _LAST_TIME))
    columns["event_time"] = _null_unless(real, event_times)
    return pa.RecordBatch.from_arrays([columns[each.name].cast(each.type) for each in COLUMNS], schema=COLUMNS)


def _null_unless(condition: pa.BooleanArray, values: pa.Array) -> pa.Array:
    return pc.if_else(condition, values, pa.scalar(None, values.type))
