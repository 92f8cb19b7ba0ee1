"""Schemas in the control store: their ids and definitions. Rows are added, never changed."""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, select

from pipeline.data.contracts.ages import UNKNOWN, Age
from pipeline.data.contracts.given_ids import NewIds
from pipeline.data.contracts.parts import split
from pipeline.data.contracts.schemas import Schema
from pipeline.store.database.tables import schemas, writers
from pipeline.store.definition_parts import digests_of, joined, read_parts, write_parts

_IDS_PER_QUERY: Final = 10_000  # databases limit the parameters of a statement
_FEW: Final = 300  # parameters; above it a table's every row is read


def read_schemas(connection: Connection, ids: set[int]) -> dict[int, Schema]:
    """Return schemas by id."""
    query = select(schemas.c.schema_id, schemas.c.format, schemas.c.message, schemas.c.parts)
    ordered_ids = sorted(ids)
    rows: list[Row[Any]] = []
    for start in range(0, len(ordered_ids), _IDS_PER_QUERY):
        part = query.where(schemas.c.schema_id.in_(ordered_ids[start : start + _IDS_PER_QUERY]))
        rows += connection.execute(part)
    parts = read_parts(connection, {digest for row in rows for digest in digests_of(row.parts)})
    return {row.schema_id: Schema(row.schema_id, row.format, row.message, joined(row.parts, parts)) for row in rows}


def read_ids(connection: Connection, fingerprints: Collection[str]) -> dict[str, int]:
    """Return schema ids by fingerprint, at least those of these fingerprints."""
    query = select(schemas.c.fingerprint, schemas.c.schema_id)
    if len(fingerprints) <= _FEW:
        query = query.where(schemas.c.fingerprint.in_(list(fingerprints)))
    return {row.fingerprint: row.schema_id for row in connection.execute(query)}


def read_ages(connection: Connection, ids: Collection[int]) -> dict[int, Age]:
    """Return how old schemas are, by id, at least these; without those of which no registry says it."""
    own = writers.c.schema_id.in_(list(ids)) if len(ids) <= _FEW else writers.c.schema_id.is_not(None)
    query = select(writers.c.schema_id, writers.c.registry, writers.c.subject, writers.c.version)
    ages: dict[int, Age] = {}
    for row in connection.execute(query.where(own, writers.c.subject.is_not(None), writers.c.version.is_not(None))):
        line = (row.registry, row.subject)
        ages[row.schema_id] = ages.get(row.schema_id, UNKNOWN) | {(line, row.version)}
    return ages


def write_schema(
    connection: Connection,
    ids: NewIds,
    fingerprint: str,
    format_name: str,
    message: str,
    definition: bytes,
    now: float,
) -> int:
    """Add a canonical definition and return its id; the caller takes `ids` before the transaction ends."""
    schema_id = ids.of(fingerprint, format_name, message)
    values = {
        "schema_id": schema_id,
        "fingerprint": fingerprint,
        "format": format_name,
        "message": message,
        "parts": write_parts(connection, split(definition)),
        "created_at": now,
    }
    connection.execute(insert(schemas).values(values))
    return schema_id
