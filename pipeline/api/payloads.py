"""Decodes the payloads of refused rows as far as it goes, as text for a person. Pure: rows and a schema set in.

Nothing here raises for what a row holds. A row that killed a worker is never opened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from pipeline.base.errors import Refused
from pipeline.data.contracts.envelopes.wrapper import open_wrappers
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.streams.writing.job import READ
from pipeline.data.streams.writing.opening import CLOSED, open_rows
from pipeline.lake.delta.bronze import BRONZE

MOST_BYTES: Final = 16 * 1024
"""Most bytes of a payload that are decoded."""

SHOWN_BYTES: Final = 24
"""Most bytes of a payload that are shown as such."""

MOST_RECORD: Final = 1024 * 1024 + 64 * 1024
"""Largest record that is opened: no larger payload is ever decoded."""

_ROWS: Final = pa.schema([BRONZE.field(name) for name in READ])
_DEADLY: Final = "kills_worker"


@dataclass(frozen=True, slots=True)
class Payload:
    """What is known of one row's payload; names and values may hold anything."""

    fields: tuple[tuple[str, str], ...]  # name and value, as far as they decode
    stopped: str | None  # why no further field follows; None: these are all
    begin: bytes  # its first bytes, or the record's where the payload is not known
    producer: str | None = None  # the id that its producer wrote into the record, if any


def payload_of(schema_set: SchemaSet, schema_id: int | None, payload: bytes | None) -> Payload:
    """Return the fields of one payload by its schema."""
    if payload is None:
        return Payload((), "it has no payload", b"")
    begin, schema = payload[:SHOWN_BYTES], schema_set.schemas.get(-1 if schema_id is None else schema_id)
    if schema is None:
        return Payload((), "its schema is not registered", begin)
    try:
        found = format_of(schema.format).excerpt(schema, payload[:MOST_BYTES])
    except Refused as refused:
        return Payload((), str(refused), begin)
    cut = f"only its first {MOST_BYTES // 1024} KiB were decoded" if len(payload) > MOST_BYTES else None
    return Payload(found.fields, cut or found.stopped, begin)


def decode(rows: Sequence[Mapping[str, Any]], key: str, schema_set: SchemaSet) -> list[Payload]:
    """Decode the payloads of some rows of one game.

    Args:
        rows: with `reason`, `size`, the record `raw` or its beginning, and where bronze still has them, `profile`,
            `registry`, `writer` and `producer_id`.
        key: the game's.
        schema_set: the schemas of today.
    """
    return [_one(row, key, schema_set) for row in rows]


def shape(payload: Payload) -> Payload:
    """Return what is known of a payload without any value of it: names of fields, and whether more follow."""
    named = tuple((name, "…") for name, _ in payload.fields)
    return replace(payload, fields=named, stopped=None if payload.stopped is None else "no further field", begin=b"")


def _one(row: Mapping[str, Any], key: str, schema_set: SchemaSet) -> Payload:
    raw = row["raw"]
    if raw is None:
        return Payload((), "the record has no value", b"")
    if row["reason"] == _DEADLY:
        return Payload((), "it is not opened, as a worker that read it died", raw[:SHOWN_BYTES])
    if row["size"] > len(raw):
        return Payload((), f"it is not opened, as the record has {row['size']} bytes", raw[:SHOWN_BYTES])
    if row.get("profile") is not None:
        return replace(_foreign(row, key, schema_set), producer=row.get("producer_id"))
    opened = open_wrappers(pa.array([raw], pa.binary()))
    if opened.refused[0].is_valid:
        return Payload((), opened.detail[0].as_py(), raw[:SHOWN_BYTES])
    wrapped = {name: opened.batch.column(name)[0].as_py() for name in ("schema_id", "payload", "producer_id")}
    found = payload_of(schema_set, wrapped["schema_id"], wrapped["payload"] or None)
    return replace(found, producer=wrapped["producer_id"] or None)


def _foreign(row: Mapping[str, Any], key: str, schema_set: SchemaSet) -> Payload:
    """Decode a row of a source with a profile, which cannot open a record that ingest refused."""
    raw = row["raw"]
    if row.get("refused") is not None:
        return Payload((), "ingest could not open it", raw[:SHOWN_BYTES])
    given = {**dict.fromkeys(READ), **{name: row.get(name) for name in READ if name in row}, "game_key": key}
    rows = pa.Table.from_pylist([given], schema=_ROWS)
    for part in open_rows(rows, schema_set):
        if part.refused:
            return Payload((), part.refused[0][2], raw[:SHOWN_BYTES])
        if part.needs or int(part.ids[0]) == CLOSED:
            return Payload((), "its schema is not known yet", raw[:SHOWN_BYTES])
        return payload_of(schema_set, int(part.ids[0]), part.payload[0].as_py())
    return Payload((), "ingest could not open it", raw[:SHOWN_BYTES])
