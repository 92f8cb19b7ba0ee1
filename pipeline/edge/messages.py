"""Requests and answers of the edge as bytes: what is no request is refused before it costs memory. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from pipeline.edge.judging import Judged
from pipeline.edge.logs.log import LandedFile, Offsets
from pipeline.edge.statuses import EdgeStatus, invalid
from protos.turnout.v1.edge_pb2 import PublishRequest, PublishResponse

MAX_EVENTS: Final = 1_000
"""Most events of one request."""

MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Largest request. A payload of 1 MiB, the largest that a pass takes, fits in it with its wrapper."""

_LAST_SEQ: Final = (1 << 64) - 1
_SMALL: Final = 64 * 1024  # bytes: however many events these are, they take little memory
_TAG: Final = 0x12  # field 2, length-delimited


@dataclass(frozen=True, slots=True)
class EdgeBatch:
    """The events of one request."""

    first_seq: int
    wrappers: Sequence[bytes]


def parse(raw: bytes) -> EdgeBatch:
    """Return the events of a request.

    Raises:
        EdgeStatus: the bytes are no request, or one that is too large, has no event or too many.
    """
    if len(raw) > MAX_REQUEST_BYTES:
        raise invalid("REQUEST_TOO_LARGE", f"the request has {len(raw):,} bytes, at most {MAX_REQUEST_BYTES:,} go")
    if len(raw) > _SMALL and _has_more_than(raw, MAX_EVENTS):
        raise _too_many()
    try:
        request = PublishRequest.FromString(raw)
    except DecodeError as error:
        raise invalid("MALFORMED_REQUEST", "the request is no turnout.v1.PublishRequest") from error
    wrappers = request.wrappers
    if not wrappers:
        raise invalid("EMPTY_REQUEST", "the request has no event")
    if len(wrappers) > MAX_EVENTS:
        raise _too_many()
    if request.first_seq + len(wrappers) - 1 > _LAST_SEQ:
        raise invalid("MALFORMED_REQUEST", "first_seq is too large: the last event's number needs 64 bits at most")
    return EdgeBatch(request.first_seq, wrappers)


def answer(batch: EdgeBatch, judged: Judged, offsets: Offsets, topic_id: str = "") -> bytes:
    """Return the answer of a request whose accepted events are in the log."""
    response = PublishResponse(topic_id=topic_id)
    first = batch.first_seq
    for start, end in _ranges(judged.rows):
        response.acked.add(first_seq=first + start, last_seq=first + end)
    for each in judged.refused:
        response.refused.add(
            seq=first + each.row, reason=each.reason, detail=each.detail, field=each.field, event_id=each.event_id,
            rules=each.rules,
        )  # fmt: skip
    for where, (low, high) in sorted(offsets.items()):
        if isinstance(where, LandedFile):
            response.log.add(first_offset=low, last_offset=high, file=where.path, version=where.version)
        else:
            response.log.add(first_offset=low, last_offset=high, partition=where)
    written: bytes = response.SerializeToString()
    return written


def _ranges(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Return growing numbers as ranges, both ends included."""
    if not rows:
        return []
    if rows[-1] - rows[0] + 1 == len(rows):
        return [(rows[0], rows[-1])]
    found: list[tuple[int, int]] = []
    for row in rows:
        if found and found[-1][1] == row - 1:
            found[-1] = found[-1][0], row
        else:
            found.append((row, row))
    return found


def _too_many() -> EdgeStatus:
    return invalid("TOO_MANY_EVENTS", f"the request has more than {MAX_EVENTS:,} events")


def _has_more_than(raw: bytes, most: int) -> bool:
    """Return whether a request has more wrappers than this, looking at tags and lengths only.

    Other fields end the count: the parser judges such a request, which a client of ours never sends.
    """
    at, count, end = 0, 0, len(raw)
    while at < end and count <= most:
        if raw[at] == 0x08:  # first_seq
            at += 1
            while at < end and raw[at] & 0x80:
                at += 1
            at += 1
            continue
        if raw[at] != _TAG:
            return False
        at, length, shift = at + 1, 0, 0
        while at < end:
            byte = raw[at]
            at, length, shift = at + 1, length | (byte & 0x7F) << shift, shift + 7
            if not byte & 0x80 or shift > 35:
                break
        at, count = at + length, count + 1
    return count > most
