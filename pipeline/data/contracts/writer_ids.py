"""The id of a writer, as on the wire: what kind it is, where it ends, and how people read it. Pure."""

from collections.abc import Mapping
from typing import Final

from pipeline.base.names import shown

CONFLUENT_ID: Final = 5
"""Bytes of Confluent's magic 0 and the id."""
CONFLUENT_GUID: Final = 17
"""Bytes of Confluent's magic 1 and the GUID."""

_GLUE_UUID: Final = 17  # bytes: version 3 and the UUID
_LENGTHS: Final[Mapping[int, int]] = {0: CONFLUENT_ID, 1: CONFLUENT_GUID, 3: _GLUE_UUID}


def id_length(writer: bytes) -> int | None:
    """Return the bytes of the id before an index path; None where the writer is the name of a topic or game."""
    length = _LENGTHS.get(writer[0]) if writer else None
    return None if length is None or len(writer) < length else length


def shown_writer(writer: bytes) -> str:
    """Return a writer's id as a person knows it: a number, a GUID or a name."""
    length = id_length(writer)
    if length is None:
        return shown(writer.decode("utf-8", "replace"))
    path = f" (message {writer[length:].hex()})" if len(writer) > length else ""
    digits = writer[1:length].hex()
    if length == CONFLUENT_ID:
        return f"{int(digits, 16)}{path}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}{path}"
