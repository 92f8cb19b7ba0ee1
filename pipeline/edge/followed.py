"""What becomes of a client's events behind the log: matches what an edge's `Follow` says with what was acknowledged.

`EdgeClient.follow` makes it. It goes on over reconnects, at any edge before the same tables, by the newest token.
"""

import queue
import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self, TypeAlias

import grpc

from pipeline.edge.client_channel import EdgeChannel
from protos.turnout.v1.edge_pb2 import FollowRequest, FollowResponse, LogPosition, RefusedRow
from protos.turnout.v1.wrapper_pb2 import Wrapper

_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 5.0
_MOST_UNMATCHED: Final = 10_000  # refused rows of events that are not acknowledged yet, or are another client's
AGAIN: Final = frozenset({
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL, grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN,
})  # fmt: skip
"""Statuses after which the same request may succeed; a refused stream shows as INTERNAL."""

Ranges: TypeAlias = Mapping[int, tuple[int, int]]
"""The first and the last offset of a request's events, by partition."""


@dataclass(frozen=True, slots=True)
class EventLanded:
    """An event that is in its game's table."""

    event_id: str
    game: str
    was_refused: bool = False  # it was refused first, and a replay has landed it
    seconds: float | None = field(default=None, compare=False)  # since it was acknowledged; None after a replay


@dataclass(frozen=True, slots=True)
class EventRefused:
    """An event that was acknowledged, and refused behind the log: it is in quarantine."""

    event_id: str
    game: str
    reason: str
    detail: str
    field: str
    partition: int
    offset: int
    seconds: float | None = field(default=None, compare=False)  # since it was acknowledged


@dataclass(frozen=True, slots=True)
class EventUnknown:
    """An event that was acknowledged, and of which nothing more will be said: its table may have it, or nobody.

    `topic_replaced`: its topic was deleted and made again, or ingest reads another one. `skipped`: ingest was let go on
    behind records that the topic had lost, and the event was among them or sent with one of them.
    """

    event_id: str
    game: str
    reason: str


EventOutcome: TypeAlias = EventLanded | EventRefused | EventUnknown

TOPIC_REPLACED: Final = "topic_replaced"
SKIPPED: Final = "skipped"


class SentAt(NamedTuple):
    """What was known when a request began."""

    epoch: int = 0  # of the stream
    topic_id: str = ""
    through: Mapping[int, int] = {}  # ends of the topic: what is sent later lies at or behind them


@dataclass(frozen=True, slots=True)
class _Open:
    event_id: str
    ranges: Ranges
    topic_id: str  # empty where the broker gives none
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long it has been acknowledged."""
        return time.monotonic() - self.began


@dataclass(frozen=True, slots=True)
class _Through:
    """How far a game is landed."""

    topic_id: str = ""
    former: frozenset[str] = frozenset()  # topics from before
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Events:
    """The events without an outcome, by game in the order of their acknowledgement. Used under a lock."""

    most: int
    found: "queue.SimpleQueue[EventOutcome | BaseException | None]" = field(default_factory=queue.SimpleQueue)
    through: dict[str, _Through] = field(default_factory=dict)  # as the edge has said, by game
    highest: _Through = field(default_factory=_Through)  # of all games, in the newest topic
    untracked: int = 0
    _dropped: dict[int, int] = field(default_factory=dict)  # the last offset of unmatched rows that were forgotten
    _open: dict[str, deque[_Open]] = field(default_factory=dict)
    _by_id: dict[tuple[str, str], _Open] = field(default_factory=dict)
    _refused: "OrderedDict[tuple[str, str], None]" = field(default_factory=OrderedDict)  # that have that outcome
    _unmatched: "OrderedDict[tuple[str, str], list[RefusedRow]]" = field(default_factory=OrderedDict)

    def add(self, wrappers: Sequence[bytes], ranges: Ranges, topic_id: str = "", *, is_lost: bool = False) -> None:
        """Take events of one request that are acknowledged, or are in another topic than `topic_id` says."""
        games = set[str]()
        for raw in wrappers:
            wrapper = Wrapper.FromString(raw)
            name = wrapper.game, wrapper.event_id
            is_known = all(first > self._dropped.get(partition, -1) for partition, (first, _) in ranges.items())
            if not wrapper.event_id or not is_known or len(self._by_id) + self.found.qsize() >= self.most:
                self.untracked += 1
                continue
            if is_lost:
                self.found.put(EventUnknown(wrapper.event_id, wrapper.game, TOPIC_REPLACED))
                continue
            made = self._by_id[name] = _Open(wrapper.event_id, ranges, topic_id)
            self._open.setdefault(wrapper.game, deque()).append(made)
            for row in self._unmatched.pop(name, ()):
                self.refuse(row)
            games.add(wrapper.game)
        for game in games:
            self.settle(game)

    def land(
        self, game: str, through: Mapping[int, int], topic_id: str = "", former: frozenset[str] = frozenset()
    ) -> None:
        """Take through-offsets of a game in a topic; within one they never go back."""
        known = self.through.get(game)
        if known is None or known.topic_id != topic_id or known.former != former:
            kept = {} if known is None or _differ(known.topic_id, topic_id) else known.offsets
            known = self.through[game] = _Through(topic_id, former, kept)
        if _differ(self.highest.topic_id, topic_id) and topic_id not in self.highest.former:
            self.highest = _Through(topic_id, former)
        elif not self.highest.topic_id:
            self.highest = _Through(topic_id, former, self.highest.offsets)
        for partition, offset in through.items():
            known.offsets[partition] = max(offset, known.offsets.get(partition, 0))
            if not _differ(self.highest.topic_id, topic_id):
                self.highest.offsets[partition] = max(offset, self.highest.offsets.get(partition, 0))
        self.settle(game)

    def settle(self, game: str) -> None:
        """Give the events of a game that are landed, or were in a topic that is gone, their outcome."""
        waiting, known = self._open.get(game), self.through.get(game, _Through())
        while waiting:
            first = waiting[0]
            if self._by_id.get((game, first.event_id)) is first:
                is_gone = first.topic_id in known.former
                ends = {} if _differ(first.topic_id, known.topic_id) else known.offsets
                if not is_gone and not all(ends.get(each, 0) > last for each, (_, last) in first.ranges.items()):
                    return
                del self._by_id[game, first.event_id]
                gone = EventUnknown(first.event_id, game, TOPIC_REPLACED)
                self.found.put(gone if is_gone else EventLanded(first.event_id, game, seconds=first.seconds))
            waiting.popleft()

    def skip(self, topic_id: str, partition: int, low: int, high: int) -> None:
        """Take offsets that ingest will never read: an event may be at any offset of its request."""
        for (game, event_id), event in [*self._by_id.items()]:
            first, last = event.ranges.get(partition, (0, -1))
            if first <= high and low <= last and not _differ(topic_id, event.topic_id):
                del self._by_id[game, event_id]
                self.found.put(EventUnknown(event_id, game, SKIPPED))

    def refuse(self, row: RefusedRow) -> None:
        """Take a refused row; it is of an event only where it lies within its request's offsets."""
        name = row.game, row.event_id
        event = self._by_id.get(name)
        if event is None:
            if row.event_id:
                self._unmatched.setdefault(name, []).append(row)
                while len(self._unmatched) > _MOST_UNMATCHED:
                    for old in self._unmatched.popitem(last=False)[1]:
                        self._dropped[old.partition] = max(old.offset, self._dropped.get(old.partition, -1))
            return
        first, last = event.ranges.get(row.partition, (0, -1))
        if first <= row.offset <= last:
            del self._by_id[name]
            self._refused[name] = None
            while len(self._refused) > self.most:
                self._refused.popitem(last=False)
            why = row.reason, row.detail, row.field
            self.found.put(EventRefused(row.event_id, row.game, *why, row.partition, row.offset, seconds=event.seconds))

    def replay(self, game: str, event_id: str) -> None:
        """Take a row that a replay has landed."""
        if (game, event_id) in self._refused:
            del self._refused[game, event_id]
            self.found.put(EventLanded(event_id, game, was_refused=True))

    def are_covered(self, since: Mapping[int, int]) -> bool:
        """Return whether all events without an outcome lie at or behind these offsets."""
        return all(covers(since, event.ranges) for event in self._by_id.values())

    @property
    def waiting(self) -> int:
        """The number of events without an outcome."""
        return len(self._by_id)

    def since(self) -> dict[int, int]:
        """Return of each partition the first offset that an event without an outcome may have."""
        found: dict[int, int] = {}
        for event in self._by_id.values():
            for partition, (first, _) in event.ranges.items():
                found[partition] = min(first, found.get(partition, first))
        return found


def _differ(one: str, other: str) -> bool:
    """Return whether ids are of two topics; an empty one is not known."""
    return bool(one and other and one != other)


def covers(since: Mapping[int, int], ranges: Ranges) -> bool:
    """Return whether a stream that began at offsets has all refusals of a request's events."""
    return all(partition in since and first >= since[partition] for partition, (first, _) in ranges.items())


class EdgeFollowing:
    """An iterator of outcomes of a client's events that were acknowledged since it was made. Safe from any thread."""

    def __init__(self, channel: EdgeChannel, most_events: int) -> None:
        """Follow at once; hold at most this number of events without an outcome, and of outcomes that nobody took."""
        self._channel = channel
        self._events, self._lock = _Events(most_events), threading.Lock()
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

    def acknowledged(self, wrappers: Sequence[bytes], ranges: Ranges, topic_id: str, sent_at: SentAt) -> None:
        """Take events of one request that are in the log, and what was known at its beginning; the client calls it."""
        went_back = not _differ(topic_id, sent_at.topic_id) and any(
            first < sent_at.through.get(partition, 0) for partition, (first, _) in ranges.items()
        )
        with self._lock:
            if sent_at.epoch < self.epoch and not covers(self._since, ranges) and not went_back:
                self._lacks = True
                self._events.through.clear()  # what it says is not true of these
                self._open.cancel()
            self._events.add(wrappers, ranges, topic_id, is_lost=went_back)

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
            self._events.replay(landed.game, landed.event_id)
        for skipped in response.skipped:
            self._events.skip(skipped.topic_id, skipped.partition, skipped.first, skipped.last)
        for each in response.landed:
            through = {position.partition: position.offset for position in each.through}
            former = frozenset(each.former_topic_ids)
            for game in each.games:
                self._events.land(game, through, each.topic_id, former)


def _code(error: Any) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None
