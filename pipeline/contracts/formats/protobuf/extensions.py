"""Known extensions as ordinary fields of their messages: the bytes are the same, and no parser has to know more.

An extension may have a type that lies in a file which imports its message, so every message and enum gets a file of its
own. Only `messages` uses this; the reference decoder reads extensions as google.protobuf does.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from pipeline.contracts.formats.protobuf.reach import extensions_of, in_order, reached
from pipeline.contracts.formats.protobuf.well_known import WELL_KNOWN_FILES

_AROUND: Final = "__"  # follows the name of a message around another one: no name may mean a package and a message


def has_extensions(message: Descriptor) -> bool:
    """Return whether a message, or one inside it, has an extension in its pool."""
    return any(extensions_of(each) for each in reached(message))


def with_fields(message: Descriptor, files: FileDescriptorSet) -> tuple[str, FileDescriptorSet]:
    """Return a definition whose extensions are fields, and the full name that the message has there.

    A nested message has another name there, since it lies in a file of its own. An extension is named as in its
    definition, by its full name with `_` for `.` where another field of its message has that name.

    Raises:
        Refused: a message contains itself.
    """
    given = _Given(files)
    made = dict[str, FileDescriptorProto]()
    for each in reached(message):
        if not each.GetOptions().map_entry:
            made[_file_name(each)] = _message_file(each, given)
        for one in (*each.fields, *extensions_of(each)):
            if one.enum_type is not None and one.enum_type.file.name not in WELL_KNOWN_FILES:
                made[_file_name(one.enum_type)] = _enum_file(one.enum_type, given)
    graph = {name: [each for each in made[name].dependency if each in made] for name in sorted(made)}
    return _name(message), FileDescriptorSet(file=[made[name] for name in in_order(graph)])


def names_of(message: Descriptor) -> dict[int, str]:
    """Return the name of each extension of a message as one of its fields, by number."""
    extensions = extensions_of(message)
    shared = [_bare(each.name) for each in (*message.fields, *extensions)]
    taken = {_bare(each.name) for each in message.fields}
    names = dict[int, str]()
    for each in extensions:
        name = each.name
        if shared.count(_bare(name)) > 1:
            name = each.full_name.replace(".", "_")
        if _bare(name) in taken:
            name = f"{name}__f{each.number}"
        taken.add(_bare(name))
        names[each.number] = name
    return names


class _Given:
    """The messages and enums of files by full name, with their file and its features, such as those of editions."""

    def __init__(self, files: FileDescriptorSet) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        self.enums: dict[str, EnumDescriptorProto] = {}
        self.around: dict[str, tuple[FileDescriptorProto, FeatureSet]] = {}
        for file in files.file:
            prefix = f"{file.package}." if file.package else ""
            self._take(file, prefix, file.enum_type, file.message_type, file.options.features)

    def _take(
        self,
        file: FileDescriptorProto,
        prefix: str,
        enums: Iterable[EnumDescriptorProto],
        messages: Iterable[DescriptorProto],
        features: FeatureSet,
    ) -> None:
        for enum in enums:
            self.enums[f"{prefix}{enum.name}"] = enum
            self.around[f"{prefix}{enum.name}"] = file, features
        for each in messages:
            full = f"{prefix}{each.name}"
            self.messages[full] = each
            self.around[full] = file, features
            inside = FeatureSet()
            inside.CopyFrom(features)
            inside.MergeFrom(each.options.features)
            self._take(file, f"{full}.", each.enum_type, each.nested_type, inside)


def _new_file(of: Descriptor | EnumDescriptor, given: _Given) -> FileDescriptorProto:
    around, features = given.around[of.full_name]
    file = FileDescriptorProto(name=_file_name(of), package=_package(of))
    for name in ("syntax", "edition"):
        if around.HasField(name):
            setattr(file, name, getattr(around, name))
    if features.ByteSize():
        file.options.features.CopyFrom(features)
    return file


def _enum_file(enum: EnumDescriptor, given: _Given) -> FileDescriptorProto:
    file = _new_file(enum, given)
    file.enum_type.add().CopyFrom(given.enums[enum.full_name])
    return file


def _message_file(message: Descriptor, given: _Given) -> FileDescriptorProto:
    proto, file = given.messages[message.full_name], _new_file(message, given)
    made: DescriptorProto = file.message_type.add()
    made.CopyFrom(proto)
    for name in ("nested_type", "enum_type", "extension", "extension_range"):
        made.ClearField(name)
    used = set[str]()
    entries = dict[str, Descriptor]()
    for field in made.field:
        described = message.fields_by_number[field.number]
        used |= _retype(field, described)
        inner = described.message_type
        if inner is not None and inner.containing_type == message and inner.GetOptions().map_entry:
            entries[inner.full_name] = inner
    for name, entry in sorted(entries.items()):
        nested = made.nested_type.add()
        nested.CopyFrom(given.messages[name])
        for field in nested.field:
            used |= _retype(field, entry.fields_by_number[field.number])
    names = names_of(message)
    for extension in extensions_of(message):
        field = made.field.add()
        used |= _fill(field, extension, names[extension.number], made, file)
    for first, end in _unknown(proto, names):
        made.extension_range.add(start=first, end=end)
    file.dependency[:] = sorted(used - {file.name})
    return file


def _fill(
    field: FieldDescriptorProto, extension: FieldDescriptor, name: str, made: DescriptorProto, file: FileDescriptorProto
) -> set[str]:
    """Make a field of an extension; return the files that it needs."""
    kind: Any = extension.type
    field.name, field.number, field.type = name, extension.number, kind
    field.label = FieldDescriptorProto.LABEL_REPEATED if extension.is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
    if file.syntax == "editions":
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            field.type = FieldDescriptorProto.TYPE_MESSAGE
            field.options.features.message_encoding = FeatureSet.DELIMITED
        elif field.type == FieldDescriptorProto.TYPE_MESSAGE:
            field.options.features.message_encoding = FeatureSet.LENGTH_PREFIXED
        elif not extension.is_repeated:
            field.options.features.field_presence = FeatureSet.EXPLICIT
    elif file.syntax == "proto3" and not extension.is_repeated:
        field.proto3_optional = True
        field.oneof_index = len(made.oneof_decl)
        made.oneof_decl.add(name=f"turnout_presence_{field.number}")
    return _retype(field, extension)


def _retype(field: FieldDescriptorProto, described: FieldDescriptor) -> set[str]:
    """Let a field have its type by the name in its new file; return the file that it needs, none for a scalar."""
    used: Descriptor | EnumDescriptor | None = described.message_type or described.enum_type
    if used is None:
        return set()
    field.type_name = f".{_name(used)}"
    return {_file_name(used)}


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


def _package(of: Descriptor | EnumDescriptor) -> str:
    around, parts = of.containing_type, list[str]()
    while around is not None:
        parts.insert(0, f"{around.name}{_AROUND}")
        around = around.containing_type
    return ".".join(part for part in (of.file.package, *parts) if part)


def _name(of: Descriptor | EnumDescriptor) -> str:
    """Return the full name of a message or enum in its own file."""
    if of.file.name in WELL_KNOWN_FILES:
        return of.full_name
    if isinstance(of, Descriptor) and of.containing_type is not None and of.GetOptions().map_entry:
        return f"{_name(of.containing_type)}.{of.name}"
    package = _package(of)
    return f"{package}.{of.name}" if package else of.name


def _file_name(of: Descriptor | EnumDescriptor) -> str:
    """Return the file of a message or enum; for an entry of a map that of the message around it."""
    if of.file.name in WELL_KNOWN_FILES:
        return of.file.name
    if isinstance(of, Descriptor) and of.containing_type is not None and of.GetOptions().map_entry:
        return _file_name(of.containing_type)
    return f"turnout/{of.full_name}.proto"


def _bare(name: str) -> str:
    return name.lower().replace("_", "")
