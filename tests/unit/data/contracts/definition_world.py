"""Definitions of protobuf messages, written as in a .proto file."""

import re
from collections.abc import Mapping

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from pipeline.data.contracts.formats.protobuf.messages import canonical, describe

Fields = Mapping[str, tuple[int, str]]
"""Field name to (number, type as in a .proto file)."""
WELL_KNOWN = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")


def define(
    messages: Mapping[str, Fields],
    enums: Mapping[str, Mapping[str, int]] | None = None,
    *,
    name: str = "t.proto",
    syntax: str = "proto3",
) -> FileDescriptorProto:
    """Build the file `package t` with the messages and enums."""
    file = FileDescriptorProto(name=name, package="t", syntax=syntax)
    if syntax == "editions":
        file.edition = descriptor_pb2.EDITION_2023
    file.dependency.extend(f"google/protobuf/{each}.proto" for each in WELL_KNOWN)
    for enum_name, values in (enums or {}).items():
        enum = file.enum_type.add(name=enum_name)
        enum.options.allow_alias = len(set(values.values())) < len(values)
        for value_name, number in values.items():
            enum.value.add(name=value_name, number=number)
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, kind) in fields.items():
            _add(message, field_name, number, kind, enums or {})
    return file


def _add(
    message: DescriptorProto, name: str, number: int, kind: str, enums: Mapping[str, Mapping[str, int]]
) -> FieldDescriptorProto:
    if pair := re.fullmatch(r"map<(\S+), (\S+)>", kind):
        entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _add(entry, "key", 1, pair[1], enums)
        _add(entry, "value", 2, pair[2], enums)
        full = f".t.{message.name}.{entry.name}"
        return message.field.add(name=name, number=number, label=3, type=11, type_name=full)
    *labels, base = kind.split()
    field = message.field.add(name=name, number=number, label=3 if "repeated" in labels else 1)
    if f"TYPE_{base.upper()}" in FieldDescriptorProto.Type.keys():  # noqa: SIM118 - an enum wrapper is no dict
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{base.upper()}")
    else:
        field.type = FieldDescriptorProto.TYPE_ENUM if base in enums else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".google.protobuf.{base[4:]}" if base.startswith("wkt:") else f".t.{base}"
    if "optional" in labels:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    return field


def bundle(*files: FileDescriptorProto) -> bytes:
    return FileDescriptorSet(file=files).SerializeToString()


def message(messages: Mapping[str, Fields], enums: Mapping[str, Mapping[str, int]] | None = None) -> Descriptor:
    """Return the message `t.M` of such a file."""
    return describe("t.M", canonical("t.M", bundle(define(messages, enums))))
