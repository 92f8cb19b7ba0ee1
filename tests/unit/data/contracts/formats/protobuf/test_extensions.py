from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass

from pipeline.base.errors import Refused
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.protobuf.format import ProtobufFormat
from pipeline.data.contracts.formats.supported import message
from pipeline.data.contracts.model import remarks
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.registries.protobuf_sources import descriptor_set
from pipeline.data.contracts.schemas import PLAIN, Schema
from tests.unit.data.contracts.formats.protobuf.file_world import pool_of

FORMAT = ProtobufFormat()
P = 'syntax = "proto2"; package p; message P { optional int32 id = 1; extensions 100 to 199; }'


def compiled(main: str, **imports: str) -> bytes:
    """Return the set of a file and its references, of which keyword `ext` is the file `ext.proto`."""
    return descriptor_set(main, {f"{name}.proto": text for name, text in imports.items()}).SerializeToString()


def schema(definition: bytes, name: str = "p.P") -> Schema:
    return Schema(1, "protobuf", name, FORMAT.canonical(name, definition))


def decoded(of: Schema, *payloads: bytes) -> list[dict[str, Any]]:
    """Return the rows of payloads, on which both decoders agree."""
    found = FORMAT.decoder(of).decode(pa.array(payloads, pa.binary()))
    assert found.refused == []
    table, refused = FORMAT.reference(of, {}).decode(list(payloads))
    assert refused == {}
    assert sorted(table.schema.names) == sorted(found.batch.schema.names)
    assert table.select(found.batch.schema.names).to_pylist() == found.batch.to_pylist()
    assert FORMAT.columns(of).equals(found.batch.schema)
    rows: list[dict[str, Any]] = found.batch.to_pylist()
    return rows


def test_an_extension_of_the_definition_is_a_column() -> None:
    """An extension's value is in the column of its name, like any field's."""
    of = schema(compiled(f"{P} extend P {{ optional int32 age = 100; }}"))
    assert decoded(of, b"\x08\x01\xa0\x06\x2a", b"\x08\x02") == [{"id": 1, "age": 42}, {"id": 2, "age": None}]


def test_an_extension_may_lie_in_a_file_that_nothing_imports() -> None:
    """The registered set defines extensions, whichever of its files needs which."""
    base, ext = P, 'syntax = "proto2"; import "base.proto"; extend p.P { optional int32 age = 100; }'
    of = schema(compiled('syntax = "proto2"; package m; import "base.proto"; message M { optional p.P p = 1; }',
                         base=base, ext=ext), "m.M")  # fmt: skip
    assert decoded(of, b"\x0a\x05\x08\x01\xa0\x06\x2a") == [{"p": {"id": 1, "age": 42}}]


@pytest.mark.proves("G79")
def test_every_shape_of_extension_has_its_values() -> None:
    """Both decoders agree on lists, enums, messages that need the extended one's file, and extensions in maps."""
    text = """
      syntax = "proto2"; package p;
      message P {
        enum Kind { NONE = 0; BIG = 5; }
        message Inner { optional string s = 1; extensions 10 to 20; }
        optional Inner inner = 1; repeated Inner inners = 2; map<string, Inner> by = 3;
        extensions 100 to max;
      }
      message Q {
        extend P { optional Q q = 101; repeated P.Kind kinds = 102; }
        extend P.Inner { optional bytes raw = 10; repeated sint64 many = 11 [packed = true]; }
        optional P.Kind kind = 1; map<int32, string> names = 2; required uint64 must = 3;
      }
      extend P { optional double ratio = 200; repeated Q qs = 536870911; optional bool yes = 103 [default = true]; }
    """
    definition = compiled(text)
    pool = pool_of(definition)
    made: Any = GetMessageClass(pool.FindMessageTypeByName("p.P"))()
    ext = {each.name: each for each in (*pool.FindAllExtensions(made.DESCRIPTOR),)}
    inner = {each.name: each for each in pool.FindAllExtensions(pool.FindMessageTypeByName("p.P.Inner"))}
    q = made.Extensions[ext["q"]]
    q.kind, q.must, q.names[7] = 5, 2**64 - 1, "seven"
    made.Extensions[ext["kinds"]].extend([0, 5])
    made.Extensions[ext["ratio"]] = 0.5
    made.Extensions[ext["qs"]].add(must=1)
    made.inner.Extensions[inner["raw"]] = b"\xff"
    made.by["a"].Extensions[inner["many"]].extend([-1, 2])
    (row,) = decoded(schema(definition), made.SerializeToString())
    assert row["q"] == {"kind": "BIG", "names": [(7, "seven")], "must": 2**64 - 1}
    assert (row["kinds"], row["ratio"], row["yes"]) == (["NONE", "BIG"], 0.5, None)
    assert row["qs"] == [{"kind": None, "names": [], "must": 1}]
    assert row["inner"] == {"s": None, "raw": b"\xff", "many": []}
    assert row["by"] == [("a", {"s": None, "raw": None, "many": [-1, 2]})]


def test_extensions_that_share_a_name_go_by_their_full_names() -> None:
    """Two extensions of one name are two columns, with names that a table can have."""
    text = f"{P} message A {{ extend P {{ optional int32 age = 100; }} }}"
    text += " message B { extend P { optional int32 age = 101; optional int32 ID = 102; } }"
    of = schema(compiled(text))
    row = decoded(of, b"\x08\x01\xa0\x06\x02\xa8\x06\x03\xb0\x06\x04")
    assert row == [{"id": 1, "p_A_age": 2, "p_B_age": 3, "p_B_ID": 4}]
    steps, placement = evolve((), of, DEFAULTS)
    assert (placement, {step.policy for step in steps}) == (PLAIN, {"add"})
    bare = P.replace("package p;", "")
    of = schema(compiled(f"{bare} extend P {{ optional int32 id = 100; }}"), "P")
    assert decoded(of, b"\x08\x01\xa0\x06\x02") == [{"id": 1, "id__f100": 2}]


def test_an_extension_with_another_wire_type_or_without_a_required_field_is_malformed() -> None:
    """The checks of fields hold for extensions, too, in both decoders."""
    text = f"{P} message Q {{ required int32 must = 1; }} extend P {{ optional Q q = 100; optional int32 age = 101; }}"
    of = schema(compiled(text))
    payloads = [b"\xa0\x06\x00", b"\xaa\x06\x00", b"\xa2\x06\x00", b"\xa2\x06\x02\x08\x01"]
    found = FORMAT.decoder(of).decode(pa.array(payloads, pa.binary()))
    _, refused = FORMAT.reference(of, {}).decode(payloads)
    assert [each.row for each in found.refused] == sorted(refused) == [0, 1, 2]


def test_bytes_of_unknown_extensions_are_unknown_fields_and_the_plan_says_so() -> None:
    """A plan names the extensions without a column; their bytes make no row bad."""
    of = schema(compiled(f"{P} extend P {{ optional int32 age = 150; }} message M {{ optional P p = 1; }}"), "p.M")
    assert decoded(of, b"\x0a\x05\x08\x01\xa0\x06\x2a") == [{"p": {"id": 1, "age": None}}]
    assert list(remarks(message(of))) == [
        "extensions 100 to 149, 151 to 199 of p are not in the definition: turnout ignores them"
    ]
    assert list(remarks(message(schema(compiled(P.replace("to 199", "to max")))))) == [
        "extensions 100 to max are not in the definition: turnout ignores them"
    ]


def test_extensions_of_a_message_set_count_as_unknown() -> None:
    """A MessageSet's bytes are not those of fields: its values are ignored, and the plan says so."""
    text = """
      syntax = "proto2"; package p;
      message S { option message_set_wire_format = true; extensions 4 to max; }
      message Q { extend S { optional Q q = 100; } optional int32 a = 1; }
      message P { optional int32 id = 1; optional S set = 2; }
    """
    definition = compiled(text)
    pool = pool_of(definition)
    made: Any = GetMessageClass(pool.FindMessageTypeByName("p.P"))(id=1)
    made.set.Extensions[pool.FindExtensionByName("p.Q.q")].a = 7
    of = schema(definition)
    (row,) = decoded(of, made.SerializeToString())
    assert row["id"] == 1
    assert "q" not in str(row)
    assert list(remarks(message(of))) == ["extensions 4 to max of set are not in the definition: turnout ignores them"]


@pytest.mark.parametrize(
    ("extension", "sentence"),
    [
        ("repeated group G = 100 { optional int32 a = 1; }", "g: is a group"),
        ("optional P self = 100;", "contains itself"),
        ("optional Q q = 100;", "contains itself, by p."),
    ],
)
def test_an_extension_that_fits_no_table_is_refused(extension: str, sentence: str) -> None:
    """An extension is refused for what a field would be."""
    with pytest.raises(Refused, match=sentence):
        schema(compiled(f"{P} message Q {{ optional P p = 1; }} extend P {{ {extension} }}"))


def test_a_nested_type_of_payloads_may_have_extensions() -> None:
    """A message inside another one can be a payload with extensions, in editions and of other syntaxes too."""
    base = """
      edition = "2023"; package p;
      option features.field_presence = IMPLICIT;
      message Outer { message P { int32 id = 1; extensions 100 to 199; enum E { A = 0; } E e = 2; } }
    """
    ext = """
      syntax = "proto2"; import "base.proto"; enum C { X = 1; }
      extend p.Outer.P { optional int32 zero = 100; optional C c = 101; repeated fixed32 many = 102; }
    """
    main = 'syntax = "proto3"; import "base.proto"; message M { p.Outer.P p = 1; }'
    of = schema(compiled(main, base=base, ext=ext), "p.Outer.P")
    (row, bare) = decoded(of, b"\xa0\x06\x00\xa8\x06\x01\xb2\x06\x04\x01\x00\x00\x00", b"\xa8\x06\x63")
    assert row == {"id": 0, "e": "A", "zero": 0, "c": "X", "many": [1]}
    assert (bare["zero"], bare["c"]) == (None, None)  # 99 is no value of the closed enum


def test_a_definition_holds_what_its_message_reaches() -> None:
    """A change elsewhere in the files makes no other schema, and unreached messages cost nothing."""
    file = FileDescriptorProto(name="t.proto", package="t", syntax="proto2", dependency=["u.proto"])
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="far", number=1, label=1, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".t.Far")
    outer.nested_type.add(name="M").field.add(name="a", number=1, label=1, type=5)
    file.message_type.add(name="Far").field.add(name="a", number=1, label=1, type=5)
    file.message_type[1].extension_range.add(start=10, end=20)
    other = FileDescriptorProto(name="u.proto", package="u", syntax="proto2")
    other.message_type.add(name="Unused")
    file.extension.add(name="x", number=10, label=1, type=5, extendee=".t.Far")
    whole = FileDescriptorSet(file=[other, file]).SerializeToString()
    alone = FileDescriptorProto(name="renamed.proto", package="t", syntax="proto2")
    alone.message_type.add(name="Outer").nested_type.add(name="M").field.add(name="a", number=1, label=1, type=5)
    form = FORMAT.canonical("t.Outer.M", whole)
    assert form == FORMAT.canonical("t.Outer.M", FileDescriptorSet(file=[alone]).SerializeToString())
    assert form == FORMAT.canonical("t.Outer.M", form)
    far = FORMAT.canonical("t.Far", whole)
    assert far == FORMAT.canonical("t.Far", far)
    assert [each.name for file in FileDescriptorSet.FromString(far).file for each in file.extension] == ["x"]
