"""Opens rows of bronze one by one, by the plainest code there is: the value check trusts none of a pass's.

A row tells its source's profile and its writer's id; the schema set tells what both mean.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import DecodeError

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.envelopes.index_paths import path_bytes
from pipeline.data.contracts.formats.payload_format import ReferenceDecoder
from pipeline.data.contracts.formats.protobuf.reference import time_of
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.schemas import Schema, SchemaSet, Writer, WriterId
from pipeline.data.verify.document import document_name, document_text, document_time
from protos.turnout.v1.wrapper_pb2 import Wrapper

_GLUE: Final = 18  # bytes before a payload: version 3, compression, UUID
_MOST_INDEXES: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLISECOND: Final = -62_135_596_800_000  # of the year 1
_LAST_MILLISECOND: Final = 253_402_300_799_999  # of the year 9999
_Framing = Callable[[bytes, bytes], bytes | None]
_PREFIXES: Final = {b"\0": 5, b"\1": 17}  # Confluent's, by their magic byte


class Unopened(Exception):
    """A row that has no payload to decode; `reason` is its reason code in quarantine."""

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Sources:
    """What the profiles and writers of bronze's rows mean."""

    writers: Mapping[WriterId, Writer] = field(default_factory=dict)
    profiles: Mapping[int, SourceProfile] = field(default_factory=dict)

    @classmethod
    def of(cls, schemas: SchemaSet) -> "Sources":
        """Return those of a schema set."""
        return cls(dict(schemas.writers), dict(schemas.profiles))


@dataclass(frozen=True, slots=True)
class Contents:
    """What a row holds."""

    schema_id: int | None  # turnout's own; None: the first of its event type's that decodes it
    payload: bytes | None  # None: the row has none; a framed one may have no bytes
    event_time: int | None  # microseconds
    event_id: str | None
    type: str = ""  # the event type by which schemas are found; empty: the first one of the game


def contents(
    raw: bytes | None, profile: int | None, registry: str | None, writer: bytes | None, sources: Sources
) -> Contents:
    """Return what a row holds, by the columns of bronze.

    Raises:
        Unopened: it belongs in quarantine, or waits for its schema.
    """
    if profile is None:
        message = _wrapper(raw)
        return Contents(int(message.schema_id), message.payload or None, *_own(message))
    known = sources.profiles.get(profile)
    if known is None or writer is None:
        raise Unopened("unknown_schema")
    framed, event_time, event_id = _ENVELOPES[known.envelope](raw, known)
    body = _FRAMINGS[known.framing](framed, writer)
    if known.framing == "type":
        return Contents(None, body, event_time, event_id, writer.decode())
    if registry is None:
        return Contents(int.from_bytes(writer[1:]), body, event_time, event_id)
    found = sources.writers.get((registry, writer))
    if found is not None and found.indexed:
        path, body = _indexed(body or b"")
        found = sources.writers.get((registry, writer + path))
    if found is None or found.schema_id is None:
        raise Unopened("unknown_schema")
    return Contents(found.schema_id, body, event_time, event_id)


def _wrapper(raw: bytes | None) -> Any:
    try:
        message = Wrapper.FromString(raw) if raw else None
    except DecodeError:
        message = None
    if message is None:
        raise Unopened("malformed_wrapper")
    return message


def _own(message: Any) -> tuple[int | None, str | None]:
    time = time_of(message.event_time) if message.HasField("event_time") else None
    return time, message.event_id or None


def _in_wrapper(raw: bytes | None, _profile: SourceProfile) -> tuple[bytes, int | None, str | None]:
    message = _wrapper(raw)
    return message.payload, *_own(message)


def _in_nothing(raw: bytes | None, _profile: SourceProfile) -> tuple[bytes, int | None, str | None]:
    return raw or b"", None, None


def _in_message(raw: bytes | None, profile: SourceProfile) -> tuple[bytes, int | None, str | None]:
    """Open an envelope of another definition by its format's reference decoder."""
    table, refused = _reference(profile).decode([raw or None])
    if refused or raw is None:
        raise Unopened("malformed_wrapper")
    (row,) = table.to_pylist()
    fields = dict(profile.fields)
    payload, event_id = (_inside(row, fields.get(name)) for name in ("payload", "event_id"))
    body = payload.encode() if isinstance(payload, str) else payload or b""
    return body, _microseconds(_inside(row, fields.get("event_time"))), _text(event_id)


def _in_document(raw: bytes | None, profile: SourceProfile) -> tuple[bytes, int | None, str | None]:
    """Open a JSON document by the standard library's scanner."""
    fields = dict(profile.fields)
    try:
        text = (raw or b"").decode()
        payload, at, event_id = (document_text(text, fields.get(name)) for name in _OF_DOCUMENT)
    except (ValueError, RecursionError) as error:
        raise Unopened("malformed_wrapper") from error
    payload = payload if "payload" in fields else text
    return (payload or "").encode(), document_time(at, profile.time_unit), document_name(event_id)


@lru_cache(maxsize=64)
def _reference(profile: SourceProfile) -> ReferenceDecoder:
    schema = Schema(0, profile.envelope, profile.definition_message, profile.definition)
    return format_of(profile.envelope).reference(schema, {})


def _inside(row: Any, path: str | None) -> Any:
    """Return the value at a path; None where the record has none."""
    if path is None:
        return None
    for name in path.split("."):
        row = None if row is None else row[name]
    return row


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return None
    return None if value is None or value == "" else str(value)


def _microseconds(value: Any) -> int | None:
    """Return a time in microseconds; a whole number is milliseconds, those outside the years 1 to 9999 are none."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    if value is None or not _FIRST_MILLISECOND <= value <= _LAST_MILLISECOND:
        return None
    return int(value) * 1000


def _as_is(framed: bytes, _writer: bytes) -> bytes | None:
    return framed or None


def _confluent(framed: bytes, writer: bytes) -> bytes:
    """Take the id off, unless a header had it."""
    prefix = writer if len(writer) == _PREFIXES.get(writer[:1]) else None
    return framed[len(prefix) :] if prefix is not None and framed.startswith(prefix) else framed


def _glue(framed: bytes, _writer: bytes) -> bytes:
    if len(framed) < _GLUE or framed[0] != 3 or framed[1] not in {0, 5}:
        raise Unopened("malformed_framing")
    if framed[1] == 0:
        return framed[_GLUE:]
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(framed[_GLUE:], MAX_PAYLOAD_BYTES + 1)
    except zlib.error as error:
        raise Unopened("bad_compression") from error
    if len(body) > MAX_PAYLOAD_BYTES or not inflater.eof or inflater.unused_data or inflater.unconsumed_tail:
        raise Unopened("bad_compression")
    return body


def _unless_own(framing: _Framing) -> _Framing:
    """Return the framing of rows of which those with turnout's own number, whose writer begins with 0xFF, have none."""
    return lambda framed, writer: framed or None if writer.startswith(b"\xff") else framing(framed, writer)


def _indexed(body: bytes) -> tuple[bytes, bytes]:
    """Return the index path before a protobuf payload, and the payload."""
    count, at = _zigzag(body, 0)
    if not 0 <= count <= _MOST_INDEXES:
        raise Unopened("malformed_framing")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(body, at)
        if not 0 <= index < 2**31:
            raise Unopened("malformed_framing")
        indexes.append(index)
    return path_bytes(indexes or [0]), body[at:]


def _zigzag(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(5):
        if at + place >= len(body):
            break
        byte = body[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + place + 1
    raise Unopened("malformed_framing")


_OF_DOCUMENT: Final = ("payload", "event_time", "event_id")
_Opens = Callable[[bytes | None, SourceProfile], tuple[bytes, int | None, str | None]]
_ENVELOPES: Final[Mapping[str, _Opens]] = {
    "wrapper": _in_wrapper,
    "none": _in_nothing,
    "protobuf": _in_message,
    "avro": _in_message,
    "json": _in_document,
}
_FRAMINGS: Final[Mapping[str, _Framing]] = {
    "wrapper": _as_is,
    "confluent": _confluent,
    "glue": _glue,
    "wrapper-or-confluent": _unless_own(_confluent),
    "wrapper-or-glue": _unless_own(_glue),
    "topic": _as_is,
    "game": _as_is,
    "type": _as_is,
}
