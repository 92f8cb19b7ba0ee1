import decimal
import resource
from typing import Any

import pyarrow as pa
import pytest

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import DECODER, M, message_class, payloads, schema


@pytest.mark.parametrize(
    "content", [b"\x0a\x01a", b"\x18\x05", b"\x40\x05", b"\x65\0\0\0\0", b"\x1b\x1c", b"\x08\x01\x18\x05"]
)
@pytest.mark.proves("B4", "B5", "G78")
def test_a_field_with_another_wire_type_is_refused(content: bytes) -> None:
    """B4, B5: both parsers would give such a field its default in silence; it is refused, and its neighbours land."""
    good = M(u32=1, flags=[True], kinds=[1]).SerializeToString()
    decoded = DECODER.decode(payloads(good, content, good))
    assert decoded.rows.tolist() == [0, 2]
    assert "wire type" in decoded.refused[0].detail


@pytest.mark.proves("B4")
def test_numbers_may_come_packed_or_not_and_unknown_fields_may_come() -> None:
    """B4: what the format allows is no mismatch: both forms of repeated numbers, and fields of a newer schema."""
    contents = [b"\x80\x01\x01", b"\x82\x01\x01\x01", b"\x08\x07\xa0\x06\x05", b"\x58\x01\x5a\x01\x01"]
    decoded = DECODER.decode(payloads(*contents))
    assert decoded.rows.tolist() == [0, 1, 2, 3]
    assert decoded.batch.column("flags").to_pylist() == [[True], [True], [], []]
    assert decoded.batch.column("kinds").to_pylist()[3] == ["ONE", "ONE"]


@pytest.mark.proves("B8")
def test_groups_a_hundred_deep_and_deeper() -> None:
    """B8: unknown groups are followed up to the parser's limit and refused beyond it, in any number."""
    contents = [b"\xa3\x06" * depth + b"\xa4\x06" * depth for depth in (99, 101, 100_000)]
    decoded = DECODER.decode(payloads(*contents))
    assert decoded.rows.tolist() == [0]
    assert [each.reason for each in decoded.refused] == ["malformed_payload"] * 2


@pytest.mark.proves("B9")
def test_a_swarm_of_empty_messages_costs_bounded_memory() -> None:
    """B9: the largest payload of empty messages raises the process's peak memory by at most 100 MB."""
    content = payloads(b"\x4a\x00" * (MAX_PAYLOAD_BYTES // 2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert DECODER.decode(content).batch.num_rows == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before <= 100 * 1024  # KiB


@pytest.mark.proves("B10")
def test_a_text_that_is_no_utf8_is_refused() -> None:
    """B10: never replaced by other characters."""
    assert [each.reason for each in DECODER.decode(payloads(b"\x1a\x01\xff")).refused] == ["malformed_payload"]


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@pytest.mark.proves("B11")
def test_an_enum_value_nobody_declared_keeps_its_record(syntax: str) -> None:
    """B11: an open enum tells the number; a closed one has no such value, so the field is as if it were left out."""
    kinds = schema({"M": {"a": (1, "int32"), "kind": (7, "E")}}, syntax=syntax)
    decoded = Decoder(kinds).decode(payloads(b"\x08\x05\x38\x09"))
    assert decoded.batch.to_pylist() == [{"a": 5, "kind": {"proto3": "9", "proto2": None}[syntax]}]


@pytest.mark.proves("B12")
def test_of_two_members_of_a_oneof_the_last_wins() -> None:
    """B12: concatenated payloads are one message, in which the last member of a oneof counts, at any depth."""
    file = define(
        {
            "M": {
                "a": (1, "int32"),
                "b": (2, "string"),
                "s": (3, "S"),
                "many": (4, "repeated S"),
                "by": (5, "map<string, S>"),
            },
            "S": {"x": (1, "int32"), "y": (2, "string")},
        }
    )
    for message in file.message_type:
        message.oneof_decl.add(name="one")
        for field in message.field[:2]:
            field.oneof_index = 0
    one = Schema(1, "protobuf", "t.M", canonical("t.M", bundle(file)))
    ours, both = message_class(one), b"\x08\x05\x12\x01x"
    contents = [both, ours(a=7).SerializeToString(), b"\x12\x01x\x08\x05", b"\xff"]
    contents += [b"\x1a\x05" + both, b"\x22\x00\x22\x05" + both, b"\x2a\x0a\x0a\x01k\x12\x05" + both]
    decoded = Decoder(one).decode(payloads(*contents))
    assert decoded.rows.tolist() == [0, 1, 2, 4, 5, 6]
    last = {"x": None, "y": "x"}
    empty: dict[str, Any] = {"a": None, "b": None, "s": None, "many": [], "by": []}
    assert decoded.batch.to_pylist() == [
        {**empty, "b": "x"},
        {**empty, "a": 7},
        {**empty, "a": 5},
        {**empty, "s": last},
        {**empty, "many": [{"x": None, "y": None}, last]},
        {**empty, "by": [("k", last)]},
    ]


@pytest.mark.proves("B13")
def test_the_largest_unsigned_number_and_odd_nanoseconds() -> None:
    """B13: 2^64-1 is exact, and a time's negative nanoseconds count back or refuse the row, never something else."""
    contents = [M(u64=2**64 - 1).SerializeToString(), M(at={"seconds": 5, "nanos": -1000}).SerializeToString()]
    decoded = DECODER.decode(payloads(*contents))
    assert decoded.batch.column("u64").to_pylist()[0] == decimal.Decimal(2**64 - 1)
    if not decoded.refused:
        assert decoded.batch.column("at").cast(pa.int64()).to_pylist()[1] == 4_999_999


@pytest.mark.proves("B14")
def test_an_any_of_an_unknown_type_is_kept_as_it_came() -> None:
    """B14: the column holds the type's name and the bytes; nobody needs to know the type."""
    anything = schema({"M": {"a": (1, "int32"), "more": (2, "wkt:Any")}})
    event = message_class(anything)(a=1)
    event.more.type_url, event.more.value = "t/unknown.Type", b"\x08\x05"
    decoded = Decoder(anything).decode(payloads(event.SerializeToString()))
    assert decoded.batch.to_pylist() == [{"a": 1, "more": {"type_url": "t/unknown.Type", "value": b"\x08\x05"}}]
