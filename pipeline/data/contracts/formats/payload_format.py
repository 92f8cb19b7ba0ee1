"""What turnout asks of a format of payloads; each format is one folder beside this module, listed in `supported`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from pipeline.data.contracts.decoded import Decoded, Excerpt, Undecodable
from pipeline.data.contracts.event_types import Numbering
from pipeline.data.contracts.model import Message
from pipeline.data.contracts.schemas import Schema


class PayloadDecoder(Protocol):
    """Decodes payloads of one schema. Whether a payload is refused depends on it alone, never on its neighbours."""

    arrow_schema: pa.Schema  # Delta's types, every column nullable

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode payloads; null is a row without one, and a payload may have no bytes.

        Where the schema has no columns, null is such a payload.
        """
        ...


class ReferenceDecoder(Protocol):
    """A second, slow and simple implementation: the oracle of tests and of `turnout verify --values`."""

    schema: pa.Schema  # the columns in the game's table

    def decode(self, payloads: Sequence[bytes | None]) -> tuple[pa.Table, dict[int, Undecodable]]:
        """Return the columns of all payloads that decode, in order, and by place why each other one does not."""
        ...


class PayloadFormat(Protocol):
    """One format of payloads. `tests/unit/data/contracts/formats/test_formats.py` is the contract of all of them."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Return the endings of files with a definition, such as `.avsc`; no other format has one of them."""
        ...

    def canonical(self, message: str, definition: bytes) -> bytes:
        """Return the canonical form of a submitted definition; equal meanings have one.

        Raises:
            Refused: it is no definition of the message, or fits no table whatever the policies; with every reason.
        """
        ...

    def numbering(self, message: str) -> Numbering:
        """Return within what the ids of a message's fields identify them; `message` is its full name."""
        ...

    def columns(self, schema: Schema) -> pa.Schema:
        """Return the columns of one schema's payloads, before any placement.

        Raises:
            Refused: the definition has no form as columns.
        """
        ...

    def message(self, schema: Schema) -> Message:
        """Return the fields of one schema's payloads, for evolution: those of `columns`, and any without a column.

        Raises:
            Refused: the definition has no form as columns.
        """
        ...

    def decoder(self, schema: Schema) -> PayloadDecoder:
        """Return a decoder of a schema's payloads.

        Raises:
            Refused: the definition has no form as columns.
        """
        ...

    def prepare(self, schema: Schema) -> None:
        """Add a schema to those whose decoders, made after this, share their memory.

        Raises:
            Refused: the definition has no form as columns.
        """
        ...

    def quick_look(self, schema: Schema) -> Callable[[bytes], bool] | None:
        """Return what recognises single payloads that the decoder surely takes, None where only the decoder can judge.

        Raises:
            Refused: the definition is not valid.
        """
        ...

    def reference(self, schema: Schema, names: Mapping[str, str]) -> ReferenceDecoder:
        """Return the reference decoder; `names` of fields outside of the column of their name: path → column."""
        ...

    def excerpt(self, schema: Schema, payload: bytes) -> Excerpt:
        """Return the payload's fields as far as they decode, for a person; bad bytes end it and raise nothing.

        Slow: for the few payloads of a page, each cut to some kilobytes.

        Raises:
            Refused: the definition is not valid.
        """
        ...
