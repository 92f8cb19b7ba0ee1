"""Messages of protobuf itself, and texts, in payloads."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FeatureSet, FileDescriptorProto

from pipeline.base.errors import Refused
from pipeline.data.contracts.formats.supported import columns, decoder, format_of
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import message_class, payloads
from tests.unit.data.contracts.formats.protobuf.wire_world import SYNTAXES, tagged

FIELDS: dict[str, Fields] = {
    "M": {
        "id": (1, "int32"),
        "any": (2, "wkt:Any"),
        "anys": (3, "repeated wkt:Any"),
        "mask": (4, "wkt:FieldMask"),
        "empty": (5, "wkt:Empty"),
        "took": (6, "wkt:Duration"),
        "tooks": (7, "map<string, wkt:Duration>"),
        "flag": (8, "wkt:BoolValue"),
        "names": (9, "repeated wkt:StringValue"),
        "sizes": (10, "map<int32, wkt:UInt64Value>"),
        "ratio": (11, "wkt:FloatValue"),
        "at": (12, "repeated wkt:Timestamp"),
    }
}


def schema(syntax: str, fields: dict[str, Fields]) -> Schema:
    definition = format_of("protobuf").canonical("t.M", bundle(define(fields, syntax=syntax)))
    return Schema(1, "protobuf", "t.M", definition)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_each_well_known_message_has_its_column(syntax: str) -> None:
    """The columns are those of docs/data.md, and both decoders fill them alike: absent is null, empty is not."""
    of = schema(syntax, FIELDS)
    made: Any = message_class(of)
    full = made(id=1, names=[{}, {"value": "b"}], at=[{"seconds": 1, "nanos": -1500}])
    full.any.type_url, full.any.value = "t/x.Y", b"\xff"
    full.anys.add()
    full.mask.paths.extend(["a.b", "c"])
    full.empty.SetInParent()
    full.took.seconds, full.took.nanos = -3, -1_999
    full.tooks["k"].nanos = 999
    full.flag.SetInParent()
    full.sizes[7].value = 2**64 - 1
    full.ratio.value = 0.5
    contents = [full.SerializeToString(), made(id=2).SerializeToString()]
    decoded = decoder(of).decode(payloads(*contents))
    assert decoded.batch.schema == columns(of)
    table, refused = format_of("protobuf").reference(of, {}).decode(contents)
    rows = decoded.batch.to_pylist()
    assert (rows, refused) == (table.to_pylist(), {})
    assert rows[0] == {
        "id": 1,
        "any": {"type_url": "t/x.Y", "value": b"\xff"},
        "anys": [{"type_url": "", "value": b""}],
        "mask": {"paths": ["a.b", "c"]},
        "empty": True,
        "took": -3_000_001,
        "tooks": [("k", 0)],
        "flag": False,
        "names": ["", "b"],
        "sizes": [(7, 2**64 - 1)],
        "ratio": 0.5,
        "at": [dt.datetime(1970, 1, 1, 0, 0, 0, 999_999, dt.UTC)],
    }
    absent = {"any": None, "mask": None, "empty": None, "took": None, "flag": None, "ratio": None}
    assert rows[1] == {"id": 2, **absent, "anys": [], "tooks": [], "names": [], "sizes": [], "at": []}


def test_the_longest_durations_have_their_nanoseconds() -> None:
    """Protobuf's limit of a Duration is one of its seconds: at the limit nanoseconds still count, both ways."""
    of = schema("proto3", FIELDS)
    made: Any = message_class(of)
    limit = 315_576_000_000
    whole = [(limit, 0), (limit, 1_000), (limit, 999_999_999), (-limit, -999_999_999), (limit, -1_000)]
    beyond = [(limit + 1, 0), (-limit - 1, 0), (limit + 1, 999_999_999), (limit, 2**31 - 1), (2**63 - 1, 0)]
    contents = [made(took={"seconds": s, "nanos": n}).SerializeToString() for s, n in whole + beyond]
    decoded = decoder(of).decode(payloads(*contents))
    table, refused = format_of("protobuf").reference(of, {}).decode(contents)
    micros = [s * 1_000_000 + int(n / 1_000) for s, n in whole]
    assert (decoded.batch["took"].to_pylist(), table["took"].to_pylist()) == (micros, micros)
    assert [each.row for each in decoded.refused] == sorted(refused) == list(range(len(whole), len(contents)))


@pytest.mark.parametrize(
    "name",
    ["google.protobuf.Timestamp", "google.protobuf.Struct", "google.protobuf.Int32Value", "google.type.Date"],
)
def test_no_other_message_takes_the_name_of_one_of_them(name: str) -> None:
    """Its values would be those of another message, such as 1970 in every row: it is refused when it is registered."""
    package, _, own = name.rpartition(".")
    forged = FileDescriptorProto(name="forged.proto", package=package, syntax="proto3")
    forged.message_type.add(name=own).field.add(name="evil", number=1, label=1, type=9)
    file = define({"M": {"id": (1, "int32")}})
    file.dependency.append(forged.name)
    file.message_type[0].field.add(name="held", number=2, label=1, type=11, type_name=f".{name}")
    del file.dependency[:-1]
    with pytest.raises(Refused, match=f"held: is not Google's {name}"):
        format_of("protobuf").canonical("t.M", bundle(forged, file))


TEXTS: dict[str, Fields] = {
    "M": {
        "id": (1, "int32"),
        "one": (2, "string"),
        "many": (3, "repeated string"),
        "by_name": (4, "map<string, int32>"),
        "names": (5, "map<int32, string>"),
        "sub": (6, "S"),
        "subs": (7, "repeated S"),
        "sub_by": (8, "map<string, S>"),
        "boxed": (9, "wkt:StringValue"),
        "mask": (10, "wkt:FieldMask"),
        "any": (11, "wkt:Any"),
    },
    "S": {"text": (1, "string"), "texts": (2, "repeated string")},
}
NOT_UTF8 = {
    "stray": b"\xff",
    "cut": b"\xe2\x82",
    "overlong": b"\xc0\x80",
    "surrogate": b"\xed\xa0\x80",
    "beyond": b"\xf4\x90\x80\x80",
}


def texts_schema(syntax: str) -> Schema:
    """Return a schema with texts in every place; an edition's say that nobody checks them."""
    file = define(TEXTS, syntax=syntax)
    if syntax == "editions":
        file.options.features.utf8_validation = FeatureSet.NONE
        file.message_type[0].field[1].options.features.utf8_validation = FeatureSet.NONE
    return Schema(1, "protobuf", "t.M", format_of("protobuf").canonical("t.M", bundle(file)))


@pytest.mark.parametrize("text", NOT_UTF8.values(), ids=list(NOT_UTF8))
@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.proves("B10")
def test_a_text_that_is_no_utf8_is_refused_in_every_place(syntax: str, text: bytes) -> None:
    """B10: also in proto2, which accepts such texts, and where a definition forbids the check."""
    sub, key = tagged(1, 2, text), tagged(1, 2, text)
    places = [
        tagged(2, 2, text),
        tagged(3, 2, b"a") + tagged(3, 2, text),
        tagged(4, 2, key),
        tagged(4, 2, key + b"\x10\x01"),
        tagged(5, 2, b"\x08\x01" + tagged(2, 2, text)),
        tagged(6, 2, sub),
        tagged(6, 2, tagged(2, 2, text)),
        tagged(7, 2, b"") + tagged(7, 2, sub),
        tagged(8, 2, tagged(1, 2, b"k") + tagged(2, 2, sub)),
        tagged(8, 2, key + tagged(2, 2, b"")),
        tagged(9, 2, sub),
        tagged(10, 2, sub),
        tagged(11, 2, sub),
    ]
    of = texts_schema(syntax)
    contents = [b"\x08\x01", *places, tagged(2, 2, "\N{SNOWMAN}".encode())]
    decoded = decoder(of).decode(payloads(*contents))
    assert decoded.rows.tolist() == [0, len(places) + 1]
    assert {each.reason for each in decoded.refused} == {"malformed_payload"}
    _, refused = format_of("protobuf").reference(of, {}).decode(contents)
    assert sorted(refused) == [each.row for each in decoded.refused]


def test_bytes_may_hold_anything() -> None:
    """B10: only texts are texts; the bytes of an Any and of a bytes field are kept as they are."""
    of = schema("proto2", {"M": {"blob": (1, "bytes"), "any": (2, "wkt:Any")}})
    contents = [tagged(1, 2, b"\xff"), tagged(2, 2, tagged(2, 2, b"\xff"))]
    decoded = decoder(of).decode(pa.array(contents, pa.binary()))
    assert decoded.batch.column("blob").to_pylist() == [b"\xff", None]
    assert decoded.batch.column("any").to_pylist()[1]["value"] == b"\xff"
