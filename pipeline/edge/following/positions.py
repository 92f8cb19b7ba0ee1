"""Where a follower is, as bytes that it keeps for us: positions only, so any edge takes them up. Pure."""

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from pipeline.edge.statuses import EdgeStatus, invalid
from protos.turnout.v1.edge_pb2 import FollowRequest

MAX_REQUEST_BYTES: Final = 16 * 1024
"""Largest request to follow: positions of some hundreds of partitions."""

_FORM: Final = struct.Struct(">B8sq")
_VERSION: Final = 1
_MOST_PARTITIONS: Final = 1_000


@dataclass(frozen=True, slots=True)
class FollowPosition:
    """The last version of quarantine of which a follower has everything."""

    table: bytes  # names quarantine, see `table_mark`
    version: int  # -1: nothing of it

    @property
    def token(self) -> bytes:
        """The position as a follower keeps it."""
        return _FORM.pack(_VERSION, self.table, self.version)


@dataclass(frozen=True, slots=True)
class FollowStart:
    """Where a follower wants to begin."""

    position: FollowPosition | None  # None: at `since`
    since: dict[int, int]  # by partition the first offset of which refusals are wanted; of the others only new ones


def table_mark(table_id: str) -> bytes:
    """Return what tells one quarantine from another in a token."""
    return hashlib.sha256(table_id.encode()).digest()[:8]


def parse_follow(raw: bytes) -> FollowStart:
    """Return where a request begins.

    Raises:
        EdgeStatus: the bytes are no request, or its token is none of ours.
    """
    if len(raw) > MAX_REQUEST_BYTES:
        raise invalid("REQUEST_TOO_LARGE", f"the request has {len(raw):,} bytes, at most {MAX_REQUEST_BYTES:,} go")
    try:
        request = FollowRequest.FromString(raw)
    except DecodeError as error:
        raise invalid("MALFORMED_REQUEST", "the request is no turnout.v1.FollowRequest") from error
    if len(request.since) > _MOST_PARTITIONS:
        raise invalid("MALFORMED_REQUEST", f"the request has more than {_MOST_PARTITIONS:,} positions")
    since: dict[int, int] = {}
    for each in request.since:
        if each.partition < 0 or each.offset < 0 or each.partition in since:
            raise invalid("MALFORMED_REQUEST", "since has a partition twice, or a number below 0")
        since[each.partition] = each.offset
    if not request.token:
        return FollowStart(None, since)
    return FollowStart(_position(request.token), {})


def _position(token: bytes) -> FollowPosition:
    if len(token) != _FORM.size:
        raise _no_token()
    number, table, version = _FORM.unpack(token)
    if number != _VERSION or version < -1:
        raise _no_token()
    return FollowPosition(table, version)


def _no_token() -> EdgeStatus:
    return invalid("MALFORMED_TOKEN", "the token is none that an edge of this version gave: begin without one")
