"""The formats of payloads that turnout reads: a further one is a folder here and a line in `FORMATS`."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.data.contracts.event_types import Numbering
from pipeline.data.contracts.formats.avro.format import AvroFormat
from pipeline.data.contracts.formats.json.format import JsonFormat
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.undeclared_format import UndeclaredFormat
from pipeline.data.contracts.formats.payload_format import PayloadDecoder, PayloadFormat
from pipeline.data.contracts.formats.protobuf import standard_rules
from pipeline.data.contracts.formats.protobuf.format import ProtobufFormat
from pipeline.data.contracts.model import Message
from pipeline.data.contracts.schemas import Schema
from pipeline.data.output_contracts.rules import GivenRules

FORMATS: Final[Mapping[str, PayloadFormat]] = MappingProxyType(
    {"protobuf": ProtobufFormat(), "avro": AvroFormat(), "json": JsonFormat()}
)
"""Formats by the name that `Schema.format` and the setting `format` of a source use."""

_ALL: Final[Mapping[str, PayloadFormat]] = MappingProxyType({**FORMATS, UNDECLARED: UndeclaredFormat()})
"""With the format that nobody gives: registrations of shapes make its schemas."""

_GIVEN_RULES: Final[Mapping[str, Callable[[Schema], GivenRules]]] = {"protobuf": standard_rules.given_rules}
"""Formats whose definitions have rules for values of their own."""

BY_SUFFIX: Final[Mapping[str, str]] = MappingProxyType(
    dict(sorted((suffix, name) for name, each in FORMATS.items() for suffix in each.suffixes))
)
"""Names of formats by the endings of files with their definitions, in the order of the endings."""


def format_of(name: str) -> PayloadFormat:
    """Return a format by its name.

    Raises:
        Refused: turnout does not read it.
    """
    found = _ALL.get(name)
    if found is None:
        raise Refused(f"{shown(name)} is not a format of payloads that this turnout reads: {', '.join(FORMATS)}.")
    return found


def fingerprint(format_name: str, message: str, definition: bytes) -> str:
    """Return the hex SHA-256 that identifies a canonical definition."""
    kind = (
        b"" if format_name == "protobuf" else format_name.encode() + b"\0"
    )  # those of protobuf are older than formats
    return hashlib.sha256(kind + message.encode() + b"\0" + definition).hexdigest()


@lru_cache(maxsize=4096)
def columns(schema: Schema) -> pa.Schema:
    """Return the columns of one schema's payloads, before any placement.

    Raises:
        Refused: the definition has no form as columns.
    """
    return format_of(schema.format).columns(schema)


@lru_cache(maxsize=4096)
def message(schema: Schema) -> Message:
    """Return the fields of one schema's payloads, without their format.

    Raises:
        Refused: the definition has no form as columns.
    """
    return format_of(schema.format).message(schema)


def numbering(schema: Schema) -> Numbering:
    """Return within what the ids of a schema's fields identify them."""
    return format_of(schema.format).numbering(schema.message)


@lru_cache(maxsize=4096)
def given_rules(schema: Schema) -> GivenRules:
    """Return the rules for values that a schema's definition has itself, at the paths of its own columns.

    Raises:
        Refused: the definition has no form as columns.
    """
    read = _GIVEN_RULES.get(schema.format)
    return GivenRules() if read is None else read(schema)


@lru_cache(maxsize=2048)
def decoder(schema: Schema) -> PayloadDecoder:
    """Return this process's decoder of a schema.

    Raises:
        Refused: the schema's definition is not valid or has no form as columns.
    """
    return format_of(schema.format).decoder(schema)


@lru_cache(maxsize=2048)
def quick_look(schema: Schema) -> Callable[[bytes], bool] | None:
    """Return what recognises single payloads that the decoder surely takes, None where only the decoder can judge.

    Raises:
        Refused: the schema's definition is not valid.
    """
    return format_of(schema.format).quick_look(schema)


def prepare(schemas: Collection[Schema]) -> None:
    """Let the decoders of these schemas share memory; call it before the first of several is made.

    A schema that is not valid is left out: its decoder says so.
    """
    if len(schemas) < 2:
        return
    for schema in schemas:
        with suppress(Refused):
            format_of(schema.format).prepare(schema)
