"""Definitions in editions of protobuf: their features decide, and the same meaning changes nothing."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import (
    EDITION_2023,
    EDITION_2024,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
    SymbolVisibility,
)

from pipeline.base.errors import Refused
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.formats.supported import columns, decoder, format_of, message
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.schemas import PLAIN, Schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import payloads

FIELDS: dict[str, Fields] = {
    "M": {
        "id": (1, "int32"),
        "name": (2, "string"),
        "kind": (3, "E"),
        "hits": (4, "repeated int32"),
        "sub": (5, "S"),
        "kinds": (6, "repeated E"),
        "by": (7, "map<string, E>"),
    },
    "S": {"x": (1, "sint32"), "kind": (2, "E")},
}
FIRST_IS_ONE = {"E": {"ONE": 1, "TWO": 2, "UNO": 1}}
WITH_ZERO = {"E": {"ONE": 1, "ZERO": 0, "UNO": 1}}


def edition(
    enums: dict[str, dict[str, int]] | None = None, fields: Mapping[str, Fields] = FIELDS
) -> FileDescriptorProto:
    return define(fields, enums or {"E": {"ZERO": 0, "ONE": 1}}, syntax="editions")


def schema(*files: FileDescriptorProto) -> Schema:
    return Schema(1, "protobuf", "t.M", format_of("protobuf").canonical("t.M", bundle(*files)))


def decode(of: Schema, *contents: bytes) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return the rows, and why others were refused; both decoders must agree."""
    ours = decoder(of).decode(payloads(*contents))
    table, refused = format_of("protobuf").reference(of, {}).decode(contents)
    assert {each.row: each.reason for each in ours.refused} == {row: why.reason for row, why in refused.items()}
    assert ours.batch.schema == columns(of)
    assert pa.Table.from_batches([ours.batch]).to_pylist() == table.to_pylist()
    return ours.batch.to_pylist(), {each.row: each.detail for each in ours.refused}


@pytest.mark.parametrize("number", [EDITION_2023, EDITION_2024])
def test_absence_is_recorded_as_the_features_say(number: Any) -> None:
    """Law L5: explicit presence gives null, implicit presence protobuf's default, and a required field a refusal."""
    file = edition()
    file.edition = number
    (m, s) = file.message_type
    m.field[0].options.features.field_presence = FeatureSet.LEGACY_REQUIRED
    m.field[1].options.features.field_presence = FeatureSet.IMPLICIT
    file.options.features.field_presence = FeatureSet.EXPLICIT
    s.field[0].options.features.field_presence = FeatureSet.IMPLICIT
    rows, refused = decode(schema(file), b"\x08\x05\x2a\x00", b"\x12\x01a", b"\x08\x00\x12\x00\x18\x00")
    empty: dict[str, Any] = {"hits": [], "sub": None, "kinds": [], "by": []}
    assert rows == [
        {**empty, "id": 5, "name": "", "kind": None, "sub": {"x": 0, "kind": None}},
        {**empty, "id": 0, "name": "", "kind": "ZERO"},
    ]
    assert refused == {1: "the required field id is missing"}


@pytest.mark.parametrize("enums", [FIRST_IS_ONE, WITH_ZERO])
def test_a_closed_enum_has_its_own_values_only(enums: dict[str, dict[str, int]]) -> None:
    """Law L5: a number that it lacks counts as absent, in lists and maps too; 0 is no value where it has none."""
    named = {number: name for name, number in reversed(enums["E"].items())}
    content = b"\x08\x07\x18\x09\x32\x03\x01\x09\x00\x2a\x02\x10\x09"
    fields = {name: dict(given) for name, given in FIELDS.items()}
    if 0 in named:
        content += b"\x3a\x05\x0a\x01k\x10\x09\x3a\x05\x0a\x01l\x10\x01"
    else:  # protobuf has no maps of such an enum
        del fields["M"]["by"]
    file = edition(enums, fields)
    file.enum_type[0].options.features.enum_type = FeatureSet.CLOSED
    ((row, zero), refused) = decode(schema(file), content, b"\x18\x00")
    assert (row["kind"], row["sub"], refused) == (None, {"x": None, "kind": None}, {})
    assert row["kinds"] == [named[each] for each in (1, 0) if each in named]
    assert row.get("by") == ([("l", "ONE")] if 0 in named else None)
    assert zero["kind"] == named.get(0)


def test_an_open_enum_shows_the_number() -> None:
    """Law L5: a number that it lacks is kept as a number, as in proto3."""
    ((row,), _) = decode(schema(edition()), b"\x18\x09\x32\x02\x01\x09")
    assert (row["kind"], row["kinds"]) == ("9", ["ONE", "9"])


@pytest.mark.parametrize("encoding", [FeatureSet.PACKED, FeatureSet.EXPANDED])
def test_numbers_may_come_packed_or_not(encoding: Any) -> None:
    """Law L5: whichever encoding the definition wants, both are read, mixed and in parts."""
    file = edition()
    file.options.features.repeated_field_encoding = encoding
    rows, refused = decode(schema(file), b"\x20\x01\x20\x02", b"\x22\x02\x01\x02", b"\x20\x01\x22\x01\x02")
    assert ([row["hits"] for row in rows], refused) == ([[1, 2]] * 3, {})


def test_the_same_definition_in_an_edition_changes_nothing() -> None:
    """A producer that moves a file from proto3 to an edition needs no new column and no policy."""
    before = schema(define(FIELDS, {"E": {"ZERO": 0, "ONE": 1}}))
    file = edition()
    file.options.features.field_presence = FeatureSet.IMPLICIT
    after = replace(schema(file), schema_id=2)
    assert message(after) == message(before)
    assert evolve(((before, PLAIN),), after, DEFAULTS) == ((), PLAIN)
    assert columns(after) == columns(before)
    assert after.definition != before.definition


def test_presence_may_be_gained() -> None:
    """A field that records its absence from now on is an addition, which needs no other column."""
    file = edition()
    file.options.features.field_presence = FeatureSet.IMPLICIT
    steps, placement = evolve(((schema(file), PLAIN),), replace(schema(edition()), schema_id=2), DEFAULTS)
    assert {step.kind for step in steps} == {"add"}
    assert placement == PLAIN


def _for_java(file: FileDescriptorProto) -> None:
    """Let the file import what only options for other languages need, before a public import."""
    file.dependency.insert(0, "google/protobuf/java_features.proto")
    file.dependency.append("google/protobuf/go_features.proto")
    file.public_dependency.append(1)
    file.options.java_package = "com.example"
    file.options.features.utf8_validation = FeatureSet.NONE
    file.options.features.json_format = FeatureSet.LEGACY_BEST_EFFORT
    file.message_type[0].options.features.json_format = FeatureSet.ALLOW
    file.message_type[0].field[0].options.features.utf8_validation = FeatureSet.VERIFY
    file.enum_type[0].options.features.json_format = FeatureSet.ALLOW
    file.option_dependency.append("acme/options.proto")
    file.message_type[0].visibility = SymbolVisibility.VISIBILITY_LOCAL


def test_features_without_data_change_no_definition() -> None:
    """Features of other languages and of JSON never make a second schema of a file, nor need their imports."""
    file, plain = edition(), edition()
    _for_java(file)
    plain.public_dependency.append(0)
    form = canonical("t.M", bundle(plain))
    assert canonical("t.M", bundle(file)) == form
    assert canonical("t.M", form) == form


@pytest.mark.parametrize(
    "change",
    [
        lambda file: setattr(file.options.features, "field_presence", FeatureSet.IMPLICIT),
        lambda file: setattr(file.message_type[0].field[0].options.features, "field_presence", FeatureSet.IMPLICIT),
        lambda file: setattr(file.enum_type[0].options.features, "enum_type", FeatureSet.CLOSED),
    ],
)
def test_features_with_data_change_a_definition(change: Callable[[FileDescriptorProto], None]) -> None:
    """Presence and closed enums change what bytes mean, so they make another schema."""
    file = edition()
    change(file)
    assert schema(file) != schema(edition())


@pytest.mark.parametrize("whole_file", [False, True])
def test_delimited_messages_are_refused_as_groups_are(whole_file: bool) -> None:
    """A delimited message is a group on the wire; its definition is refused with the path of the field."""
    file = edition()
    held = file if whole_file else file.message_type[0].field[4]
    held.options.features.message_encoding = FeatureSet.DELIMITED
    with pytest.raises(Refused, match="sub: is a group"):
        schema(file)


@pytest.mark.parametrize("place", [3, 5, 6])
def test_a_list_cannot_be_required(place: int) -> None:
    """Compilers refuse such a definition and the runtime does not: no decoder could say what it means."""
    file = edition()
    file.message_type[0].field[place].options.features.field_presence = FeatureSet.LEGACY_REQUIRED
    with pytest.raises(Refused, match="is repeated, so it cannot be required"):
        schema(file)


def test_a_group_that_the_payload_does_not_use_disturbs_nothing() -> None:
    """A file may hold more than the payload's message, in forms that no table could hold."""
    file = edition(fields={**FIELDS, "Other": {"sub": (1, "S"), "self": (2, "Other"), "by": (3, "map<string, Other>")}})
    file.message_type[2].field[0].options.features.message_encoding = FeatureSet.DELIMITED
    rows, refused = decode(schema(file), b"\x08\x05")
    assert (rows[0]["id"], refused) == (5, {})


def test_files_of_all_kinds_import_each_other() -> None:
    """A message in an edition holds one of proto2 and one of proto3, each read by the rules of its own file."""
    old = define({"Old": {"n": (1, "int32"), "kind": (2, "F")}}, {"F": {"OLD": 1}}, name="old.proto", syntax="proto2")
    old.message_type[0].field[0].label = FieldDescriptorProto.LABEL_REQUIRED
    new = define({"New": {"n": (1, "int32"), "s": (2, "wkt:Value")}}, name="new.proto")
    file = edition()
    file.dependency.extend(["old.proto", "new.proto"])
    for number, name in enumerate(("Old", "New"), 11):
        file.message_type[0].field.add(name=name.lower(), number=number, label=1, type=11, type_name=f".t.{name}")
    contents = [b"\x5a\x04\x08\x01\x10\x09", b"\x5a\x00", b"\x62\x00", b"\x62\x04\x12\x02\x20\x01"]
    rows, refused = decode(schema(new, file, old), *contents)
    assert [(row["old"], row["new"]) for row in rows] == [
        ({"n": 1, "kind": None}, None),
        (None, {"n": 0, "s": None}),
        (None, {"n": 0, "s": "true"}),
    ]
    assert refused == {1: "the required field old.n is missing"}


def test_googles_dates_may_be_in_an_edition() -> None:
    """Google may move its own files to an edition: a date stays a date, and an impossible one is refused."""
    dates = FileDescriptorProto(name="google/type/date.proto", package="google.type", syntax="editions")
    dates.edition = EDITION_2023
    dates.options.features.field_presence = FeatureSet.IMPLICIT
    date = dates.message_type.add(name="Date")
    for number, name in enumerate(("year", "month", "day"), 1):
        date.field.add(name=name, number=number, type=5, label=1)
    file = edition()
    file.dependency.append(dates.name)
    file.message_type[0].field.add(name="on", number=9, label=1, type=11, type_name=".google.type.Date")
    rows, refused = decode(
        schema(dates, file),
        b"\x4a\x05\x08\xe8\x07\x10\x02",
        b"\x4a\x04\x08\xe8\x07\x10\x0d"[:0] or b"\x4a\x05\x08\xe8\x07\x10\x0d",
    )
    assert str(rows[0]["on"]) == "1000-02-01"
    assert list(refused) == [1]
