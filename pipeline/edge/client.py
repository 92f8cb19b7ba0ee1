"""A client of the edge for producers in Python: batches events, tries again, and says of each what became of it.

It needs grpcio and protobuf alone. Safe to use from any thread. An event that is not acknowledged is never reported as
such; one that is sent again keeps its event id.
"""

import collections
import queue
import random
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from pipeline.edge.client_channel import EdgeChannel, EdgeTls
from pipeline.edge.followed import AGAIN, EdgeFollowing
from pipeline.edge.outcomes import LoggedAt, SentAt
from protos.turnout.v1.edge_pb2 import PublishRequest, PublishResponse
from protos.turnout.v1.wrapper_pb2 import Wrapper

_FIRST_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 5.0
_BATCH_BYTES: Final = 2 * 1024 * 1024  # of events sent together; a larger one goes alone


@dataclass(frozen=True, slots=True)
class EdgeEvent:
    """One event as a producer makes it."""

    game: str
    schema_id: int
    payload: bytes
    event_time: float | None = None  # Unix seconds
    event_id: str = ""  # empty: the client makes one, by which a second copy is recognised
    sequence: int = 0  # 0: the producer does not count


@dataclass(frozen=True, slots=True)
class EdgeAcknowledged:
    """An event that is in the log."""

    event_id: str


@dataclass(frozen=True, slots=True)
class EdgeRejected:
    """An event that the edge refused: sent again unchanged it is refused again."""

    event_id: str
    reason: str
    detail: str
    field: str
    rules: tuple[str, ...] = ()  # of output contracts that it breaks


EdgeOutcome: TypeAlias = EdgeAcknowledged | EdgeRejected


class EdgeGaveUp(Exception):
    """An event that was not acknowledged in time, or that no edge takes: it may be in the log or not."""


@dataclass(slots=True)
class _Waiting:
    wrapper: bytes
    event_id: str
    future: "Future[EdgeOutcome]"
    until: float  # by the monotonic clock: give up then


class EdgeClient:
    """Sends events to one edge. `send` returns at once unless the queue is full; a thread sends batches in order."""

    def __init__(  # noqa: PLR0913 - each but the address has a default
        self,
        address: str,
        token: str = "",
        *,
        tls: EdgeTls | None = None,
        producer_id: str = "",
        batch_events: int = 500,
        linger_seconds: float = 0.005,
        queue_events: int = 10_000,
        give_up_seconds: float = 120.0,
        call_seconds: float = 20.0,
    ) -> None:
        """Connect when the first event is sent.

        Args:
            address: HOST:PORT of the edge.
            token: of the producer, as `turnout edge producers token` printed it; empty where a certificate counts.
            tls: whom to trust, and the producer's certificate; None: no TLS, to this machine alone.
            producer_id: written into each wrapper.
            batch_events: most events of one request, at most 1,000.
            linger_seconds: how long a request waits for more events.
            queue_events: most events that wait; `send` blocks above it.
            give_up_seconds: how long an event is tried.
            call_seconds: deadline of one request.

        Raises:
            ValueError: a token would leave this machine without TLS, or a file of `tls` is no PEM.
            OSError: a file of `tls` cannot be read.
        """
        self._producer_id, self._linger, self._call_seconds = producer_id, linger_seconds, call_seconds
        self._batch_events, self._give_up = max(1, min(batch_events, 1_000)), give_up_seconds
        self._channel = EdgeChannel(address, token, tls)
        self._queue: queue.Queue[_Waiting | None] = queue.Queue(queue_events)
        self._held: collections.deque[_Waiting] = collections.deque()  # taken from the queue for the next request
        self._following: EdgeFollowing | None = None
        self._closed = threading.Event()
        self._idle = threading.Condition()
        self._open = 0  # events without an outcome
        self._thread = threading.Thread(target=self._run, name="edge client", daemon=True)
        self._thread.start()

    def send(self, event: EdgeEvent) -> "Future[EdgeOutcome]":
        """Queue an event; its future gets the outcome, or `EdgeGaveUp`. Blocks while the queue is full.

        Raises:
            ValueError: the client is closed.
        """
        return self.send_wrapper(*self.wrapped(event))

    def wrapped(self, event: EdgeEvent) -> tuple[bytes, str]:
        """Return an event as a serialised `turnout.v1.Wrapper`, and its id."""
        event_id = event.event_id or uuid.uuid4().hex
        wrapper = Wrapper(
            game=event.game,
            schema_id=event.schema_id,
            payload=event.payload,
            event_id=event_id,
            producer_id=self._producer_id,
            sequence=event.sequence,
        )
        if event.event_time is not None:
            moment = Timestamp()
            moment.FromMicroseconds(round(event.event_time * 1_000_000))
            wrapper.event_time.CopyFrom(moment)
        return wrapper.SerializeToString(), event_id

    def send_wrapper(self, wrapper: bytes, event_id: str = "") -> "Future[EdgeOutcome]":
        """Queue a serialised `turnout.v1.Wrapper` as it is, as `send` does.

        Raises:
            ValueError: the client is closed.
        """
        if self._closed.is_set():
            raise ValueError("the client is closed")
        future: Future[EdgeOutcome] = Future()
        future.set_running_or_notify_cancel()  # so that nobody cancels it: the event may be in the log
        with self._idle:
            self._open += 1
        self._queue.put(_Waiting(wrapper, event_id, future, time.monotonic() + self._give_up))
        return future

    def follow(self, most_events: int = 100_000) -> EdgeFollowing:
        """Return an iterator of what becomes of events behind the log, of those that are acknowledged from now on.

        Each gets one outcome, `EventLanded`, `EventRefused` or `EventUnknown`, and a second one, `EventLanded`, where a
        replay lands a refused one later.
        The iterator goes on over reconnects until it or the client is closed. `most_events` may wait for an outcome, or
        for you to take it; more are counted as `untracked`.
        """
        if self._following is None:
            self._following = EdgeFollowing(self._channel, most_events)
        return self._following

    def wait_until_ready(self, timeout: float) -> None:
        """Return once the edge answers and takes the token: it learns of a new producer within seconds.

        Raises:
            EdgeGaveUp: it does not, within this number of seconds.
        """
        until, wait = time.monotonic() + timeout, _FIRST_WAIT_SECONDS
        while True:
            try:
                self._channel.publish(PublishRequest(), self._call_seconds)
            except grpc.RpcError as error:
                code, details = _code_and_details(error)
                if code is grpc.StatusCode.INVALID_ARGUMENT:  # it has no event, and the token counts
                    return
                if time.monotonic() >= until:
                    raise EdgeGaveUp(f"{code.name if code else 'UNKNOWN'}: {details}") from error
            time.sleep(wait)
            wait = min(1.0, wait * 2)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until each event has an outcome; return whether all have."""
        with self._idle:
            return self._idle.wait_for(lambda: self._open == 0, timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Flush, and end; return whether each event has an outcome. The others give up."""
        done = self.flush(timeout)
        self._closed.set()
        self._queue.put(None)
        self._thread.join(self._call_seconds + _LONGEST_WAIT_SECONDS)
        if self._following is not None:
            self._following.close()
        self._channel.close()
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(None if kind is None else 0.0)

    def _run(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._batch()
            if batch:
                self._send(batch)

    def _batch(self) -> tuple[list[_Waiting], bool]:
        """Return the next events to send together, and whether none will follow."""
        first = self._held.popleft() if self._held else self._queue.get()
        if first is None:
            return [], True
        batch, size, until = [first], len(first.wrapper), time.monotonic() + self._linger
        while len(batch) < self._batch_events:
            try:
                following = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if following is None:
                return batch, True
            if size + len(following.wrapper) > _BATCH_BYTES:
                self._held.append(following)
                break
            batch.append(following)
            size += len(following.wrapper)
        return batch, False

    def _send(self, batch: list[_Waiting]) -> None:
        """Send events until each has an outcome or is given up."""
        request = PublishRequest(first_seq=0, wrappers=[each.wrapper for each in batch])
        wait = _FIRST_WAIT_SECONDS
        sent_at = SentAt() if self._following is None else self._following.sent_at()
        while True:
            try:
                response = self._channel.publish(request, self._call_seconds)
            except grpc.RpcError as error:
                code, details = _code_and_details(error)
                is_over = time.monotonic() >= batch[0].until or self._closed.is_set()
                if code not in AGAIN or is_over:
                    self._settle_all(batch, EdgeGaveUp(f"{code.name if code else 'UNKNOWN'}: {details}"))
                    return
                # Full jitter, and never less than the edge asks for: who failed together must not return together.
                self._closed.wait(max(_asked_delay(error), random.uniform(0, wait)))  # noqa: S311 -- no secret
                wait = min(_LONGEST_WAIT_SECONDS, wait * 2)
                continue
            self._settle(batch, response, sent_at)
            return

    def _settle(self, batch: Sequence[_Waiting], response: PublishResponse, sent_at: SentAt) -> None:
        outcomes: dict[int, EdgeOutcome] = {}
        for span in response.acked:
            for place in range(span.first_seq, span.last_seq + 1):
                outcomes[place] = EdgeAcknowledged(batch[place].event_id)
        for each in response.refused:
            event_id, rules = batch[each.seq].event_id, tuple(each.rules)
            outcomes[each.seq] = EdgeRejected(event_id, each.reason, each.detail, each.field, rules)
        if self._following is not None:
            accepted = [place for place, each in outcomes.items() if isinstance(each, EdgeAcknowledged)]
            wrappers = [batch[place].wrapper for place in accepted]
            self._following.acknowledged(wrappers, LoggedAt.of(response), sent_at)
        lost = EdgeGaveUp("the edge's answer does not name the event")
        for place, waiting in enumerate(batch):
            outcome = outcomes.get(place)
            if outcome is None:
                waiting.future.set_exception(lost)
            else:
                waiting.future.set_result(outcome)
        self._left(len(batch))

    def _settle_all(self, batch: Sequence[_Waiting], error: EdgeGaveUp) -> None:
        for waiting in batch:
            waiting.future.set_exception(error)
        self._left(len(batch))

    def _left(self, events: int) -> None:
        with self._idle:
            self._open -= events
            if self._open == 0:
                self._idle.notify_all()


def _code_and_details(error: Any) -> tuple[grpc.StatusCode | None, str]:
    if isinstance(error, grpc.Call):
        return error.code(), error.details() or ""
    return None, str(error)


def _asked_delay(error: Any) -> float:
    """Return how many seconds the edge asks to wait, 0 where it does not say."""
    status = rpc_status.from_call(error) if isinstance(error, grpc.Call) else None
    for detail in () if status is None else status.details:
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return float(info.retry_delay.ToTimedelta().total_seconds())
    return 0.0
