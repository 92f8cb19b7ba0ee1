"""Protobuf as a format of payloads."""

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import first_lines
from pipeline.data.contracts.decoded import Excerpt
from pipeline.data.contracts.event_types import Numbering
from pipeline.data.contracts.formats.protobuf.decoder import Decoder, prepare
from pipeline.data.contracts.formats.protobuf.defects import defects
from pipeline.data.contracts.formats.protobuf.excerpt import excerpt
from pipeline.data.contracts.formats.protobuf.messages import canonical, describe, submitted
from pipeline.data.contracts.formats.protobuf.neutral import message_of
from pipeline.data.contracts.formats.protobuf.parsing import columns
from pipeline.data.contracts.formats.protobuf.quick_look import quick_look
from pipeline.data.contracts.formats.protobuf.reference import ReferenceDecoder
from pipeline.data.contracts.model import Message
from pipeline.data.contracts.schemas import Schema


class ProtobufFormat:
    """A definition is a FileDescriptorSet with all imports, and the full name of the payload's message."""

    suffixes: Final[tuple[str, ...]] = (".desc",)

    def canonical(self, message: str, definition: bytes) -> bytes:
        """Return the files that the message needs, without comments; refuse what fits no table."""
        _require_a_table(message, defects(submitted(message, definition)))
        descriptor = canonical(message, definition)
        _require_a_table(message, defects(describe(message, descriptor)))  # now with extensions
        columns(Schema(0, "protobuf", message, descriptor))
        return descriptor

    def numbering(self, message: str) -> Numbering:
        """Return that of one full name: in another package numbers begin again."""
        return Numbering("protobuf", message)

    def columns(self, schema: Schema) -> pa.Schema:
        """Return the columns of the message's fields."""
        return columns(schema)

    def message(self, schema: Schema) -> Message:
        """Return the message's fields, by their numbers."""
        return message_of(schema)

    def decoder(self, schema: Schema) -> Decoder:
        """Return the decoder of the Arrow parser and its checks."""
        return Decoder(schema)

    def prepare(self, schema: Schema) -> None:
        """Add the definition to those that decoders share."""
        prepare(schema)

    def quick_look(self, schema: Schema) -> Callable[[bytes], bool] | None:
        """Return what parses a payload alone, for definitions that it covers."""
        return quick_look(schema)

    def reference(self, schema: Schema, names: Mapping[str, str]) -> ReferenceDecoder:
        """Return the decoder of google.protobuf, message by message."""
        return ReferenceDecoder(schema.message, schema.definition, names)

    def excerpt(self, schema: Schema, payload: bytes) -> Excerpt:
        """Return the payload's fields up to the first that does not parse."""
        return excerpt(describe(schema.message, schema.definition), payload)


def _require_a_table(message: str, reasons: tuple[str, ...]) -> None:
    if reasons:
        listed = "".join(f"\n  - {each}" for each in first_lines(reasons, 10))
        raise Refused(f"The message {shown(message)} fits no table; change its definition:{listed}")
