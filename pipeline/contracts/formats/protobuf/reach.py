"""Prunes the files of a definition to what a message reaches: messages and enums of its fields, and its extensions.

So a change elsewhere in the files makes no other schema. Only `messages` uses this.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from pipeline.contracts.formats.protobuf.well_known import WELL_KNOWN_FILES
from pipeline.errors import Refused


def extensions_of(message: Descriptor) -> list[FieldDescriptor]:
    """Return the extensions of a message that its pool defines, by number.

    Those of a MessageSet are left out: its bytes are not those of fields, so they count as unknown fields.
    """
    if not message.is_extendable or message.GetOptions().message_set_wire_format:
        return []
    pool: Any = message.file.pool
    return sorted(pool.FindAllExtensions(message), key=_number)


def reached(message: Descriptor) -> Iterator[Descriptor]:
    """Yield the message and all messages inside it, also in its extensions, without those of well-known files."""
    waiting, known = [message], {message.full_name}
    while waiting:
        each = waiting.pop()
        yield each
        for one in (*each.fields, *extensions_of(each)):
            inner = one.message_type
            if inner is not None and inner.full_name not in known and inner.file.name not in WELL_KNOWN_FILES:
                known.add(inner.full_name)
                waiting.append(inner)


def pruned(message: Descriptor, files: Iterable[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return the files with what the message reaches, imports first; a file imports what it uses.

    The files are changed. Messages around a needed one stay without their fields.

    Raises:
        Refused: files need each other.
    """
    reach = _Reach()
    for each in reached(message):
        reach.take(each)
    kept = {file.name: file for file in files if _prune_file(file, reach)}
    for name, file in kept.items():
        for listed in (file.public_dependency, file.weak_dependency):
            del listed[:]
        file.dependency[:] = sorted(reach.uses[name] - {name})
    graph = {name: [each for each in kept[name].dependency if each in kept] for name in sorted(kept)}
    return [kept[name] for name in in_order(graph)]


def in_order(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return names of files, those first that others import.

    Raises:
        Refused: files need each other.
    """
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = [name.removeprefix("turnout/").removesuffix(".proto") for name in error.args[1]]
        raise Refused(
            f"The definition contains itself, by {' and '.join(circle[:4])}: a table cannot hold a recursive type."
        ) from error


@dataclass(slots=True)
class _Reach:
    """What a message reaches, by full name, and which files need which."""

    types: set[str] = field(default_factory=set)  # messages and enums
    extensions: set[str] = field(default_factory=set)
    uses: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def take(self, message: Descriptor) -> None:
        self.types.add(message.full_name)
        for each in message.fields:
            self._take_type(each, message.file.name)
        for each in extensions_of(message):
            self.extensions.add(each.full_name)
            one: Any = each  # its stub has no file
            self.uses[one.file.name].add(message.file.name)
            self._take_type(each, one.file.name)

    def _take_type(self, each: FieldDescriptor, file: str) -> None:
        used: Descriptor | EnumDescriptor | None = each.message_type or each.enum_type
        if used is not None:
            self.types.add(used.full_name)
            self.uses[file].add(used.file.name)


def _prune_file(file: FileDescriptorProto, reach: _Reach) -> bool:
    """Leave what is reached; return whether that is anything."""
    prefix = f"{file.package}." if file.package else ""
    _leave(file.extension, prefix, reach.extensions)
    _leave(file.enum_type, prefix, reach.types)
    _leave_messages(file.message_type, prefix, reach)
    return bool(file.extension or file.enum_type or file.message_type)


def _leave(listed: Any, prefix: str, names: set[str]) -> None:
    for place in reversed(range(len(listed))):
        if f"{prefix}{listed[place].name}" not in names:
            del listed[place]


def _leave_messages(listed: Any, prefix: str, reach: _Reach) -> None:
    for place in reversed(range(len(listed))):
        if not _prune_message(listed[place], prefix, reach):
            del listed[place]


def _prune_message(message: DescriptorProto, prefix: str, reach: _Reach) -> bool:
    full = f"{prefix}{message.name}"
    _leave(message.extension, f"{full}.", reach.extensions)
    _leave(message.enum_type, f"{full}.", reach.types)
    _leave_messages(message.nested_type, f"{full}.", reach)
    if full in reach.types:
        return True
    if not (message.extension or message.enum_type or message.nested_type):
        return False
    for name in ("field", "oneof_decl", "extension_range", "reserved_range", "reserved_name", "options"):
        message.ClearField(name)
    return True


def _number(each: FieldDescriptor) -> int:
    return each.number
