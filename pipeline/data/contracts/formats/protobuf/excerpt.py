"""Reads one protobuf payload field by field, up to the first defect, for a person. Called by the dashboard only.

The wire format has no end marks, so the fields before a defect are whole: each is parsed by itself.
"""

from typing import Any, Final

from google.protobuf import message_factory, text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from pipeline.data.contracts.decoded import MAX_EXCERPT_FIELDS, MAX_EXCERPT_VALUE, Excerpt, value_text

_MOST_RENDERED: Final = 4096  # bytes of a message within the message: larger ones are only counted
_MOST_NUMBER: Final = 2**29 - 1  # of a field
_LONGEST_VARINT: Final = 10  # bytes
_VARINT, _FIXED64, _LENGTH, _START, _END, _FIXED32 = range(6)  # wire types


class _Defect(Exception):
    """The bytes are no further field."""


def excerpt(message: Descriptor, payload: bytes) -> Excerpt:
    """Return the fields of a payload of this message, as they follow each other, up to the first defect."""
    parse = message_factory.GetMessageClass(message).FromString
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(payload):
        if len(found) == MAX_EXCERPT_FIELDS:
            return Excerpt(tuple(found), "more fields follow")
        try:
            number, end = _next_field(payload, at)
            found.append(_field(message, parse, number, payload[at:end]))
        except _Defect as defect:
            return Excerpt(tuple(found), f"{defect}, at byte {at}")
        at = end
    return Excerpt(tuple(found), None)


def _field(message: Descriptor, parse: Any, number: int, part: bytes) -> tuple[str, str]:
    field = message.fields_by_number.get(number)
    if field is None:
        return f"field {number}", f"(not in the schema, {len(part)} bytes)"
    try:
        parsed = parse(part)
    except DecodeError as error:
        raise _Defect(f"{field.name} does not parse") from error
    return field.name, _text(parsed, field, len(part))


def _text(parsed: Message, field: FieldDescriptor, size: int) -> str:
    held = [value for known, value in parsed.ListFields() if known.number == field.number]
    if not held:
        if field.is_repeated or field.has_presence:
            return "(does not fit the schema)"  # another wire type, or no value of a closed enum
        held = [getattr(parsed, field.name)]  # its default, which was written all the same
    if field.message_type is not None:
        if size > _MOST_RENDERED:
            return f"({size} bytes)"
        text = text_format.MessageToString(parsed, as_one_line=True, as_utf8=True).removeprefix(field.name)
        return value_text(text.removeprefix(":").strip())
    values = list(held[0])[:MAX_EXCERPT_VALUE] if field.is_repeated else held
    return value_text(", ".join(_scalar(field, value) for value in values))


def _scalar(field: FieldDescriptor, value: Any) -> str:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return value_text(value)


def _next_field(payload: bytes, at: int) -> tuple[int, int]:
    """Return the number of the field that begins at a byte, and where it ends.

    Raises:
        _Defect: no whole field begins there.
    """
    number, kind, place = _tag(payload, at)
    if kind == _END:
        raise _Defect("a group ends that did not begin")
    place, depth = _after(payload, place, kind), int(kind == _START)
    while depth:
        _, kind, place = _tag(payload, place)
        depth += {_START: 1, _END: -1}.get(kind, 0)
        place = _after(payload, place, kind)
    return number, place


def _after(payload: bytes, place: int, kind: int) -> int:
    """Return where a value of a wire type ends."""
    if kind in {_START, _END}:
        return place
    if kind == _VARINT:
        return _varint(payload, place)[1]
    if kind == _LENGTH:
        length, place = _varint(payload, place)
    elif kind in {_FIXED64, _FIXED32}:
        length = 8 if kind == _FIXED64 else 4
    else:
        raise _Defect(f"wire type {kind} does not exist")
    if place + length > len(payload):
        raise _Defect("the payload ends within a field")
    return place + length


def _tag(payload: bytes, at: int) -> tuple[int, int, int]:
    tag, place = _varint(payload, at)
    number = tag >> 3
    if not 0 < number <= _MOST_NUMBER:
        raise _Defect(f"{number} is no number of a field")
    return number, tag & 7, place


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(payload[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise _Defect("the payload ends within a number" if at + _LONGEST_VARINT > len(payload) else "a number is too long")
