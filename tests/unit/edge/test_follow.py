"""Following: what a client says of its events, and what hostile requests get."""

import asyncio
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine

from pipeline.edge.client import EdgeClient
from pipeline.edge.following import tail as tail_module
from pipeline.edge.following.follower import FollowView
from pipeline.edge.following.landed import LandedView
from pipeline.edge.following.positions import FollowPosition, FollowStart, parse_follow, table_mark
from pipeline.edge.following.read_topics import ReadTopics
from pipeline.edge.following.tail import FollowTail
from pipeline.edge.outcomes import EventLanded, EventRefused, EventUnknown
from pipeline.edge.statuses import EdgeStatus, out_of_range, unauthenticated
from pipeline.settings.tree import Paths
from pipeline.store.edge_producers import EdgeProducer
from protos.turnout.v1.edge_pb2 import (
    FollowRequest,
    FollowResponse,
    LogPosition,
    ReplayedRow,
    SkippedRange,
)
from tests.unit.edge.edge_world import GAME, TOKEN, HeldLog, edge_in_thread, in_own_loop, until
from tests.unit.edge.follow_world import Script, following, refusal, sent, through


def parsed(raw: bytes) -> FollowStart | EdgeStatus:
    try:
        return parse_follow(raw)
    except EdgeStatus as status:
        return status


@given(st.integers(-1, 2**63 - 1), st.binary(min_size=8, max_size=8))
def test_a_token_is_read_as_it_was_written(version: int, mark: bytes) -> None:
    """A position survives its follower's keeping."""
    position = FollowPosition(mark, version)
    start = parse_follow(FollowRequest(token=position.token).SerializeToString())
    assert start.position == position
    assert len(position.token) == 17


@given(st.binary(max_size=64) | st.binary(min_size=17, max_size=17).map(lambda raw: b"\x01" + raw[1:]))
def test_a_hostile_token_is_a_position_or_a_status(token: bytes) -> None:
    """Bytes that are no token end with a status; no error of Python's comes through."""
    start = parsed(FollowRequest(token=token).SerializeToString())
    if isinstance(start, EdgeStatus):
        assert start.reason == "MALFORMED_TOKEN"
    else:
        assert start.position is None or start.position.version >= -1
        assert (start.position is None) == (token == b"")


@given(st.binary(max_size=200))
def test_hostile_requests_get_a_status(raw: bytes) -> None:
    """Whatever bytes come, the outcome is a beginning or INVALID_ARGUMENT."""
    start = parsed(raw)
    if isinstance(start, EdgeStatus):
        assert start.code_name == "INVALID_ARGUMENT"
    else:
        assert all(offset >= 0 for offset in start.since.values())


def test_large_requests_are_refused() -> None:
    """Positions are bounded in bytes and in number, and each partition has one."""
    many = FollowRequest(since=[LogPosition(partition=number) for number in range(1_001)]).SerializeToString()
    twice = FollowRequest(since=[LogPosition(partition=1), LogPosition(partition=1)]).SerializeToString()
    found = [parsed(raw) for raw in (b"\x0a" * 20_000, many, twice)]
    reasons = [each.reason for each in found if isinstance(each, EdgeStatus)]
    assert reasons == ["REQUEST_TOO_LARGE", "MALFORMED_REQUEST", "MALFORMED_REQUEST"]
    assert table_mark("a") != table_mark("b")


async def first_said(start: FollowRequest) -> FollowResponse:
    """Follow by a tail that looks into nothing; return its first message."""
    tail, said = FollowTail(create_engine("sqlite://"), Paths(Path("nowhere")), "test", 0.3), list[FollowResponse]()

    async def say(raw: bytes) -> None:
        said.append(FollowResponse.FromString(raw))
        tail.drain()

    try:
        await asyncio.wait_for(tail.serve(start.SerializeToString(), lambda: EdgeProducer("one", "0" * 64), say), 30)
    finally:
        tail.close()
    return said[0]


def test_a_token_of_an_edge_that_has_looked_later_waits_for_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each edge looks once a second, and the newest token is good at any of them."""
    versions = chain([4], repeat(5))

    def look(*_: object) -> FollowView:
        return FollowView(LandedView(), next(versions), b"quarante", {}, ReadTopics())

    monkeypatch.setattr(FollowTail, "_look", look)
    monkeypatch.setattr(tail_module, "known_names", lambda _: {})
    token = FollowPosition(b"quarante", 5).token
    assert in_own_loop(first_said(FollowRequest(token=token))).token == token
    later = FollowPosition(b"quarante", 6).token
    with pytest.raises(EdgeStatus, match="of a later state"):
        in_own_loop(first_said(FollowRequest(token=later)))


def test_a_revoked_follower_ends_also_while_the_lake_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that may send no more follows no more, with or without news."""
    is_revoked = asyncio.Event()

    def caller() -> EdgeProducer:
        if is_revoked.is_set():
            raise unauthenticated("TOKEN_REVOKED", "the token of one was revoked")
        return EdgeProducer("one", "0" * 64)

    def look(*_: object) -> FollowView:
        raise OSError("the bucket does not answer")

    async def say(_: bytes) -> None: ...

    async def follow() -> None:
        tail = FollowTail(create_engine("sqlite://"), Paths(Path("nowhere")), "test", 0.01)
        try:
            following = asyncio.create_task(tail.serve(b"", caller, say))
            await until(lambda: tail.followers == 1)
            is_revoked.set()
            await asyncio.wait_for(following, 30)
        finally:
            tail.close()

    monkeypatch.setattr(FollowTail, "_look", look)
    monkeypatch.setattr(tail_module, "known_names", lambda _: {})
    monkeypatch.setattr(tail_module, "_CHECK_SECONDS", 0.05)
    with pytest.raises(EdgeStatus, match="revoked"):
        in_own_loop(follow())


def test_each_event_has_one_outcome() -> None:
    """An event below a sent offset has landed, unless its refusal came before."""
    with following() as (script, client):
        outcomes = client.follow()
        sent(client, "a", "b", "c")  # of a held log each request begins at offset 0
        script.messages.put(refusal("b", 0))
        assert outcomes.wait(30) == EventRefused("b", GAME, "contract", "d", "payload", 0, 0)
        script.messages.put(through(1))
        assert [outcomes.wait(30), outcomes.wait(30)] == [EventLanded("a", GAME), EventLanded("c", GAME)]
        assert outcomes.waiting == 0
        script.messages.put(FollowResponse(replayed=[ReplayedRow(game=GAME, event_id="b")]))
        assert outcomes.wait(30) == EventLanded("b", GAME, was_refused=True)


def test_a_refused_copy_at_another_offset_is_not_the_event() -> None:
    """A second copy by a retry may be refused: what was acknowledged lies within the request's offsets."""
    with following() as (script, client):
        sent(client, "a")
        script.messages.put(refusal("a", 7))
        script.messages.put(through(1))
        assert client.follow().wait(30) == EventLanded("a", GAME)


def test_offsets_of_another_topic_land_no_event() -> None:
    """Events of a topic that was made again wait until ingest reads it, which may refuse them."""
    log = HeldLog(at_once=True)
    log.topic_id = "first"
    with following(log) as (script, client):
        outcomes = client.follow()
        sent(client, "landed")
        script.messages.put(through(1, "first"))
        assert outcomes.wait(30) == EventLanded("landed", GAME)
        log.topic_id = "second"
        sent(client, "new")
        script.messages.put(through(2, "first"))
        script.messages.put(refusal("new", 0))
        assert isinstance(outcomes.wait(30), EventRefused)


def test_events_of_a_topic_that_is_gone_are_unknown() -> None:
    """Nobody can say whether ingest had read them, so they get neither of the other outcomes."""
    log = HeldLog(at_once=True)
    log.topic_id = "first"
    with following(log) as (script, client):
        sent(client, "old")
        log.topic_id = "second"
        sent(client, "new")
        script.messages.put(through(1, "second", "first"))
        found = [client.follow().wait(30), client.follow().wait(30)]
        assert found == [EventUnknown("old", GAME, "topic_replaced"), EventLanded("new", GAME)]


def test_an_offset_below_what_had_landed_before_is_of_another_topic() -> None:
    """Also where the broker gives no topic ids, a topic that began anew lands no event by the offsets of before."""
    with following(HeldLog(at_once=True)) as (script, client):
        outcomes = client.follow()
        sent(client, "a")
        script.messages.put(through(1))
        assert outcomes.wait(30) == EventLanded("a", GAME)
        sent(client, "b")  # at offset 0, as each request of this log
        assert outcomes.wait(30) == EventUnknown("b", GAME, "topic_replaced")


def test_events_at_skipped_offsets_are_unknown() -> None:
    """An event that retention removed before ingest read it is in no table, whatever offset its game has landed."""
    with following(HeldLog(at_once=True)) as (script, client):
        outcomes = client.follow()
        sent(client, "a")
        message = through(1_000)
        message.skipped.append(SkippedRange(first=0, last=999))
        script.messages.put(message)
        assert outcomes.wait(30) == EventUnknown("a", GAME, "skipped")
        assert outcomes.waiting == 0


def test_a_broken_stream_goes_on_with_its_token_and_a_lost_one_at_offsets() -> None:
    """Nothing is told twice to the caller, and nothing is left out, whatever ends a stream."""
    with following() as (script, client):
        sent(client, "a", "b")
        script.messages.put(FollowResponse(token=b"newest"))
        script.messages.put(None)
        assert script.requests.get(timeout=30).token == b"newest"
        script.messages.put(out_of_range("too old"))
        again = script.requests.get(timeout=30)
        assert (again.token, [(each.partition, each.offset) for each in again.since]) == (b"", [(0, 0)])
        script.messages.put(refusal("a", 0))
        script.messages.put(through(1))
        assert [type(client.follow().wait(30)) for _ in range(2)] == [EventRefused, EventLanded]


def test_an_event_whose_request_began_before_the_stream_makes_it_begin_again() -> None:
    """It may have been refused before the edge began to look, which no later message says."""
    script: Any = Script()
    with edge_in_thread(tail=script) as edge, EdgeClient(edge.address, TOKEN) as client:
        client.follow()
        assert not script.requests.get(timeout=30).since
        sent(client, "a")
        script.messages.put(through(1))
        again = script.requests.get(timeout=30)
        assert [(each.partition, each.offset) for each in again.since] == [(0, 0)]
        assert client.follow().wait(0) is None
        script.messages.put(refusal("a", 0))
        assert isinstance(client.follow().wait(30), EventRefused)


def test_a_wrong_token_ends_the_iterator() -> None:
    """A wrong token ends the iterator with the edge's status, for everyone who waits."""
    with edge_in_thread() as edge, EdgeClient(edge.address, "wrong") as client:
        for _ in range(2):
            with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                client.follow().wait(30)


def test_above_the_most_events_are_counted() -> None:
    """Memory is bounded, and who has lost sight of events knows how many."""
    script: Any = Script()
    with edge_in_thread(tail=script) as edge, EdgeClient(edge.address, TOKEN) as client:
        outcomes = client.follow(most_events=2)
        sent(client, "a", "b", "c")
        assert (outcomes.waiting, outcomes.untracked) == (2, 1)
