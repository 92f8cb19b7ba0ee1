"""Events of protobuf for the decoder, and the classes that the library has for them."""

from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.formats.protobuf.messages import canonical, describe
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define

ENUMS = {"E": {"ZERO": 0, "ONE": 1}}
FIELDS: dict[str, Fields] = {
    "M": {
        "u32": (1, "uint32"),
        "u64": (2, "uint64"),
        "name": (3, "string"),
        "blob": (4, "bytes"),
        "at": (5, "wkt:Timestamp"),
        "took": (6, "wkt:Duration"),
        "kind": (7, "E"),
        "sub": (8, "Sub"),
        "subs": (9, "repeated Sub"),
        "by_id": (10, "map<uint64, Sub>"),
        "kinds": (11, "repeated E"),
        "ratio": (12, "double"),
        "maybe": (13, "optional sint64"),
        "boxed": (14, "wkt:UInt64Value"),
        "nothing": (15, "wkt:Empty"),
        "flags": (16, "repeated bool"),
    },
    "Sub": {"u": (1, "uint64"), "us": (2, "repeated uint32"), "at": (3, "wkt:Timestamp"), "gone": (4, "wkt:Empty")},
}


def schema(messages: dict[str, Fields] | None = None, schema_id: int = 1, syntax: str = "proto3") -> Schema:
    definition = define(messages or FIELDS, ENUMS, syntax=syntax)
    return Schema(schema_id, "protobuf", "t.M", canonical("t.M", bundle(definition)))


def message_class(of: Schema) -> Any:
    return message_factory.GetMessageClass(describe(of.message, of.definition))


WHOLE = schema()
DECODER = Decoder(WHOLE)
M = message_class(WHOLE)


def payloads(*contents: bytes | None) -> pa.BinaryArray:
    return pa.array(list(contents), pa.binary())


U32, U64, I64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
TIMES: st.SearchStrategy[dict[str, int]] = st.builds(
    dict, seconds=st.integers(-62_135_596_800, 253_402_300_799), nanos=st.integers(0, 999_999_999)
)
SUBS = st.fixed_dictionaries({}, optional={"u": U64, "us": st.lists(U32, max_size=3), "at": TIMES, "gone": st.just({})})
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "u32": U32,
        "u64": U64,
        "name": st.text(max_size=5),
        "blob": st.binary(max_size=5),
        "at": TIMES,
        "took": st.builds(dict, seconds=st.integers(0, 315_575_999_999), nanos=st.integers(0, 999_999_999)),
        "kind": st.integers(-3, 3),
        "sub": SUBS,
        "subs": st.lists(SUBS, max_size=3),
        "by_id": st.dictionaries(U64, SUBS.map(lambda fields: message_class_sub(**fields)), max_size=3),
        "kinds": st.lists(st.integers(-2, 2), max_size=3),
        "ratio": st.floats(allow_nan=False),
        "maybe": I64,
        "boxed": st.builds(dict, value=U64),
        "nothing": st.just({}),
        "flags": st.lists(st.booleans(), max_size=3),
    },
)


def message_class_sub(**fields: Any) -> Any:
    return message_factory.GetMessageClass(DESCRIPTOR_SUB)(**fields)


DESCRIPTOR_SUB = M.DESCRIPTOR.fields_by_name["sub"].message_type


def event_of(fields: dict[str, Any]) -> Any:
    event = M(**{name: value for name, value in fields.items() if name != "by_id"})
    for key, sub in fields.get("by_id", {}).items():
        event.by_id[key].CopyFrom(sub)
    return event


def plain_accepts(content: bytes) -> bool:
    try:
        M.FromString(content)
    except DecodeError:
        return False
    return True


def mangle(content: bytes, cut: int, at: int, byte: int) -> bytes:
    content = content[: max(1, len(content) - cut)] or b"\0"
    at %= len(content)
    return content[:at] + bytes([byte]) + content[at + 1 :]


CORRUPT = st.binary(min_size=1, max_size=40) | st.builds(
    mangle,
    EVENTS.map(lambda fields: event_of(fields).SerializeToString()),
    st.integers(0, 9),
    st.integers(0, 99),
    st.integers(0, 255),
)
