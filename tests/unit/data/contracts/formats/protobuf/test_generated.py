"""Definitions that nobody would write by hand, with careless bytes: both decoders of protobuf must agree."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FeatureSet, FieldDescriptorProto, FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.data.contracts.formats.supported import columns, decoder, format_of, quick_look
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import message_class, payloads
from tests.unit.data.contracts.formats.protobuf.wire_world import BOXES, KEYS, SCALARS, SYNTAXES, Shallow, comparable

INNER = (*BOXES, "Struct", "Value", "ListValue", "Any", "FieldMask", "Empty")
LABELS = FieldDescriptorProto.Label


def generated(draw: random.Random) -> Schema:
    """Return a schema of up to three files, each with a syntax of its own, of which later ones use earlier ones."""
    files: list[FileDescriptorProto] = []
    messages = list[str]()
    for place in range(draw.randint(1, 3)):
        syntax = draw.choice(SYNTAXES)
        enum = f"E{place}"
        numbers = draw.sample([0, 1, 2, -1, 2**31 - 1], draw.randint(1, 4))
        if syntax == "proto3":
            numbers = [0, *(each for each in numbers if each)]
        kinds = [*SCALARS, *(f"wkt:{each}" for each in INNER), *messages]
        own = {f"M{place}_{index}": fields(draw, kinds, enum, with_maps=0 in numbers) for index in range(2)}
        file = define(own, {enum: {f"V{place}_{index}": each for index, each in enumerate(numbers)}}, syntax=syntax)
        file.name = f"f{place}.proto"
        file.dependency.extend(each.name for each in files)
        decorate(draw, file, syntax, is_closed=numbers[0] != 0)
        files.append(file)
        messages += list(own)
    top = f"t.{messages[-1]}"
    definition = format_of("protobuf").canonical(top, bundle(*files))
    return Schema(1, "protobuf", top, definition)


def fields(draw: random.Random, kinds: list[str], enum: str, *, with_maps: bool) -> Fields:
    found: dict[str, tuple[int, str]] = {"always": (1, "int32")}
    for number in draw.sample(range(2, 3000), draw.randint(0, 6)):
        kind = draw.choice([*kinds, enum])
        shape = draw.choice(["", "", "repeated ", "map"])
        if shape == "map" and (kind != enum or with_maps):
            found[f"f{number}"] = (number, f"map<{draw.choice(KEYS)}, {kind}>")
        else:
            found[f"f{number}"] = (number, f"{'' if shape == 'map' else shape}{kind}")
    return found


def decorate(draw: random.Random, file: FileDescriptorProto, syntax: str, *, is_closed: bool) -> None:
    """Give some fields what their syntax allows: a oneof, presence, being required, packed or not."""
    if syntax == "editions":
        closed = is_closed or draw.random() < 0.3
        file.enum_type[0].options.features.enum_type = FeatureSet.CLOSED if closed else FeatureSet.OPEN
        file.options.features.repeated_field_encoding = draw.choice([FeatureSet.PACKED, FeatureSet.EXPANDED])
    for message in file.message_type:
        message.oneof_decl.add(name="one")
        for field in message.field:
            one = field.label != LABELS.LABEL_REPEATED
            if one and draw.random() < 0.3:
                field.oneof_index = 0
            elif one and draw.random() < 0.3 and syntax == "proto2":
                field.label = LABELS.LABEL_REQUIRED
            elif one and draw.random() < 0.5 and syntax == "editions" and field.type not in {11, 14}:
                field.options.features.field_presence = draw.choice(
                    [FeatureSet.IMPLICIT, FeatureSet.LEGACY_REQUIRED, FeatureSet.EXPLICIT]
                )
            elif not one and field.type not in {9, 11, 12} and syntax != "editions" and draw.random() < 0.5:
                field.options.packed = draw.random() < 0.5
        if not any(field.HasField("oneof_index") for field in message.field):
            del message.oneof_decl[:]


def check(seed: int) -> None:
    """Decode careless bytes of a generated schema with both decoders, and compare."""
    draw = random.Random(seed)
    of = generated(draw)
    made: Any = message_class(of)
    producer = Shallow(seed)
    rows = [producer.message(made.DESCRIPTOR, 8) for _ in range(12)]
    contents = [row for row in [*rows, *(row[:-1] for row in rows[:3])] if row]
    ours = decoder(of).decode(payloads(*contents))
    table, refused = format_of("protobuf").reference(of, {}).decode(contents)
    look = quick_look(of)
    assert not any(look(contents[row]) for row in refused if look is not None)
    assert {each.row: each.reason for each in ours.refused} == {row: why.reason for row, why in refused.items()}
    assert ours.batch.schema == columns(of)
    found = pa.Table.from_batches([ours.batch]).to_pylist()
    assert comparable(found) == comparable(table.select(ours.batch.schema.names).to_pylist())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**64))
def test_both_decoders_agree_on_generated_definitions(seed: int) -> None:
    """Law L5: whatever the definition and the bytes, the values and refusals are those of the simple second decoder."""
    check(seed)


@pytest.mark.long
@settings(max_examples=3_000, deadline=None)
@given(seed=st.integers(0, 2**64))
def test_both_decoders_agree_on_many_generated_definitions(seed: int) -> None:
    """Law L5: the same in volume."""
    check(seed)


def _value_elsewhere(file: FileDescriptorProto) -> None:
    file.message_type[0].nested_type[0].field[1].number = 34


def _value_repeated(file: FileDescriptorProto) -> None:
    file.message_type[0].nested_type[0].field[1].label = LABELS.LABEL_REPEATED


def _three_fields(file: FileDescriptorProto) -> None:
    file.message_type[0].nested_type[0].field.add(name="more", number=3, label=1, type=5)


def _bytes_for_a_key(file: FileDescriptorProto) -> None:
    file.message_type[0].nested_type[0].field[0].type = FieldDescriptorProto.TYPE_BYTES


def _one_entry(file: FileDescriptorProto) -> None:
    file.message_type[0].field[1].label = LABELS.LABEL_OPTIONAL


def _entry_of_another_message(file: FileDescriptorProto) -> None:
    file.message_type[1].field.add(name="by", number=9, label=3, type=11, type_name=".t.M.ByEntry")


def _entry_as_a_value(file: FileDescriptorProto) -> None:
    value = file.message_type[0].nested_type[0].field[1]
    value.type, value.type_name = FieldDescriptorProto.TYPE_MESSAGE, ".t.S.ByEntry"


def _extensible_entry(file: FileDescriptorProto) -> None:
    file.message_type[0].nested_type[0].extension_range.add(start=100, end=200)


FORGED_MAPS: list[Callable[[FileDescriptorProto], None]] = [
    _value_elsewhere, _value_repeated, _three_fields, _bytes_for_a_key, _one_entry, _entry_of_another_message,
    _entry_as_a_value, _extensible_entry,
]  # fmt: skip


@pytest.mark.parametrize("forge", FORGED_MAPS)
def test_a_map_that_no_compiler_writes_is_refused(forge: Callable[[FileDescriptorProto], None]) -> None:
    """Law L6: protobuf's own parser dies of some of them, and with it the process: they are never registered."""
    with_map: Fields = {"id": (1, "int32"), "by": (2, "map<string, int32>"), "s": (3, "S")}
    file = define({"M": with_map, "S": {"n": (1, "int32"), "by": (2, "map<string, int32>")}}, syntax="proto2")
    assert format_of("protobuf").canonical("t.M", bundle(file))
    forge(file)
    with pytest.raises(Refused, match=r"declare it as map|is not valid"):
        format_of("protobuf").canonical("t.M", bundle(file))


def test_the_entry_of_a_map_is_no_payload() -> None:
    """Law L6: nor is such an entry on its own."""
    with pytest.raises(Refused, match="is the entry of a map"):
        format_of("protobuf").canonical("t.M.ByEntry", bundle(define({"M": {"by": (1, "map<string, int32>")}})))
