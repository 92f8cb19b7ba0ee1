"""The contract that every format of payloads fulfils; a further format is one more line in SAMPLES."""

import datetime as dt
import decimal
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import message_factory

from pipeline.base.errors import Refused
from pipeline.data.contracts.columns import members
from pipeline.data.contracts.decoded import MAX_DETAIL, MAX_EXCERPT_VALUE, MAX_PAYLOAD_BYTES, Decoded
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.protobuf.messages import canonical, describe
from pipeline.data.contracts.formats.supported import (
    BY_SUFFIX,
    FORMATS,
    columns,
    decoder,
    fingerprint,
    format_of,
    message,
)
from pipeline.data.contracts.model import Message
from pipeline.data.contracts.placing import placed
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema
from pipeline.data.contracts.shape import placed_columns
from tests.unit.data.contracts.definition_world import Fields, bundle, define


@dataclass(frozen=True, slots=True)
class Sample:
    """One definition of a format, with payloads."""

    message: str
    definition: bytes  # with every shape: one, many, by key, nested; its fields in the order of their ids
    same: bytes  # another definition with the same meaning
    other: bytes  # one with another meaning
    payloads: tuple[bytes, ...]  # good ones, each with another value
    filled: Callable[[int], bytes]  # a good payload with a text of this number of characters
    broken: tuple[bytes, ...]  # bytes that are no payload, beside all that are cut
    shown: Mapping[str, str]  # of the first payload, as people see it


def _protobuf() -> Sample:
    fields: dict[str, Fields] = {
        "M": {
            "id": (1, "uint64"),
            "name": (2, "string"),
            "tags": (3, "repeated string"),
            "pos": (4, "Pos"),
            "hits": (5, "repeated Pos"),
            "by_name": (6, "map<string, Pos>"),
            "kind": (7, "E"),
            "at": (8, "wkt:Timestamp"),
            "maybe": (9, "optional int32"),
            "blob": (10, "bytes"),
            "ratio": (11, "double"),
            "nothing": (12, "wkt:Empty"),
        },
        "Pos": {"x": (1, "float"), "y": (2, "sint64")},
    }
    file, other = define(fields, {"E": {"ZERO": 0, "ONE": 1}}), define({"M": {"id": (1, "string")}})
    definition = bundle(file)
    file.source_code_info.location.add(leading_comments="a comment")
    made: Any = message_factory.GetMessageClass(describe("t.M", canonical("t.M", definition)))
    full = made(id=7, name="Zoë", tags=["", "b"], kind=1, maybe=-1, blob=b"\x00\xff", ratio=0.5)
    full.pos.x = 1.5
    full.hits.add(y=-3)
    full.by_name["k"].y = 2**40
    full.at.FromDatetime(dt.datetime(2026, 11, 25, tzinfo=dt.UTC))
    payloads = tuple(each.SerializeToString() for each in (full, made(id=8), made(id=9, tags=["x"] * 5)))
    return Sample(
        "t.M",
        definition,
        same=bundle(file),
        other=bundle(other),
        payloads=payloads,
        filled=lambda size: made(name="n" * size).SerializeToString(),
        broken=(b"\xff", b"\x08", b"\x12\x02\xff\xff", b"\x0b", b"\x00" * 9),
        shown={"id": "7", "name": "Zoë", "kind": "ONE", "maybe": "-1", "blob": "00 ff"},
    )


def _avro() -> Sample:
    pos = {
        "type": "record",
        "name": "other.Pos",
        "fields": [{"name": "x", "type": "float"}, {"name": "y", "type": "long"}],
    }
    types: dict[str, Any] = {
        "id": "long",
        "name": "string",
        "tags": {"type": "array", "items": "string"},
        "pos": ["null", pos],
        "hits": {"type": "array", "items": "other.Pos"},
        "by_name": {"type": "map", "values": "other.Pos"},
        "kind": {"type": "enum", "name": "E", "symbols": ["ZERO", "ONE"]},
        "at": {"type": "long", "logicalType": "timestamp-micros"},
        "maybe": ["null", "int"],
        "blob": "bytes",
        "ratio": "double",
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "any": ["null", "string", "other.Pos"],
        "nothing": "null",
    }
    record = {
        "type": "record",
        "name": "t.M",
        "fields": [{"name": name, "type": each} for name, each in types.items()],
    }
    read = fastavro.parse_schema(record)

    def written(**values: Any) -> bytes:
        empty = {"id": 0, "name": "", "tags": [], "hits": [], "by_name": {}, "kind": "ZERO", "at": 0, "blob": b""}
        into = io.BytesIO()
        fastavro.schemaless_writer(into, read, {**empty, "ratio": 0.0, "price": decimal.Decimal(0), **values})
        return into.getvalue()

    full: dict[str, Any] = {
        "id": 7,
        "name": "Zoë",
        "tags": ["", "b"],
        "pos": {"x": 1.5, "y": 2**40},
        "hits": [{"x": 0.0, "y": -3}],
        "by_name": {"k": {"x": 0.5, "y": 1}},
        "kind": "ONE",
        "at": dt.datetime(2026, 11, 25, tzinfo=dt.UTC),
        "maybe": -1,
        "blob": b"\x00\xff",
        "price": decimal.Decimal("-12.34"),
        "any": "text",
    }
    good = (written(**full), written(id=8, any={"x": 1.0, "y": 1}), written(id=9, tags=["x"] * 5))
    return Sample(
        "t.M",
        json.dumps(record).encode(),
        same=json.dumps({**record, "doc": "a comment"}, indent=2).encode(),
        other=json.dumps({**record, "fields": record["fields"][:2]}).encode(),
        payloads=good,
        filled=lambda size: written(name="n" * size),
        broken=(b"\xff", b"\x00" * 9, good[0] + b"\x00", b"\xff" * 11),
        shown={"id": "7", "name": "Zoë", "kind": "ONE", "maybe": "-1", "blob": "00 ff"},
    )


def _json() -> Sample:
    number = {"type": "number"}
    pos = {"type": "object", "properties": {"x": number, "y": {"type": "integer"}}}
    properties: dict[str, Any] = {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "pos": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/Pos"}]},
        "hits": {"type": "array", "items": {"$ref": "#/$defs/Pos"}},
        "by_name": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Pos"}},
        "kind": {"enum": ["ZERO", "ONE"]},
        "at": {"type": "string", "format": "date-time"},
        "maybe": {"type": ["integer", "null"]},
        "ratio": number,
        "nothing": {"type": "null"},
        "present": {"type": "object", "additionalProperties": False},
    }
    given = {"title": "t.M", "type": "object", "properties": properties, "required": ["id", "name"]}
    inlined = json.loads(json.dumps(properties).replace('{"$ref": "#/$defs/Pos"}', json.dumps(pos)))
    same = {**given, "description": "a comment", "properties": dict(reversed(inlined.items()))}
    full = {
        "id": 7,
        "name": "Zoë",
        "tags": ["", "b"],
        "pos": {"x": 1.5, "y": None},
        "hits": [{"y": -3}],
        "by_name": {"k": {"y": 2**40}},
        "kind": "ONE",
        "at": "2026-11-25T00:00:00Z",
        "maybe": -1,
        "ratio": 0.5,
        "nothing": None,
        "present": {},
    }
    payloads = tuple(
        json.dumps(each, ensure_ascii=False).encode()
        for each in (full, {"id": 8, "name": ""}, {"name": "", "id": 9, "tags": ["x"] * 5, "pos": None})
    )
    return Sample(
        "t.M",
        json.dumps({**given, "$defs": {"Pos": pos}}).encode(),
        same=json.dumps(same, indent=2).encode(),
        other=json.dumps({**given, "properties": {key: properties[key] for key in ("id", "name")}}).encode(),
        payloads=payloads,
        filled=lambda size: json.dumps({"id": 1, "name": "n" * size}).encode(),
        broken=(b"\xff", b"null", payloads[0] * 2, b"[]", b'{"id":1,"id":2,"name":""}', b'{"id":1,"name":"","x":1}'),
        shown={"id": "7", "name": "Zoë", "kind": "ONE", "maybe": "-1", "pos": '{"x": 1.5, "y": null}'},
    )


SAMPLES: dict[str, Callable[[], Sample]] = {"avro": _avro, "json": _json, "protobuf": _protobuf}


@pytest.fixture(params=sorted(FORMATS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sample(name: str) -> Sample:
    return SAMPLES[name]()


@pytest.fixture
def schema(name: str, sample: Sample) -> Schema:
    return Schema(1, name, sample.message, format_of(name).canonical(sample.message, sample.definition))


def arrow(payloads: Iterable[bytes | None]) -> pa.BinaryArray:
    return pa.array(list(payloads), pa.binary())


def cut(payloads: Iterable[bytes]) -> list[bytes]:
    """Return every beginning of these payloads, the whole ones and the empty one too."""
    return [payload[:size] for payload in payloads for size in range(len(payload) + 1)]


def refusals(decoded: Decoded) -> dict[int, str]:
    return {each.row: each.reason for each in decoded.refused}


def test_equal_meanings_have_one_canonical_form(name: str, sample: Sample) -> None:
    """A canonical form is its own; equal meanings share it and its fingerprint, others do not."""
    one = format_of(name)
    form, same, other = (one.canonical(sample.message, each) for each in (sample.definition, sample.same, sample.other))
    assert sample.definition != sample.same
    assert form == same == one.canonical(sample.message, form)
    assert form != other
    prints = {fingerprint(name, sample.message, each) for each in (form, other)}
    prints |= {fingerprint(f"{name}2", sample.message, form), fingerprint(name, f"{sample.message}2", form)}
    assert len(prints) == 4


@pytest.mark.parametrize("definition", [b"", b"\xff", b"nonsense", b"{}", b"[]", b"\x00" * 2_000_000, b"[" * 100_000])
def test_a_definition_of_nothing_is_refused(name: str, sample: Sample, definition: bytes) -> None:
    """Registration refuses it with a sentence, whatever was sent."""
    with pytest.raises(Refused):
        format_of(name).canonical(sample.message, definition)


def test_a_definition_without_the_message_is_refused(name: str, sample: Sample) -> None:
    """The name is part of a registration: a schema never stands for another message."""
    with pytest.raises(Refused):
        format_of(name).canonical("t.Missing", sample.definition)


def agree(fields: Message, held: list[pa.Field]) -> None:
    typed = [each for each in fields.fields if each.kind.type is not None]
    assert [each.name for each in typed] == [each.name for each in held]
    assert [each.kind.type for each in typed] == [each.type for each in held]
    assert all(each.nullable for each in held)
    assert (
        len({each.id for each in fields.fields}) == len({each.suffix for each in fields.fields}) == len(fields.fields)
    )
    for each in fields.fields:
        if each.inside is not None:
            agree(each.inside, members(each.kind.type))


def test_fields_and_columns_agree(schema: Schema) -> None:
    """Evolution plans with the very columns that the decoder fills, at every depth."""
    agree(message(schema), list(columns(schema)))
    shapes = {(each.kind.shape, each.kind.values) for each in message(schema).fields}
    assert {
        ("", "message"),
        ("", "enum"),
        ("", "string"),
        ("repeated", "string"),
        ("repeated", "message"),
        ("map of string", "message"),
    } <= shapes
    assert any(each.optional for each in message(schema).fields)


def test_decoders_fill_the_columns_of_the_schema(schema: Schema, sample: Sample) -> None:
    """Both decoders have the columns that the table was planned with."""
    decoded = decoder(schema).decode(arrow(sample.payloads))
    assert decoder(schema).arrow_schema == decoded.batch.schema == columns(schema)
    assert (decoded.refused, decoded.rows.tolist()) == ([], list(range(len(sample.payloads))))
    assert format_of(schema.format).reference(schema, {}).schema == columns(schema)
    assert len({str(row) for row in decoded.batch.to_pylist()}) == len(sample.payloads)


def test_both_decoders_agree(schema: Schema, sample: Sample) -> None:
    """On good, cut and broken payloads: the same values, the same refusals, each for the same reason."""
    payloads = [*cut(sample.payloads), *sample.broken]
    decoded = decoder(schema).decode(arrow(payloads))
    table, refused = format_of(schema.format).reference(schema, {}).decode(payloads)
    assert refusals(decoded) == {row: error.reason for row, error in refused.items()}
    assert pa.Table.from_batches([decoded.batch]).to_pylist() == table.to_pylist()
    assert set(range(len(payloads) - len(sample.broken), len(payloads))) <= set(refused)
    assert sorted([*decoded.rows.tolist(), *refusals(decoded)]) == list(range(len(payloads)))
    assert [each.row for each in decoded.refused] == sorted(refused)
    assert all(each.detail.isprintable() and 0 < len(each.detail) <= MAX_DETAIL for each in decoded.refused)


def test_no_payload_is_an_empty_payload(schema: Schema, sample: Sample) -> None:
    """A row without a payload has a reason of its own, in both decoders; whether no bytes are one, the format says."""
    decoded = decoder(schema).decode(arrow([None, sample.payloads[0], b""]))
    table, refused = format_of(schema.format).reference(schema, {}).decode([None, sample.payloads[0], b""])
    assert refusals(decoded)[0] == refused[0].reason == "empty_payload"
    assert refusals(decoded) == {row: error.reason for row, error in refused.items()}
    assert (2 in refused) == (schema.format != "protobuf"), "a message of protobuf whose fields have their defaults"
    assert pa.Table.from_batches([decoded.batch]).to_pylist() == table.to_pylist()
    nothing = decoder(schema).decode(arrow([]))
    assert (nothing.batch.num_rows, nothing.batch.schema, nothing.refused) == (0, columns(schema), [])


def test_neighbours_do_not_matter(schema: Schema, sample: Sample) -> None:
    """A payload has the same value or refusal alone, among others, and in a slice of an array."""
    payloads = [*cut(sample.payloads[:1]), *sample.broken, *sample.payloads]
    together = decoder(schema).decode(arrow(payloads))
    sliced = decoder(schema).decode(arrow([b"\x01", *payloads, b"\x02"]).slice(1, len(payloads)))
    assert (sliced.batch, sliced.refused) == (together.batch, together.refused)
    values = dict(zip(together.rows.tolist(), together.batch.to_pylist(), strict=True))
    details = {each.row: each[1:] for each in together.refused}
    for row, payload in enumerate(payloads):
        alone = decoder(schema).decode(arrow([payload]))
        assert alone.batch.to_pylist() == ([values[row]] if row in values else [])
        assert [each[1:] for each in alone.refused] == ([details[row]] if row in details else [])


def test_the_largest_payload_is_bounded(schema: Schema, sample: Sample) -> None:
    """A payload of the limit is decoded and one byte more is refused, by both decoders."""
    over = MAX_PAYLOAD_BYTES - len(sample.filled(MAX_PAYLOAD_BYTES // 2)) + MAX_PAYLOAD_BYTES // 2
    payloads = [sample.filled(over), sample.filled(over + 1)]
    assert [len(payload) - MAX_PAYLOAD_BYTES for payload in payloads] == [0, 1]
    decoded = decoder(schema).decode(arrow(payloads))
    assert (decoded.rows.tolist(), refusals(decoded)) == ([0], {1: "malformed_payload"})
    refused = format_of(schema.format).reference(schema, {}).decode(payloads)[1]
    assert {row: error.reason for row, error in refused.items()} == refusals(decoded)


def test_an_excerpt_goes_as_far_as_a_payload_decodes(schema: Schema, sample: Sample) -> None:
    """A person sees every field of a good payload; of a cut one the same fields before the cut, and where it ends."""
    excerpt = format_of(schema.format).excerpt
    for payload in sample.payloads:
        whole = excerpt(schema, payload)
        assert whole.stopped is None
        assert {name for name, _ in whole.fields} <= {each.name for each in message(schema).fields}
        for size in range(len(payload)):
            part = excerpt(schema, payload[:size])
            assert part.fields == whole.fields[: len(part.fields)]
            assert part.stopped is not None or schema.format == "protobuf"  # which may end after any field
    values = dict(excerpt(schema, sample.payloads[0]).fields)
    assert {name: values[name] for name in sample.shown} == sample.shown


def test_an_excerpt_of_bad_bytes_is_short_and_raises_nothing(schema: Schema, sample: Sample) -> None:
    """Whatever a payload holds, what a person is shown of it is bounded, and says why no more follows."""
    excerpt = format_of(schema.format).excerpt
    for payload in (*sample.broken, sample.filled(100_000), b"\x00" * 16_384, b"\xff" * 16_384, b"\x0a" * 16_384):
        found = excerpt(schema, payload)
        assert all(len(value) <= MAX_EXCERPT_VALUE for _, value in found.fields)
        assert found.stopped or any("fit" in value for _, value in found.fields) or payload == sample.filled(100_000)


def test_a_placement_names_the_columns_of_both_decoders(schema: Schema, sample: Sample) -> None:
    """The reference decoder writes the columns, at every depth, that a pass renames."""
    outer = next(each for each in message(schema).fields if each.kind.shape == "" and each.inside and each.kind.type)
    inner = members(outer.kind.type)[0].name
    names = {outer.name: f"{outer.name}__v2", f"{outer.name}.{inner}": f"{inner}__v2"}
    placement = FieldPlacement(tuple(sorted(names.items())))
    reference = format_of(schema.format).reference(schema, names)
    assert reference.schema == placed_columns(schema, placement) != columns(schema)
    batch = placed(decoder(schema).decode(arrow(sample.payloads)).batch, schema, placement)
    assert reference.decode(sample.payloads)[0].to_pylist() == batch.to_pylist()


def test_a_schema_does_not_change_itself(schema: Schema, sample: Sample) -> None:
    """Its first plan adds columns and nothing else; after that it changes nothing, in whatever form it comes."""
    steps, placement = evolve((), schema, DEFAULTS)
    assert {step.kind for step in steps} == {"add"}
    assert [step.path for step in steps] == [each.name for each in message(schema).fields]
    assert placement == PLAIN
    form = format_of(schema.format).canonical(sample.message, sample.same)
    again = replace(schema, schema_id=2, definition=form)
    assert evolve(((schema, placement),), again, DEFAULTS) == ((), PLAIN)


def test_every_format_has_a_sample() -> None:
    """A format that is not held to the contract is not supported."""
    assert set(SAMPLES) == set(FORMATS)


def test_each_ending_of_a_file_names_one_format() -> None:
    """Pages, commands and folders of schemas know a definition's format by its file, and no file has two."""
    endings = [suffix for each in FORMATS.values() for suffix in each.suffixes]
    assert sorted(endings) == [*BY_SUFFIX]
    assert dict(BY_SUFFIX) == {".avsc": "avro", ".desc": "protobuf", ".json": "json"}
