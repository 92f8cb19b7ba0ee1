"""A protobuf message as evolution sees it: its fields by number, without google.protobuf."""

from collections.abc import Iterable

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto

from pipeline.data.contracts.columns import members
from pipeline.data.contracts.formats.protobuf.fields import by_number, enum_of, kind_of, struct_of, value_names
from pipeline.data.contracts.formats.protobuf.messages import describe, number_suffix, with_distinct_names
from pipeline.data.contracts.formats.protobuf.parsing import columns
from pipeline.data.contracts.model import Field, FieldId, Message, Reserved
from pipeline.data.contracts.schemas import Schema


def message_of(schema: Schema) -> Message:
    """Return a schema's message; it never contains itself, as such definitions are refused.

    Names of messages and files, comments, the order of declarations and oneofs are left out: they affect neither the
    bytes nor the table.
    """
    decoded = with_distinct_names(schema.message, schema.definition)
    return _message(decoded, describe(schema.message, schema.definition), columns(schema))


def _message(decoded: Descriptor, given: Descriptor, held: Iterable[pa.Field]) -> Message:
    """Return a message, as decoded and as given; `held` are the columns into which its fields are decoded."""
    types = {each.name: each.type for each in held}
    proto = DescriptorProto()
    decoded.CopyToProto(proto)
    return Message(
        tuple(_field(each, given.fields_by_number[each.number], types.get(each.name)) for each in by_number(decoded)),
        _reserved_by(proto),
        tuple((each.start, each.end) for each in proto.extension_range),
    )


def _field(decoded: FieldDescriptor, given: FieldDescriptor, column: pa.DataType | None) -> Field:
    inner, inner_given, enum = struct_of(decoded), struct_of(given), enum_of(decoded)
    labels: dict[FieldId, str] = {} if enum is None else dict(value_names(enum).items())
    inside = None if inner is None or inner_given is None else _message(inner, inner_given, members(column))
    return Field(
        id=decoded.number,
        name=decoded.name,
        given=given.name,
        kind=kind_of(decoded, column),
        optional=decoded.has_presence,
        suffix=number_suffix(decoded.number),
        labels=labels,
        inside=inside,
    )


def _reserved_by(proto: DescriptorProto) -> Reserved:
    return Reserved(tuple((each.start, each.end) for each in proto.reserved_range), frozenset(proto.reserved_name))
