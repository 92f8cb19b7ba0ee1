"""The messages on the wire: the wrapper, and sample payloads in six versions of three families."""

import itertools
import subprocess
import sys
from pathlib import Path

import ptars
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from pipeline.base.errors import Refused
from pipeline.demo.samples.sample import FAMILIES, VERSIONS
from pipeline.demo.samples.supported import payload_schema
from protos import generate
from protos.turnout.v1 import wrapper_pb2
from tests.checkout import ROOT

PAIRS = list(itertools.product(FAMILIES, range(1, VERSIONS + 1)))


def descriptor(family: str, version: int) -> Descriptor:
    name, files = payload_schema(family, version)
    pool = DescriptorPool()
    for item in FileDescriptorSet.FromString(files).file:
        pool.Add(item)
    return pool.FindMessageTypeByName(name)


def shape(message: Descriptor) -> dict[str, object]:
    """Return every field below a message by its path, with all that must never change."""
    fields: dict[str, object] = {}
    for item in message.fields:
        kind = item.type if item.message_type is None else item.message_type.full_name
        nested = str(kind).startswith("samples.")
        oneof = item.containing_oneof.name if item.containing_oneof is not None else None
        fields[item.name] = (item.number, None if nested else kind, item.is_repeated, oneof)
        if item.enum_type is not None:
            fields |= {f"{item.name}={value.name}": value.number for value in item.enum_type.values}
        if nested and item.message_type is not None:
            fields |= {f"{item.name}.{path}": what for path, what in shape(item.message_type).items()}
    return fields


def test_wrapper_on_the_wire_is_fixed() -> None:
    """Producers depend on the wrapper's numbers and types, so these are exactly the agreed ones."""
    expected = "game:1:9 schema_id:2:13 payload:3:12 event_time:4:11 event_id:5:9 producer_id:6:9 sequence:7:4"
    wrapper = wrapper_pb2.Wrapper.DESCRIPTOR

    assert wrapper.full_name == "turnout.v1.Wrapper"
    assert expected == " ".join(f"{item.name}:{item.number}:{item.type}" for item in wrapper.fields)


@pytest.mark.parametrize(("family", "version"), PAIRS)
def test_payload_schema_stands_alone(family: str, version: int) -> None:
    """A registered descriptor set holds all it depends on: an empty pool and ptars can both build from it."""
    message = descriptor(family, version)
    handler = ptars.HandlerPool([message.file]).get_for_message(message)

    assert [item.name for item in message.fields] == handler.list_to_record_batch([b""]).schema.names


@pytest.mark.parametrize("family", FAMILIES)
def test_versions_only_add(family: str) -> None:
    """Each version keeps every field of the one before, nested ones too, as it was, and adds some."""
    shapes = [shape(descriptor(family, version)) for version in range(1, VERSIONS + 1)]

    for older, newer in itertools.pairwise(shapes):
        assert older.items() < newer.items()


def test_samples_use_what_real_payloads_use() -> None:
    """Nested messages, repeated fields, enums, timestamps, maps and oneofs all occur, with 20 fields in the end."""
    last = [descriptor(family, VERSIONS) for family in FAMILIES]
    for message in last:
        kinds = {item.message_type.full_name for item in message.fields if item.message_type is not None}
        assert "google.protobuf.Timestamp" in kinds
        assert any(kind.endswith("Entry") for kind in kinds)
        assert len(message.fields) >= 20
        assert message.oneofs
        assert message.enum_types
        assert any(item.is_repeated for item in message.fields)


def test_unknown_schema_is_refused() -> None:
    """Asking for a family or version that does not exist says which do."""
    with pytest.raises(Refused, match="puzzle, shooter, racing and 1 to 6"):
        payload_schema("chess", 1)
    with pytest.raises(Refused, match="version 0"):
        payload_schema("puzzle", 0)


def test_generated_files_are_current() -> None:
    """What is committed is what the sources compile to."""
    command = [sys.executable, "-m", "protos.generate", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert (result.returncode, result.stdout) == (0, "")


def test_check_finds_what_would_change(tmp_path: Path) -> None:
    """An edited source, a missing and a left-over generated file are each found."""
    source = tmp_path / "protos" / "thing.proto"
    source.parent.mkdir()
    source.write_text('syntax = "proto3"; package thing; message Thing { int32 a = 1; }')
    module, stub, old = (Path("protos") / name for name in ("thing_pb2.py", "thing_pb2.pyi", "old_pb2.py"))

    wanted = generate.differences(tmp_path)
    assert {module, stub} == wanted.keys()

    for path, content in wanted.items():
        assert content is not None
        (tmp_path / path).write_bytes(content)
    assert generate.differences(tmp_path) == {}

    (tmp_path / old).write_text("")
    assert generate.differences(tmp_path) == {old: None}

    source.write_text('syntax = "proto3"; package thing; message Thing { int32 a = 1; int32 b = 2; }')
    assert {module, stub, old} == generate.differences(tmp_path).keys()
