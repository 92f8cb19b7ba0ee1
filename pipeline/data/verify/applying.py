"""Finds the schema that reads a row in another way than tasks do: one row at a time, by the oracles."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.json.choices import without_choices
from pipeline.data.contracts.formats.json.coverage import first_version
from pipeline.data.contracts.formats.json.growth import as_of
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.stored_supersets import version_of
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared_format import UndeclaredReference, superset_of
from pipeline.data.contracts.formats.payload_format import ReferenceDecoder
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.schemas import Schema
from pipeline.data.output_contracts.rules import OutputContract
from pipeline.data.verify.opening import Contents

_DECLARED: Final = "json"


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema as it is registered for one game."""

    schema: Schema
    names: tuple[tuple[str, str], ...]  # path of a field → its column, where that is not its name
    quarantined: bool  # its rows are refused,
    reason: str = "quarantined_schema"  # for this reason
    struct: str | None = None  # the column of its event type's fields; None: they are columns of the table
    withdrawn: bool = False  # its rows are refused now, and those that landed before stay
    contracts: tuple[OutputContract, ...] = ()  # what its rows promise from now on; those that landed before stay
    landed: bool = False  # it was withdrawn once, and rows that landed by it before stay until a rebuild
    beyond: bool = False  # a superset by which no row has landed yet: its table has not the same columns merged


def applied(held: Contents, schemas: Mapping[int, KnownSchema], *, landed: bool = False) -> int | None:
    """Return the schema by which a row is decoded: its own, or of those of its event type the first that decodes it.

    Of the supersets of a type that is the newest one; of landed rows that by which their table is written.
    """
    if held.schema_id is not None:
        return held.schema_id
    of_type = {
        schema_id: known
        for schema_id, known in schemas.items()
        if known.schema.format in {_DECLARED, UNDECLARED} and _is_of(held, known)
    }
    chain = [each for _, each in _chain(of_type)]
    own = {each: of_type[each] for each in [each for each in chain if not (landed and of_type[each].beyond)][-1:]}
    declared = {schema_id: known for schema_id, known in of_type.items() if schema_id not in chain}
    if not own or any(not known.quarantined for known in declared.values()):
        own |= declared
    waiting = [each for each, known in own.items() if known.quarantined and not (landed and known.withdrawn)]
    for schema_id, known in own.items():
        if schema_id not in waiting and not decoder(known, landed=landed).decode([held.payload])[1]:
            return schema_id
    return next(iter([*waiting[-1:], *reversed(own)]), None)


def has_landed_by(held: Contents, schema_id: int, schemas: Mapping[int, KnownSchema]) -> bool:
    """Return whether a row in the table with this id may be as a schema decoded it that was declared, then withdrawn.

    Its type's superset may have a place for it by now.
    """
    known = schemas.get(schema_id)
    is_declared = known is not None and known.landed and known.schema.format == _DECLARED
    return is_declared and held.schema_id is None and _is_of(held, schemas[schema_id])


def id_of(known: KnownSchema, held: Contents, schemas: Mapping[int, KnownSchema]) -> int:
    """Return the id that a row has in its table: of supersets that of the first one with a place for all of it."""
    if known.schema.format != UNDECLARED or held.payload is None:
        return known.schema.schema_id
    name = event_type(known.schema.message)
    of_type = {each: one for each, one in schemas.items() if event_type(one.schema.message) == name}
    version = first_version(superset_of(known.schema), held.payload, partial(_as_of, known.schema))
    return dict(_chain(of_type))[version]


@lru_cache(maxsize=512)
def _as_of(schema: Schema, version: int) -> Superset:
    return as_of(superset_of(schema), version)


@lru_cache(maxsize=512)
def decoder(known: KnownSchema, *, landed: bool = False) -> ReferenceDecoder:
    """Return the oracle of a schema; of landed rows without what people chose later, which holds for later rows."""
    if landed and known.schema.format == UNDECLARED:
        return UndeclaredReference(without_choices(superset_of(known.schema)), dict(known.names))
    return format_of(known.schema.format).reference(known.schema, dict(known.names))


def _is_of(held: Contents, known: KnownSchema) -> bool:
    """Return whether a schema is one of the event type of a row that names no schema."""
    if held.type:
        return event_type(known.schema.message) == event_type(held.type)
    return known.struct is None and known.reason != "other_type"


def _chain(schemas: Mapping[int, KnownSchema]) -> list[tuple[int, int]]:
    """Return the supersets among schemas in their order: version and id."""
    supersets = (
        (version_of(known.schema.definition), schema_id)
        for schema_id, known in schemas.items()
        if known.schema.format == UNDECLARED
    )
    return sorted(supersets)
