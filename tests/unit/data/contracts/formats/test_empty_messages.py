"""Messages without fields: as an event, a field, or a member of a oneof; and a next version that has fields."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.supported import columns, decoder, format_of
from pipeline.data.contracts.placing import pad, placed
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement
from pipeline.data.contracts.shape import table_schema
from tests.unit.data.contracts.definition_world import Fields
from tests.unit.data.contracts.formats.avro.definitions import avro, record
from tests.unit.data.contracts.formats.protobuf.event_world import message_class, payloads
from tests.unit.data.contracts.history_world import grown, reported, schema

EVENT: dict[str, Fields] = {
    "M": {
        "pause": (1, "E"),
        "stop": (2, "wkt:Empty"),
        "all": (3, "repeated E"),
        "by": (4, "map<string, E>"),
        "s": (5, "S"),
    },
    "S": {"e": (1, "E")},
    "E": {},
}


@pytest.mark.parametrize("content", [b"", b"\x9a\x06\x01a"])
def test_an_event_without_fields_lands_as_a_row(content: bytes) -> None:
    """6.9 % of real types are such events: the row has turnout's own columns, also where bytes are unknown fields."""
    of = schema({"M": {}}, {})
    assert len(columns(of)) == len(table_schema(grown(of))) == 0
    decoded = decoder(of).decode(payloads(content, None, content))
    assert (decoded.rows.tolist(), decoded.refused) == ([0, 1, 2], [])
    assert decoded.batch.num_rows == 3
    assert pad(placed(decoded.batch, of, PLAIN), pa.schema([("later", pa.int64())])).num_rows == 3
    table, refused = format_of("protobuf").reference(of, {}).decode([content, None, content])
    assert (table.num_rows, refused) == (3, {})


def test_bytes_that_are_no_message_are_no_event_without_fields() -> None:
    """A row lands for a message, not for any bytes."""
    decoded = decoder(schema({"M": {}}, {})).decode(payloads(b"\xff", b"\x08", b""))
    assert [each.row for each in decoded.refused] == [0, 1]


def test_a_message_without_fields_is_true_where_it_is_present() -> None:
    """Two empty messages of a message differ, at every depth, as both decoders say."""
    of = schema(EVENT, {})
    made = message_class(of)
    assert [f"{each.name} {each.type}" for each in columns(of)] == [
        "pause bool", "stop bool", "all list<element: bool>", "by map<string, bool>", "s struct<e: bool>",
    ]  # fmt: skip
    rows = [made(), made(pause={}), made(stop={}), made(all=[{}, {}], by={"k": {}}, s={}), made(s={"e": {}})]
    contents = [row.SerializeToString() for row in rows]
    found = pa.Table.from_batches([decoder(of).decode(payloads(*contents)).batch]).to_pylist()
    nothing: dict[str, Any] = {"pause": None, "stop": None, "all": [], "by": [], "s": None}
    assert found == [
        nothing,
        nothing | {"pause": True},
        nothing | {"stop": True},
        nothing | {"all": [True, True], "by": [("k", True)], "s": {"e": None}},
        nothing | {"s": {"e": True}},
    ]
    assert format_of("protobuf").reference(of, {}).decode(contents)[0].to_pylist() == found
    sliced = decoder(of).decode(payloads(b"", *contents).slice(1))
    assert sliced.batch.to_pylist() == found


def test_a_message_that_gets_fields_lies_beside_its_presence() -> None:
    """The column keeps its type: the fields get a side column, and a version without them finds its own again."""
    empty = schema({"M": {"pause": (1, "E")}, "E": {}}, {})
    full = schema({"M": {"pause": (1, "E")}, "E": {"by": (1, "string")}}, {})
    held = grown(empty)
    steps, placement = evolve(held, full, DEFAULTS)
    assert reported(steps) == [("pause", "widen: side-column", "pause__v2")]
    assert str(steps[0]) == "pause: its type changed from message without fields to message"
    assert placement == FieldPlacement((("pause", "pause__v2"),))
    both = grown(empty, full)
    assert evolve(both, empty, DEFAULTS)[1] == PLAIN
    assert [str(each.type) for each in table_schema(both)] == ["bool", "struct<by: string>"]
    assert reported(evolve(grown(full), empty, DEFAULTS)[0])[-1] == ("pause", "widen: side-column", "pause__v2")


def test_an_event_that_gets_fields_gets_columns() -> None:
    """An event without fields is a first version like any other."""
    held = grown(schema({"M": {}}, {}))
    new = schema({"M": {"by": (1, "string")}}, {})
    assert reported(evolve(held, new, DEFAULTS)[0]) == [("by", "add: add", "by")]


def written(definition: bytes, *values: dict[str, Any]) -> list[bytes]:
    made = []
    for each in values:
        into = io.BytesIO()
        fastavro.schemaless_writer(into, fastavro.parse_schema(json.loads(definition)), each)
        made.append(into.getvalue())
    return made


def test_an_empty_record_of_avro_lands_as_a_row_or_as_its_presence() -> None:
    """A record without fields, or of nothing but null, has no bytes: an event of it is a row, a field of it is true."""
    for of in (avro(), avro(nothing="null")):
        decoded = decoder(of).decode(payloads(b"", b"\x00", b"", None))
        table, refused = format_of("avro").reference(of, {}).decode([b"", b"\x00", b"", None])
        assert (decoded.batch.num_rows, decoded.batch.schema, decoded.rows.tolist()) == (3, columns(of), [0, 2, 3])
        assert [each.row for each in decoded.refused] == sorted(refused) == [1]
        assert (table.num_rows, table.column_names) == (3, [])
    of = avro(
        a=record(),
        b=["null", record()],
        c=["null", record(), record(n="null")],
        d={"type": "array", "items": ["null", record()]},
        e={"type": "map", "values": record()},
        f={"type": "array", "items": record()},
        s=record(e=record()),
    )
    assert [f"{each.name} {each.type}" for each in columns(of)] == [
        "a bool", "b bool", "c struct<R_c_1: bool, R_c_2: bool>", "d list<element: bool>", "e map<string, bool>",
        "s struct<e: bool>",
    ]  # fmt: skip
    rest: dict[str, Any] = {"a": {}, "d": [{}, None], "e": {"k": {}}, "f": [{}, {}], "s": {"e": {}}}
    contents = written(
        of.definition,
        rest | {"b": None, "c": None},
        rest | {"b": {}, "c": ("R_c_1", {})},
        rest | {"b": {}, "c": ("R_c_2", {"n": None})},
    )
    found = decoder(of).decode(payloads(*contents)).batch.to_pylist()
    always = {"a": True, "d": [True, None], "e": [("k", True)], "s": {"e": True}}
    assert found == [
        always | {"b": None, "c": None},
        always | {"b": True, "c": {"R_c_1": True, "R_c_2": None}},
        always | {"b": True, "c": {"R_c_1": None, "R_c_2": True}},
    ]
    assert format_of("avro").reference(of, {}).decode(contents)[0].to_pylist() == found
    damaged = [each[:size] for each in contents for size in range(len(each))]
    ours, (_, refused) = decoder(of).decode(payloads(*damaged)), format_of("avro").reference(of, {}).decode(damaged)
    assert {each.row for each in ours.refused} == set(refused)


def test_an_empty_record_continues_an_empty_message() -> None:
    """Formats meet: presence is presence; and an empty record that gets fields lies beside it."""
    held = grown(schema({"M": {"pause": (1, "E")}, "E": {}}, {}))
    assert reported(evolve(held, avro(pause=["null", record()]), DEFAULTS)[0]) == [("pause", "format: keep", "pause")]
    full = avro(pause=["null", record(by="string")])
    assert reported(evolve(grown(avro(pause=["null", record()])), full, DEFAULTS)[0]) == [
        ("pause", "widen: side-column", "pause__v2")
    ]
