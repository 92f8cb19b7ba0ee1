from collections.abc import Mapping

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pipeline.base.errors import Refused
from pipeline.data.contracts.formats.protobuf.messages import MAX_DESCRIPTOR_BYTES, canonical, describe
from pipeline.data.contracts.formats.supported import fingerprint
from tests.unit.data.contracts.definition_world import Fields, bundle, define

SIMPLE = {"M": {"a": (1, "int32")}}


def test_what_carries_no_data_does_not_change_a_definition() -> None:
    """Comments, services, options for languages and JSON names never make a second schema out of one."""
    plain, decorated = define(SIMPLE), define(SIMPLE)
    decorated.source_code_info.location.add(leading_comments="a comment")
    decorated.service.add(name="S").method.add(name="Do", input_type=".t.M", output_type=".t.M")
    decorated.options.java_package = "com.example"
    decorated.edition = descriptor_pb2.EDITION_PROTO3
    decorated.message_type[0].field[0].json_name = "a"
    bystander = FileDescriptorProto(name="other.proto", package="other", syntax="proto3")
    bystander.message_type.add(name="Unused")
    timestamps = FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    one, two = canonical("t.M", bundle(plain)), canonical("t.M", bundle(timestamps, bystander, decorated))
    assert one == two
    assert fingerprint("protobuf", "t.M", one) == fingerprint("protobuf", "t.M", two)


@pytest.mark.parametrize(
    "other",
    [
        {"M": {"b": (1, "int32")}},
        {"M": {"a": (2, "int32")}},
        {"M": {"a": (1, "int64")}},
        {"M": {"a": (1, "repeated int32")}},
    ],
)
def test_what_carries_data_changes_a_definition(other: Mapping[str, Fields]) -> None:
    """A name, number, type or repetition makes another schema."""
    assert canonical("t.M", bundle(define(SIMPLE))) != canonical("t.M", bundle(define(other)))


def test_two_messages_of_one_file_differ() -> None:
    """The message's name is part of a schema's identity."""
    descriptor = canonical("t.M", bundle(define({**SIMPLE, "N": {"a": (1, "int32")}})))
    assert fingerprint("protobuf", "t.M", descriptor) != fingerprint("protobuf", "t.N", descriptor)


def test_imports_come_first_whatever_order_they_were_given_in() -> None:
    """A definition spread over files is valid in any order of the files, and has one form."""
    imported = FileDescriptorProto(name="sub.proto", package="t", syntax="proto3")
    imported.message_type.add(name="Sub").field.add(name="x", number=1, label=1, type=5)
    file = define({"M": {"sub": (1, "Sub")}})
    file.dependency.append("sub.proto")
    assert canonical("t.M", bundle(file, imported)) == canonical("t.M", bundle(imported, file))
    assert describe("t.M", canonical("t.M", bundle(file, imported))).fields_by_name["sub"].message_type is not None


def test_a_forged_well_known_file_is_ignored() -> None:
    """Nobody can redefine what a timestamp is."""
    forged = FileDescriptorProto(name="google/protobuf/timestamp.proto", package="google.protobuf", syntax="proto3")
    forged.message_type.add(name="Timestamp").field.add(name="evil", number=1, label=1, type=9)
    file = define({"M": {"at": (1, "wkt:Timestamp")}})
    inner = describe("t.M", canonical("t.M", bundle(forged, file))).fields_by_name["at"].message_type
    assert inner is not None
    assert [each.name for each in inner.fields] == ["seconds", "nanos"]


def _lacking() -> bytes:
    file = define(SIMPLE)
    file.dependency.append("absent.proto")
    return bundle(file)


def _looping() -> bytes:
    one, two = define(SIMPLE), FileDescriptorProto(name="two.proto", dependency=["t.proto"], syntax="proto3")
    one.dependency.append("two.proto")
    return bundle(one, two)


def _editions() -> bytes:
    file = define(SIMPLE, syntax="editions")
    file.edition = descriptor_pb2.EDITION_99999_TEST_ONLY
    return bundle(file)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.M", b"\xff\xff\xff", "is not a FileDescriptorSet"),
        ("t.M", b"", "does not define the message 't.M'. It defines: none"),
        ("t.X", bundle(define(SIMPLE)), "does not define the message 't.X'. It defines: 't.M'"),
        ("google.protobuf.Timestamp", bundle(define(SIMPLE)), "does not define the message"),
        ("t.M\n\x1b[31m" + "x" * 500, bundle(define(SIMPLE)), r"'t.M\n\x1b[31m"),
        ("t.M", _lacking(), "lacks the imported file 'absent.proto'"),
        ("t.M", _looping(), "is not valid"),
        ("t.M", bundle(define(SIMPLE), define(SIMPLE)), "holds a file twice"),
        ("t.M", bundle(define({"M": {"a": (1, "Absent")}})), "is not valid"),
        ("t.M", bundle(define({"M": {"a b": (1, "int32")}})), "is not valid"),
        ("t.M", _editions(), "uses edition 99999 of protobuf"),
        ("t.M", b"\0" * (MAX_DESCRIPTOR_BYTES + 1), "at most 1048576"),
    ],
)
def test_a_bad_definition_is_refused_in_one_sentence(name: str, content: bytes, sentence: str) -> None:
    """Whatever bytes are handed in, the answer is a sentence for a person, free of raw control characters."""
    with pytest.raises(Refused) as refusal:
        canonical(name, content)
    assert sentence in str(refusal.value)
    assert str(refusal.value).isprintable()
