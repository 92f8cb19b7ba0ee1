"""JSON that nobody declared, as a format of payloads: a schema is a superset that a registration of shapes makes."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from pipeline.base.errors import Refused
from pipeline.data.contracts.decoded import MAX_EXCERPT_FIELDS, Excerpt, Undecodable
from pipeline.data.contracts.event_types import Numbering
from pipeline.data.contracts.formats.json.choices import Unwanted
from pipeline.data.contracts.formats.json.columns import columns_of
from pipeline.data.contracts.formats.json.excerpt import excerpt
from pipeline.data.contracts.formats.json.fields import message_of
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.reference import ReferenceDecoder
from pipeline.data.contracts.formats.json.scalar import Misfit
from pipeline.data.contracts.formats.json.splitting import MOST_WRITTEN, NotCovered, written_again
from pipeline.data.contracts.formats.json.stored_supersets import dumps, loads
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared import UndeclaredDecoder, declared_schema
from pipeline.data.contracts.model import Message
from pipeline.data.contracts.schemas import Schema


class UndeclaredFormat:
    """A definition is a superset, and its message the event type as documents give it, whatever its text."""

    suffixes: Final[tuple[str, ...]] = ()

    def canonical(self, message: str, definition: bytes) -> bytes:  # noqa: ARG002 -- a superset names no type
        """Return the one text of a superset."""
        return dumps(loads(definition))

    def numbering(self, message: str) -> Numbering:  # noqa: ARG002 -- keys mean the same in all documents
        """Return that of all undeclared documents."""
        return Numbering(UNDECLARED)

    def columns(self, schema: Schema) -> pa.Schema:
        """Return a column for each slot."""
        return columns(schema)

    def message(self, schema: Schema) -> Message:
        """Return the slots as properties, known by their keys."""
        return message_of(superset_of(schema).declared())

    def decoder(self, schema: Schema) -> UndeclaredDecoder:
        """Return the decoder of many documents at once."""
        return UndeclaredDecoder(superset_of(schema))

    def prepare(self, schema: Schema) -> None:
        """Do nothing: decoders of JSON share nothing."""

    def quick_look(self, schema: Schema) -> None:
        """Return None: only the decoder can judge."""

    def reference(self, schema: Schema, names: Mapping[str, str]) -> "UndeclaredReference":
        """Return the decoder of documents that are written again, one by one."""
        return UndeclaredReference(superset_of(schema), names)

    def excerpt(self, schema: Schema, payload: bytes) -> Excerpt:
        """Return the document's properties up to the first that does not read."""
        superset = superset_of(schema)
        found = excerpt(superset.declared(), payload)
        try:
            written_again(superset, payload)
        except NotCovered:
            return Excerpt(found.fields, "its shape is not registered yet")
        except Unwanted as error:
            return Excerpt(found.fields, str(error))
        except Misfit:
            return found
        return found if len(found.fields) >= MAX_EXCERPT_FIELDS else Excerpt(found.fields, None)


class UndeclaredReference:
    """The oracle: writes each document again, and reads what was written by the oracle of declared documents."""

    def __init__(self, superset: Superset, names: Mapping[str, str]) -> None:
        """Prepare for a superset; `names` of columns are those of its placement."""
        self._superset = superset
        self._decoder = ReferenceDecoder(declared_schema("", superset).definition, names, MOST_WRITTEN)
        self.schema = self._decoder.schema

    def decode(self, payloads: Sequence[bytes | None]) -> tuple[pa.Table, dict[int, Undecodable]]:
        """Return the columns of all documents that decode, in order, and by place why each other one does not."""
        written: list[bytes | None] = []
        refused: dict[int, Undecodable] = {}
        for place, payload in enumerate(payloads):
            if payload is None:
                written.append(None)  # refused below
                continue
            try:
                written.append(written_again(self._superset, payload))
            except NotCovered:
                refused[place] = Undecodable("unknown_schema", "its shape is not registered yet")
            except Unwanted as error:
                refused[place] = Undecodable(error.reason, str(error))
            except Misfit as error:
                refused[place] = Undecodable("malformed_payload", str(error))
        kept = [place for place in range(len(payloads)) if place not in refused]
        table, more = self._decoder.decode(written)
        return table, dict(sorted({**refused, **{kept[place]: error for place, error in more.items()}}.items()))


@lru_cache(maxsize=1024)
def superset_of(schema: Schema) -> Superset:
    """Return the superset of a schema.

    Raises:
        Refused: this version of turnout did not write it, or the schema is declared.
    """
    if schema.format != UNDECLARED:
        raise Refused(f"Schema {schema.schema_id} is of the format {schema.format}: it was declared.")
    return loads(schema.definition)


@lru_cache(maxsize=4096)
def columns(schema: Schema) -> pa.Schema:
    """Return the columns of one schema's payloads."""
    return pa.schema(columns_of(superset_of(schema).declared()))
