"""Envelopes of a team's own definition: a message of protobuf, or a record of Avro, with the payload in a field."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import shown
from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.envelopes.envelope import COLUMNS, MALFORMED, TOMBSTONE, Opened, spread
from pipeline.data.contracts.envelopes.spans import present
from pipeline.data.contracts.envelopes.texts import texts
from pipeline.data.contracts.formats.supported import decoder
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.schemas import Schema

_EMPTY: Final = "the envelope is empty"
_FIRST_MILLISECOND: Final = -62_135_596_800_000  # of the year 1
_LAST_MILLISECOND: Final = 253_402_300_799_999  # of the year 9999


class MessageEnvelope:
    """An envelope of one definition; its format's decoder reads it, so each row is refused by itself."""

    def __init__(self, profile: SourceProfile) -> None:
        """Prepare for a profile without `problems`.

        Raises:
            Refused: turnout does not read the format, or the definition is not valid.
        """
        self._paths: Final = {name: tuple(path.split(".")) for name, path in profile.fields}
        self._decoder: Final = decoder(_schema(profile))

    def open(self, values: pa.BinaryArray, *, known_good: bool = False) -> Opened:  # noqa: ARG002 - looked at again
        """Decode the envelopes. A value that a column of COLUMNS cannot hold is null, as for wrappers.

        `known_good` changes nothing: another version of a decoder's library may judge otherwise.
        """
        rows: Rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)).astype(np.int64)
        decoded = self._decoder.decode(present(values if len(rows) == len(values) else values.take(pa.array(rows))))
        missing = np.setdiff1d(np.arange(len(values)), rows, assume_unique=True)
        reasons = dict.fromkeys(missing.tolist(), TOMBSTONE)
        for each in decoded.refused:
            reasons[int(rows[each.row])] = (MALFORMED, _EMPTY if each.reason == "empty_payload" else each.detail)
        batch = pa.RecordBatch.from_arrays([self._column(decoded.batch, each) for each in COLUMNS], schema=COLUMNS)
        return spread(batch, rows[decoded.rows], len(values), reasons)

    def _column(self, batch: pa.RecordBatch, wanted: pa.Field) -> pa.Array:
        path = self._paths.get(wanted.name)
        if path is None:
            return pa.nulls(batch.num_rows, wanted.type)
        values = batch.column(path[0])
        for name in path[1:]:
            values = pc.struct_field(values, name)
        found: pa.Array = _CONVERSIONS[wanted.name](values)
        return found


def problems(profile: SourceProfile) -> list[str]:
    """Return what is wrong with the fields of a profile whose definition is valid, a sentence each.

    Raises:
        Refused: turnout does not read the format, or the definition is not valid.
    """
    columns = decoder(_schema(profile)).arrow_schema
    found = []
    for name, path in profile.fields:
        kind, inside = pa.struct(list(columns)), path
        for part in path.split("."):
            index = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
            if index < 0:
                inside = part
                break
            kind = kind.field(index).type
        else:
            if not _is_fit(name, kind):
                found.append(f"{name}: expected a field of {_WANTED[name]}, got {shown(path)}, which holds {kind}")
            continue
        found.append(
            f"{name}: {shown(profile.definition_message)} has no field {shown(path)}: no {shown(inside)} there"
        )
    return found


def _schema(profile: SourceProfile) -> Schema:
    return Schema(0, profile.envelope, profile.definition_message, profile.definition)


def _is_fit(name: str, kind: pa.DataType) -> bool:
    return any(check(kind) for check in _FIT[name])


def _text(values: pa.Array) -> pa.Array:
    """Return texts; null for an empty one, and for bytes that are no UTF-8."""
    if pa.types.is_binary(values.type):
        values = texts(values)
    values = values.cast(pa.string())
    return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)


def _bytes(values: pa.Array) -> pa.Array:
    return values.cast(pa.binary())


def _number(values: pa.Array) -> pa.Array:
    """Return whole numbers; null for those beyond int64, which only decimals hold."""
    if pa.types.is_decimal(values.type):
        fits = pc.less(values, pa.scalar(2**63, values.type))
        values = pc.if_else(fits, values, pa.scalar(None, values.type))
    return values.cast(pa.int64())


def _sequence(values: pa.Array) -> pa.Array:
    """Return sequences; they start at 1, as in wrappers."""
    numbers = _number(values)
    return pc.if_else(pc.greater(numbers, 0), numbers, pa.scalar(None, pa.int64()))


def _time(values: pa.Array) -> pa.Array:
    """Return times; whole numbers are milliseconds since 1970, as Kafka's are."""
    if pa.types.is_timestamp(values.type):
        return values.cast(COLUMNS.field("event_time").type)
    real = pc.and_(pc.greater_equal(values, _FIRST_MILLISECOND), pc.less_equal(values, _LAST_MILLISECOND))
    milliseconds = pc.if_else(real, values, pa.scalar(None, pa.int64()))
    return pc.multiply(milliseconds, 1000).cast(COLUMNS.field("event_time").type)


_CONVERSIONS: Final[Mapping[str, Callable[[pa.Array], pa.Array]]] = MappingProxyType(
    {
        "game": _text,
        "schema_id": _number,
        "payload": _bytes,
        "event_time": _time,
        "event_id": _text,
        "producer_id": _text,
        "sequence": _sequence,
        "type": _text,
    }
)
"""How the field's values become those of the column."""

_IS_TEXT: Final = (pa.types.is_string, pa.types.is_binary, pa.types.is_int64)
_IS_NUMBER: Final = (pa.types.is_int64, lambda kind: pa.types.is_decimal(kind) and kind.scale == 0)
_FIT: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], ...]]] = MappingProxyType(
    {
        "game": _IS_TEXT,
        "schema_id": _IS_NUMBER,
        "payload": (pa.types.is_binary, pa.types.is_string),
        "event_time": (pa.types.is_timestamp, pa.types.is_int64),
        "event_id": _IS_TEXT,
        "producer_id": _IS_TEXT,
        "sequence": _IS_NUMBER,
        "type": _IS_TEXT,
    }
)
_WANTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "game": "text",
        "schema_id": "whole numbers",
        "payload": "bytes",
        "event_time": "times, or of milliseconds as whole numbers",
        "event_id": "text",
        "producer_id": "text",
        "sequence": "whole numbers",
        "type": "text",
    }
)
