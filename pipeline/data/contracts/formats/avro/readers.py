"""Reads values of one type from many payloads at once, as Arrow arrays of Delta's types."""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.formats.avro.columns import DURATION, TIME, arrow_type, columns_of
from pipeline.data.contracts.formats.avro.cursor import Cursor, Mask, Some
from pipeline.data.contracts.formats.avro.items import read_items, skip_weightless
from pipeline.data.contracts.formats.avro.types import (
    Array,
    Enum,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    is_weightless,
    may_be_long,
)
from pipeline.data.contracts.times import FIRST_DAY, FIRST_TIME, LAST_DAY, LAST_TIME

Read: TypeAlias = Callable[[Cursor, Some], pa.Array]
"""Reads the values of these payloads; values of doubtful ones mean nothing. For a type without values: nulls.

A decimal with more digits than its column is doubtful, so the column of texts beside it has nulls.
"""

_HEX: Final = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_UUID_BYTES: Final = np.arange(16)
_UUID_HIGH: Final = np.array([2 * k + (k >= 4) + (k >= 6) + (k >= 8) + (k >= 10) for k in range(16)])


def reader(of: Type) -> Read:
    """Return how the values of a type are read."""
    match of:
        case Primitive():
            return _primitive(of)
        case Fixed():
            return _fixed(of)
        case Enum():
            return _enum(of)
        case Array():
            return _array(of)
        case Map():
            return _map(of)
        case Union():
            return _union(of)
        case Record():
            return _record(of)


def _primitive(of: Primitive) -> Read:
    match of.name:
        case "null":
            return lambda cursor, rows: pa.nulls(cursor.count(rows))
        case "boolean":
            return _boolean
        case "int":
            return _whole(5, of.logical)
        case "long":
            return _whole(10, of.logical)
        case "float":
            return _float
        case "double":
            return lambda cursor, rows: pa.array(cursor.words(cursor.skip(rows, 8)[0], "<f8"))
        case "string":
            return _text
    if of.logical.name == "decimal":
        return lambda cursor, rows: _decimals(cursor, rows, *cursor.sized(rows), of.logical)
    return lambda cursor, rows: cursor.slices(*cursor.sized(rows))


def _boolean(cursor: Cursor, rows: Some) -> pa.Array:
    found = cursor.one_byte(rows)
    cursor.doubt(rows, found > 1)
    return pa.array(found == 1)


def _float(cursor: Cursor, rows: Some) -> pa.Array:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return pa.array(cursor.words(cursor.skip(rows, 4)[0], "<f4").astype(np.float64))


def _text(cursor: Cursor, rows: Some) -> pa.Array:
    found = cursor.slices(*cursor.sized(rows))
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [_decoded(each) for each in found.to_pylist()]
        cursor.doubt(rows, np.array([each is None for each in texts], dtype=np.bool_))
        return pa.array([each or "" for each in texts], pa.string())


def _decoded(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _whole(most: int, logical: Logical) -> Read:
    """Return how an int (at most 5 bytes) or a long (10) is read."""
    match logical.name:
        case "date":
            return lambda cursor, rows: _dates(cursor, rows, cursor.varint(rows, most))
        case "time-millis":
            return lambda cursor, rows: pa.array(cursor.varint(rows, most) * 1000)
        case "timestamp-millis" | "timestamp-micros" | "timestamp-nanos":
            return lambda cursor, rows: _micros(cursor, rows, logical).view(TIME)
        case "local-timestamp-millis" | "local-timestamp-micros" | "local-timestamp-nanos":
            return lambda cursor, rows: _micros(cursor, rows, logical)
        case _:
            return lambda cursor, rows: pa.array(cursor.varint(rows, most))


def _dates(cursor: Cursor, rows: Some, days: Rows) -> pa.Array:
    wrong = (days < FIRST_DAY) | (days > LAST_DAY)
    cursor.doubt(rows, wrong)
    return pa.array(np.where(wrong, 0, days).astype(np.int32)).view(pa.date32())


def _micros(cursor: Cursor, rows: Some, logical: Logical) -> pa.Array:
    """Read moments as microseconds; what is finer is cut off, towards the past."""
    given = cursor.varint(rows)
    unit = logical.name.rpartition("-")[2]
    if unit == "nanos":
        return pa.array(given // 1000)  # 64 bits of them end in the year 2262
    times = 1000 if unit == "millis" else 1
    wrong = (given < -(-FIRST_TIME // times)) | (given > LAST_TIME // times)
    cursor.doubt(rows, wrong)
    return pa.array(np.where(wrong, 0, given) * times)


def _fixed(of: Fixed) -> Read:
    def read(cursor: Cursor, rows: Some) -> pa.Array:
        starts, ends = cursor.skip(rows, of.size)
        match of.logical.name:
            case "decimal":
                return _decimals(cursor, rows, starts, ends, of.logical)
            case "duration":
                parts = [pa.array(cursor.words(starts + 4 * k, "<u4").astype(np.int64)) for k in range(3)]
                return pa.StructArray.from_arrays(parts, fields=list(DURATION))
            case "uuid":
                return _uuids(cursor, starts)
            case _:
                return cursor.slices(starts, ends)

    return read


def _uuids(cursor: Cursor, starts: Rows) -> pa.Array:
    content = cursor.data[starts[:, None] + _UUID_BYTES]
    texts = np.full((len(starts), 36), ord("-"), dtype=np.uint8)
    texts[:, _UUID_HIGH] = _HEX[content >> 4]
    texts[:, _UUID_HIGH + 1] = _HEX[content & 15]
    offsets = np.arange(0, 36 * len(starts) + 1, 36, dtype=np.int32)
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(texts))


def _decimals(cursor: Cursor, rows: Some, starts: Rows, ends: Rows, logical: Logical) -> pa.Array:
    """Return big-endian numbers of two's complement; those of more than 16 bytes are doubtful."""
    sizes = ends - starts
    wrong = (sizes < 1) | (sizes > 16)
    short = np.clip(8 - sizes, 0, 7) * 8
    high = cursor.words(ends - 8, ">i8").astype(np.int64) << short >> short
    low = high.view(np.uint64)
    high = high >> 63
    if (long := sizes > 8).any():
        short = np.clip(16 - sizes, 0, 7) * 8
        high = np.where(long, cursor.words(ends - 16, ">i8").astype(np.int64) << short >> short, high)
    least, most = 1 - 10**logical.digits, 10**logical.digits - 1
    wrong |= _less(high, low, least) | _less(~high, ~low, ~most)  # ~x < ~most: x > most
    cursor.doubt(rows, wrong)
    both = np.empty((len(sizes), 2), dtype=np.uint64)
    both[:, 0], both[:, 1] = np.where(wrong, 0, low), np.where(wrong, 0, high).view(np.uint64)
    kind = pa.decimal128(logical.digits, logical.scale)
    return pa.Array.from_buffers(kind, len(sizes), [None, pa.py_buffer(both)])


def _less(high: Rows, low: npt.NDArray[np.uint64], than: int) -> Mask:
    """Return which numbers of 128 bits are less than one."""
    top, rest = than >> 64, np.uint64(than & (2**64 - 1))
    found: Mask = (high < top) | ((high == top) & (low < rest))
    return found


def _enum(of: Enum) -> Read:
    symbols = pa.array(of.symbols, pa.string())

    def read(cursor: Cursor, rows: Some) -> pa.Array:
        numbers, _ = _index(cursor, rows, len(of.symbols))
        return symbols.take(pa.array(numbers))

    return read


def _index(cursor: Cursor, rows: Some, size: int) -> tuple[Rows, Mask]:
    """Read the number of a symbol or branch, 0 where it is wrong, and return which are."""
    numbers = cursor.varint(rows, 5)
    wrong = (numbers < 0) | (numbers >= size)
    cursor.doubt(rows, wrong)
    numbers[wrong] = 0
    return numbers, wrong


def _record(of: Record) -> Read:
    reads = [(reader(each.type), arrow_type(each.type) is not None) for each in of.fields]
    held = columns_of(of)
    texts = sum(may_be_long(each.type) for each in of.fields)

    def read(cursor: Cursor, rows: Some) -> pa.Array:
        found = [values for each, kept in reads for values in [each(cursor, rows)] if kept]
        if not held:
            return pa.array(np.ones(cursor.count(rows), dtype=np.bool_))
        found += [pa.nulls(cursor.count(rows), pa.string())] * texts
        return pa.StructArray.from_arrays(found, fields=held)

    return read


def _union(of: Union) -> Read:
    valued = of.valued()
    reads = [None if each not in valued else reader(each) for each in of.branches]
    kind = arrow_type(of)
    kinds = [arrow_type(each) or pa.null() for each in of.branches]
    several = len(valued) > 1
    texts = sum(map(may_be_long, valued))

    def read(cursor: Cursor, rows: Some) -> pa.Array:
        chosen, _ = _index(cursor, rows, len(reads))
        members: list[pa.Array] = []
        absent = np.zeros(len(chosen), dtype=np.bool_)
        for number, each in enumerate(reads):
            those = chosen == number
            if each is None:
                absent = those
                continue
            members.append(_spread(each, kinds[number], cursor, rows, those))
        if kind is None:
            return pa.nulls(len(chosen))
        if not several:
            return members[0]
        held = [values for values, branch in zip(members, valued, strict=True) if arrow_type(branch) is not None]
        held += [pa.nulls(len(chosen), pa.string())] * texts
        return pa.StructArray.from_arrays(held, fields=list(kind), mask=pa.array(absent))

    return read


def _spread(read: Read, kind: pa.DataType, cursor: Cursor, rows: Some, those: Mask) -> pa.Array:
    """Read the values of those of these payloads, and return nulls for the others."""
    picked = np.flatnonzero(those)
    if not len(picked):
        return pa.nulls(len(those), kind)
    if len(picked) == len(those):
        return read(cursor, rows)
    values = read(cursor, picked if isinstance(rows, slice) else rows[picked])
    places = np.zeros(len(those), dtype=np.int64)
    places[picked] = np.arange(len(picked))
    return values.take(pa.array(places, mask=~those))


def _array(of: Array) -> Read:
    kind = arrow_type(of)
    read_item = None if is_weightless(of.items) else reader(of.items)

    def read(cursor: Cursor, rows: Some) -> pa.Array:
        if read_item is None:
            skip_weightless(cursor, rows)
            return pa.nulls(cursor.count(rows))
        found = read_items(cursor, rows, lambda some: (read_item(cursor, some),))
        if kind is None:
            return pa.nulls(cursor.count(rows))
        return pa.ListArray.from_arrays(found.offsets, found.members[0], type=kind)

    return read


def _map(of: Map) -> Read:
    kind = arrow_type(of)
    read_value = reader(of.values)

    def read(cursor: Cursor, rows: Some) -> pa.Array:
        found = read_items(cursor, rows, lambda some: (_text(cursor, some), read_value(cursor, some)))
        keys, values = found.members
        cursor.doubt(rows, _with_repeats(found.owners, keys, cursor.count(rows)))
        if kind is None:
            return pa.nulls(cursor.count(rows))
        return pa.MapArray.from_arrays(found.offsets, keys, values, type=kind)

    return read


def _with_repeats(owners: Rows, keys: pa.StringArray, count: int) -> Mask:
    """Return which maps have a key twice."""
    codes = keys.dictionary_encode()
    pairs = np.sort(owners * max(1, len(codes.dictionary)) + codes.indices.to_numpy())
    repeated = pairs[1:][pairs[1:] == pairs[:-1]] // max(1, len(codes.dictionary))
    found: Mask = np.zeros(count, dtype=np.bool_)
    found[repeated] = True
    return found
