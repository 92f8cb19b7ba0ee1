"""The gRPC service of the edge: takes requests as bytes, and answers each once the log has its events.

Everything here runs in the event loop but for suspects, which a thread judges, and what became of batches, which a
thread of the log hands over.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import grpc
from grpc_status import rpc_status

from pipeline.edge.admission import Admission
from pipeline.edge.callers import Caller, caller_of
from pipeline.edge.following.tail import FollowTail
from pipeline.edge.judging import Judge, Judged
from pipeline.edge.known import Known
from pipeline.edge.logs.log import EdgeLog, Logged, Offsets
from pipeline.edge.messages import EdgeBatch, answer, parse
from pipeline.edge.metrics import EdgeMetrics
from pipeline.edge.reports import Reports
from pipeline.edge.statuses import EdgeStatus, invalid, too_late, unavailable
from pipeline.edge.turns import Turns
from pipeline.settings.edge import EdgeSettings
from pipeline.store.edge_producers import EdgeProducer

SERVICE: Final = "turnout.v1.Edge"
"""The service's full name on the wire."""

MAX_FRAMES: Final = 8
"""Most requests of one stream that are on their way; further ones stay in the connection's window."""

MAX_STREAM_SECONDS: Final = 600.0
"""Age at which a stream ends in order, so that no connection has to be cut while one is open."""

MAX_SILENT_SECONDS: Final = 50.0
"""Time without a whole request after which a stream ends in order: gRPC does not say whether it holds half of one."""

_LATE: Final = "the log has not acknowledged in time; send it again with the same event ids"
_log: Final = logging.getLogger("turnout")


@dataclass(eq=False)
class _Stream:
    """One open stream: the answers of its requests on their way, in order, and its end."""

    caller: Caller
    opened: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)  # when the last request was queued
    is_reading: bool = False  # a request was read, and its answer is not queued yet
    _answers: "deque[asyncio.Future[bytes] | EdgeStatus | None]" = field(default_factory=deque)
    _ends: bool = False
    _status: EdgeStatus | None = None
    _waiting: "asyncio.Future[None] | None" = None  # the handler, for an answer or the end
    _full: "asyncio.Future[None] | None" = None  # the reader, for a place

    @property
    def ends(self) -> bool:
        """Whether no further request is read."""
        return self._ends

    def is_over(self, now: float) -> bool:
        """Return whether the stream is too old, or has been silent for too long."""
        is_silent = not self.is_reading and now - self.heard > MAX_SILENT_SECONDS
        return is_silent or now - self.opened > MAX_STREAM_SECONDS

    def end(self, status: EdgeStatus | None) -> None:
        """End the stream after the answers of what was read, with a status or, by None, in order."""
        if not self._ends:
            self._ends, self._status = True, status
            _wake(self._waiting)

    async def put(self, answer: "asyncio.Future[bytes] | EdgeStatus | None") -> None:
        """Queue what will be an answer, or the end; wait for a place."""
        while len(self._answers) >= MAX_FRAMES:
            self._full = asyncio.get_running_loop().create_future()
            await self._full
        self._answers.append(answer)
        _wake(self._waiting)

    async def following(self) -> "asyncio.Future[bytes] | EdgeStatus | None":
        """Return what is next: a request's answer, a status, or None where nothing follows."""
        while True:
            if self._answers:
                _wake(self._full)
                return self._answers.popleft()
            if self._ends and not self.is_reading:
                return self._status
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def forget(self) -> None:
        """Drop answers that nobody waits for."""
        for each in self._answers:
            if isinstance(each, asyncio.Future) and not each.cancel():
                each.exception()  # so that nobody misses it


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class EdgeService:
    """Handlers of `turnout.v1.Edge`."""

    def __init__(
        self, settings: EdgeSettings, known: Known, log: EdgeLog, metrics: EdgeMetrics, tail: FollowTail
    ) -> None:
        """Take what is known at the start, where accepted events go, and what looks at where they end."""
        self._settings, self._log, self._metrics, self._tail = settings, log, metrics, tail
        self._known, self._judge = known, Judge(known, log.record_bytes)
        self._admission = Admission(settings.events_in_flight, settings.producer_events_in_flight)
        self._turns, self._reports = Turns(), Reports()
        metrics.in_flight.set_function(lambda: self._admission.events)
        self._streams: set[_Stream] = set()
        self._room = asyncio.Event()  # set whenever events have left
        self._drains = False

    def handler(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """Return the handlers for a server: of bytes, as typed ones answer bad bytes with a Python error's name."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                # One message as a stream of one, which is the same on the wire: its caller is judged before it is read.
                "Publish": grpc.stream_unary_rpc_method_handler(self._publish),
                "PublishStream": grpc.stream_stream_rpc_method_handler(self._publish_stream),
                "Follow": grpc.stream_stream_rpc_method_handler(self._follow),
            },
        )

    def learn(self, known: Known) -> None:
        """Judge by a newer look at the store; streams end whose producer may send no more, and those that are over."""
        is_same = known.schemas is self._known.schemas and known.games == self._known.games
        rules_are_same = known.rules == self._known.rules
        self._known = known
        if not (is_same and rules_are_same):
            self._judge = Judge(known, self._log.record_bytes)
        ended: dict[Caller, EdgeStatus] = {}
        for caller in {each.caller for each in self._streams}:  # many streams have one
            try:
                self._producer_of(caller)
            except EdgeStatus as status:
                ended[caller] = status
        now = time.monotonic()
        for stream in [*self._streams]:
            if (why := ended.get(stream.caller)) is not None:
                stream.end(why)
            elif stream.is_over(now):
                stream.end(None)

    def drain(self) -> None:
        """Take nothing more from streams; each ends when what it has sent is answered."""
        self._drains = True
        for stream in [*self._streams]:
            stream.end(None)
        self._tail.drain()

    def close(self) -> None:
        """End the threads."""
        self._turns.close()
        self._tail.close()

    # ------------------------------------------------------------------------------------------------- unary calls

    async def _publish(self, _: AsyncIterator[bytes], context: Any) -> bytes:
        try:
            producer = self._producer_of(caller_of(context))
            self._admission.enter(producer)
            try:
                raw = await self._message(context)
                return await (await self._taken(raw, producer, self._patience(context), None))
            finally:
                self._admission.leave(producer)
        except EdgeStatus as status:
            await self._abort(context, status)
            raise  # never: it has raised

    async def _message(self, context: Any) -> bytes:
        """Return the message of a call; half of a message is held no longer than its deadline.

        Raises:
            EdgeStatus: it has not come.
        """
        try:
            async with asyncio.timeout(self._patience(context)):
                raw = await context.read()
        except TimeoutError:
            raise too_late("MESSAGE_TOO_SLOW", "the request has not arrived in time") from None
        if not isinstance(raw, bytes):
            raise invalid("EMPTY_REQUEST", "the call has no request")
        return raw

    def _patience(self, context: Any) -> float:
        left = context.time_remaining()
        most = self._settings.deadline_seconds
        return most if left is None else max(0.0, min(most, left))

    # ----------------------------------------------------------------------------------------------------- streams

    async def _publish_stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        stream, producer = None, None
        reader: asyncio.Task[None] | None = None
        try:
            try:
                stream = _Stream(caller_of(context))
                producer = self._producer_of(stream.caller)
                self._admission.enter(producer, is_stream=True)
            except EdgeStatus as status:
                producer = None
                await self._abort(context, status)
                return
            self._streams.add(stream)
            self._metrics.streams.inc()
            if self._drains:
                stream.end(None)
            reader = asyncio.create_task(self._read(requests, stream))
            while True:
                following = await stream.following()
                if following is None:
                    return
                if isinstance(following, EdgeStatus):
                    await self._abort(context, following)
                    return
                try:
                    yield await following
                except EdgeStatus as status:
                    await self._abort(context, status)
                    return
        finally:
            if reader is not None:
                reader.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await reader
            if producer is not None and stream is not None:
                stream.forget()
                self._streams.discard(stream)
                self._metrics.streams.dec()
                self._admission.leave(producer, is_stream=True)

    async def _read(self, requests: AsyncIterator[bytes], stream: _Stream) -> None:
        """Hand a stream's requests to the log, in order, and queue what will be their answers."""
        try:
            async for raw in requests:
                if stream.ends:
                    return
                stream.is_reading = True
                producer = self._producer_of(stream.caller)
                patience = self._settings.deadline_seconds
                await stream.put(await self._taken(raw, producer, patience, stream))
                stream.is_reading, stream.heard = False, time.monotonic()
            await stream.put(None)
        except EdgeStatus as status:
            await stream.put(status)
        except grpc.aio.AbortError:
            return  # the stream has ended with a status while its next request was awaited
        except Exception:  # noqa: BLE001 -- else the stream would wait for ever
            _log.exception("a stream of the edge ends by a fault")
            await stream.put(unavailable("FAULT", "the edge has failed; its log says why"))

    async def _follow(self, _: AsyncIterator[bytes], context: Any) -> None:
        caller = caller_of(context)
        try:
            producer = self._producer_of(caller)
            self._admission.enter(producer)
            self._metrics.followers.inc()
            try:
                raw = await self._message(context)
                await self._tail.serve(raw, partial(self._producer_of, caller), context.write)
            finally:
                self._metrics.followers.dec()
                self._admission.leave(producer)
        except EdgeStatus as status:
            await self._abort(context, status)

    # ---------------------------------------------------------------------------------------------- one request

    async def _taken(
        self, raw: bytes, producer: EdgeProducer, patience: float, stream: _Stream | None
    ) -> "asyncio.Future[bytes]":
        """Judge a request and hand what is accepted to the log; return what ends with its answer.

        Raises:
            EdgeStatus: nothing of it was handed over.
        """
        started = time.monotonic()
        batch = parse(raw)
        if stream is None and (full := self._admission.lacks_room(producer, len(batch.wrappers), len(raw))) is not None:
            raise full
        self._admission.charge(producer, len(batch.wrappers), started)
        judged, suspects = self._judge.glance(batch.wrappers, producer)
        if suspects:
            await self._turns.take(producer.name, partial(self._judge.settle, judged, suspects))
        values = [batch.wrappers[row] for row in judged.rows]
        if not values:
            done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            done.set_result(self._answer(batch, judged, {}, started))
            return done
        if (fatal := self._log.fatal) is not None:
            raise unavailable("LOG_LOST", f"the edge's producer has ended ({fatal}); it starts again")
        size = sum(map(len, values))
        await self._make_room(producer, len(values), size, stream, started + patience)
        left = max(0.0, started + patience - time.monotonic())
        return self._hand_over(producer, judged.keys, values, left, partial(self._outcome, batch, judged, started))

    async def _make_room(
        self, producer: EdgeProducer, events: int, size: int, stream: _Stream | None, until: float
    ) -> None:
        """Refuse a call without room; a stream waits for it, so that its client is slowed down.

        Raises:
            EdgeStatus: there is none.
        """
        while (status := self._admission.lacks_room(producer, events, size)) is not None:
            left = until - time.monotonic()
            if stream is None or left <= 0:
                raise status
            self._room.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), left)
        self._admission.take(producer, events, size)

    def _hand_over(
        self,
        producer: EdgeProducer,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        patience: float,
        outcome: Callable[[Logged], bytes],
    ) -> "asyncio.Future[bytes]":
        """Give events to the log; they count as in flight until their reports come, whatever becomes of the call."""
        loop, size = asyncio.get_running_loop(), sum(map(len, values))
        future: asyncio.Future[bytes] = loop.create_future()
        timer = loop.call_later(patience, _end_late, future)  # no task for each request: it costs more than the log

        def reported(delivered: Logged) -> None:
            self._admission.release(producer, len(values), size)
            self._room.set()
            timer.cancel()
            if not future.done():
                try:
                    future.set_result(outcome(delivered))
                except EdgeStatus as status:
                    future.set_exception(status)

        def done(delivered: Logged) -> None:
            self._reports.hand(loop, partial(reported, delivered))

        self._log.send(keys, values, done)
        return future

    def _outcome(self, batch: EdgeBatch, judged: Judged, started: float, delivered: Logged) -> bytes:
        """Return the answer of a request whose reports have come.

        Raises:
            EdgeStatus: not all of it is in the log.
        """
        if delivered.is_full:
            raise unavailable("QUEUE_FULL", "a part found no room; send it again with the same event ids")
        if (why := delivered.why) is not None:
            raise unavailable("LOG_FAILED", f"not all is in the log ({why}); send it again with the same event ids")
        return self._answer(batch, judged, delivered.offsets, started)

    def _answer(self, batch: EdgeBatch, judged: Judged, offsets: Offsets, started: float) -> bytes:
        self._metrics.answered(judged, time.monotonic() - started)
        return answer(batch, judged, offsets, self._log.topic_id)

    # ----------------------------------------------------------------------------------------------------- callers

    def _producer_of(self, caller: Caller) -> EdgeProducer:
        return self._known.require_producer(caller, time.time())

    async def _abort(self, context: Any, status: EdgeStatus) -> None:
        self._metrics.ended(status.code_name, status.reason)
        await context.abort_with_status(rpc_status.to_status(status.status))


def _end_late(future: "asyncio.Future[bytes]") -> None:
    if not future.done():
        future.set_exception(too_late("LOG_TOO_SLOW", _LATE))
