"""Columns of JSON text, for google.protobuf.Struct, Value and ListValue: they contain themselves, so no struct fits.

The text follows RFC 8785, so equal values have equal texts. The Arrow parser gives the bytes of these messages
(`arrow_definition`), which the plain parser has checked and written.
"""

import re
from collections.abc import Mapping
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from google.protobuf import struct_pb2
from google.protobuf.descriptor import Descriptor

from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.formats.protobuf.fields import JSON_MESSAGES, by_number, entry_of, struct_of
from pipeline.data.contracts.formats.protobuf.mistyped import Flaw
from pipeline.data.contracts.nested import parent_of_each, union_rows

_MOST_EXACT: Final = 2.0**53
_NUMBER: Final = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?")

_Tree: TypeAlias = "str | dict[str, _Tree]"
"""Where JSON is: the full name of its message, or what is inside the members of a message."""


class JsonColumns:
    """Turns the bytes of JSON's messages into their texts, at any depth of parsed messages."""

    def __init__(self, message: Descriptor, parsed: pa.Schema) -> None:
        """Prepare for a message, which must not contain itself, and the columns of the Arrow parser."""
        self._inside = _tree(message)
        self.schema: pa.Schema = pa.schema(_retyped_members(list(parsed), self._inside))

    def convert(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, Flaw]]:
        """Return the columns with texts, and the rows with a number that JSON lacks, each with the reason."""
        columns, bad = list[pa.Array](), dict[int, Flaw]()
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            if (inside := self._inside.get(name)) is None:
                columns.append(values)
                continue
            texts, lacking = _converted(values, inside)
            columns.append(texts)
            bad = dict.fromkeys(lacking.tolist(), Flaw(f"a number that JSON lacks in {name}", name)) | bad
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), bad


def _tree(message: Descriptor) -> dict[str, _Tree]:
    found = dict[str, _Tree]()
    for each in by_number(message):
        entry = entry_of(each)
        inner = (each if entry is None else entry.fields_by_name["value"]).message_type
        if inner is not None and inner.full_name in JSON_MESSAGES:
            found[each.name] = inner.full_name
        elif (struct := struct_of(each)) is not None and (inside := _tree(struct)):
            found[each.name] = inside
    return found


def _retyped_members(fields: list[pa.Field], inside: Mapping[str, _Tree]) -> list[pa.Field]:
    return [each.with_type(_retyped(each.type, inside[each.name])) if each.name in inside else each for each in fields]


def _retyped(kind: pa.DataType, inside: _Tree) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_retyped(kind.value_type, inside)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_retyped(kind.item_type, inside)))
    return pa.string() if isinstance(inside, str) else pa.struct(_retyped_members(list(kind), inside))


def _converted(values: pa.Array, inside: _Tree) -> tuple[pa.Array, Rows]:
    """Return values with texts for bytes, and the places of those with a number that JSON lacks."""
    kind = _retyped(values.type, inside)
    nulls = values.is_null()
    if pa.types.is_list(values.type):
        elements, bad = _converted(values.values, inside)
        return pa.ListArray.from_arrays(values.offsets, elements, type=kind, mask=nulls), _rows_of(values, bad)
    if pa.types.is_map(values.type):
        items, bad = _converted(values.items, inside)
        texts = pa.MapArray.from_arrays(values.offsets, values.keys, items, type=kind, mask=nulls)
        return texts, _rows_of(values, bad)
    if isinstance(inside, str):
        return _texts(values, inside)
    members, found = list(values.flatten()), list[Rows]()
    for index, each in enumerate(values.type):
        if each.name in inside:
            members[index], bad = _converted(members[index], inside[each.name])
            found.append(bad)
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=nulls), union_rows(found)


def _rows_of(values: pa.ListArray | pa.MapArray, children: Rows) -> Rows:
    return np.unique(parent_of_each(values, children))


def _texts(values: pa.BinaryArray, name: str) -> tuple[pa.StringArray, Rows]:
    """Return the text of each message; the places of those with a number that JSON lacks have null."""
    read, write = _READERS[name]
    encoded = values.dictionary_encode()  # many rows have the same settings or labels
    texts = list[str | None]()
    for content in encoded.dictionary.to_pylist():
        try:
            texts.append(write(read(content)))
        except _NotInJsonError:
            texts.append(None)
    lacking = [index for index, text in enumerate(texts) if text is None]
    bad = np.flatnonzero(np.isin(encoded.indices.fill_null(-1).to_numpy(), lacking)).astype(np.int64)
    return pa.array(texts, pa.string()).take(encoded.indices), bad


class _NotInJsonError(Exception):
    """A number is infinite or not a number."""


def _value(held: Any) -> str:
    match held.WhichOneof("kind"):
        case "string_value":
            return encode_basestring(held.string_value)
        case "number_value":
            return number_text(held.number_value)
        case "bool_value":
            return "true" if held.bool_value else "false"
        case "struct_value":
            return _struct(held.struct_value)
        case "list_value":
            return _list(held.list_value)
        case _:
            return "null"  # also a value without a kind, as google.protobuf writes it


def _struct(held: Any) -> str:
    fields = held.fields
    names = sorted(fields, key=_in_utf16)
    return "{" + ",".join(f"{encode_basestring(name)}:{_value(fields[name])}" for name in names) + "}"


def _list(held: Any) -> str:
    return "[" + ",".join(map(_value, held.values)) + "]"


def _in_utf16(name: str) -> bytes:
    return name.encode("utf-16-be")


def number_text(number: float) -> str:
    """Return a number as RFC 8785 and JavaScript write it.

    Raises:
        _NotInJsonError: it is infinite or not a number.
    """
    if -_MOST_EXACT < number < _MOST_EXACT and number == int(number):
        return str(int(number))
    if not isfinite(number):
        raise _NotInJsonError
    matched = _NUMBER.fullmatch(repr(number))
    if matched is None:
        raise AssertionError(number)
    sign, whole, fraction, exponent = matched.groups(default="")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)  # how many digits stand before the point
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        text = digits.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        text = f"{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{point - 1:+}"
    return sign + text


_READERS: Final = {
    "google.protobuf.Struct": (struct_pb2.Struct.FromString, _struct),
    "google.protobuf.Value": (struct_pb2.Value.FromString, _value),
    "google.protobuf.ListValue": (struct_pb2.ListValue.FromString, _list),
}
