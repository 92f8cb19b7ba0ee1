"""The fields of a protobuf message: their kinds, and the messages and enums behind them."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from pipeline.data.contracts.model import Kind

JSON_MESSAGES: Final[Mapping[str, str]] = {  # they contain themselves and become one column of text
    "google.protobuf.ListValue": "JSON list",
    "google.protobuf.Struct": "JSON object",
    "google.protobuf.Value": "JSON",
}
SCALAR_MESSAGES: Final[Mapping[str, str]] = {  # messages that become one column, with its type
    "google.protobuf.BoolValue": "bool",
    "google.protobuf.BytesValue": "bytes",
    "google.protobuf.DoubleValue": "double",
    "google.protobuf.Duration": "duration",
    "google.protobuf.FloatValue": "float",
    "google.protobuf.Int32Value": "int32",
    "google.protobuf.Int64Value": "int64",
    "google.protobuf.StringValue": "string",
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.UInt32Value": "uint32",
    "google.protobuf.UInt64Value": "uint64",
    "google.type.Date": "date",
    "google.type.TimeOfDay": "time of day",
    **JSON_MESSAGES,
}

_KINDS: Final[Mapping[int, str]] = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}
_VARINTS: Final = frozenset({"int32", "int64", "uint32", "uint64"})
_ZIGZAG: Final = frozenset({"sint32", "sint64"})
_MISREADS: Final[Mapping[str, frozenset[str]]] = {
    "int32": (_VARINTS | _ZIGZAG) - {"int32"},
    "uint32": (_VARINTS | _ZIGZAG) - {"uint32"},
    "int64": _ZIGZAG | {"uint64"},
    "sint32": _VARINTS | {"sint64"},
    "sint64": _VARINTS,
    "fixed32": frozenset({"sfixed32"}),
    "sfixed32": frozenset({"fixed32"}),
    "sfixed64": frozenset({"fixed64"}),
}
"""Integer kinds, by the kind that reads some of their bytes as another value."""


def kind_of(each: FieldDescriptor, column: pa.DataType | None) -> Kind:
    """Return the kind of a field whose column has this type."""
    if (entry := entry_of(each)) is not None:
        key, value = (entry.fields_by_name[name] for name in ("key", "value"))
        inner = kind_of(value, None)
        text = f"map<{kind_of(key, None).text}, {inner.text}>"
        keys = frozenset(f"map of {each}" for each in _MISREADS.get(_KINDS[key.type], ()))
        return Kind(text, f"map of {_KINDS[key.type]}", inner.values, column, misreads=inner.misreads | keys)
    inner_message = each.message_type
    text = _KINDS[each.type]
    values = text
    if inner_message is not None and not inner_message.fields:
        text = "message without fields"
    elif inner_message is not None and inner_message.full_name in SCALAR_MESSAGES:
        text, values = inner_message.full_name, SCALAR_MESSAGES[inner_message.full_name]
    misreads = _MISREADS.get(values, frozenset())
    if each.is_repeated:
        return Kind(f"repeated {text}", "repeated", values, column, misreads=misreads)
    return Kind(text, "", values, column, misreads=misreads)


def entry_of(each: FieldDescriptor) -> Descriptor | None:
    """Return the message of a map's entries, None when the field is not a map."""
    inner = each.message_type
    return inner if inner is not None and inner.GetOptions().map_entry else None


def struct_of(each: FieldDescriptor) -> Descriptor | None:
    """Return the message whose fields become members of the field's column, None without one.

    For a map it is the message of the values.
    """
    if (entry := entry_of(each)) is not None:
        return struct_of(entry.fields_by_name["value"])
    inner = each.message_type
    return None if inner is None or inner.full_name in SCALAR_MESSAGES else inner


def enum_of(each: FieldDescriptor) -> EnumDescriptor | None:
    """Return the enum of a field, or of its values when it is a map."""
    entry = entry_of(each)
    return each.enum_type if entry is None else enum_of(entry.fields_by_name["value"])


def value_names(enum: EnumDescriptor) -> dict[int, str]:
    """Return a column's name for each number: the first declared name when several share a number."""
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return names


def by_number(message: Descriptor) -> list[FieldDescriptor]:
    """Return the fields in the order of their numbers: the order of declarations has no meaning."""
    return [message.fields_by_number[number] for number in sorted(message.fields_by_number)]
