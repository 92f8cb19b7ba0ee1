"""Clients that hold an edge up: what they hold is bounded, and others are answered meanwhile."""

import asyncio
import socket
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from pipeline.edge import admission, service
from pipeline.edge.certificates import ServedCertificate
from pipeline.store.edge_producers import EdgeProducer, sha256_of
from tests.unit.edge.edge_world import (
    GAME,
    METADATA,
    PRODUCER,
    TOKEN,
    HeldLog,
    Running,
    ended,
    known_of,
    request,
    schema_of,
    until,
    with_edge,
    wrapper,
)
from tests.unit.edge.hostile_world import raw
from tests.unit.edge.tls_world import Authority

MIB = 1024 * 1024
END: Any = vars(grpc.aio)["EOF"]


@pytest.mark.parametrize("method", ["Publish", "PublishStream"])
def test_a_caller_without_a_token_is_refused_before_its_message_is_whole(method: str) -> None:
    """Memory is held only for callers that the edge knows: the first 10 bytes of 4 MiB are enough for an answer."""

    async def body(edge: Running) -> None:
        with raw(edge.address) as connection:
            connection.half_sent(1, method, None, 4 * MIB, 10)
            await asyncio.to_thread(connection.wait_for_end, 1)
        assert edge.counted("ended_calls_total", code="UNAUTHENTICATED", reason="UNKNOWN_TOKEN") == 1

    with_edge(body)


def test_half_of_a_message_is_given_up_at_the_deadline() -> None:
    """A known caller holds a place and its bytes for `edge.deadline_seconds`; then both are free."""

    async def body(edge: Running) -> None:
        with raw(edge.address) as connection:
            for number in range(admission.MAX_CALLS):
                connection.half_sent(2 * number + 1, "Publish", TOKEN, MIB, 1_000)
            async with asyncio.timeout(20):
                while not edge.counted("ended_calls_total", code="RESOURCE_EXHAUSTED", reason="TOO_MANY_CALLS"):
                    with suppress(grpc.aio.AioRpcError):
                        await edge.publish(request(wrapper()))
            reason = {"code": "DEADLINE_EXCEEDED", "reason": "MESSAGE_TOO_SLOW"}
            await until(lambda: edge.counted("ended_calls_total", **reason) == admission.MAX_CALLS)
            await edge.publish(request(wrapper()))

    with_edge(body, deadline_seconds=2.0)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_silent_connection_is_closed(sent: bytes, tmp_path: Path) -> None:
    """One that never ends its handshake is closed after the time for it."""

    def wait(address: str) -> None:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(sent)
            try:
                while connection.recv(1_000):
                    pass
            except ConnectionError:
                pass

    async def body(edge: Running) -> None:
        for address in (edge.address, edge.token_address):
            await asyncio.to_thread(wait, address)

    certificate = ServedCertificate(Authority().issue().write(tmp_path))
    with_edge(body, certificate=certificate, options=[("grpc.server_handshake_timeout_ms", 500)])


def test_a_connection_is_cut_after_its_age_and_a_grace() -> None:
    """Streams that sent half of a message and wait cannot hold it for longer."""

    async def body(edge: Running) -> None:
        with raw(edge.address) as connection:
            connection.half_sent(1, "PublishStream", TOKEN, MIB, 1_000)
            await until(lambda: edge.counted("open_streams") == 1)
            await asyncio.to_thread(connection.wait_for_close)
        await until(lambda: edge.counted("open_streams") == 0)

    with_edge(body, options=[("grpc.max_connection_age_ms", 500), ("grpc.max_connection_age_grace_ms", 500)])


def test_streams_beyond_a_bound_are_refused_and_calls_of_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer has at most 200 streams, all together 500 here; others get a reason, and a call is answered."""
    monkeypatch.setattr(admission, "MAX_STREAMS", 500)
    hostile = [EdgeProducer(f"p{number}", sha256_of(f"t{number}"), games=(GAME,)) for number in range(3)]

    async def body(edge: Running) -> None:
        counts: Counter[str] = Counter()

        async def opened(number: int) -> Any:
            stream = Running.stream_of(channels[number % 6], (("authorization", f"Bearer t{number % 3}"),))
            try:
                await stream.write(request(wrapper()))
                await stream.read()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                counts[(await ended(stream.read()))[1]] += 1
            return stream

        channels = [grpc.aio.insecure_channel(edge.address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(6)]
        streams = await asyncio.gather(*map(opened, range(750)))
        assert edge.counted("open_streams") == 500
        assert sum(counts.values()) == 250
        assert {*counts} <= {"TOO_MANY_CALLS", "TOO_MANY_STREAMS"}
        assert edge.counted("ended_calls_total", code="RESOURCE_EXHAUSTED", reason="TOO_MANY_STREAMS") > 0
        assert (await edge.publish(request(wrapper()))).acked[0].first_seq == 10
        for stream in streams:
            stream.cancel()
        await until(lambda: edge.counted("open_streams") == 0)
        for each in channels:
            await each.close(None)
        late = edge.stream()
        await late.write(request(wrapper()))
        assert (await late.read()).acked[0].first_seq == 10

    with_edge(body, known=known_of(schema_of(), producers=[PRODUCER, *hostile]))


def test_a_stream_that_holds_half_of_a_message_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """GRPC does not say who has sent half of one, so a stream ends that has sent no whole one for 50 s."""

    async def body(edge: Running) -> None:
        with raw(edge.address) as connection:
            connection.half_sent(1, "PublishStream", TOKEN, MIB, 1_000)
            await until(lambda: edge.counted("open_streams") == 1)
            edge.service.learn(known_of(schema_of()))
            assert edge.counted("open_streams") == 1
            monkeypatch.setattr(service, "MAX_SILENT_SECONDS", 0.0)
            edge.service.learn(known_of(schema_of()))
            await asyncio.to_thread(connection.wait_for_end, 1)
        assert edge.counted("open_streams") == 0

    with_edge(body)


def test_a_stream_that_waits_for_the_log_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its requests are answered before it ends, however long the log takes."""
    monkeypatch.setattr(service, "MAX_SILENT_SECONDS", 0.0)
    log = HeldLog()

    async def body(edge: Running) -> None:
        stream = edge.stream(METADATA)
        await stream.write(request(wrapper()))
        await until(lambda: bool(log.batches))
        edge.service.learn(known_of(schema_of()))
        log.acknowledge()
        assert (await stream.read()).acked[0].first_seq == 10
        assert await stream.read() is END

    with_edge(body, log=log)


def test_a_stream_ends_in_order_at_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its connection is cut a stream ends by itself, with the answers of what it sent."""

    async def body(edge: Running) -> None:
        stream = edge.stream(METADATA)
        await stream.write(request(wrapper()))
        assert (await stream.read()).acked[0].first_seq == 10
        edge.service.learn(known_of(schema_of()))
        await stream.write(request(wrapper()))
        assert (await stream.read()).acked[0].first_seq == 10
        monkeypatch.setattr(service, "MAX_STREAM_SECONDS", 0.0)
        edge.service.learn(known_of(schema_of()))
        assert await stream.read() is END

    with_edge(body)
