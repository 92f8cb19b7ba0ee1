"""A refused payload names the field that is wrong, in each format, as its own schema has it."""

import pyarrow as pa
import pytest

from pipeline.data.contracts.formats.supported import decoder
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.formats.avro import avro_world
from tests.unit.data.contracts.formats.json import json_world
from tests.unit.data.contracts.formats.protobuf import event_world

_INTEGER = {"type": "integer"}
DOCUMENTS = json_world.schema(json_world.obj("id", id=_INTEGER, inner=json_world.obj(n=_INTEGER)))
RECORDS = avro_world.schema({
    "id": "long",
    "inner": {"type": "record", "name": "t.I", "fields": [{"name": "text", "type": "string"}]},
})  # fmt: skip
TIMES = event_world.schema({"M": {"At": (1, "wkt:Timestamp"), "AT": (2, "wkt:Timestamp"), "id": (3, "uint64")}})
FAR = b"\x08\xff\xff\xff\xff\xff\xff\xff\x7f"  # seconds beyond the year 9999


@pytest.mark.parametrize(
    ("schema", "payload", "field"),
    [
        (DOCUMENTS, b'{"id": 1, "inner": {"n": "one"}}', "payload.inner.n"),
        (DOCUMENTS, b'{"id": 1, "inner": {"other": 1}}', "payload.inner.other"),
        (DOCUMENTS, b'{"id": 1.5}', "payload.id"),
        (DOCUMENTS, b'{"inner": {}}', "payload.id"),
        (DOCUMENTS, b'{"id": 1, "\\ud800": 1}', "payload.?"),
        (DOCUMENTS, b"[1]", ""),
        (DOCUMENTS, b"{", ""),
        (RECORDS, b"\x02\x02\xff", "payload.inner.text"),
        (RECORDS, b"\x02\x02a\x00", ""),
        (TIMES, b"\x0a\x09" + FAR, "payload.At"),
        (TIMES, b"\x12\x09" + FAR, "payload.AT"),
        (TIMES, b"\x1a\x00", "payload.id"),
        (TIMES, b"\xff", ""),
    ],
)
def test_the_field_of_a_refusal_is_its_path_in_the_payload(schema: Schema, payload: bytes, field: str) -> None:
    """A producer finds the field by it; where no field is known none is named, and no bytes of a payload break it."""
    (refusal,) = decoder(schema).decode(pa.array([payload], pa.binary())).refused
    assert (refusal.reason, refusal.field) == ("malformed_payload", field)
    assert refusal.field.encode().decode().isprintable()
