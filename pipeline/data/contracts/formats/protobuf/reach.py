"""What a message reaches in its pool: messages and enums of its fields, and extensions."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pipeline.data.contracts.formats.protobuf.well_known import WELL_KNOWN_FILES


def extensions_of(message: Descriptor) -> list[FieldDescriptor]:
    """Return the extensions of a message that its pool defines, by number.

    Those of a MessageSet are left out: its bytes are not those of fields, so they count as unknown fields.
    """
    if not message.is_extendable or message.GetOptions().message_set_wire_format:
        return []
    pool: Any = message.file.pool
    return sorted(pool.FindAllExtensions(message), key=_number)


def reached(message: Descriptor) -> Iterator[Descriptor]:
    """Yield the message and all messages inside it, also in its extensions, without those of well-known files."""
    waiting, known = [message], {message.full_name}
    while waiting:
        each = waiting.pop()
        yield each
        for one in (*each.fields, *extensions_of(each)):
            inner = one.message_type
            if inner is not None and inner.full_name not in known and inner.file.name not in WELL_KNOWN_FILES:
                known.add(inner.full_name)
                waiting.append(inner)


def _number(each: FieldDescriptor) -> int:
    return each.number
