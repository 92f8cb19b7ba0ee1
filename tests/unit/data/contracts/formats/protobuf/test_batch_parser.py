"""Many messages looked at in one call."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.formats.protobuf.batch_parser import BatchParser, runs
from pipeline.data.contracts.formats.protobuf.mistyped import Mistyped
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.data.contracts.definition_world import message
from tests.unit.data.contracts.formats.protobuf.event_world import CORRUPT, EVENTS, M, event_of, plain_accepts

TOGETHER = BatchParser(M.DESCRIPTOR)


def suspects(together: BatchParser, contents: list[bytes], *, nothing_unknown: bool = True) -> list[int]:
    """The places of suspects; the array has others before and behind, as a part of a larger one has."""
    array = pa.array([b"before", *contents, b"behind"], pa.binary())[1:-1]
    return sorted(together.canonical(array)[1] if nothing_unknown else together.find_bad(array))


GOOD = EVENTS.map(lambda fields: event_of(fields).SerializeToString())


@settings(max_examples=300, deadline=None)
@given(st.lists(CORRUPT | GOOD | st.just(b""), min_size=1, max_size=6))
@example([b"\x0a", b"\x00"])
@pytest.mark.proves("B6")
def test_no_bad_message_is_left_out_and_no_good_neighbour_of_one_is_told(contents: list[bytes]) -> None:
    """Laws L5, L6: what a look at each alone would refuse is suspected, whatever it is looked at together with."""
    refused = {place for place, content in enumerate(contents) if not plain_accepts(content)}
    assert refused == set(suspects(TOGETHER, contents, nothing_unknown=False))
    look = Mistyped(M.DESCRIPTOR)
    wrong = {
        place for place, content in enumerate(contents) if place not in refused and look.find(M.FromString(content))
    }
    assert refused | wrong <= set(suspects(TOGETHER, contents))


@settings(max_examples=100, deadline=None)
@given(st.lists(GOOD, min_size=1, max_size=8))
def test_good_messages_are_good_together(contents: list[bytes]) -> None:
    """Messages as producers write them need no second look, or every pass would pay for it."""
    assert suspects(TOGETHER, contents) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(CORRUPT | GOOD | GOOD.map(lambda content: content * 2), min_size=1, max_size=6))
@pytest.mark.proves("G79")
def test_what_is_no_suspect_is_in_the_parsers_own_writing_or_rewritten(contents: list[bytes]) -> None:
    """Law L5: the Arrow parser is given nothing but what protobuf itself would have written."""
    rewritten, suspected = TOGETHER.canonical(pa.array(contents, pa.binary()))
    assert not rewritten.keys() & set(suspected)
    for place in set(range(len(contents))) - set(suspected):
        assert rewritten.get(place, contents[place]) == M.FromString(contents[place]).SerializeToString()


def test_only_nesting_may_be_refused_for_no_reason() -> None:
    """A no may be wrong by one level of nesting, of which the parser allows 100; each message is looked at then."""
    definition = message({"M": {"m": (1, "M")}})
    parse: Any = message_factory.GetMessageClass(definition).FromString
    deep = parse(b"")
    for _ in range(99):
        deep = type(deep)(m=deep)
    assert parse(deep.SerializeToString()) == deep
    assert suspects(BatchParser(definition), [deep.m.SerializeToString()]) == []
    assert suspects(BatchParser(definition), [type(deep)(m=deep).SerializeToString()]) == [0]


def test_definitions_of_the_program_itself_can_be_asked_about_twice() -> None:
    """The wrapper's definition lives as long as the process, so the message around it is defined there once more."""
    definition: Any = Wrapper.DESCRIPTOR
    for _ in range(2):
        assert suspects(BatchParser(definition), [Wrapper(game="a").SerializeToString()]) == []


@pytest.mark.parametrize("size", [0, 1, 127, 128, 255, 256, 16_383, 16_384, 2_097_151, 2_097_152])
def test_rewritten_messages_of_every_size_are_taken_apart(size: int) -> None:
    """Law L5: the parser writes all of a run at once; each message gets back its own bytes, whatever their length."""
    content = Wrapper(payload=b"p" * size).SerializeToString()
    padded = b"\x0a\x81\x00a"  # the game's name, with a length that takes more bytes than it needs
    definition: Any = Wrapper.DESCRIPTOR
    rewritten, _ = BatchParser(definition).canonical(pa.array([content + padded, padded, content], pa.binary()))
    game = b"\x0a\x01a"
    full, alone = Wrapper.FromString(content + game).SerializeToString(), Wrapper.FromString(game).SerializeToString()
    assert [rewritten.get(place, content) for place in range(3)] == [full, alone, content]


@given(st.lists(st.integers(0, 200_000), max_size=40), st.integers(1, 9), st.integers(0, 300_000))
def test_runs_have_every_message_once_and_are_bounded(lengths: list[int], messages: int, size: int) -> None:
    """Every message is in one run, in order, and a run is small unless it is a single message."""
    found = list(runs(np.array(lengths, dtype=np.int32), messages, size))
    assert [place for run in found for place in run] == list(range(len(lengths)))
    for run in found:
        assert len(run) == 1 or (sum(lengths[place] for place in run) <= size and len(run) <= messages)


def test_a_few_bad_ones_among_many_are_found() -> None:
    """More messages than are copied, or looked at, at once."""
    good = Wrapper(game="chess", payload=b"p" * 50).SerializeToString()
    contents = [b"\xff" if place in {0, 127, 128, 4_095, 4_096, 9_999} else good for place in range(10_000)]
    definition: Any = Wrapper.DESCRIPTOR
    assert suspects(BatchParser(definition), contents) == [0, 127, 128, 4_095, 4_096, 9_999]
