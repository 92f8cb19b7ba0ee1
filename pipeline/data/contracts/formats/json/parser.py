"""Reads many JSON documents at once with Arrow's parser, whose holes are closed here (tests/unit/.../json).

It passes text that is not UTF-8, takes NaN and infinity, and lets two documents pass for one and none: so texts are
cast first, doubles looked at, and each document is wrapped with its number, under names that no producer can know.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import count
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.formats.json.columns import TIME, arrow_type
from pipeline.data.contracts.formats.json.long_numbers import with_long_numbers
from pipeline.data.contracts.formats.json.pockets import Entries, Path, Pockets
from pipeline.data.contracts.formats.json.scalar import TIME as RFC_3339
from pipeline.data.contracts.formats.json.scalar import WHOLE
from pipeline.data.contracts.formats.json.types import (
    JsonArray,
    JsonEnum,
    JsonMap,
    Nothing,
    Object,
    Property,
    Scalar,
    Type,
    inside,
)
from pipeline.data.contracts.nested import parent_of_each, union_rows

_ROW, _DOCUMENT = secrets.token_urlsafe(6), secrets.token_urlsafe(6)  # no producer can guess 48 bits
_EARLIEST, _LATEST = (np.datetime64(day, "us").astype(np.int64) for day in ("0001-01-01", "9999-12-31T23:59:59.999999"))

_USUAL: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$"
)
"""A time of RFC 3339 that Arrow reads as it is."""

_Up: TypeAlias = Callable[[Rows], Rows]
"""From the places of values to the rows of the documents that hold them."""


class DocumentParser:
    """Parses documents of one schema."""

    def __init__(self, root: Object, columns: pa.Schema, pockets: Mapping[Path, Property]) -> None:
        """Prepare for a schema with its columns and its maps."""
        self._root, self._columns = root, columns
        self._pockets = Pockets(root, pockets) if pockets else None
        held = pa.schema([(_ROW, pa.int64()), (_DOCUMENT, _parsed_type(root))])
        unknown = "ignore" if pockets else "error"
        self._options = arrow_json.ParseOptions(explicit_schema=held, unexpected_field_behavior=unknown)
        self._has_numbers = _has(root, "number")

    def parse(self, documents: pa.BinaryArray) -> tuple[pa.RecordBatch, Rows] | None:
        """Return columns, and the rows that the scalar decoder must decide; None where the documents do not parse."""
        try:
            texts = documents.cast(pa.string())
            table = self._table(texts)
        except pa.ArrowInvalid:
            return None
        rows, found = (column.combine_chunks() for column in table.columns)
        if len(rows) != len(documents) or rows.null_count or found.null_count:
            return None
        if not np.array_equal(rows.to_numpy(), np.arange(len(documents))):
            return None
        shaping = _Shaping()
        if self._pockets is not None:
            entries = self._pockets.read(documents)
            if entries is None:
                return None
            shaping.entries, doubtful = entries
            shaping.doubt(union_rows([doubtful, self._pockets.twice(texts)]))
        columns = shaping.members(self._root, list(self._columns), found, lambda places: places, ())
        if self._has_numbers:
            shaping.doubt(with_long_numbers(texts))
        return pa.RecordBatch.from_arrays(columns, schema=self._columns), union_rows(shaping.doubts)

    def _table(self, texts: pa.StringArray) -> pa.Table:
        numbers = _numbers(len(texts).bit_length()).slice(0, len(texts))
        begin, middle, end = f'{{"{_ROW}":', f',"{_DOCUMENT}":', "}\n"
        lines = pc.binary_join_element_wise(begin, numbers, middle, texts, end, "")
        _, offsets, data = lines.buffers()
        first, last = np.frombuffer(offsets, dtype=np.int32)[[lines.offset, lines.offset + len(lines)]].tolist()
        content = data.slice(first, last - first)
        reading = arrow_json.ReadOptions(use_threads=False, block_size=content.size + 1)
        with arrow_json.open_json(pa.BufferReader(content), reading, self._options) as reader:
            return reader.read_all()  # one block; `read_json` starts a thread, which costs more than few documents do


@lru_cache
def _numbers(bits: int) -> pa.StringArray:
    return pa.array([str(number) for number in range(2**bits)])


def _has(of: Type, name: str) -> bool:
    match of:
        case Scalar():
            return of.name == name
        case JsonArray() | JsonMap() | Object():
            return any(_has(each, name) for each in inside(of))
        case _:
            return False


def _parsed_type(of: Type) -> pa.DataType:
    """Return the type as which Arrow parses values."""
    match of:
        case Nothing():
            return pa.null()
        case Scalar():
            return pa.string() if of.name == "date-time" else arrow_type(of)
        case JsonArray():
            return pa.list_(_parsed_type(of.items))
        case Object():
            plain = [each for each in of.properties if not isinstance(each.type, JsonMap)]
            return pa.struct([(each.key, _parsed_type(each.type)) for each in plain])
        case JsonMap():
            raise AssertionError  # a pocket
        case JsonEnum():
            return pa.string()


class _Shaping:
    """Turns parsed values into columns, and collects the rows that hold what may not fit."""

    def __init__(self) -> None:
        self.doubts: list[Rows] = []
        self.entries: Mapping[Path, Entries] = {}

    def doubt(self, rows: Rows) -> None:
        """Add rows."""
        if len(rows):
            self.doubts.append(rows.astype(np.int64))

    def members(
        self, of: Object, columns: Iterable[pa.Field], parsed: pa.StructArray, up: _Up, path: Path
    ) -> list[pa.Array]:
        """Return the values of an object's columns; `path` leads to it where it may hold maps."""
        made, plain, column = list[pa.Array](), count(), iter(columns)
        for place, each in enumerate(of.properties):
            here = (*path, place)
            kind = None if isinstance(each.type, Nothing) else next(column).type
            values = self._map(each.type, kind, here) if isinstance(each.type, JsonMap) else parsed.field(next(plain))
            if each.required and not each.type.nullable and values.null_count > parsed.null_count:
                self._doubt_where(pc.and_(values.is_null(), parsed.is_valid()), up)
            if kind is not None:
                made.append(self._column(each.type, kind, values, up, here))
        return made

    def _map(self, of: JsonMap, kind: pa.MapType, path: Path) -> pa.Array:
        entries = self.entries[path]
        ends = np.array(entries.ends, dtype=np.int32)

        def rows(places: Rows) -> Rows:
            return np.unique(np.searchsorted(ends, places, side="right") - 1).astype(np.int64)

        items = self._column(of.values, kind.item_type, pa.array(entries.items, _parsed_type(of.values)), rows, ())
        keys, nulls = pa.array(entries.keys, pa.string()), pa.array(entries.nulls, pa.bool_())
        return pa.MapArray.from_arrays(pa.array(ends), keys, items, type=kind, mask=nulls)

    def _column(self, of: Type, kind: pa.DataType, values: pa.Array, up: _Up, path: Path) -> pa.Array:
        match of:
            case Object():
                fields = list(kind) if pa.types.is_struct(kind) else []  # else it is only present or not
                members, nulls = self.members(of, fields, values, up, path), values.is_null()
                if not members:
                    return pc.if_else(nulls, pa.scalar(None, pa.bool_()), pa.scalar(value=True))
                return pa.StructArray.from_arrays(members, fields=fields, mask=nulls)
            case JsonArray():
                return self._list(of, kind, values, up)
            case JsonEnum():
                known = pc.is_in(values, value_set=pa.array(of.symbols, pa.string()))
                self._doubt_unless(known, values, up)
            case Scalar(name="number"):  # a comparison with NaN is false; JSON has one zero
                self._doubt_unless(pc.less(pc.abs(values), float(WHOLE)), values, up)
                return pc.add(values, 0.0)
            case Scalar(name="date-time"):
                return self._times(values, up)
        return values

    def _list(self, of: JsonArray, kind: pa.ListType, values: pa.ListArray, up: _Up) -> pa.Array:
        inner = values.values

        def rows(places: Rows) -> Rows:
            return up(np.unique(parent_of_each(values, places)))

        if inner.null_count and not of.items.nullable:
            self._doubt_where(inner.is_null(), rows)
        made = self._column(of.items, kind.value_type, inner, rows, ())
        return pa.ListArray.from_arrays(values.offsets, made, type=kind, mask=values.is_null())

    def _times(self, texts: pa.Array, up: _Up) -> pa.Array:
        usual = texts
        if not pc.all(pc.match_substring_regex(texts, _USUAL)).as_py():
            written = pc.match_substring_regex(texts, f"^(?:{RFC_3339.pattern})$")
            self._doubt_unless(written, texts, up)
            usual = pc.if_else(written, texts, pa.scalar(None, pa.string()))
            usual = pc.replace_substring_regex(pc.ascii_upper(usual), r"(\.[0-9]{6})[0-9]+", r"\1")
        try:
            times = pc.cast(usual, TIME)
        except pa.ArrowInvalid:
            possible = pa.array([_is_time(text) for text in usual.to_pylist()])
            self._doubt_unless(possible, texts, up)
            times = pc.cast(pc.if_else(possible, usual, pa.scalar(None, pa.string())), TIME)
        micros = times.cast(pa.int64())
        within = pc.and_(pc.greater_equal(micros, int(_EARLIEST)), pc.less_equal(micros, int(_LATEST)))
        self._doubt_unless(within, times, up)
        return times

    def _doubt_unless(self, good: pa.Array, values: pa.Array, up: _Up) -> None:
        """Doubt the rows of values, other than null, for which something does not hold."""
        if (pc.sum(good).as_py() or 0) + values.null_count != len(values):
            self._doubt_where(pc.and_not(values.is_valid(), pc.fill_null(good, fill_value=False)), up)

    def _doubt_where(self, bad: pa.Array, up: _Up) -> None:
        self.doubt(up(np.flatnonzero(bad.to_numpy(zero_copy_only=False))))


def _is_time(text: str | None) -> bool:
    if text is None:
        return False
    try:
        pa.scalar(text).cast(TIME)
    except pa.ArrowInvalid:
        return False
    return True
