"""JSON with a declared JSON Schema as a format of payloads."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import pyarrow as pa

from pipeline.data.contracts.decoded import Excerpt
from pipeline.data.contracts.event_types import Numbering
from pipeline.data.contracts.formats.json.columns import columns_of, defects
from pipeline.data.contracts.formats.json.decoder import Decoder
from pipeline.data.contracts.formats.json.definitions import canonical, describe, refusal
from pipeline.data.contracts.formats.json.excerpt import excerpt
from pipeline.data.contracts.formats.json.fields import message_of
from pipeline.data.contracts.formats.json.reference import ReferenceDecoder
from pipeline.data.contracts.model import Message
from pipeline.data.contracts.schemas import Schema


class JsonFormat:
    """A definition is a JSON Schema of objects, and the event type that its title names."""

    suffixes: Final[tuple[str, ...]] = (".json",)

    def canonical(self, message: str, definition: bytes) -> bytes:
        """Return the schema with its references resolved, without annotations; refuse what fits no table."""
        form = canonical(message, definition)
        if reasons := defects(describe(message, form)):
            raise refusal(message, reasons)
        return form

    def numbering(self, message: str) -> Numbering:  # noqa: ARG002 -- keys mean the same in all objects
        """Return that of all objects."""
        return Numbering("json")

    def columns(self, schema: Schema) -> pa.Schema:
        """Return the columns of the object's properties."""
        return columns(schema)

    def message(self, schema: Schema) -> Message:
        """Return the object's properties, known by their keys."""
        return message_of(describe(schema.message, schema.definition))

    def decoder(self, schema: Schema) -> Decoder:
        """Return the decoder of many documents at once."""
        return Decoder(schema)

    def prepare(self, schema: Schema) -> None:
        """Do nothing: decoders of JSON share nothing."""

    def quick_look(self, schema: Schema) -> None:
        """Return None: only the decoder can judge."""

    def reference(self, schema: Schema, names: Mapping[str, str]) -> ReferenceDecoder:
        """Return the decoder of msgspec, document by document."""
        return ReferenceDecoder(schema.definition, names)

    def excerpt(self, schema: Schema, payload: bytes) -> Excerpt:
        """Return the document's properties up to the first that does not read."""
        return excerpt(describe(schema.message, schema.definition), payload)


@lru_cache(maxsize=4096)
def columns(schema: Schema) -> pa.Schema:
    """Return the columns of one schema's payloads."""
    return pa.schema(columns_of(describe(schema.message, schema.definition)))
