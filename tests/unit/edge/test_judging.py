"""The edge refuses only what a pass would quarantine for good, and lets the rest pass on."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES
from pipeline.data.contracts.envelopes.wrapper import open_wrappers
from pipeline.data.contracts.formats.supported import FORMATS, decoder, format_of, quick_look
from pipeline.data.contracts.schemas import FieldPlacement, Schema
from pipeline.edge.judging import Judge, Judged
from pipeline.edge.known import Known
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.malformed_world import WORLDS, mutant
from tests.unit.data.contracts.formats.protobuf.event_world import message_class
from tests.unit.edge.edge_world import GAME, PRODUCER, known_of, payload, schema_of, wrapper

RECORD_BYTES = 2 * 1024 * 1024


def judged(known: Known, *wrappers: bytes, record_bytes: int = RECORD_BYTES) -> Judged:
    """Judge events of the producer of the one game."""
    judge = Judge(known, record_bytes)
    outcome, suspects = judge.glance(wrappers, PRODUCER)
    judge.settle(outcome, suspects)
    return outcome


def reasons(outcome: Judged) -> list[tuple[int, str, str]]:
    return [(each.row, each.reason, each.field) for each in outcome.refused]


@pytest.mark.parametrize("format_name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_payload_is_refused_if_and_only_if_a_pass_refuses_it(format_name: str, seed: int) -> None:
    """The edge agrees with the decoder of a pass on whole and damaged payloads of generated schemas of each format."""
    world, draw = WORLDS[format_name](seed), Random(seed)
    contents = [*(world.whole() for _ in range(4)), *(mutant(world, draw).content for _ in range(8))]
    schema = replace(world.schema, schema_id=1)
    decoded = decoder(schema).decode(pa.array([each or None for each in contents], pa.binary()))
    outcome = judged(known_of(schema), *(wrapper(each) for each in contents))
    expected = {each.row: (each.reason, each.detail) for each in decoded.refused}
    assert expected == {each.row: (each.reason, each.detail) for each in outcome.refused}
    assert outcome.rows == [row for row in range(len(contents)) if row not in expected]
    assert len(outcome.keys) == len(outcome.games) == len(outcome.rows)


@settings(max_examples=60, deadline=None)
@given(raw=st.one_of(st.binary(max_size=40), st.builds(lambda cut: wrapper()[:cut], st.integers(0, 80))))
def test_bytes_are_refused_as_no_wrapper_only_if_ingest_refuses_them(raw: bytes) -> None:
    """An event whose wrapper ingest can open is never refused as a wrapper."""
    outcome = judged(known_of(schema_of()), raw)
    opened = open_wrappers(pa.array([raw], pa.binary()))
    told = {each.reason for each in outcome.refused} & {"malformed_wrapper", "invalid_name"}
    assert told <= {opened.refused[0].as_py()}


def test_a_quick_look_recognises_good_payloads() -> None:
    """Good payloads of protobuf never pay for the decoder; the other formats always do."""
    look = quick_look(schema_of())
    assert look is not None
    assert all(look(payload(number)) for number in range(1, 50))
    _, suspects = Judge(known_of(schema_of()), RECORD_BYTES).glance([wrapper()], PRODUCER)
    assert not suspects
    assert quick_look(schema_of("avro")) is None
    assert quick_look(schema_of("json")) is None


def test_a_time_out_of_range_is_never_taken_at_a_glance() -> None:
    """Times are checked at any depth, as the decoder does: in fields, lists and maps."""
    fields: dict[str, Fields] = {
        "M": {"at": (1, "wkt:Timestamp"), "inner": (2, "I"), "many": (3, "repeated I"), "by": (4, "map<int32, I>")},
        "I": {"at": (1, "wkt:Timestamp"), "took": (2, "wkt:Duration")},
    }
    schema = Schema(1, "protobuf", "t.M", format_of("protobuf").canonical("t.M", bundle(define(fields))))
    made, look = message_class(schema), quick_look(schema)
    assert look is not None
    spoils: tuple[Callable[[Any], None], ...] = (
        lambda it: setattr(it.at, "seconds", 2**40),
        lambda it: setattr(it.inner.at, "seconds", -(2**40)),
        lambda it: setattr(it.many.add().took, "seconds", 2**40),
        lambda it: setattr(it.by[3].at, "seconds", 2**40),
    )
    for spoil in spoils:
        spoilt = made()
        spoilt.at.seconds = 5
        assert look(spoilt.SerializeToString())
        spoil(spoilt)
        raw = spoilt.SerializeToString()
        assert not look(raw)
        assert decoder(schema).decode(pa.array([raw])).refused


def test_events_that_may_still_land_pass_on() -> None:
    """A schema that is not registered yet, and one whose rows wait for a person, are not the producer's fault."""
    waiting = FieldPlacement(quarantined="a change that waits for a person")
    assert judged(known_of(schema_of()), wrapper(schema_id=7)).refused == []
    assert judged(known_of(), wrapper(b"anything")).refused == []
    assert judged(known_of(schema_of(), placement=waiting), wrapper(b"\xff")).refused == []


def test_each_refusal_names_its_reason_and_field() -> None:
    """A producer learns what to mend: the reason code of a pass, and the field."""
    known = known_of(schema_of())
    outcome = judged(
        known, wrapper(), b"", b"\xff", wrapper(game=""), wrapper(game="Go"), wrapper(schema_id=0), wrapper(b""),
        wrapper(b"\xff\xff"), wrapper(event_id="last"),
    )  # fmt: skip
    assert reasons(outcome) == [
        (1, "malformed_wrapper", ""), (2, "malformed_wrapper", ""), (3, "invalid_name", "game"),
        (4, "not_allowed", "game"), (5, "unknown_schema", "schema_id"), (6, "empty_payload", "payload"),
        (7, "malformed_payload", "payload"),
    ]  # fmt: skip
    assert outcome.rows == [0, 8]
    assert outcome.keys == [GAME.encode()] * 2
    assert outcome.refused[-1].event_id == "e1"


def test_an_unknown_game_is_refused_only_where_the_setting_says_it() -> None:
    """By default ingest decides which names are games, and lists the others for approval."""
    assert judged(known_of(), wrapper()).refused == []
    assert reasons(judged(known_of(games=frozenset({"Go"})), wrapper())) == [(0, "unknown_game", "game")]
    assert judged(known_of(games=frozenset({GAME})), wrapper()).refused == []


def test_caps_are_not_below_those_of_a_pass() -> None:
    """A payload of a byte more than 1 MiB is refused as a pass refuses it; a record only if no topic's can hold it."""
    known = known_of(schema_of())
    field = b"\x12" + b"\xfd\xff\x3f"  # a text of 1 MiB less its tag and length
    largest = field + b"x" * (MAX_PAYLOAD_BYTES - len(field) + 1)
    assert [each.reason for each in judged(known, wrapper(largest)).refused] == ["malformed_payload"]
    assert len(largest) == MAX_PAYLOAD_BYTES + 1
    raw = wrapper()
    assert judged(known, raw, record_bytes=len(raw)).refused == []
    assert [each.reason for each in judged(known, raw, record_bytes=len(raw) - 1).refused] == ["too_large"]
