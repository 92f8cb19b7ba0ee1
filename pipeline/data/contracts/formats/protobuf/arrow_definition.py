"""The definition that the Arrow parser reads, where it cannot read the given one.

It knows no editions, and no message that contains itself. Only `parsing` uses this: what a payload means follows from
the given definition, by which the plain parser has written every payload that the Arrow parser gets.
"""

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from pipeline.data.contracts.formats.protobuf.fields import JSON_MESSAGES
from pipeline.data.contracts.formats.protobuf.messages import describe
from pipeline.data.contracts.formats.protobuf.well_known import WELL_KNOWN_FILES

_MESSAGES: Final = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP)


def for_arrow(message: Descriptor) -> Descriptor:
    """Return a message with the same fields in proto3, those of JSON as bytes; the message itself if it has neither.

    Raises:
        Refused: the files do not fit together.
    """
    used = {each.full_name: each for each in _reachable(message)}
    files = [_proto(each) for each in _files(message.file)]
    has_json = any(_is_json(field) for each in used.values() for field in each.fields)
    if not has_json and all(file.syntax != "editions" for file in files):
        return message
    for file in files:
        _lower_file(file, used)
    return describe(message.full_name, FileDescriptorSet(file=files).SerializeToString(deterministic=True))


def _is_json(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name in JSON_MESSAGES


def _reachable(message: Descriptor) -> Iterator[Descriptor]:
    """Yield the message and all messages inside it, without those inside the messages of JSON."""
    waiting, known = [message], {message.full_name}
    while waiting:
        each = waiting.pop()
        yield each
        for field in each.fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in known and inner.full_name not in JSON_MESSAGES:
                known.add(inner.full_name)
                waiting.append(inner)


def _files(file: FileDescriptor) -> list[FileDescriptor]:
    """Return a file and its imports without the well-known ones, imports first."""
    ordered: dict[str, FileDescriptor] = {}
    opened: set[str] = set()
    waiting = [file]
    while waiting:
        each = waiting[-1]
        if each.name in opened:
            ordered.setdefault(waiting.pop().name, each)
            continue
        opened.add(each.name)
        waiting += [
            imported
            for imported in each.dependencies
            if imported.name not in WELL_KNOWN_FILES and imported.name not in opened
        ]
    return list(ordered.values())


def _proto(file: FileDescriptor) -> FileDescriptorProto:
    proto: FileDescriptorProto = FileDescriptorProto()
    file.CopyToProto(proto)
    return proto


def _lower_file(file: FileDescriptorProto, used: dict[str, Descriptor]) -> None:
    file.syntax = "proto3"
    for name in ("edition", "options", "extension"):
        file.ClearField(name)
    for enum in file.enum_type:
        _lower_enum(enum)
    prefix = f"{file.package}." if file.package else ""
    for message in file.message_type:
        _lower_message(message, prefix, used)


def _lower_message(message: DescriptorProto, prefix: str, used: dict[str, Descriptor]) -> None:
    own = f"{prefix}{message.name}"
    is_entry = message.options.map_entry
    del message.extension[:], message.extension_range[:], message.reserved_range[:], message.reserved_name[:]
    message.ClearField("options")
    for enum in message.enum_type:
        _lower_enum(enum)
    for nested in message.nested_type:
        _lower_message(nested, f"{own}.", used)
    described = used.get(own)
    if described is None:  # only its name is needed, for the messages in it
        for name in ("field", "oneof_decl"):
            message.ClearField(name)
        return
    if is_entry:
        message.options.map_entry = True
    for oneof in message.oneof_decl:
        oneof.ClearField("options")
    for field in message.field:
        _lower_field(message, field, described.fields_by_number[field.number], is_entry=is_entry)


def _lower_field(
    message: DescriptorProto, field: FieldDescriptorProto, described: FieldDescriptor, *, is_entry: bool
) -> None:
    for name in ("options", "default_value"):
        field.ClearField(name)
    if described.is_required:
        field.label = FieldDescriptorProto.LABEL_OPTIONAL
    if _is_json(described):
        field.type = FieldDescriptorProto.TYPE_BYTES
        field.ClearField("type_name")
    records_absence = described.has_presence and field.type not in _MESSAGES  # those of lists never do
    if records_absence and not is_entry and not field.HasField("oneof_index"):
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"turnout_presence_{field.number}")


def _lower_enum(enum: EnumDescriptorProto) -> None:
    """Let the value 0 be the first, as proto3 wants it; the first of two names of a number stays the first."""
    allow_alias = enum.options.allow_alias
    for name in ("options", "reserved_range", "reserved_name"):
        enum.ClearField(name)
    if allow_alias:
        enum.options.allow_alias = True
    values = sorted(enum.value, key=lambda value: value.number != 0)
    if values[0].number != 0:  # only of closed enums; no payload holds it, since it is not one of their values
        values.insert(0, type(values[0])(name=f"turnout_no_value_of_{enum.name}", number=0))
    del enum.value[:]
    for value in values:
        enum.value.add(name=value.name, number=value.number)
