"""An edge in this process, before a log that tests acknowledge by hand; and events of one known game."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import grpc
import pytest
from confluent_kafka import KafkaError
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from sqlalchemy import create_engine

from pipeline.base.names import game_key
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema, SchemaSet
from pipeline.demo.samples.supported import payload_schema, sample
from pipeline.edge.certificates import ServedCertificate
from pipeline.edge.following.tail import FollowTail
from pipeline.edge.known import Known
from pipeline.edge.metrics import EdgeMetrics
from pipeline.edge.service import SERVICE, EdgeService
from pipeline.lake.kafka.acknowledged import Delivered
from pipeline.settings.edge import EdgeSettings
from pipeline.settings.tree import Paths
from pipeline.store.edge_producers import EdgeProducer, by_credential, sha256_of
from protos.turnout.v1.edge_pb2 import PublishRequest, PublishResponse
from protos.turnout.v1.wrapper_pb2 import Wrapper

GAME = "Chess"
TOKEN = "the token of chess"
FAMILY = "puzzle"
PRODUCER = EdgeProducer("chess", sha256_of(TOKEN), games=(GAME,))
T = TypeVar("T")
Body: TypeAlias = "Callable[[Running], Awaitable[None]]"
METADATA = (("authorization", f"Bearer {TOKEN}"),)


def schema_of(format_name: str = "protobuf", schema_id: int = 1) -> Schema:
    """Return a schema of the simulator's, as it is registered."""
    message, definition = payload_schema(FAMILY, 3, format_name)
    return Schema(schema_id, format_name, message, format_of(format_name).canonical(message, definition))


def known_of(
    *schemas: Schema,
    game: str = GAME,
    producers: Sequence[EdgeProducer] = (PRODUCER,),
    placement: FieldPlacement = PLAIN,
    games: frozenset[str] | None = None,
) -> Known:
    """Return a look at a store in which a game has these schemas."""
    key = game_key(game)
    placements = {} if placement == PLAIN else {key: {each.schema_id: placement for each in schemas}}
    held = SchemaSet(
        1,
        {key: tuple(each.schema_id for each in schemas)} if schemas else {},
        {each.schema_id: each for each in schemas},
        placements=placements,
    )
    return Known(held, by_credential(producers), games)


def payload(sequence: int = 1, format_name: str = "protobuf") -> bytes:
    """Return a good payload."""
    made = sample(format_name, FAMILY, 3, 1)
    return made.encode(made.event(sequence, sequence, 1_700_000_000_000_000))


def wrapper(content: bytes | None = None, *, game: str = GAME, schema_id: int = 1, event_id: str = "e1") -> bytes:
    """Return a wrapper, of a good payload by default."""
    body = payload() if content is None else content
    return Wrapper(game=game, schema_id=schema_id, payload=body, event_id=event_id).SerializeToString()


class HeldLog:
    """A log that takes batches and acknowledges them when a test says."""

    record_bytes = 2 * 1024 * 1024
    topic_id = ""

    def __init__(self, *, at_once: bool = False) -> None:
        self.fatal: str | None = None
        self.at_once = at_once
        self.batches: list[tuple[Sequence[bytes], Sequence[bytes]]] = []
        self._waiting: list[tuple[int, Delivered]] = []
        self.came = threading.Condition()

    def send(self, keys: Sequence[bytes], values: Sequence[bytes], done: Callable[[Delivered], None]) -> None:
        with self.came:
            self.batches.append((list(keys), list(values)))
            self._waiting.append((len(values), Delivered(len(values), done)))
            self.came.notify_all()
        if self.at_once:
            self.acknowledge()

    def close(self, seconds: float) -> int:
        return len(self._waiting)

    @property
    def values(self) -> list[bytes]:
        """Return all records, in order."""
        return [value for _, values in self.batches for value in values]

    def acknowledge(self, error: KafkaError | None = None, *, but: int = 0) -> None:
        """Report each waiting record but the last `but` ones of each batch."""
        waiting, self._waiting = self._waiting, []
        for count, batch in waiting:
            for offset in range(count - but):
                batch(error, Record(0, offset))  # type: ignore[arg-type]  # a record has what is asked of a message
            if but:
                self._waiting.append((but, batch))


@dataclass(frozen=True, slots=True)
class Record:
    """A delivered record, as far as reports are read."""

    of: int
    at: int

    def partition(self) -> int:
        return self.of

    def offset(self) -> int:
        return self.at


@dataclass(frozen=True, slots=True)
class Running:
    """A served edge."""

    service: EdgeService
    log: HeldLog
    metrics: EdgeMetrics
    channel: grpc.aio.Channel
    address: str
    token_address: str = ""  # with TLS
    mtls_address: str = ""

    def counted(self, name: str, **labels: str) -> float:
        """Return a metric's value, 0 where nothing was counted."""
        return self.metrics.registry.get_sample_value(f"turnout_edge_{name}", labels) or 0.0

    async def publish(self, request: PublishRequest | bytes, metadata: Any = METADATA) -> PublishResponse:
        """Send one request."""
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        channel: Any = self.channel
        call = channel.unary_unary(f"/{SERVICE}/Publish")
        return PublishResponse.FromString(await call(raw, metadata=metadata, timeout=20.0))

    def stream(self, metadata: Any = METADATA) -> Any:
        """Open a stream."""
        return self.stream_of(self.channel, metadata)

    @staticmethod
    def stream_of(channel: grpc.aio.Channel, metadata: Any = ()) -> Any:
        """Open a stream on another channel."""
        call: Any = channel.stream_stream(
            f"/{SERVICE}/PublishStream", PublishRequest.SerializeToString, PublishResponse.FromString
        )
        return call(metadata=metadata)


@asynccontextmanager
async def serving(
    known: Known | None = None,
    log: HeldLog | None = None,
    tail: FollowTail | None = None,
    certificate: ServedCertificate | None = None,
    options: Sequence[tuple[str, Any]] = (),
    **settings: Any,
) -> AsyncIterator[Running]:
    """Serve an edge on free ports of loopback: plain, with TLS, for certificates; without a tail nobody can follow."""
    log = log or HeldLog(at_once=True)
    metrics = EdgeMetrics()
    limits = replace(EdgeSettings(), **settings)
    tail = tail or FollowTail(create_engine("sqlite://"), Paths(Path("nowhere")), "test")
    service = EdgeService(limits, known or known_of(schema_of()), log, metrics, tail)
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((service.handler(),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    secure = [
        f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', certificate.credentials(asks_clients=asks))}"
        for asks in (False, True)
        if certificate is not None and (certificate.now.client_ca or not asks)
    ]
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield Running(service, log, metrics, channel, address, *secure)
    finally:
        await server.stop(None)
        service.close()


def in_own_loop(body: Coroutine[Any, Any, T]) -> T:
    """Run a body in a thread of its own, as the browser's tests leave a running loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, body).result()


def with_edge(body: Body, **options: Any) -> None:
    """Run a body with a served edge."""

    async def run() -> None:
        async with serving(**options) as edge:
            await body(edge)

    in_own_loop(run())


async def ended(call: Awaitable[Any]) -> tuple[str, str, float]:
    """Return code, reason and retry delay by which a call ends."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    error = raised.value
    reason, delay = "", 0.0
    status: Any = rpc_status.from_call(error)  # type: ignore[arg-type]  # an aio error has what is asked
    for detail in () if status is None else status.details:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(retry):
            delay = retry.retry_delay.ToTimedelta().total_seconds()
    return error.code().name, reason, delay


@contextmanager
def edge_in_thread(**options: Any) -> Iterator[Running]:
    """Serve an edge in a thread of its own, as the client blocks."""
    started, ending, found = threading.Event(), threading.Event(), list[Running]()

    async def run() -> None:
        async with serving(**options) as edge:
            found.append(edge)
            started.set()
            await asyncio.to_thread(ending.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert started.wait(30)
    try:
        yield found[0]
    finally:
        ending.set()
        thread.join()


def request(*wrappers: bytes, first_seq: int = 10) -> PublishRequest:
    """Return a request."""
    return PublishRequest(first_seq=first_seq, wrappers=wrappers)


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 -- a condition of several threads
            await asyncio.sleep(0.005)


def refusals(response: PublishResponse) -> Mapping[int, str]:
    """Return the reasons of an answer's refusals by sequence number."""
    return {each.seq: each.reason for each in response.refused}
