"""Looks at many messages in one call of the plain parser, which costs about half of a call for each.

It tells whether all of them are good, not which one is bad: who hears no has to look at each.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

_MOST_MESSAGES: Final = 128  # each bad one costs a few more looks at parts of its run
_MOST_BYTES: Final = 256 * 1024  # what is parsed needs many times its bytes in memory, the more so if it is hostile
_ROWS: Final = "Rows"
_TAG: Final = b"\x0a"  # field 1, length-delimited


class Together:
    """Asks about messages of one definition, as the repeated field of a message around them."""

    def __init__(self, message: Descriptor) -> None:
        """Define the message around them, in the pool of their own definition."""
        file = FileDescriptorProto(
            name=f"turnout/rows/{message.full_name}.proto",
            package=f"turnout_rows.{message.full_name}",
            syntax="proto3",
            dependency=[message.file.name],
        )
        file.message_type.add(name=_ROWS).field.add(
            name="rows",
            number=1,
            type=FieldDescriptorProto.TYPE_MESSAGE,
            label=FieldDescriptorProto.LABEL_REPEATED,
            type_name=f".{message.full_name}",
        )
        pool: Any = message.file.pool
        pool.AddSerializedFile(file.SerializeToString())
        around = pool.FindMessageTypeByName(f"{file.package}.{_ROWS}")
        self._parse: Any = message_factory.GetMessageClass(around).FromString
        self._heads: dict[int, bytes] = {}  # what stands before a message, by its length

    def are_good(self, messages: Sequence[bytes], *, nothing_unknown: bool) -> bool:
        """Tell whether each parses; with `nothing_unknown` also whether none, at any depth, has an unknown field.

        A no may be wrong by one level of nesting, a yes never is.
        """
        heads = self._heads
        for length in {len(each) for each in messages} - heads.keys():
            heads[length] = _TAG + _varint(length)
        try:
            parsed = self._parse(b"".join(chain.from_iterable((heads[len(each)], each) for each in messages)))
        except DecodeError:
            return False
        if not nothing_unknown:
            return True
        size = parsed.ByteSize()
        parsed.DiscardUnknownFields()
        return bool(parsed.ByteSize() == size)


def runs(messages: Sequence[bytes]) -> Iterator[range]:
    """Cut messages into runs that may be looked at together, and yield the places of each."""
    start = size = 0
    for place, message in enumerate(messages):
        size += len(message)
        if place > start and (size > _MOST_BYTES or place - start == _MOST_MESSAGES):
            yield range(start, place)
            start, size = place, len(message)
    if start < len(messages):
        yield range(start, len(messages))


def _varint(number: int) -> bytes:
    """Return a length as the wire format writes it."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
