"""Definitions as registries keep them: several files that refer to each other, several messages in one file."""

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import ParseDict

from pipeline.base.errors import Refused, Transient
from pipeline.data.contracts.envelopes.index_paths import index_path
from pipeline.data.contracts.formats.supported import decoder, format_of
from pipeline.data.contracts.registries import protobuf_sources
from pipeline.data.contracts.registries.answers import Found
from pipeline.data.contracts.registries.kinds import found
from pipeline.data.contracts.registries.protobuf_sources import message_paths
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.formats.protobuf.event_world import payloads
from tests.unit.data.contracts.formats.protobuf.file_world import class_of

MAIN = """
syntax = "proto3";
package acme;
import "acme/car.proto";
import "acme/shared.proto";
import "google/protobuf/struct.proto";
message First { Car car = 1; google.protobuf.Struct extra = 2; }
message Outer {
  message N0 {
    int32 n = 1;
    message Deep { repeated Shared shared = 2; }
  }
  message N1 { N0.Deep deep = 1; google.protobuf.Value any = 2; }
  map<string, Car> cars = 1;
}
"""
IMPORTS = {
    "acme/car.proto": """
        syntax = "proto2";
        package acme;
        message Car { required int32 id = 1; optional string name = 2; }
    """,
    "acme/shared.proto": """
        edition = "2023";
        package acme;
        import "google/protobuf/java_features.proto";
        import "acme/unit.proto";
        option features.(pb.java).utf8_validation = VERIFY;
        message Shared {
          enum Kind { option features.enum_type = CLOSED; ONE = 1; }
          int32 given = 1 [features.field_presence = IMPLICIT];
          int32 maybe = 2;
          Unit unit = 3;
          Kind kind = 4;
        }
    """,
    "acme/unit.proto": 'edition = "2023"; package acme; message Unit { string name = 1; }',
}
DEEP = {"shared": [{"unit": {"name": "km"}, "kind": "ONE"}, {"given": 1, "maybe": 0}]}
SHARED = [
    {"given": 0, "maybe": None, "unit": {"name": "km"}, "kind": "ONE"},
    {"given": 1, "maybe": 0, "unit": None, "kind": None},
]
VALUES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "acme.First": ({"car": {"id": 7}, "extra": {"a": [1]}}, {"car": {"id": 7, "name": None}, "extra": '{"a":[1]}'}),
    "acme.Outer": ({"cars": {"k": {"id": 7, "name": "x"}}}, {"cars": [("k", {"id": 7, "name": "x"})]}),
    "acme.Outer.N0": ({"n": 3}, {"n": 3}),
    "acme.Outer.N0.Deep": (DEEP, {"shared": SHARED}),
    "acme.Outer.N1": ({"deep": DEEP, "any": None}, {"deep": {"shared": SHARED}, "any": "null"}),
}


@pytest.fixture(scope="module")
def compiled() -> Found:
    return found("PROTOBUF", MAIN, IMPORTS, indexed=True)


def test_every_message_of_a_referring_file_is_read_by_its_index_path(compiled: Found) -> None:
    """Law L13: bytes of Confluent's serializer name their message by a path, and nested ones have their values too."""
    assert sorted(compiled.messages.values()) == sorted(VALUES)
    context = SerializationContext("laps", MessageField.VALUE)
    for name, (given, wanted) in VALUES.items():
        of = Schema(1, "protobuf", name, format_of("protobuf").canonical(name, compiled.definition))
        event: Any = ParseDict(given, class_of(name, compiled.definition)())
        with SchemaRegistryClient.new_client({"url": "mock://"}) as registry:
            written = ProtobufSerializer(type(event), registry)(event, context)
        assert written is not None
        opened = index_path(payloads(written[5:]))
        assert compiled.messages[opened.paths[0].as_py()] == name
        decoded = decoder(of).decode(opened.rests)
        assert (decoded.batch.to_pylist(), decoded.refused) == ([wanted], [])
        table, refused = format_of("protobuf").reference(of, {}).decode(opened.rests.to_pylist())
        assert (table.to_pylist(), refused) == ([wanted], {})


def test_a_message_has_one_definition_whatever_is_imported_beside_it(compiled: Found) -> None:
    """The form holds what the message reaches, and none of a compiler's own files."""
    form = format_of("protobuf").canonical("acme.First", compiled.definition)
    assert form == format_of("protobuf").canonical("acme.First", form)
    unit = format_of("protobuf").canonical("acme.Unit", compiled.definition)
    assert b"acme.Unit" in unit
    assert b"acme.Car" not in unit
    assert b"java_features" not in form


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('syntax = "proto3"; message A { B b = 1; }', "no valid .proto file: payload.proto:1:32"),
        (
            'syntax = "proto2"; enum E { X_1 = 0; X1 = 1; } message A { optional E e = 1 [default = X1]; }',
            "payload.proto:1:38: Enum name X1 has the same name as X_1",
        ),
        ('syntax = "proto3"; import "b.proto"; message A {}', "no valid .proto file: b.proto: File not found"),
    ],
)
def test_errors_of_a_file_refuse_its_rows(text: str, wanted: str) -> None:
    """Law L13: a schema that no client could use makes its rows refused ones, with protoc's reason."""
    with pytest.raises(Refused, match=re.escape(wanted)):
        found("PROTOBUF", text, {}, indexed=True)


@pytest.mark.parametrize("syntax", ['syntax = "proto2"', 'syntax = "proto3"', 'edition = "2023"'])
def test_values_of_an_enum_may_have_names_that_json_takes_for_equal(syntax: str) -> None:
    """Law L13: a registry keeps such files, and bytes hold numbers: each value keeps its own name in the column."""
    names = ["X_1", "X1", "x1", "Kind_Y", "Y", "__z", "Z"]
    inside = f"/* é */\tenum Kind {{ {' '.join(f'{name} = {number};' for number, name in enumerate(names))} }}\n"
    imported = f"{syntax}; package t; enum Other {{\n A_1\n = 0;\n\tA1\n = 1; }}"
    label = "optional " if "proto2" in syntax else ""
    fields = f"{label}Kind kind = 1; {label}Other other = 2;"
    text = f'{syntax}; package t; import "other.proto"; message M {{ {inside} {fields} }}'
    definition = found("PROTOBUF", text, {"other.proto": imported}, indexed=False).definition
    of = Schema(1, "protobuf", "t.M", format_of("protobuf").canonical("t.M", definition))
    contents = [bytes([0x08, number, 0x10, number % 2]) for number in range(len(names))]
    wanted = [{"kind": name, "other": ("A_1", "A1")[number % 2]} for number, name in enumerate(names)]
    assert decoder(of).decode(payloads(*contents)).batch.to_pylist() == wanted
    assert format_of("protobuf").reference(of, {}).decode(contents)[0].to_pylist() == wanted


@pytest.mark.parametrize("trouble", ["killed", "full", "no folder", "not installed"])
def test_a_machine_in_trouble_is_no_fault_of_a_schema(
    trouble: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Law L13: a game waits where protoc was killed or had no room, and its rows are not refused for ever."""
    text = 'syntax = "proto3"; message A { int32 a = 1; }'
    code = {
        "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "full": "import sys; sys.exit('../compiled: No space left on device')",
        "no folder": "",
        "not installed": "",
    }[trouble]
    if trouble == "no folder":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "away"))
    elif trouble == "not installed":
        monkeypatch.setattr(protobuf_sources, "find_spec", lambda _name: None)
    else:
        monkeypatch.setattr(protobuf_sources, "_PROTOC", code)
    with pytest.raises(Transient, match=r"The compiler of \.proto files"):
        found("PROTOBUF", text, {}, indexed=True)
    monkeypatch.undo()
    assert found("PROTOBUF", text, {}, indexed=True).messages


def test_a_path_that_clients_count_differently_has_no_message() -> None:
    """A guess would decode rows as another message without a sign: Python counts the entries of maps, Java does not."""
    file = FileDescriptorProto(name="f.proto", package="t")
    outer = file.message_type.add(name="Outer")
    for name in ("TagsEntry", "Bought", "Sold"):
        outer.nested_type.add(name=name).options.map_entry = name == "TagsEntry"
    assert message_paths(file) == {(0,): "t.Outer", (0, 0): "t.Outer.Bought", (0, 2): "t.Outer.Sold"}
    del outer.nested_type[0]
    assert message_paths(file) == {(0,): "t.Outer", (0, 0): "t.Outer.Bought", (0, 1): "t.Outer.Sold"}
