"""What becomes of a client's events behind the log: a thread that follows, and an iterator of outcomes.

`EdgeClient.follow` makes it. It goes on over reconnects, at any edge before the same tables, by the newest token.
"""

import queue
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

import grpc

from pipeline.edge.client_channel import EdgeChannel
from pipeline.edge.outcomes import AwaitedEvents, EventOutcome, LoggedAt, SentAt, covers, differ
from protos.turnout.v1.edge_pb2 import FollowRequest, FollowResponse, LogPosition

_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 5.0
AGAIN: Final = frozenset({
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL, grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN,
})  # fmt: skip
"""Statuses after which the same request may succeed; a refused stream shows as INTERNAL."""


class EdgeFollowing:
    """An iterator of outcomes of a client's events that were acknowledged since it was made. Safe from any thread."""

    def __init__(self, channel: EdgeChannel, most_events: int) -> None:
        """Follow at once; hold at most this number of events without an outcome, and of outcomes that nobody took."""
        self._channel = channel
        self._events, self._lock = AwaitedEvents(most_events), threading.Lock()
        self._closed = threading.Event()
        self._open: Any = None  # the call
        self._since: Mapping[int, int] = {}  # where the stream began that the newest token goes on
        self._lacks = False  # an event is not covered by that
        self.epoch = 0
        """Counts such beginnings. A request that began before the newest one may have refusals from before it."""
        self._thread = threading.Thread(target=self._run, name="edge following", daemon=True)
        self._thread.start()

    @property
    def untracked(self) -> int:
        """The number of acknowledged events that get no outcome: too many waited, or they have no event id."""
        return self._events.untracked

    @property
    def waiting(self) -> int:
        """The number of acknowledged events that have no outcome yet."""
        return self._events.waiting

    def sent_at(self) -> SentAt:
        """Return what is known now, for a request that begins; the client calls it."""
        with self._lock:
            highest = self._events.highest
            return SentAt(self.epoch, highest.topic_id, dict(highest.offsets))

    def acknowledged(self, wrappers: Sequence[bytes], at: LoggedAt, sent_at: SentAt) -> None:
        """Take events of one request that are in the log, and what was known at its beginning; the client calls it."""
        went_back = not differ(at.topic_id, sent_at.topic_id) and any(
            first < sent_at.through.get(partition, 0) for partition, (first, _) in at.ranges.items()
        )
        with self._lock:
            if sent_at.epoch < self.epoch and not covers(self._since, at.ranges) and not went_back:
                self._lacks = True
                self._events.through.clear()  # what it says is not true of these
                self._open.cancel()
            self._events.add(wrappers, at, is_lost=went_back)

    def wait(self, timeout: float | None = None) -> EventOutcome | None:
        """Return the next outcome; None where none comes within a number of seconds, or after `close`.

        Raises:
            grpc.RpcError: the edge does not let this client follow.
        """
        try:
            found = self._events.found.get(timeout=timeout)
        except queue.Empty:
            return None
        if found is None or isinstance(found, BaseException):
            self._events.found.put(found)  # for the next one that waits
        if isinstance(found, BaseException):
            raise found
        return found

    def __iter__(self) -> Iterator[EventOutcome]:
        return self

    def __next__(self) -> EventOutcome:
        found = self.wait()
        if found is None:
            raise StopIteration
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End; `wait` returns None then."""
        self._closed.set()
        if (call := self._open) is not None:
            call.cancel()
        self._events.found.put(None)
        self._thread.join(_LONGEST_WAIT_SECONDS)

    def _run(self) -> None:
        token, wait = b"", _FIRST_WAIT_SECONDS
        while not self._closed.is_set():
            try:
                for newest in self._stream(token):
                    token, wait = newest, _FIRST_WAIT_SECONDS
            except grpc.RpcError as error:
                code = _code(error)
                if code is grpc.StatusCode.OUT_OF_RANGE:
                    token = b""
                elif code not in AGAIN and not self._closed.is_set():
                    self._events.found.put(error)
                    return
            self._closed.wait(random.uniform(0, wait))  # noqa: S311 -- no secret
            wait = min(_LONGEST_WAIT_SECONDS, wait * 2)

    def _stream(self, token: bytes) -> Iterator[bytes]:
        """Follow until the stream ends; yield each token that covers all events."""
        with self._lock:
            since = self._events.since()
            token, self._lacks = b"" if self._lacks else token, False
        positions = [LogPosition(partition=each, offset=at) for each, at in sorted(since.items())]
        request = FollowRequest(token=token) if token else FollowRequest(since=positions)
        self._open = call = self._channel.follow(request)
        if self._closed.is_set():
            call.cancel()
        begins = not token
        for response in call:
            with self._lock:
                if begins and not self._events.are_covered(since):
                    self._lacks = True
                elif begins:
                    self._since, self.epoch, begins = since, self.epoch + 1, False
                if self._lacks:  # an event may have been refused before the edge began to look: begin at its offset
                    call.cancel()
                    return
                self._take(response)
            if response.token:
                yield response.token

    def _take(self, response: FollowResponse) -> None:
        for row in response.refused:
            self._events.refuse(row)
        for landed in response.replayed:
            self._events.replay(landed)
        for skipped in response.skipped:
            self._events.skip(skipped.topic_id, skipped.partition, skipped.first, skipped.last)
        for each in response.landed:
            through = {position.partition: position.offset for position in each.through}
            former = frozenset(each.former_topic_ids)
            for game in each.games:
                self._events.land(game, through, each.topic_id, former)


def _code(error: Any) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None
