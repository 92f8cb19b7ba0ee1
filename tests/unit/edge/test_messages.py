"""Requests as bytes: what is no request costs little and is refused with a status, never with a Python error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.edge.judging import Judged
from pipeline.edge.messages import MAX_EVENTS, MAX_REQUEST_BYTES, EdgeBatch, answer, parse
from pipeline.edge.statuses import EdgeStatus
from pipeline.lake.kafka.acknowledged import DeliveredOffsets
from protos.turnout.v1.edge_pb2 import PublishRequest, PublishResponse


def refused(raw: bytes) -> str:
    """Return the reason why bytes are no request."""
    with pytest.raises(EdgeStatus) as raised:
        parse(raw)
    return raised.value.reason


def test_a_request_has_1_to_1000_events_and_4_mib() -> None:
    """A cap is a status with its own reason, so that a client knows what to change."""
    assert refused(b"") == "EMPTY_REQUEST"
    assert refused(b"\xff") == "MALFORMED_REQUEST"
    assert len(parse(PublishRequest(wrappers=[b"x"] * MAX_EVENTS).SerializeToString()).wrappers) == MAX_EVENTS
    assert refused(PublishRequest(wrappers=[b"x"] * (MAX_EVENTS + 1)).SerializeToString()) == "TOO_MANY_EVENTS"
    assert refused(PublishRequest(first_seq=2**64 - 1, wrappers=[b"x"] * 2).SerializeToString()) == "MALFORMED_REQUEST"
    assert refused(b"\0" * (MAX_REQUEST_BYTES + 1)) == "REQUEST_TOO_LARGE"
    large = PublishRequest(first_seq=5, wrappers=[b"x" * 1_000_000] * 4).SerializeToString()
    assert [len(each) for each in parse(large).wrappers] == [1_000_000] * 4


def test_a_flood_of_empty_events_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of empty events would become half a million objects."""
    monkeypatch.setattr("pipeline.edge.messages.PublishRequest", None)
    assert refused(b"\x08\x96\x01" + b"\x12\x00" * 500_000) == "TOO_MANY_EVENTS"


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_status(raw: bytes) -> None:
    """Nothing that a client sends raises another error; also where the count looks at it first."""
    for padded in (raw, raw + b"\x12\x01x" * 30_000):
        try:
            events = len(parse(padded).wrappers)
        except EdgeStatus as status:
            events = 1 if status.code_name == "INVALID_ARGUMENT" else 0
        assert 1 <= events <= MAX_EVENTS


@given(st.sets(st.integers(0, 30)), st.integers(0, 2**63))
def test_every_event_is_in_exactly_one_place_of_an_answer(rows: set[int], first: int) -> None:
    """Acknowledged ranges hold exactly the accepted events."""
    judged = Judged([], sorted(rows), [], [])
    made = PublishResponse.FromString(answer(EdgeBatch(first, [b""] * 31), judged, {1: DeliveredOffsets(5, 9)}))
    acked = [seq for each in made.acked for seq in range(each.first_seq, each.last_seq + 1)]
    assert acked == [first + row for row in sorted(rows)]
    assert [(each.partition, each.first_offset, each.last_offset) for each in made.log] == [(1, 5, 9)]
