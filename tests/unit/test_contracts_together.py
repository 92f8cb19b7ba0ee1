"""Many messages looked at in one call."""

from typing import Any

import pytest
from google.protobuf import message_factory
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.contracts.mistyped import Mistyped
from pipeline.contracts.together import Together, runs
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.test_contracts_decode import CORRUPT, EVENTS, M, event_of, plain_accepts
from tests.unit.test_contracts_messages import message

TOGETHER = Together(M.DESCRIPTOR)
GOOD = EVENTS.map(lambda fields: event_of(fields).SerializeToString())


@settings(max_examples=300, deadline=None)
@given(st.lists(CORRUPT | GOOD | st.just(b""), min_size=1, max_size=6))
@example([b"\x0a", b"\x00"])
def test_a_yes_is_a_yes_for_each(contents: list[bytes]) -> None:
    """Laws L5, L6: what is looked at together is never taken for good when a look at each alone would refuse one."""
    if TOGETHER.are_good(contents, nothing_unknown=False):
        assert all(map(plain_accepts, contents))
    if TOGETHER.are_good(contents, nothing_unknown=True):
        look = Mistyped(M.DESCRIPTOR)
        assert [look.find(M.FromString(content)) for content in contents] == [None] * len(contents)


@settings(max_examples=100, deadline=None)
@given(st.lists(GOOD, min_size=1, max_size=8))
def test_good_messages_are_good_together(contents: list[bytes]) -> None:
    """Messages as producers write them need no second look, or every pass would pay for it."""
    assert TOGETHER.are_good(contents, nothing_unknown=True)


def test_only_nesting_may_be_refused_for_no_reason() -> None:
    """A no may be wrong by one level of nesting, of which the parser allows 100; each message is looked at then."""
    definition = message({"M": {"m": (1, "M")}})
    parse: Any = message_factory.GetMessageClass(definition).FromString
    deep = parse(b"")
    for _ in range(99):
        deep = type(deep)(m=deep)
    assert parse(deep.SerializeToString()) == deep
    assert Together(definition).are_good([deep.m.SerializeToString()], nothing_unknown=True)
    assert not Together(definition).are_good([type(deep)(m=deep).SerializeToString()], nothing_unknown=True)


def test_definitions_of_the_program_itself_can_be_asked_about_twice() -> None:
    """The wrapper's definition lives as long as the process, so the message around it is defined there once more."""
    definition: Any = Wrapper.DESCRIPTOR
    for _ in range(2):
        assert Together(definition).are_good([Wrapper(game="a").SerializeToString()], nothing_unknown=True)


@given(st.lists(st.integers(0, 200_000), max_size=40))
@pytest.mark.parametrize("step", [1, 400])
def test_runs_have_every_message_once_and_are_bounded(step: int, lengths: list[int]) -> None:
    """Every message is in one run, in order, and a run is small unless it is a single message."""
    messages = [b"x" * length for length in lengths] * step if step == 1 else [b""] * len(lengths) * step
    found = list(runs(messages))
    assert [place for run in found for place in run] == list(range(len(messages)))
    for run in found:
        size = sum(len(messages[place]) for place in run)
        assert len(run) == 1 or (size <= 256 * 1024 and len(run) <= 500)
