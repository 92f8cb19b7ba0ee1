"""Known extensions as ordinary fields of their messages: the bytes are the same, and no parser has to know more.

Only `messages` uses this; the reference decoder reads extensions as google.protobuf does.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FeatureSet, FieldDescriptorProto, FileDescriptorProto

from pipeline.data.contracts.formats.protobuf.reach import extensions_of, reached
from pipeline.data.contracts.formats.protobuf.units import in_order, retype


def with_fields(message: Descriptor, units: list[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return units whose extensions are fields of the messages that they extend.

    An extension is named as in its definition, by its full name with `_` for `.` where another field of its message
    has that name.

    Args:
        message: in a pool of these units.
        units: which are changed.

    Raises:
        Refused: a message contains itself.
    """
    kept = {unit.name: unit for unit in units if not unit.extension}
    for each in reached(message):
        if extensions := extensions_of(each):
            _extend(kept[each.file.name], each, extensions)
    return in_order(kept)


def _extend(unit: FileDescriptorProto, message: Descriptor, extensions: list[FieldDescriptor]) -> None:
    made, used = unit.message_type[0], set[str]()
    names = _names(message, extensions)
    for extension in extensions:
        field = made.field.add(name=names[extension.number])
        _fill(field, extension, made, unit)
        used |= retype(field, extension)
    ranges = list(_unknown(made, names))
    del made.extension_range[:]
    for first, end in ranges:
        made.extension_range.add(start=first, end=end)
    unit.dependency[:] = sorted({*unit.dependency, *used} - {unit.name})


def _names(message: Descriptor, extensions: list[FieldDescriptor]) -> dict[int, str]:
    """Return the name of each extension as a field, by number."""
    shared = [_bare(each.name) for each in (*message.fields, *extensions)]
    taken = {_bare(each.name) for each in message.fields}
    names = dict[int, str]()
    for each in extensions:
        name = each.name
        if shared.count(_bare(name)) > 1:
            name = each.full_name.replace("__.", ".").replace(".", "_")  # packages of units have `__` for messages
        if _bare(name) in taken:
            name = f"{name}__f{each.number}"
        taken.add(_bare(name))
        names[each.number] = name
    return names


def _fill(
    field: FieldDescriptorProto, extension: FieldDescriptor, made: DescriptorProto, unit: FileDescriptorProto
) -> None:
    """Make a field of an extension, which may be of another syntax and always records its absence."""
    kind: Any = extension.type
    field.number, field.type = extension.number, kind
    field.label = FieldDescriptorProto.LABEL_REPEATED if extension.is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
    if unit.syntax == "editions":
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            field.type = FieldDescriptorProto.TYPE_MESSAGE
            field.options.features.message_encoding = FeatureSet.DELIMITED
        elif field.type == FieldDescriptorProto.TYPE_MESSAGE:
            field.options.features.message_encoding = FeatureSet.LENGTH_PREFIXED
        elif not extension.is_repeated:
            field.options.features.field_presence = FeatureSet.EXPLICIT
    elif unit.syntax == "proto3" and not extension.is_repeated:
        field.proto3_optional = True
        field.oneof_index = len(made.oneof_decl)
        made.oneof_decl.add(name=f"turnout_presence_{field.number}")


def _unknown(message: DescriptorProto, known: dict[int, str]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of extensions without the known numbers: first number, and the one after the last."""
    for each in message.extension_range:
        first = each.start
        for number in sorted(number for number in known if each.start <= number < each.end):
            if first < number:
                yield first, number
            first = number + 1
        if first < each.end:
            yield first, each.end


def _bare(name: str) -> str:
    return name.lower().replace("_", "")
