"""Reads one Avro payload field by field, up to the first defect, for a person. Called by the dashboard only."""

from typing import Final

import pyarrow as pa

from pipeline.data.contracts.decoded import MAX_EXCERPT_FIELDS, Excerpt, Undecodable, value_text
from pipeline.data.contracts.formats.avro.reference import fields_in_turn

_MOST_WEIGHTLESS: Final = 10_000


def excerpt(definition: bytes, payload: bytes) -> Excerpt:
    """Return the fields of a payload of this record, up to the first defect; after it no byte has a known meaning."""
    found: list[tuple[str, str]] = []
    try:
        for name, kind, value in fields_in_turn(definition, payload, _MOST_WEIGHTLESS):
            if len(found) == MAX_EXCERPT_FIELDS:
                return Excerpt(tuple(found), "more fields follow")
            found.append((name, value_text("null" if kind is None else pa.scalar(value, kind).as_py())))
    except Undecodable as defect:
        return Excerpt(tuple(found), str(defect))
    return Excerpt(tuple(found), None)
