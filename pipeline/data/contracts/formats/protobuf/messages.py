"""Protobuf definitions: from submitted bytes to a canonical form, and from that to a message.

Descriptor sets with the same meaning for a payload's bytes have one canonical form, hence one fingerprint.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import join_limited
from pipeline.data.contracts.decoded import one_line
from pipeline.data.contracts.formats.protobuf import extensions
from pipeline.data.contracts.formats.protobuf.pools import pooled
from pipeline.data.contracts.formats.protobuf.units import FOLDER, Given, unit_name, units
from pipeline.data.contracts.formats.protobuf.well_known import WELL_KNOWN_FILES
from protos.turnout.v1.standard_rules_pb2 import RuledOptions

MAX_DESCRIPTOR_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 256
"""Most files of a definition: the Arrow parser follows imports by recursion."""

_EDITIONS: Final[Mapping[int, str]] = {descriptor_pb2.EDITION_2023: "2023", descriptor_pb2.EDITION_2024: "2024"}
_FEATURES: Final = ("field_presence", "enum_type", "repeated_field_encoding", "message_encoding")
"""The features of editions that change what bytes mean. A text is UTF-8 whatever `utf8_validation` says."""
_FEATURES_FILES: Final = frozenset(f"google/protobuf/{each}_features.proto" for each in ("cpp", "go", "java"))
"""Files that define features of languages. Compilers have them, registries do not keep them, and no data needs them."""


def canonical(message: str, descriptor_set: bytes) -> bytes:
    """Return the canonical form of a definition: units of what the message reaches, in the order of their imports.

    It has the messages, enums and extensions that a payload may hold, of all files in the set. It leaves out the
    well-known `google/protobuf` files (part of every protobuf runtime) and everything without data (names of files,
    comments, services, options, JSON names). Editions keep the features that matter to the bytes, and options the rules
    of protovalidate. The canonical form of a canonical definition is itself.

    Raises:
        Refused: the bytes are no complete FileDescriptorSet, or do not define the message.
    """
    whole = _whole(message, descriptor_set)
    made = FileDescriptorSet(file=units(whole.message(message), whole.given))
    result = made.SerializeToString(deterministic=True)
    describe(message, result)
    return result


def submitted(message: str, descriptor_set: bytes) -> Descriptor:
    """Return the message as a descriptor set has it, with its files as they were given.

    Raises:
        Refused: as of `canonical`.
    """
    return _whole(message, descriptor_set).message(message)


@dataclass(frozen=True, slots=True)
class _Whole:
    """A submitted file with all that it needs; none of it changes."""

    files: tuple[FileDescriptorProto, ...]  # bare, imports first
    pool: DescriptorPool
    given: Given

    def message(self, name: str) -> Descriptor:
        return self.pool.FindMessageTypeByName(_name_in(name, self.files))


_last: Final[dict[tuple[str, bytes], _Whole]] = {}
"""What was opened last, by file and set: hundreds of types of one large file are often registered together."""


def _whole(message: str, descriptor_set: bytes) -> _Whole:
    if len(descriptor_set) > MAX_DESCRIPTOR_BYTES:
        raise Refused(
            f"The descriptor set of {shown(message)} has {len(descriptor_set)} bytes; at most {MAX_DESCRIPTOR_BYTES} "
            "are accepted. Generate it from the payload's file only."
        )
    try:
        files = FileDescriptorSet.FromString(descriptor_set).file
    except DecodeError as error:
        raise Refused(
            f"The descriptor set of {shown(message)} is not a FileDescriptorSet ({error}). "
            "Generate it with protoc --descriptor_set_out --include_imports."
        ) from error
    by_name = {file.name: file for file in files}
    if len(by_name) != len(files):
        raise Refused(f"The descriptor set of {shown(message)} holds a file twice. Keep one of each name.")
    home = _home(message, files).name
    if (held := _last.get((home, descriptor_set))) is not None:
        return held
    needed = _needed(message, [home, *_extending(by_name)], by_name)
    if sum(not each.name.startswith(FOLDER) for each in needed) > MAX_FILES:
        raise Refused(
            f"{shown(message)} needs {len(needed)} files, at most {MAX_FILES} are accepted. Join some of them."
        )
    bare = tuple(_bare(each) for each in needed)
    whole = _Whole(bare, _pool(message, bare), Given(bare))
    _last.clear()
    _last[home, descriptor_set] = whole
    return whole


@lru_cache(maxsize=4096)
def describe(message: str, descriptor: bytes) -> Descriptor:
    """Return the message of a canonical definition; its extensions are fields of it.

    Raises:
        Refused: the files do not fit together.
    """
    return _found(message, _with_fields(message, descriptor))


@lru_cache(maxsize=4096)
def with_distinct_names(message: str, descriptor: bytes) -> Descriptor:
    """Return the message of a canonical definition in which no two fields of a message are twins.

    Twins differ by case or underscores only: tables ignore case, the Arrow parser both. The twin with the lowest number
    keeps its name, the others get their number as a suffix.

    Raises:
        Refused: the files do not fit together, or a made name is taken.
    """
    files, renamed = _with_fields(message, descriptor), False
    waiting = [each for file in files for each in file.message_type]
    while waiting:
        each = waiting.pop()
        waiting += each.nested_type
        taken: set[str] = set()
        for field in sorted(each.field, key=lambda field: field.number):
            if _bare_name(field.name) in taken:
                field.name, renamed = f"{field.name}__{number_suffix(field.number)}", True
            taken.add(_bare_name(field.name))
    return _found(message, files) if renamed else describe(message, descriptor)


def _with_fields(message: str, descriptor: bytes) -> list[FileDescriptorProto]:
    """Return the files of a canonical definition with extensions as fields."""
    files = list(FileDescriptorSet.FromString(descriptor).file)
    if not any(file.extension for file in files):
        return files
    found = _pool(message, files).FindMessageTypeByName(_name_in(message, files))
    return extensions.with_fields(found, files)


def _found(message: str, files: list[FileDescriptorProto]) -> Descriptor:
    """Return a message of these files, imports first."""
    try:
        return _pool(message, files).FindMessageTypeByName(_name_in(message, files))
    except KeyError as error:
        raise _invalid(message, error) from error


def _name_in(message: str, files: Iterable[FileDescriptorProto]) -> str:
    """Return the full name that a message has in these files: in its unit it may be another one."""
    unit = unit_name(message)
    for file in files:
        if file.name == unit and file.message_type:
            return f"{file.package}.{file.message_type[0].name}" if file.package else file.message_type[0].name
    return message


def _pool(message: str, files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    try:
        return pooled(files)
    except (TypeError, DecodeError) as error:
        raise _invalid(message, error) from error


def _invalid(message: str, error: Exception) -> Refused:
    why = one_line(str(error))  # it may repeat a hostile name
    return Refused(f"The definition of {shown(message)} is not valid: {why}. Correct the .proto file.")


def number_suffix(number: int) -> str:
    """Return what follows `__` in the column name of a field whose own name cannot be one."""
    return f"f{number}"


def _bare_name(name: str) -> str:
    return name.lower().replace("_", "")


def _home(message: str, files: Iterable[FileDescriptorProto]) -> FileDescriptorProto:
    known: list[str] = []
    unit = unit_name(message)
    for file in files:
        if file.name == unit:
            return file
        if file.name in WELL_KNOWN_FILES:
            continue
        names = list(_message_names(file.message_type, file.package))
        if message in names:
            return file
        known += names
    listed = join_limited(known, 8, shown) or "none"
    raise Refused(f"The descriptor set does not define the message {shown(message)}. It defines: {listed}.")


def _message_names(messages: Iterable[DescriptorProto], prefix: str) -> Iterator[str]:
    for message in messages:
        name = f"{prefix}.{message.name}" if prefix else message.name
        yield name
        yield from _message_names(message.nested_type, name)


def _extending(files: Mapping[str, FileDescriptorProto]) -> list[str]:
    """Return the files that define extensions of data: no file needs to import them."""
    return sorted(name for name, file in files.items() if name not in WELL_KNOWN_FILES and _extends(file))


def _extends(file: FileDescriptorProto) -> bool:
    waiting: list[FileDescriptorProto | DescriptorProto] = [file]
    while waiting:
        each = waiting.pop()
        if any(not extension.extendee.startswith(".google.protobuf.") for extension in each.extension):
            return True
        waiting += each.message_type if isinstance(each, FileDescriptorProto) else each.nested_type
    return False


def _needed(message: str, roots: list[str], by_name: Mapping[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return these files and all their imports, imports first; without recursion, since the bytes may be hostile."""
    ordered: dict[str, FileDescriptorProto] = {}
    opened: set[str] = set()
    waiting = [*reversed(roots)]
    while waiting:
        name = waiting[-1]
        file = by_name.get(name)
        if file is None:
            raise Refused(
                f"The descriptor set of {shown(message)} lacks the imported file {shown(name)}. "
                "Generate it with protoc --include_imports."
            )
        if name in opened:
            waiting.pop()
            ordered.setdefault(name, file)
            continue
        opened.add(name)
        if file.syntax == "editions" and file.edition not in _EDITIONS:
            raise Refused(
                f"{shown(name)} uses edition {file.edition} of protobuf; turnout reads the editions "
                f"{' and '.join(_EDITIONS.values())}. Use one of these."
            )
        waiting += [each for each in reversed(_imports(file)) if each not in WELL_KNOWN_FILES and each not in opened]
    return list(ordered.values())


def _imports(file: FileDescriptorProto) -> list[str]:
    """Return the files that a file imports, without those that only its options need."""
    return [each for each in file.dependency if each not in _FEATURES_FILES]


def _bare(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return a file without what has no data; its imports stay."""
    bare = FileDescriptorProto()
    bare.CopyFrom(file)
    for name in ("source_code_info", "service", "options", "option_dependency"):
        bare.ClearField(name)
    if bare.syntax == "proto2":
        bare.ClearField("syntax")  # absent means proto2, and compilers differ in writing it
    _import_only(bare, _imports(file))
    if file.syntax == "editions":
        bare.options.features.CopyFrom(file.options.features)
        _keep_options(bare)
    else:
        bare.ClearField("edition")
    waiting = list(bare.message_type)
    for enum in bare.enum_type:
        _bare_enum(enum)
    for extension in bare.extension:
        _bare_field(extension)
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        message.ClearField("visibility")
        _keep_options(message, "map_entry", "message_set_wire_format")
        for enum in message.enum_type:
            _bare_enum(enum)
        for each in (*message.oneof_decl, *message.extension_range):
            _keep_options(each)
        for field in (*message.field, *message.extension):
            _bare_field(field)
    return bare


def _bare_field(field: FieldDescriptorProto) -> None:
    field.ClearField("json_name")
    _keep_options(field, "packed")


def _bare_enum(enum: EnumDescriptorProto) -> None:
    enum.ClearField("visibility")
    _keep_options(enum, "allow_alias")
    for value in enum.value:
        _keep_options(value)


def _keep_options(held: Any, *kept: str) -> None:
    """Leave these of a definition's options, those features that matter to the bytes, and rules of protovalidate."""
    if not held.HasField("options"):
        return
    given = held.options
    options, features = type(given)(), FeatureSet()
    for name in kept:
        if given.HasField(name):
            setattr(options, name, getattr(given, name))
    for name in _FEATURES:
        if given.features.HasField(name):
            setattr(features, name, getattr(given.features, name))
    if features.ByteSize():
        options.features.CopyFrom(features)
    if rules := b"".join(RuledOptions.FromString(given.SerializeToString()).rules):
        options.MergeFromString(RuledOptions(rules=[rules]).SerializeToString())
    held.ClearField("options")
    if options.ByteSize():
        held.options.CopyFrom(options)


def _import_only(file: FileDescriptorProto, kept: list[str]) -> None:
    """Leave these imports; others are listed by their places among all."""
    if len(kept) == len(file.dependency):
        return
    places = {place: kept.index(name) for place, name in enumerate(file.dependency) if name in kept}
    for listed in (file.public_dependency, file.weak_dependency):
        listed[:] = [places[place] for place in listed if place in places]
    file.dependency[:] = kept
