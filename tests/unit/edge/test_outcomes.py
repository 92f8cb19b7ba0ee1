"""Events that wait for their outcome: each acknowledged one gets one, also where several have one id."""

from collections.abc import Sequence

from pipeline.edge.outcomes import AwaitedEvents, EventLanded, EventOutcome, EventRefused, LoggedAt
from protos.turnout.v1.edge_pb2 import LogRange, PublishResponse, RefusedRow, ReplayedRow
from protos.turnout.v1.wrapper_pb2 import Wrapper

GAME = "Chess"


def events(*ids: str) -> list[bytes]:
    return [Wrapper(game=GAME, event_id=each).SerializeToString() for each in ids]


def at(first: int, last: int | None = None) -> LoggedAt:
    return LoggedAt({0: (first, first if last is None else last)})


def row(offset: int, event_id: str = "a", file: str = "") -> RefusedRow:
    return RefusedRow(game=GAME, event_id=event_id, offset=offset, reason="contract", file=file)


def outcomes(awaited: AwaitedEvents) -> Sequence[EventOutcome | BaseException | None]:
    return [awaited.found.get_nowait() for _ in range(awaited.found.qsize())]


def kinds(awaited: AwaitedEvents) -> list[str]:
    return [type(each).__name__ for each in outcomes(awaited)]


def test_two_requests_with_one_event_id_have_an_outcome_each() -> None:
    """A caller who sends an event twice learns of both rows: positions tell them apart."""
    awaited = AwaitedEvents(10)
    awaited.add(events("a"), at(3))
    awaited.add(events("a"), at(7))
    awaited.refuse(row(7))
    awaited.refuse(row(7))  # rows may come twice
    assert (kinds(awaited), awaited.waiting) == (["EventRefused"], 1)
    awaited.land(GAME, {0: 8})
    assert (kinds(awaited), awaited.waiting) == (["EventLanded"], 0)


def test_two_events_of_one_request_with_one_id_have_an_outcome_each() -> None:
    """Of one landed and one refused row both are told, and a refusal that comes twice is told once."""
    awaited = AwaitedEvents(10)
    awaited.add(events("a", "a", "b"), at(3, 5))
    awaited.refuse(row(4))
    awaited.refuse(row(4))
    awaited.land(GAME, {0: 6})
    assert (kinds(awaited), awaited.waiting) == (["EventRefused", "EventLanded", "EventLanded"], 0)
    awaited.add(events("c", "c"), at(7, 8))
    awaited.refuse(row(7, "c"))
    awaited.refuse(row(8, "c"))
    assert kinds(awaited) == ["EventRefused", "EventRefused"]


def test_a_refusal_that_comes_before_its_acknowledgement_finds_the_later_event_of_the_id() -> None:
    """The row of a request whose answer is late waits, though an earlier event of the same id is open."""
    awaited = AwaitedEvents(10)
    awaited.add(events("a"), at(3))
    awaited.refuse(row(7))
    awaited.add(events("a"), at(7))
    awaited.land(GAME, {0: 8})
    assert [type(each) for each in outcomes(awaited)] == [EventRefused, EventLanded]


def test_a_replay_is_told_of_the_row_that_was_refused() -> None:
    """Of two refused rows of one id each is told once when a replay lands it."""
    awaited = AwaitedEvents(10)
    awaited.add(events("a", "a"), at(3, 4))
    for offset in (3, 4):
        awaited.refuse(row(offset))
    outcomes(awaited)
    for offset in (4, 4):
        awaited.replay(ReplayedRow(game=GAME, event_id="a", offset=offset))
    assert outcomes(awaited) == [EventLanded("a", GAME, was_refused=True)]


def test_behind_a_landing_table_files_and_commits_tell_what_became_of_an_event() -> None:
    """A refused row is of an event by its file and row; a landed one lies in a commit below the reported one."""
    answer = PublishResponse(log=[LogRange(first_offset=5, last_offset=6, file="f", version=9)], topic_id="table")
    awaited = AwaitedEvents(10)
    awaited.add(events("a", "b"), LoggedAt.of(answer))
    awaited.refuse(row(5, file="g"))
    awaited.refuse(row(9, file="f"))
    awaited.refuse(row(5, file="f"))
    awaited.land(GAME, {0: 9}, "table")
    (refused,) = outcomes(awaited)
    assert isinstance(refused, EventRefused)
    assert (refused.event_id, refused.file, refused.offset) == ("a", "f", 5)
    assert awaited.since() == {0: 9}
    awaited.land(GAME, {0: 10}, "table")
    assert outcomes(awaited) == [EventLanded("b", GAME)]
