"""Decodes payloads one by one with google.protobuf, into the columns that docs/data.md describes.

A second implementation on purpose, for `turnout verify --values`: it shares only the registered definitions with the
decoder of the passes. Slower, and simple enough to read in one go.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Undecodable
from pipeline.data.contracts.formats.protobuf.reference_json import json_of

# Registers the well-known files in the default pool, from which they are copied.
from google.protobuf import any_pb2, api_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2  # noqa: F401 isort: skip
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2  # noqa: F401 isort: skip

_FIRST_TIME: Final = -62_135_596_800_000_000  # microseconds: the year 1
_LAST_TIME: Final = 253_402_300_799_999_999  # microseconds: the end of the year 9999
_LONGEST_MICROS: Final = 315_576_000_000 * 1_000_000 + 999_999  # the last second of a Duration, to its end

_TIME: Final = pa.timestamp("us", "UTC")
_SCALARS: Final[Mapping[int, pa.DataType]] = {
    **dict.fromkeys(
        (
            FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32,
            FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_INT64,
            FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64,
        ),
        pa.int64(),
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), pa.decimal128(20, 0)),
    **dict.fromkeys((FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE), pa.float64()),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_ENUM: pa.string(),
}  # fmt: skip
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # wire types


Read = Callable[[Any], Any]
"""Converts protobuf's value to the column's value."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One field of a message as a column or member: name, type, and how to read its value from a message."""

    name: str
    type: pa.DataType
    of: Read


class ReferenceDecoder:
    """Decodes payloads of one schema into the columns they have in one game's table."""

    def __init__(self, message: str, descriptor: bytes, names: Mapping[str, str]) -> None:
        """Prepare for a registered definition.

        Args:
            message: full name of the payload's message.
            descriptor: its FileDescriptorSet, imports first, the well-known files left out.
            names: of fields that do not lie in the column of their name: path → column or member.
        """
        definition = _Definition(descriptor, names)
        top = definition.find(message)
        self._parse: Any = message_factory.GetMessageClass(top).FromString
        self._columns = definition.columns(top, "")
        self._checks = _Checks(top, definition.extensions)
        self.schema = pa.schema([(column.name, column.type) for column in self._columns])

    def parse(self, payload: bytes | None) -> Any:
        """Return a payload as protobuf reads it.

        Raises:
            Undecodable: it belongs into quarantine.
        """
        if payload is None and not self._columns:
            payload = b""  # an event without fields
        if payload is None:
            raise Undecodable("empty_payload", "the payload is empty")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise Undecodable("malformed_payload", f"{len(payload)} bytes")
        try:
            parsed = self._parse(payload)
        except DecodeError as error:
            raise Undecodable("malformed_payload", str(error)) from error
        self._checks.require(parsed, lambda: self._parse(payload))
        return parsed

    def decode(self, payloads: Sequence[bytes | None]) -> tuple[pa.Table, dict[int, Undecodable]]:
        """Return the columns of all payloads that decode, in order, and by place why each other one does not."""
        parsed, refused = [], {}
        for place, payload in enumerate(payloads):
            try:
                one = self.parse(payload)
                parsed.append([column.of(one) for column in self._columns])
            except Undecodable as error:
                refused[place] = error
            except UnicodeDecodeError as error:  # a key of proto2 is checked only when it is read
                refused[place] = Undecodable("malformed_payload", str(error))
        arrays = [pa.array([row[index] for row in parsed], column.type) for index, column in enumerate(self._columns)]
        if not arrays:  # a table of no columns knows its number of rows only as a batch
            return pa.table({"": pa.nulls(len(parsed))}).select([]), refused
        return pa.table(arrays, schema=self.schema), refused


class _Definition:
    """A definition in a pool of its own, with fields named by their numbers.

    Python's messages have methods, and a field may have the name of a method; a number never does.
    """

    def __init__(self, descriptor: bytes, names: Mapping[str, str]) -> None:
        self._names = names
        self._given: dict[str, dict[int, str]] = {}  # message → number → the field's own name
        self._units: dict[str, list[str]] = {}  # file → its messages
        self._pool = descriptor_pool.DescriptorPool()
        for file in FileDescriptorSet.FromString(descriptor).file:
            for imported in file.dependency:
                self._copy_well_known(imported)
            for message in file.message_type:
                self._call_by_number(message, f"{file.package}." if file.package else "")
            self._pool.AddSerializedFile(file.SerializeToString())
            self._units[file.name] = [f"{file.package}.{each.name}".lstrip(".") for each in file.message_type]

    def find(self, message: str) -> Descriptor:
        """Return a message, which has another name in its unit where it is nested."""
        (name,) = self._units.get(f"turnout-unit/{message}.proto", [message])
        return self._pool.FindMessageTypeByName(name)

    def _copy_well_known(self, name: str) -> None:
        if not name.startswith("google/protobuf/"):
            return
        file: FileDescriptorProto = FileDescriptorProto()
        descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
        for imported in file.dependency:
            self._copy_well_known(imported)
        self._pool.AddSerializedFile(file.SerializeToString())

    def _call_by_number(self, message: DescriptorProto, prefix: str) -> None:
        full = f"{prefix}{message.name}"
        for nested in message.nested_type:
            self._call_by_number(nested, f"{full}.")
        if message.options.map_entry:
            return
        self._given[full] = {field.number: field.name for field in message.field}
        for field in message.field:
            field.name = f"turnout_field_{field.number}"
            field.ClearField("json_name")
        for number, oneof in enumerate(message.oneof_decl):
            oneof.name = f"turnout_oneof_{number}"
        del message.reserved_name[:]

    def columns(self, message: Descriptor, path: str) -> list[_Column]:
        """Return the columns of a message's fields and extensions; `path` ends with a dot."""
        given = self._given.get(message.full_name) or {each.number: each.name for each in message.fields}
        extensions = self.extensions(message)
        names = _distinct_names(given) | _extension_names(extensions, given.values())
        columns_found = []
        for field in (*message.fields, *extensions):
            here = f"{path}{names[field.number]}"
            kind, read = self._value(field, here)
            columns_found.append(_Column(self._names.get(here, names[field.number]), kind, read))
        return columns_found

    def extensions(self, message: Descriptor) -> list[FieldDescriptor]:
        """Return a message's extensions; a MessageSet has none, since its bytes are of another form."""
        if message.GetOptions().message_set_wire_format:
            return []
        return sorted(self._pool.FindAllExtensions(message), key=lambda each: each.number)

    def _value(self, field: FieldDescriptor, path: str) -> tuple[pa.DataType, Read]:
        """Return a field's type and how to read its value from a message."""
        name = field.name
        entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
        if entry is not None:
            key = self._single(entry.fields_by_name["key"], path)
            item = self._single(entry.fields_by_name["value"], path)
            return pa.map_(key[0], item[0]), _map_of(name, key[1], item[1], messages=_is_message(entry))
        kind, read = self._single(field, path)
        if field.is_extension:
            if field.is_repeated:
                return pa.list_(pa.field("element", kind)), lambda held: [read(each) for each in held.Extensions[field]]
            return kind, lambda held: read(held.Extensions[field]) if held.HasExtension(field) else None
        if field.is_repeated:
            return pa.list_(pa.field("element", kind)), lambda held: [read(each) for each in getattr(held, name)]
        if field.has_presence:
            return kind, lambda held: read(getattr(held, name)) if held.HasField(name) else None
        return kind, lambda held: read(getattr(held, name))

    def _single(self, field: FieldDescriptor, path: str) -> tuple[pa.DataType, Read]:
        """Return the type of one value of a field, and how to read it."""
        inner = field.message_type
        if inner is None:
            return _SCALARS[field.type], _plain(field)
        if inner.full_name in _SPECIAL:
            return _SPECIAL[inner.full_name]
        if inner.full_name in _WRAPPERS:
            return _SCALARS[inner.fields_by_name["value"].type], lambda held: held.value
        members = self.columns(inner, f"{path}.")
        if not members:
            return pa.bool_(), _present
        kind = pa.struct([(each.name, each.type) for each in members])
        return kind, lambda held: {each.name: each.of(held) for each in members}


def _distinct_names(given: Mapping[int, str]) -> dict[int, str]:
    """Return the name under which each field is decoded; of twins by case or '_' all but the first get their number."""
    taken: set[str] = set()
    names = {}
    for number, name in sorted(given.items()):
        bare = name.replace("_", "").lower()
        names[number] = name
        if bare in taken:
            names[number] = f"{name}__f{number}"
            bare = names[number].replace("_", "").lower()
        taken.add(bare)
    return names


def _extension_names(extensions: Sequence[FieldDescriptor], given: Iterable[str]) -> dict[int, str]:
    """Return the name under which each extension is decoded: its full one where its own is also another field's."""
    taken = [name.replace("_", "").lower() for name in given]
    own = [each.name.replace("_", "").lower() for each in extensions]
    names = {}
    for each, bare in zip(extensions, own, strict=True):
        whole = each.full_name.replace("__.", ".").replace(".", "_")
        name = each.name if bare not in taken and own.count(bare) == 1 else whole
        if name.replace("_", "").lower() in taken:
            name = f"{name}__f{each.number}"
        taken.append(name.replace("_", "").lower())
        names[each.number] = name
    return names


def _present(_held: Any) -> bool:
    return True


def _plain(field: FieldDescriptor) -> Read:
    if field.enum_type is not None:
        return _enum_name(field.enum_type)
    return _text if field.type == FieldDescriptor.TYPE_STRING else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    if isinstance(value, bytes):  # proto2 gives bytes where a text is not UTF-8
        raise Undecodable("malformed_payload", "a text that is not UTF-8")
    return value


def _enum_name(enum: EnumDescriptor) -> Read:
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)  # of aliases the first
    return lambda number: names.get(number, str(number))


def _is_message(entry: Descriptor) -> bool:
    return entry.fields_by_name["value"].message_type is not None


def _map_of(name: str, key: Read, item: Read, *, messages: bool) -> Read:
    def read(held: Any) -> list[tuple[Any, Any]]:
        entries = getattr(held, name)
        if messages:  # by key: iterating such a map gives keys only, and so would items()
            return [(key(each), item(entries[each])) for each in entries]
        return [(key(each), item(value)) for each, value in entries.items()]

    return read


def _micros(held: Any) -> int:
    """Return a Timestamp or Duration in microseconds, rounded down; nanos may be negative."""
    micros = abs(held.nanos) // 1_000
    return int(held.seconds * 1_000_000 + (micros if held.nanos >= 0 else -micros))


def time_of(held: Any) -> int | None:
    """Return a Timestamp in microseconds, None outside the years 1 to 9999."""
    micros = _micros(held)
    return micros if _FIRST_TIME <= micros <= _LAST_TIME else None


def _timestamp(held: Any) -> int:
    if (micros := time_of(held)) is None:
        raise Undecodable("malformed_payload", f"a time out of range: {held.seconds} s")
    return micros


def _duration(held: Any) -> int:
    total = _micros(held)
    if not -_LONGEST_MICROS <= total <= _LONGEST_MICROS:
        raise Undecodable("malformed_payload", f"a duration out of range: {held.seconds} s")
    return total


def _number(held: Any, number: int) -> int:
    """Return an integer field of a message whose fields are named by their numbers."""
    return int(getattr(held, f"turnout_field_{number}"))


def _date(held: Any) -> dt.date:
    year, month, day = (_number(held, number) for number in (1, 2, 3))
    try:
        return dt.date(year, month or 1, day or 1)  # a year or a month alone stands for its first day
    except ValueError as error:
        raise Undecodable("malformed_payload", f"not a date: {year}-{month}-{day}") from error


def _time_of_day(held: Any) -> int:
    hours, minutes, seconds, nanos = (_number(held, number) for number in (1, 2, 3, 4))
    micros = abs(nanos) // 1_000
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + (micros if nanos >= 0 else -micros)


_SPECIAL: Final[Mapping[str, tuple[pa.DataType, Read]]] = {
    "google.protobuf.Timestamp": (_TIME, _timestamp),
    "google.protobuf.Duration": (pa.int64(), _duration),
    "google.type.Date": (pa.date32(), _date),
    "google.type.TimeOfDay": (pa.int64(), _time_of_day),
    **{f"google.protobuf.{name}": (pa.string(), json_of) for name in ("Struct", "Value", "ListValue")},
}


class _Checks:
    """Find what protobuf accepts and docs/data.md refuses: missing required fields, and fields of another wire type."""

    def __init__(self, message: Descriptor, extensions_of: Callable[[Descriptor], Iterable[FieldDescriptor]]) -> None:
        self._wire: dict[str, dict[int, frozenset[int]]] = {}
        self._extensions_of = extensions_of
        self._learn(message)

    def _learn(self, message: Descriptor) -> None:
        if message.full_name in self._wire:
            return
        fields = (*message.fields, *self._extensions_of(message))
        self._wire[message.full_name] = {field.number: _wire_types(field) for field in fields}
        for field in fields:
            if field.message_type is not None:
                self._learn(field.message_type)

    def require(self, parsed: Any, again: Callable[[], Any]) -> None:
        """Refuse a message that protobuf accepts and turnout does not; `again` parses it again: checks may alter it."""
        if not parsed.IsInitialized():
            raise Undecodable("malformed_payload", "required fields are missing")
        size = parsed.ByteSize()
        parsed.DiscardUnknownFields()
        if parsed.ByteSize() != size:
            self._check_wire_types(again())

    def _check_wire_types(self, held: Any) -> None:
        wire = self._wire[held.DESCRIPTOR.full_name]
        unknown_fields = UnknownFieldSet(held)
        for unknown in (unknown_fields[index] for index in range(len(unknown_fields))):
            if unknown.wire_type not in wire.get(unknown.field_number, {unknown.wire_type}):
                raise Undecodable("malformed_payload", f"field {unknown.field_number} has another wire type")
        for field, value in held.ListFields():
            for each in _messages_in(field, value):
                self._check_wire_types(each)


def _messages_in(field: FieldDescriptor, value: Any) -> Iterable[Any]:
    inner = field.message_type
    if inner is None:
        return ()
    if inner.GetOptions().map_entry:
        return [value[key] for key in value] if _is_message(inner) else ()
    return value if field.is_repeated else (value,)


def _wire_types(field: FieldDescriptor) -> frozenset[int]:
    """Return the wire types of a field; a repeated one may be packed, and unknown enum values stay unpacked."""
    kind = field.type
    if kind in {
        FieldDescriptorProto.TYPE_DOUBLE,
        FieldDescriptorProto.TYPE_FIXED64,
        FieldDescriptorProto.TYPE_SFIXED64,
    }:
        own = _FIXED64
    elif kind in {
        FieldDescriptorProto.TYPE_FLOAT,
        FieldDescriptorProto.TYPE_FIXED32,
        FieldDescriptorProto.TYPE_SFIXED32,
    }:
        own = _FIXED32
    elif kind in {
        FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES, FieldDescriptorProto.TYPE_MESSAGE
    }:  # fmt: skip
        return frozenset({_LENGTH})
    else:
        own = _VARINT
    return frozenset({own, _LENGTH}) if field.is_repeated else frozenset({own})
