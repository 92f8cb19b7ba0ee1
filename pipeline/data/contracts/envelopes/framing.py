"""The bytes before a payload that name its writer's schema. Pure, vectorised, called in tasks.

A *writer* is the id as on the wire: Confluent's magic byte 0 with four bytes of id, magic 1 with a GUID of 16 bytes (in
a header followed by the index path), Glue's version 3 with a UUID of 16 bytes; where a topic or game has one schema,
its name in UTF-8. Framing is declared, never guessed: an unframed Avro payload may begin like a framed one.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Refusal
from pipeline.data.contracts.envelopes.envelope import valid_names
from pipeline.data.contracts.envelopes.headers import header_values
from pipeline.data.contracts.envelopes.index_paths import canonical_path
from pipeline.data.contracts.envelopes.spans import (
    Flags,
    Places,
    between,
    content,
    first_bytes,
    nulled,
    present,
    starts_and_ends,
)
from pipeline.data.contracts.writer_ids import CONFLUENT_GUID, CONFLUENT_ID

PIECE_BYTES: Final = 64 * 1024 * 1024
"""Bodies that are inflated come in pieces of about this size: a kilobyte of zlib may hold a megabyte."""

_MALFORMED: Final = "malformed_framing"
_BAD_COMPRESSION: Final = "bad_compression"
_BAD_HEADER: Final = "the header with the schema is not magic byte 1, a GUID of 16 bytes and an index path"
_GLUE: Final = 18  # version 3, compression, UUID
_OWN: Final = b"\xff"  # begins no frame of a registry
_NO_COMPRESSION: Final = 0
_ZLIB: Final = 5


@dataclass(frozen=True, slots=True)
class Given:
    """What a framing may look at beside the framed bytes; one row for each of them."""

    topic: pa.StringArray
    game: pa.StringArray
    schema_id: pa.Int64Array  # the envelope's, null without one
    headers: pa.ListArray | None = None  # of (key, value), null or None without headers
    id_headers: tuple[str, ...] = ()  # names of the headers that may hold a schema's GUID, see SourceProfile.headers
    type: pa.StringArray | None = None  # the envelope's, null without one; None: its profile has no path for it


@dataclass(frozen=True, slots=True)
class FramingRead:
    """Who wrote each row; one row for each that was given."""

    writers: pa.BinaryArray  # null where the row is refused
    refused: pa.StringArray  # the reason code, null where the framing is fine
    detail: pa.StringArray  # one line, null where the framing is fine
    own: pa.BooleanArray | None = None  # rows whose writer is an id of turnout's own, of no registry; None: no row


@dataclass(frozen=True, slots=True)
class Bodies:
    """The payloads of a run of rows without their framing."""

    start: int  # place of the run's first row in the array that was given
    bodies: pa.BinaryArray  # null where refused, and where a row has no payload; a framed one may have no bytes
    refusals: list[Refusal]  # `row` is the place in the array that was given, not in the run


class Framing(Protocol):
    """One framing of payloads. `tests/unit/data/contracts/envelopes/test_framing.py` is the contract of all of them."""

    def read(self, values: pa.BinaryArray, given: Given) -> FramingRead:
        """Return the writers of framed values, at ingest; null counts as empty."""
        ...

    def bodies(self, values: pa.BinaryArray, writers: pa.BinaryArray) -> Iterator[Bodies]:
        """Yield the bodies of values whose writers `read` gave, at split: runs in order, which hold every row once."""
        ...


class Confluent:
    """A header with a GUID, whose value has no prefix; else the prefix magic 0 and id, or magic 1 and GUID.

    A header wins over a prefix, as in Confluent's client. The index path of protobuf in a value is left in its body.
    """

    def read(self, values: pa.BinaryArray, given: Given) -> FramingRead:
        """Return the id or GUID of each value, with the index path where a header has it."""
        starts, ends = starts_and_ends(values)
        first, sizes = first_bytes(values, starts, ends), ends - starts
        by_id, by_guid = (first == 0) & (sizes >= CONFLUENT_ID), (first == 1) & (sizes >= CONFLUENT_GUID)
        lengths = np.where(by_id, CONFLUENT_ID, np.where(by_guid, CONFLUENT_GUID, 0))
        named, has_header = _of_headers(given, len(values))
        # A bad header is not passed over for a prefix: the client that wrote it put no prefix there
        problems = dict.fromkeys(np.flatnonzero(has_header & ~_valid(named)).tolist(), _BAD_HEADER) | {
            row: _wrong_prefix(int(first[row]), int(sizes[row]), {0: CONFLUENT_ID, 1: CONFLUENT_GUID})
            for row in np.flatnonzero((lengths == 0) & ~has_header).tolist()
        }
        writers = pc.coalesce(named, between(values, starts, starts + lengths))
        return _outcome(writers, {row: (_MALFORMED, detail) for row, detail in problems.items()})

    def bodies(self, values: pa.BinaryArray, writers: pa.BinaryArray) -> Iterator[Bodies]:
        """Take the writer off each value that begins with it."""
        starts, ends = starts_and_ends(values)
        lengths = pc.fill_null(pc.binary_length(writers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        begins = np.zeros(len(values), np.bool_)
        for length in (CONFLUENT_ID, CONFLUENT_GUID):
            same = pc.equal(between(values, starts, np.minimum(starts + length, ends)), writers)
            begins |= (lengths == length) & pc.fill_null(same, False).to_numpy(zero_copy_only=False)
        yield _whole(between(values, starts + np.where(begins, lengths, 0), ends))


class Glue:
    """Version 3, a byte of compression (0 none, 5 zlib) and the UUID of the schema's version."""

    def read(self, values: pa.BinaryArray, given: Given) -> FramingRead:  # noqa: ARG002 - the interface has it
        """Return version and UUID of each value."""
        starts, ends = starts_and_ends(values)
        problems = _glue_problems(values, starts, ends)
        fine = ~np.isin(np.arange(len(values)), list(problems))
        ids = between(values, starts + np.where(fine, 2, 0), starts + np.where(fine, _GLUE, 0))
        version, nothing = pa.scalar(b"\3", pa.binary()), pa.scalar(b"", pa.binary())
        return _outcome(pc.binary_join_element_wise(version, ids, nothing), problems)

    def bodies(self, values: pa.BinaryArray, writers: pa.BinaryArray) -> Iterator[Bodies]:  # noqa: ARG002
        """Take the first 18 bytes off each value and inflate the rest."""
        starts, ends = starts_and_ends(values)
        problems = {row: Refusal(row, *why) for row, why in _glue_problems(values, starts, ends).items()}
        fine = ~np.isin(np.arange(len(values)), list(problems))
        data = content(values)
        packed = np.zeros(len(values), np.bool_)
        packed[fine] = data[starts[fine] + 1] == _ZLIB
        if not packed.any():
            plain = between(values, starts + np.where(fine, _GLUE, 0), ends)
            yield Bodies(0, nulled(plain, list(problems)), list(problems.values()))
            return
        yield from _inflated(data, starts, ends, packed, problems)


class FromWrapper:
    """The schema's number in the envelope; the value has no framing."""

    def read(self, values: pa.BinaryArray, given: Given) -> FramingRead:
        """Return the number of each row as Confluent's framing has it: magic 0 and four bytes, big endian."""
        ids = pc.fill_null(given.schema_id, -1).to_numpy(zero_copy_only=False)
        fits = (ids >= 0) & (ids < 2**32)
        wire = np.zeros((len(values), CONFLUENT_ID), np.uint8)
        wire[:, 1:] = np.where(fits, ids, 0).astype(">u4").view(np.uint8).reshape(-1, 4)
        writers = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(CONFLUENT_ID), len(values), [None, pa.py_buffer(wire.tobytes())]
        )
        wrong = "the record has no number of a schema, or none of 32 bits"
        return _outcome(writers.cast(pa.binary()), dict.fromkeys(np.flatnonzero(~fits).tolist(), (_MALFORMED, wrong)))

    def bodies(self, values: pa.BinaryArray, writers: pa.BinaryArray) -> Iterator[Bodies]:  # noqa: ARG002
        """Return the values as they are; nothing says that one without bytes is a payload."""
        yield _whole(present(values))


@dataclass(frozen=True, slots=True)
class ByName:
    """One schema for each topic or game; the value has no framing."""

    of: str  # the column of Given that has the name

    def read(self, values: pa.BinaryArray, given: Given) -> FramingRead:  # noqa: ARG002 - the interface has it
        """Return the name of each row's topic or game."""
        names: pa.StringArray = getattr(given, self.of)
        missing = np.flatnonzero(names.is_null().to_numpy(zero_copy_only=False)).tolist()
        return _outcome(names.cast(pa.binary()), dict.fromkeys(missing, (_MALFORMED, f"the record has no {self.of}")))

    def bodies(self, values: pa.BinaryArray, writers: pa.BinaryArray) -> Iterator[Bodies]:  # noqa: ARG002
        """Return the values as they are; nothing says that one without bytes is a payload."""
        yield _whole(present(values))


class ByType:
    """The game's JSON Schemas of one event type; the value has no framing. `declared_types` finds them at split."""

    def read(self, values: pa.BinaryArray, given: Given) -> FramingRead:
        """Return the event type of each row; no bytes where the profile has no path for it."""
        if given.type is None:
            return _outcome(pa.repeat(pa.scalar(b"", pa.binary()), len(values)), {})
        unnamed = np.flatnonzero(~valid_names(given.type)).tolist()
        wrong = (_MALFORMED, "the record names no event type of 1 to 256 bytes")
        return _outcome(given.type.cast(pa.binary()), dict.fromkeys(unnamed, wrong))

    def bodies(self, values: pa.BinaryArray, writers: pa.BinaryArray) -> Iterator[Bodies]:  # noqa: ARG002
        """Return the values as they are; nothing says that one without bytes is a payload."""
        yield _whole(present(values))


@dataclass(frozen=True, slots=True)
class OwnOr:
    """A source on its way from turnout's ids to a registry's: the envelope's number says which one a row has.

    0 or none: the value is framed, as no schema of turnout has the number 0. Else it is turnout's own number, the value
    has no framing, and the writer is the byte 0xFF, which begins no frame, and four bytes, big endian.
    """

    framed: Framing

    def read(self, values: pa.BinaryArray, given: Given) -> FramingRead:
        """Return each value's writer, and which of them are turnout's own."""
        own = pc.fill_null(pc.not_equal(given.schema_id, 0), False)
        by_number, framed = FromWrapper().read(values, given), self.framed.read(values, given)
        numbers = pc.binary_replace_slice(by_number.writers, 0, 1, _OWN)
        empty = pc.and_not(pc.equal(pc.fill_null(pc.binary_length(values), 0), 0), own)
        return FramingRead(
            pc.if_else(empty, pa.scalar(None, pa.binary()), pc.if_else(own, numbers, framed.writers)),
            pc.if_else(empty, "empty_payload", pc.if_else(own, by_number.refused, framed.refused)),
            pc.if_else(empty, "the payload is empty", pc.if_else(own, by_number.detail, framed.detail)),
            own,
        )

    def bodies(self, values: pa.BinaryArray, writers: pa.BinaryArray) -> Iterator[Bodies]:
        """Return the values of turnout's own numbers as they are, and the bodies of the others."""
        own = pc.fill_null(pc.starts_with(writers, _OWN), False)
        framed = np.flatnonzero(~own.to_numpy(zero_copy_only=False))
        start = 0
        for run in self.framed.bodies(values.take(pa.array(framed)), writers.take(pa.array(framed))):
            after = run.start + len(run.bodies)
            end = int(framed[after]) if after < len(framed) else len(values)  # with turnout's own rows behind the run
            mask = pc.invert(own.slice(start, end - start))
            bodies = pc.replace_with_mask(present(values.slice(start, end - start)), mask, run.bodies)
            yield Bodies(start, bodies, [each._replace(row=int(framed[each.row])) for each in run.refusals])
            start = end


FRAMINGS: Final[Mapping[str, Framing]] = MappingProxyType(
    {
        "wrapper": FromWrapper(),
        "confluent": Confluent(),
        "glue": Glue(),
        "wrapper-or-confluent": OwnOr(Confluent()),
        "wrapper-or-glue": OwnOr(Glue()),
        "topic": ByName("topic"),
        "game": ByName("game"),
        "type": ByType(),
    }
)
"""Framings by the name that `SourceProfile.framing` and the setting `source.framing` use."""


def _wrong_prefix(first: int, size: int, known: Mapping[int, int]) -> str:
    """Return why a value has no prefix; `known` are the first bytes that have one, and how many bytes it takes."""
    if first in known or first < 0:
        return f"{size} bytes, of which the framing needs {known.get(first, min(known.values()))}"
    hint = ", as in JSON text" if first in b"{[" else ""
    return f"the first byte is 0x{first:02x}{hint}; the framing begins with {' or '.join(map(str, known))}"


def _of_headers(given: Given, count: int) -> tuple[pa.BinaryArray, Flags]:
    """Return the writers that headers name, null without one or for a bad one, and which rows have such a header."""
    found = pa.nulls(count, pa.binary())
    for name in given.id_headers:
        found = pc.coalesce(found, header_values(given.headers, name, count))
    if found.null_count == count:
        return found, np.zeros(count, np.bool_)
    spelled = found.dictionary_encode()
    writers = pa.array([_of_header(each) for each in spelled.dictionary.to_pylist()], pa.binary())
    return writers.take(spelled.indices), _valid(found)


def _of_header(value: bytes) -> bytes | None:
    path = value[CONFLUENT_GUID:]
    if len(value) < CONFLUENT_GUID or value[0] != 1:
        return None
    if not path:
        return value
    canonical = canonical_path(path)
    return None if canonical is None else value[:CONFLUENT_GUID] + canonical


def _glue_problems(values: pa.BinaryArray, starts: Places, ends: Places) -> dict[int, tuple[str, str]]:
    """Return the rows without Glue's framing, each with reason and detail."""
    first, sizes, data = first_bytes(values, starts, ends), ends - starts, content(values)
    problems = {
        row: (_MALFORMED, _wrong_prefix(int(first[row]), int(sizes[row]), {3: _GLUE}))
        for row in np.flatnonzero((first != 3) | (sizes < _GLUE)).tolist()
    }
    compression = data[np.minimum(starts + 1, len(data) - 1)]
    for row in np.flatnonzero(~np.isin(compression, (_NO_COMPRESSION, _ZLIB))).tolist():
        detail = f"compression {compression[row]}; only {_NO_COMPRESSION} (none) and {_ZLIB} (zlib) are known"
        problems.setdefault(row, (_BAD_COMPRESSION, detail))
    return problems


def _inflated(
    data: npt.NDArray[np.uint8], starts: Places, ends: Places, packed: Flags, problems: Mapping[int, Refusal]
) -> Iterator[Bodies]:
    """Yield bodies of rows of which some are compressed, in runs of about PIECE_BYTES."""
    bytes_of, start, size = memoryview(data.data), 0, 0
    bodies: list[bytes | None] = []
    refusals: list[Refusal] = []
    for row in range(len(starts)):
        body = bytes(bytes_of[starts[row] + _GLUE : ends[row]]) if row not in problems else None
        refusal = problems.get(row)
        if packed[row] and body is not None:
            body, why = _inflate(body)
            refusal = None if why is None else Refusal(row, _BAD_COMPRESSION, why)
        bodies.append(body)
        refusals += [] if refusal is None else [refusal]
        size += len(body or b"")
        if size >= PIECE_BYTES:
            yield Bodies(start, pa.array(bodies, pa.binary()), refusals)
            start, size, bodies, refusals = row + 1, 0, [], []
    if bodies:
        yield Bodies(start, pa.array(bodies, pa.binary()), refusals)


def _inflate(packed: bytes) -> tuple[bytes | None, str | None]:
    """Return the inflated bytes, or why they are refused: zlib gives a cut stream's bytes without an error."""
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(packed, MAX_PAYLOAD_BYTES + 1)
    except zlib.error:
        return None, "the compressed bytes are no zlib stream"
    if len(body) > MAX_PAYLOAD_BYTES:
        return None, f"inflates to more than {MAX_PAYLOAD_BYTES} bytes"
    if not stream.eof or stream.unconsumed_tail:
        return None, "the zlib stream is cut off"
    if stream.unused_data:
        return None, f"{len(stream.unused_data)} bytes follow the zlib stream"
    return body, None


def _valid(values: pa.Array) -> Flags:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _whole(bodies: pa.BinaryArray) -> Bodies:
    return Bodies(0, bodies, [])


def _outcome(writers: pa.BinaryArray, problems: Mapping[int, tuple[str, str]]) -> FramingRead:
    """Return the writers, with null and reason where there is a problem."""
    if not problems:
        nothing = pa.nulls(len(writers), pa.string())
        return FramingRead(writers, nothing, nothing)
    spread = [problems.get(row, (None, None)) for row in range(len(writers))]
    return FramingRead(
        nulled(writers, list(problems)),
        pa.array([reason for reason, _ in spread], pa.string()),
        pa.array([detail for _, detail in spread], pa.string()),
    )
