"""Units of a definition: a file for each message, enum and extension that a payload may hold, and nothing else.

A unit is the same in every definition that has it, so it is kept once, and a change elsewhere in its file makes no
other schema. A nested message lies in a package named like the messages around it. Only `messages` uses this.
"""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from pipeline.base.errors import Refused
from pipeline.data.contracts.formats.protobuf.reach import extensions_of, reached
from pipeline.data.contracts.formats.protobuf.well_known import WELL_KNOWN_FILES

FOLDER: Final = "turnout-unit/"
"""Begins the names of units."""

_AROUND: Final = "__"  # follows the name of a message around another one: no name may mean a package and a message


def unit_name(full_name: str) -> str:
    """Return the name of the unit that has a message or enum."""
    return f"{FOLDER}{full_name}.proto"


def units(message: Descriptor, given: "Given") -> list[FileDescriptorProto]:
    """Return the units that a message reaches, those first that others need.

    Args:
        message: in a pool of the given files.
        given: its definition, bare.

    Raises:
        Refused: a message contains itself.
    """
    made = dict[str, FileDescriptorProto]()
    for each in reached(message):
        if not each.GetOptions().map_entry:
            made[_file_name(each)] = given.message(each)
        extensions = extensions_of(each)
        for extension in extensions:
            file = given.extension(extension)
            made[file.name] = file
        for field in (*each.fields, *extensions):
            if field.enum_type is not None and field.enum_type.file.name not in WELL_KNOWN_FILES:
                made[_file_name(field.enum_type)] = given.enum(field.enum_type)
    return in_order(made)


def in_order(files: Mapping[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return files by name in the one order in which those come first that others import.

    Raises:
        Refused: files need each other.
    """
    graph = {name: [each for each in files[name].dependency if each in files] for name in sorted(files)}
    try:
        return [files[name] for name in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        circle = [name.removeprefix(FOLDER).removesuffix(".proto") for name in error.args[1]]
        raise Refused(
            f"The definition contains itself, by {' and '.join(circle[:4])}: a table cannot hold a recursive type."
        ) from error


class Given:
    """The definitions of files by full name, each with its file and its features, such as those of editions."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        """Look through files, which must not change."""
        self._found: dict[str, tuple[Any, FileDescriptorProto, FeatureSet]] = {}
        for file in files:
            self._take(file, f"{file.package}." if file.package else "", file, file.options.features)

    def _take(
        self, file: FileDescriptorProto, prefix: str, held: FileDescriptorProto | DescriptorProto, features: FeatureSet
    ) -> None:
        for enum in held.enum_type:
            self._found[f"{prefix}{enum.name}"] = enum, file, features
        for extension in held.extension:
            self._found[f"{prefix}{extension.name}"] = extension, file, features
        for message in held.message_type if isinstance(held, FileDescriptorProto) else held.nested_type:
            self._found[f"{prefix}{message.name}"] = message, file, features
            inside = FeatureSet()
            inside.CopyFrom(features)
            inside.MergeFrom(message.options.features)
            self._take(file, f"{prefix}{message.name}.", message, inside)

    def _new(self, full_name: str, package: str) -> tuple[FileDescriptorProto, Any]:
        proto, around, features = self._found[full_name]
        name = around.name if around.name.startswith(FOLDER) else unit_name(full_name)
        file = FileDescriptorProto(name=name, package=package)
        if around.HasField("syntax"):
            file.syntax = around.syntax
        if around.HasField("edition"):
            file.edition = around.edition
        if features.ByteSize():
            file.options.features.CopyFrom(features)
        return file, proto

    def enum(self, enum: EnumDescriptor) -> FileDescriptorProto:
        """Return the unit of an enum."""
        file, proto = self._new(enum.full_name, _package(enum))
        file.enum_type.add().MergeFrom(proto)
        return file

    def extension(self, extension: FieldDescriptor) -> FileDescriptorProto:
        """Return the unit of an extension."""
        scope, extended = extension.extension_scope, _extended(extension)
        package = _package(extension) if scope is None else f"{_name(scope)}{_AROUND}"
        file, proto = self._new(extension.full_name, package)
        made: FieldDescriptorProto = file.extension.add()
        made.MergeFrom(proto)
        made.extendee = f".{_name(extended)}"
        file.dependency[:] = sorted({_file_name(extended), *retype(made, extension)})
        return file

    def message(self, message: Descriptor) -> FileDescriptorProto:
        """Return the unit of a message, with the entries of its maps."""
        file, proto = self._new(message.full_name, _package(message))
        made: DescriptorProto = file.message_type.add()
        made.MergeFrom(proto)
        for name in ("nested_type", "enum_type", "extension"):
            made.ClearField(name)
        used = set[str]()
        entries = dict[str, Descriptor]()
        for field in made.field:
            described = message.fields_by_number[field.number]
            used |= retype(field, described)
            inner = described.message_type
            if inner is not None and inner.containing_type == message and inner.GetOptions().map_entry:
                entries[inner.full_name] = inner
        for name, entry in sorted(entries.items()):
            nested: DescriptorProto = made.nested_type.add()
            nested.MergeFrom(self._found[name][0])
            for field in nested.field:
                used |= retype(field, entry.fields_by_number[field.number])
        file.dependency[:] = sorted(used - {file.name})
        return file


def retype(field: FieldDescriptorProto, described: FieldDescriptor) -> set[str]:
    """Let a field have its type by the name in its unit; return the file that it needs, none for a scalar."""
    used: Descriptor | EnumDescriptor | None = described.message_type or described.enum_type
    if used is None:
        return set()
    field.type_name = f".{_name(used)}"
    return {_file_name(used)}


def _extended(extension: FieldDescriptor) -> Descriptor:
    extended = extension.containing_type
    assert extended is not None
    return extended


def _package(of: Descriptor | EnumDescriptor | FieldDescriptor) -> str:
    """Return the package of a unit; of an extension that no message is around, its file's."""
    if isinstance(of, FieldDescriptor):
        return of.full_name.rpartition(".")[0]
    if of.file.name.startswith(FOLDER):
        return of.file.package
    around = of.containing_type
    return of.file.package if around is None else f"{_name(around)}{_AROUND}"


def _name(of: Descriptor | EnumDescriptor) -> str:
    """Return the full name of a message or enum in its unit."""
    if of.file.name in WELL_KNOWN_FILES:
        return of.full_name
    if isinstance(of, Descriptor) and of.containing_type is not None and of.GetOptions().map_entry:
        return f"{_name(of.containing_type)}.{of.name}"
    package = _package(of)
    return f"{package}.{of.name}" if package else of.name


def _file_name(of: Descriptor | EnumDescriptor) -> str:
    """Return the file of a message or enum; for an entry of a map that of the message around it."""
    if of.file.name in WELL_KNOWN_FILES or of.file.name.startswith(FOLDER):
        return of.file.name
    if isinstance(of, Descriptor) and of.containing_type is not None and of.GetOptions().map_entry:
        return _file_name(of.containing_type)
    return unit_name(of.full_name)
