"""A served edge: acknowledged is only what the log has, and what it does not take ends with a status and a reason."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import grpc
import pytest
from confluent_kafka import KafkaError

from pipeline.edge.admission import Admission
from pipeline.edge.messages import MAX_EVENTS
from pipeline.edge.service import MAX_FRAMES
from pipeline.edge.statuses import EdgeStatus
from pipeline.store.edge_producers import EdgeProducer
from protos.turnout.v1.edge_pb2 import PublishRequest
from tests.unit.edge.edge_world import (
    PRODUCER,
    TOKEN,
    HeldLog,
    Running,
    ended,
    known_of,
    refusals,
    request,
    schema_of,
    until,
    with_edge,
    wrapper,
)

END: Any = vars(grpc.aio)["EOF"]


def test_an_answer_comes_only_after_the_last_report() -> None:
    """Acknowledged means that each record's delivery report has come; with one missing nothing is answered."""

    async def body(edge: Running) -> None:
        call = asyncio.ensure_future(edge.publish(request(wrapper(), wrapper(b""), wrapper())))
        await until(lambda: len(edge.log.batches) == 1)
        edge.log.acknowledge(but=1)
        done, _ = await asyncio.wait([call], timeout=0.1)
        assert not done
        assert edge.counted("in_flight_events") == 2
        edge.log.acknowledge()
        response = await call
        assert [(each.first_seq, each.last_seq) for each in response.acked] == [(10, 10), (12, 12)]
        assert refusals(response) == {11: "empty_payload"}
        assert edge.log.values == [wrapper(), wrapper()]
        assert edge.counted("in_flight_events") == 0

    with_edge(body, log=HeldLog())


def test_wrappers_go_on_byte_for_byte() -> None:
    """A wrapper with fields that this edge does not know is not written again."""

    async def body(edge: Running) -> None:
        unknown = wrapper() + b"\xf8\x3f\x01"
        await edge.publish(request(unknown))
        assert edge.log.values == [unknown]

    with_edge(body)


def test_a_failed_report_acknowledges_nothing() -> None:
    """Where one record failed, nothing is known: UNAVAILABLE, and the client sends the same event ids again."""

    async def body(edge: Running) -> None:
        call = asyncio.ensure_future(edge.publish(request(wrapper(), wrapper())))
        await until(lambda: len(edge.log.batches) == 1)
        edge.log.acknowledge(KafkaError(KafkaError._MSG_TIMED_OUT))
        assert (await ended(call))[:2] == ("UNAVAILABLE", "LOG_FAILED")
        assert edge.counted("accepted_events_total", game="other") == 0

    with_edge(body, log=HeldLog())


def test_a_log_that_stays_away_ends_calls_at_the_deadline() -> None:
    """No call waits for longer than `edge.deadline_seconds`, and its events stay in flight until their reports."""

    async def body(edge: Running) -> None:
        started = time.monotonic()
        assert (await ended(edge.publish(request(wrapper()))))[:2] == ("DEADLINE_EXCEEDED", "LOG_TOO_SLOW")
        assert 0.9 <= time.monotonic() - started < 10
        assert edge.counted("in_flight_events") == 1
        edge.log.acknowledge()
        await until(lambda: edge.counted("in_flight_events") == 0)

    with_edge(body, log=HeldLog(), deadline_seconds=1.0)


def test_a_full_queue_is_exhausted_with_a_delay_and_takes_nothing() -> None:
    """Memory is bounded: the second thousand does not reach the log, and the client learns when to come again."""

    async def body(edge: Running) -> None:
        many = [wrapper()] * MAX_EVENTS
        first = asyncio.ensure_future(edge.publish(request(*many)))
        await until(lambda: len(edge.log.batches) == 1)
        code, reason, delay = await ended(edge.publish(request(wrapper())))
        assert (code, reason) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
        assert delay > 0
        assert len(edge.log.batches) == 1
        edge.log.acknowledge()
        await first

    with_edge(body, log=HeldLog(), events_in_flight=1_000)


def test_a_cancelled_call_holds_its_place_until_its_reports() -> None:
    """Its events are still in Kafka's queue: forgetting them would let the queue grow without a bound."""

    async def body(edge: Running) -> None:
        call = asyncio.ensure_future(edge.publish(request(*[wrapper()] * MAX_EVENTS)))
        await until(lambda: len(edge.log.batches) == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await ended(edge.publish(request(wrapper()))))[0] == "RESOURCE_EXHAUSTED"
        edge.log.acknowledge()
        await until(lambda: edge.counted("in_flight_events") == 0)
        again = asyncio.ensure_future(edge.publish(request(wrapper())))
        await until(lambda: len(edge.log.batches) == 2)
        edge.log.acknowledge()
        await again

    with_edge(body, log=HeldLog(), events_in_flight=1_000)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ((), "UNKNOWN_TOKEN"),
        ((("authorization", "Bearer of nothing"),), "UNKNOWN_TOKEN"),
        ((("authorization", f"Basic {TOKEN}"),), "UNKNOWN_TOKEN"),
        ((("authorization", "Bearer old"),), "TOKEN_EXPIRED"),
        ((("authorization", "Bearer gone"),), "TOKEN_REVOKED"),
    ],
)
def test_a_caller_without_a_token_that_counts_is_refused(metadata: Any, reason: str) -> None:
    """An unknown, expired or revoked token sends nothing, by a call or a stream, and is counted."""
    from pipeline.store.edge_producers import sha256_of

    producers = [
        PRODUCER,
        EdgeProducer("old", sha256_of("old"), prefixes=("",), expires_at=1.0),
        EdgeProducer("gone", sha256_of("gone"), prefixes=("",), revoked=True),
    ]

    async def body(edge: Running) -> None:
        assert (await ended(edge.publish(request(wrapper()), metadata)))[:2] == ("UNAUTHENTICATED", reason)
        stream = edge.stream(metadata)
        assert (await ended(stream.read()))[:2] == ("UNAUTHENTICATED", reason)
        assert edge.counted("ended_calls_total", code="UNAUTHENTICATED", reason=reason) == 2
        assert edge.log.batches == []

    with_edge(body, known=known_of(schema_of(), producers=producers))


@pytest.mark.parametrize("raw", [b"\xff\xff", b"", b"\x12\xff\xff\xff\xff\x0f"])
def test_bytes_that_are_no_request_end_with_a_reason(raw: bytes) -> None:
    """The answer is INVALID_ARGUMENT, not UNKNOWN with the name of a Python class."""

    async def body(edge: Running) -> None:
        code, reason, _ = await ended(edge.publish(raw))
        assert (code, bool(reason)) == ("INVALID_ARGUMENT", True)

    with_edge(body)


def test_a_stream_answers_each_request_in_order_and_bounds_what_is_on_its_way() -> None:
    """Its requests are handed over in order; above a bound further ones wait in the connection."""

    async def body(edge: Running) -> None:
        stream = edge.stream()

        async def send() -> None:
            for number in range(50):
                await stream.write(request(wrapper(event_id=str(number)), first_seq=number))
            await stream.done_writing()

        sender = asyncio.ensure_future(send())
        most = (
            MAX_FRAMES + 2
        )  # the one whose answer is next, and one that waits for its place, beside those in the queue
        await until(lambda: len(edge.log.batches) == most)
        await edge.publish(request(wrapper(b"")))
        assert len(edge.log.batches) == most
        edge.log.at_once = True
        edge.log.acknowledge()
        answers = [each async for each in stream]
        assert [(each.acked[0].first_seq, each.acked[0].last_seq) for each in answers] == [(n, n) for n in range(50)]
        assert edge.log.values == [wrapper(event_id=str(number)) for number in range(50)]
        await sender

    with_edge(body, log=HeldLog())


def test_a_stream_waits_for_room_instead_of_ending() -> None:
    """A full queue slows a stream down; a status would end it."""

    async def body(edge: Running) -> None:
        stream = edge.stream()
        for first in (0, 1_000):
            await stream.write(request(*[wrapper()] * MAX_EVENTS, first_seq=first))
        await stream.done_writing()
        await until(lambda: len(edge.log.batches) == 1)
        edge.log.acknowledge()
        await until(lambda: len(edge.log.batches) == 2)
        edge.log.acknowledge()
        assert [each.acked[0].last_seq async for each in stream] == [999, 1_999]

    with_edge(body, log=HeldLog(), events_in_flight=1_000)


def test_a_revoked_producers_open_stream_ends(caplog: pytest.LogCaptureFixture) -> None:
    """The next look at the store ends it, also while it is idle, and its requests are answered: that is no fault."""

    async def body(edge: Running) -> None:
        stream = edge.stream()
        await stream.write(request(wrapper()))
        assert (await stream.read()).acked[0].first_seq == 10
        edge.service.learn(known_of(schema_of(), producers=[replace(PRODUCER, revoked=True)]))
        assert (await ended(stream.read()))[:2] == ("UNAUTHENTICATED", "TOKEN_REVOKED")
        await until(lambda: edge.counted("open_streams") == 0)

    with_edge(body)
    assert "fault" not in caplog.text


def test_a_drain_ends_idle_streams_and_answers_what_was_sent() -> None:
    """One idle stream must not hold a drain for its whole grace."""

    async def body(edge: Running) -> None:
        idle, busy = edge.stream(), edge.stream()
        await busy.write(request(wrapper()))
        await until(lambda: len(edge.log.batches) == 1 and edge.counted("open_streams") == 2)
        edge.service.drain()
        assert await idle.read() is END
        edge.log.acknowledge()
        assert (await busy.read()).acked[0].first_seq == 10
        assert await busy.read() is END
        late = edge.stream()
        assert await late.read() is END

    with_edge(body, log=HeldLog())


def test_the_edge_judges_by_the_newest_look() -> None:
    """A schema that is registered while the edge runs counts from the next look on."""

    async def body(edge: Running) -> None:
        assert refusals(await edge.publish(request(wrapper(b"\xff")))) == {}
        edge.service.learn(known_of(schema_of()))
        assert refusals(await edge.publish(request(wrapper(b"\xff")))) == {10: "malformed_payload"}

    with_edge(body, known=known_of())


def test_refusals_are_counted_by_game_and_reason() -> None:
    """A name without a schema counts as `other`, so that a flood of names makes no series."""

    async def body(edge: Running) -> None:
        await edge.publish(request(wrapper(), wrapper(b"\xff"), b"\xff", wrapper(game="Go")))
        from pipeline.base.names import game_key

        key = game_key("Chess")
        assert edge.counted("accepted_events_total", game=key) == 1
        assert edge.counted("refused_events_total", game=key, reason="malformed_payload") == 1
        assert edge.counted("refused_events_total", game="other", reason="malformed_wrapper") == 1
        assert edge.counted("refused_events_total", game="other", reason="not_allowed") == 1

    with_edge(body)


def test_a_rate_and_a_number_of_calls_are_bounds_of_one_producer() -> None:
    """Pure: who sends more than the rate learns how long to wait, and nobody else is held back."""
    slow, other = replace(PRODUCER, events_per_second=100), EdgeProducer("other", "0" * 64)
    admission = Admission(50_000, 10_000)
    admission.charge(slow, 1_000, 0.0)
    with pytest.raises(EdgeStatus) as raised:
        admission.charge(slow, 50, 0.0)
    assert raised.value.retry_seconds == pytest.approx(0.5)
    admission.charge(slow, 50, 0.5)
    admission.charge(other, 1_000_000, 0.0)
    assert PublishRequest().wrappers == []
