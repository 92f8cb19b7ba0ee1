"""Finds payloads of one schema that the decoder surely takes, message by message, in some microseconds each.

For the edge, which cannot pay a decoder's fixed cost for each request. It never refuses: what it does not recognise is
the decoder's to judge.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.formats.protobuf.fields import entry_of
from pipeline.data.contracts.formats.protobuf.messages import describe
from pipeline.data.contracts.formats.protobuf.reach import reached
from pipeline.data.contracts.formats.protobuf.well_known import WELL_KNOWN_FILES
from pipeline.data.contracts.schemas import Schema

_Check: TypeAlias = Callable[[Any], bool]
"""Returns whether a parsed message has no time out of range."""

_FIRST_SECOND: Final = -62_135_596_800  # the year 1
_LAST_SECOND: Final = 253_402_300_799  # the end of the year 9999
_LONGEST_SECONDS: Final = 315_576_000_000  # of a Duration
_NANOS: Final = 1_000_000_000
_TIMES: Final = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})
_PLAIN: Final = _TIMES | {
    f"google.protobuf.{each}Value"
    for each in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
}
"""Messages of protobuf's own that hold nothing, beside times out of range, that the decoder refuses."""


def quick_look(schema: Schema) -> Callable[[bytes], bool] | None:
    """Return what recognises payloads that the decoder takes, None where only the decoder can judge.

    None for definitions with a file that is not proto3, or with a message of Google's beyond times and wrappers.

    Raises:
        Refused: the definition is not valid.
    """
    message = describe(schema.message, schema.definition)
    if not message.fields or not all(_is_simple(each) for each in reached(message)):
        return None
    return _Look(message_factory.GetMessageClass(message), _check_of(message))


class _Look:
    """One schema's payloads."""

    def __init__(self, of: Any, check: _Check | None) -> None:
        # By the class: a field may have the name of a method.
        self._parse, self._check = of.FromString, check
        self._write, self._discard = of.SerializePartialToString, of.DiscardUnknownFields

    def __call__(self, payload: bytes) -> bool:
        """Return whether a payload is surely taken."""
        if not 0 < len(payload) <= MAX_PAYLOAD_BYTES:
            return False
        try:
            parsed = self._parse(payload)
        except DecodeError:
            return False
        size = len(self._write(parsed))
        self._discard(parsed)
        if len(self._write(parsed)) != size:  # unknown fields, one of which may be a known one of another wire type
            return False
        return self._check is None or self._check(parsed)


def _is_simple(message: Descriptor) -> bool:
    proto = FileDescriptorProto()
    message.file.CopyToProto(proto)
    if proto.syntax != "proto3":
        return False
    inside = (each.message_type for each in message.fields if each.message_type is not None)
    return all(_is_ours(each) or each.full_name in _PLAIN for each in inside)


def _is_ours(message: Descriptor) -> bool:
    return message.file.name not in WELL_KNOWN_FILES and not message.full_name.startswith("google.")


def _check_of(message: Descriptor) -> _Check | None:
    """Return the check of a message's times, None where it has none at any depth; no message contains itself."""
    checks = [check for each in message.fields if (check := _check_of_field(each)) is not None]
    if not checks:
        return None
    if len(checks) == 1:
        return checks[0]
    return lambda parsed: all(check(parsed) for check in checks)


def _check_of_field(each: FieldDescriptor) -> _Check | None:
    entry = entry_of(each)
    inner = (each if entry is None else entry.fields_by_name["value"]).message_type
    if inner is None:
        return None
    check = _is_real_time if inner.full_name in _TIMES else _check_of(inner) if _is_ours(inner) else None
    if check is None:
        return None
    name = each.name
    if hasattr(Message, name):  # reading it gives the method
        return lambda _: False
    if inner.full_name == "google.protobuf.Duration":
        check = _is_real_duration
    if entry is not None:
        return lambda parsed: all(check(held) for held in getattr(parsed, name).values())
    if each.is_repeated:
        return lambda parsed: all(check(held) for held in getattr(parsed, name))
    return lambda parsed: check(getattr(parsed, name))  # an absent message has zeros, which are in range


def _is_real_time(time: Any) -> bool:
    return bool(_FIRST_SECOND <= time.seconds <= _LAST_SECOND and 0 <= time.nanos < _NANOS)


def _is_real_duration(time: Any) -> bool:
    return bool(-_LONGEST_SECONDS <= time.seconds <= _LONGEST_SECONDS and -_NANOS < time.nanos < _NANOS)
