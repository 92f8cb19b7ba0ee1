"""Parses many messages in one call of the plain parser, for a fraction of the cost of a call for each.

One call shows whether all of them are good; if not, their halves are parsed again.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

_MAX_MESSAGES: Final = 128  # each bad message costs a few more parses of parts of its run
_MAX_BYTES: Final = 256 * 1024  # parsed messages need many times their bytes in memory, hostile ones even more
_MAX_FRAMED: Final = 4_096  # copied at once
_MAX_FRAMED_BYTES: Final = 16 * 1024 * 1024
_ROWS: Final = "Rows"
_TAG: Final = b"\x0a"  # field 1, length-delimited

_T = TypeVar("_T")


class BatchParser:
    """Parses messages of one definition as the repeated field of an outer message."""

    def __init__(self, message: Descriptor) -> None:
        """Define the outer message, in the pool of the messages' own definition."""
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

    def find_bad(self, messages: pa.BinaryArray) -> Iterator[int]:
        """Yield the places of the messages that do not parse on their own, in no particular order.

        No bad message is left out; a good one may be yielded when it is as deeply nested as the parser allows.
        """
        for part, parses in _parts(messages, self._parses):
            if not parses:
                yield part.start

    def canonical(self, messages: pa.BinaryArray) -> tuple[dict[int, bytes], list[int]]:
        """Return messages as the parser serialises them, by place, and the places of suspects.

        Both exclude messages that are in this form already: each field once, in order, values as short as possible, map
        entries complete. A suspect does not parse, or has an unknown field at some depth; it may be neither when it is
        as deeply nested as the parser allows.
        """
        rewritten: dict[int, bytes] = {}
        suspects: list[int] = []
        for part, contents in _parts(messages, self._canonical):
            if contents is None:
                suspects.append(part.start)
            else:
                rewritten.update(zip(part, contents, strict=False))  # without contents nothing can differ
        return rewritten, suspects

    def _parses(self, framed: bytes) -> bool | None:
        try:
            self._parse(framed)
        except DecodeError:
            return None
        return True

    def _canonical(self, framed: bytes) -> list[bytes] | None:
        """Return the serialised messages, or none of them when nothing differs; None when one is a suspect."""
        # Partial: otherwise the parser names every missing required field, and where the message has a map it
        # kills the process on the way. So does its `ByteSize`. `required` looks for them.
        try:
            parsed = self._parse(framed)
        except DecodeError:
            return None
        size = len(parsed.SerializePartialToString())
        parsed.DiscardUnknownFields()
        written: bytes = parsed.SerializePartialToString()
        if len(written) != size:
            return None
        return [] if written == framed else _unframed(written)


def _parts(messages: pa.BinaryArray, parse: Callable[[bytes], _T | None]) -> Iterator[tuple[range, _T | None]]:
    """Yield the places of messages with the result of a parse; with None only a message parsed alone."""
    lengths = pc.binary_length(messages).to_numpy()
    for block in runs(lengths, _MAX_FRAMED, _MAX_FRAMED_BYTES):
        framed = _Framed(messages.slice(block.start, len(block)))
        waiting = list(runs(lengths[block.start : block.stop], _MAX_MESSAGES, _MAX_BYTES))
        while waiting:
            part = waiting.pop()
            outcome = parse(framed.part(part))
            if outcome is None and len(part) > 1:
                waiting += [part[: len(part) // 2], part[len(part) // 2 :]]
            else:
                yield range(block.start + part.start, block.start + part.stop), outcome


class _Framed:
    """Messages as the repeated field of an outer message; any adjacent ones form such a message, too."""

    def __init__(self, messages: pa.BinaryArray) -> None:
        lengths, which = np.unique(pc.binary_length(messages).to_numpy(), return_inverse=True)
        heads = pa.array([_TAG + _varint(int(length)) for length in lengths], pa.binary()).take(pa.array(which))
        framed = pc.binary_join_element_wise(heads, messages, b"")
        _, offsets, data = framed.buffers()
        self._data = memoryview(data)
        self._offsets = np.frombuffer(offsets, dtype=np.int32)[framed.offset :]

    def part(self, places: range) -> bytes:
        """Return the bytes of the messages at these places, copied.

        The plain parser once died of a view, in a process with many threads, for messages with maps. That was not
        reproduced: 28 runs of 45 s over 29,000 definitions, in 1 to 16 threads, with frequent garbage collections and
        pools dropped in use. The parser copies a view and does not check the copy, so it gets bytes, at 2 % more time.
        """
        return bytes(self._data[self._offsets[places.start] : self._offsets[places.stop]])


def runs(lengths: npt.NDArray[np.int32], max_messages: int, max_bytes: int) -> Iterator[range]:
    """Cut messages of these lengths into runs that may be parsed together, and yield the places of each."""
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    start = 0
    while start < len(lengths):
        within = int(np.searchsorted(ends, ends[start] + max_bytes, side="right")) - 1
        stop = max(start + 1, min(start + max_messages, within))
        yield range(start, stop)
        start = stop


def _varint(number: int) -> bytes:
    """Return a length in the wire format."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _unframed(framed: bytes) -> list[bytes]:
    """Return the messages of a repeated field, as serialised by the parser."""
    parts, at = [], 0
    while at < len(framed):
        length, shift, at = framed[at + 1], 7, at + 2
        while length >> shift:  # the last byte read has the continuation bit
            length += (framed[at] - 1) << shift
            shift, at = shift + 7, at + 1
        parts.append(framed[at : at + length])
        at += length
    return parts
