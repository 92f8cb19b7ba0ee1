"""Fields inside nested messages that came with another wire type than their definition's."""

from typing import Any

import pytest
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.formats.protobuf.messages import submitted
from pipeline.data.contracts.formats.protobuf.mistyped import Mistyped
from tests.unit.data.contracts.definition_world import bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import DECODER, EVENTS, M, event_of, payloads

TEXT_FOR_U = b"\x0a\x01a"  # field 1 of Sub as a text; it is a number
NUMBER_FOR_AT = b"\x18\x05"  # field 3 of Sub as a number; it is a message
PLACES = {"sub": b"\x42", "subs": b"\x4a", "by_id": b"\x52"}


def within(place: str, sub: bytes) -> bytes:
    """Return a payload that has these bytes as the message in one of its fields, after a good one."""
    if place == "by_id":
        sub = b"\x08\x07\x12" + bytes([len(sub)]) + sub
    before: bytes = M(u32=1, subs=[{"u": 1}]).SerializeToString()
    return before + PLACES[place] + bytes([len(sub)]) + sub


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("sub", [TEXT_FOR_U, NUMBER_FOR_AT, b"\x1a\x02\x0a\x00"])
@pytest.mark.proves("B6", "G78")
def test_b6_a_nested_field_with_another_wire_type_is_refused(place: str, sub: bytes) -> None:
    """B6: both parsers would give it its default in silence; it is refused by name, and its neighbours land."""
    good = within(place, b"\x08\x05")
    decoded = DECODER.decode(payloads(good, within(place, sub), good))
    assert decoded.rows.tolist() == [0, 2]
    assert [(each.row, each.reason) for each in decoded.refused] == [(1, "malformed_payload")]
    assert decoded.refused[0].detail.startswith(f"in {place}: ")
    assert decoded.refused[0].field.startswith(f"payload.{place}.{'u' if sub == TEXT_FOR_U else 'at'}")
    assert "wire type" in decoded.refused[0].detail


def test_b6_what_the_format_allows_inside_messages_is_no_mismatch() -> None:
    """B6: packed or not, and fields of a newer schema: a row is not refused for what every parser reads."""
    contents = [within("sub", sub) for sub in (b"\x10\x01\x10\x02", b"\x12\x02\x01\x02", b"\xa0\x06\x05", b"")]
    decoded = DECODER.decode(payloads(*contents))
    assert decoded.rows.tolist() == [0, 1, 2, 3]
    assert [row["us"] for row in decoded.batch.column("sub").to_pylist()] == [[1, 2], [1, 2], [], []]


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_b6_good_payloads_are_never_mistyped(fields: list[dict[str, Any]]) -> None:
    """B6: whatever a producer with the same schema writes, at any depth, is not refused for its wire types."""
    look = Mistyped(M.DESCRIPTOR)
    events = [M.FromString(event_of(each).SerializeToString()) for each in fields]
    assert [look.find(event) for event in events] == [None] * len(events)


def test_b6_definitions_that_use_each_other_are_prepared_once() -> None:
    """B6: a few messages that use each other twice stand for millions of places; preparing looks at each once."""
    doubling = {f"D{n}": {"a": (1, f"D{n + 1}"), "b": (2, f"D{n + 1}")} for n in range(60)}
    definition = submitted("t.M", bundle(define({"M": {"a": (1, "D0")}, **doubling, "D60": {"x": (1, "M")}})))
    parse = message_factory.GetMessageClass(definition).FromString
    assert Mistyped(definition).find(parse(b"\x0a\x02\x12\x00")) is None
    assert Mistyped(definition).find(parse(b"\x0a\x02\x10\x00")) is not None
