"""Avro as a format of payloads."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import pyarrow as pa

from pipeline.data.contracts.decoded import Excerpt
from pipeline.data.contracts.event_types import Numbering
from pipeline.data.contracts.formats.avro.columns import columns_of, defects
from pipeline.data.contracts.formats.avro.decoder import Decoder
from pipeline.data.contracts.formats.avro.definitions import canonical, describe, refusal
from pipeline.data.contracts.formats.avro.excerpt import excerpt
from pipeline.data.contracts.formats.avro.fields import message_of
from pipeline.data.contracts.formats.avro.reference import ReferenceDecoder
from pipeline.data.contracts.model import Message
from pipeline.data.contracts.schemas import Schema


class AvroFormat:
    """A definition is an Avro schema in JSON, and the full name of its record."""

    suffixes: Final[tuple[str, ...]] = (".avsc",)

    def canonical(self, message: str, definition: bytes) -> bytes:
        """Return the schema with every name in full, without documentation; refuse what fits no table."""
        form = canonical(message, definition)
        if reasons := defects(describe(message, form)):
            raise refusal(message, reasons)
        return form

    def numbering(self, message: str) -> Numbering:  # noqa: ARG002 -- names mean the same in all records
        """Return that of all records."""
        return Numbering("avro")

    def columns(self, schema: Schema) -> pa.Schema:
        """Return the columns of the record's fields."""
        return columns(schema)

    def message(self, schema: Schema) -> Message:
        """Return the record's fields, known by their names."""
        return message_of(describe(schema.message, schema.definition))

    def decoder(self, schema: Schema) -> Decoder:
        """Return the decoder of many payloads at once."""
        return Decoder(schema)

    def prepare(self, schema: Schema) -> None:
        """Do nothing: decoders of Avro share nothing."""

    def quick_look(self, schema: Schema) -> None:
        """Return None: only the decoder can judge."""

    def reference(self, schema: Schema, names: Mapping[str, str]) -> ReferenceDecoder:
        """Return the decoder of fastavro, payload by payload."""
        return ReferenceDecoder(schema.definition, names)

    def excerpt(self, schema: Schema, payload: bytes) -> Excerpt:
        """Return the record's fields up to the first that does not read."""
        return excerpt(schema.definition, payload)


@lru_cache(maxsize=4096)
def columns(schema: Schema) -> pa.Schema:
    """Return the columns of one schema's payloads."""
    return pa.schema(columns_of(describe(schema.message, schema.definition)))
