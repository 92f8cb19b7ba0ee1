"""Events of a client that are acknowledged and wait for their outcome behind the log: matched by id and position. Pure.

`EdgeFollowing` calls it under a lock, with what an edge's `Follow` says.
"""

import dataclasses
import queue
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple, Self, TypeAlias

from protos.turnout.v1.edge_pb2 import PublishResponse, RefusedRow, ReplayedRow
from protos.turnout.v1.wrapper_pb2 import Wrapper

_MOST_UNMATCHED: Final = 10_000  # refused rows of events that are not acknowledged yet, or are another client's

Ranges: TypeAlias = Mapping[int, tuple[int, int]]
"""The first and the last offset of a request's events, by partition; commits of a landing table under 0."""


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
    offset: int  # of a landing table's file the row, from 0
    file: str = ""  # of a landing table
    seconds: float | None = dataclasses.field(default=None, compare=False)  # since it was acknowledged


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
class LoggedAt:
    """Where the events of one request are in the log."""

    ranges: Ranges
    topic_id: str = ""  # empty where the broker gives none
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # first and last row by a landing table's file

    @classmethod
    def of(cls, response: PublishResponse) -> Self:
        """Return what an edge's answer says."""
        ranges = {
            each.partition: (each.version, each.version) if each.file else (each.first_offset, each.last_offset)
            for each in response.log
        }
        rows = {each.file: (each.first_offset, each.last_offset) for each in response.log if each.file}
        return cls(ranges, response.topic_id, rows)

    def has(self, row: RefusedRow) -> bool:
        """Return whether a row lies within the request's offsets."""
        first, last = self.rows.get(row.file, (0, -1)) if row.file else self.ranges.get(row.partition, (0, -1))
        return first <= row.offset <= last


@dataclass(eq=False, slots=True)
class _Open:
    event_id: str
    at: LoggedAt
    began: float = field(default_factory=time.monotonic)
    is_settled: bool = False

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


class _Place(NamedTuple):
    """A row of the log, and whose it is."""

    game: str
    event_id: str
    file: str
    partition: int
    offset: int

    @classmethod
    def of(cls, row: RefusedRow | ReplayedRow) -> Self:
        return cls(row.game, row.event_id, row.file, row.partition, row.offset)


@dataclass(slots=True)
class AwaitedEvents:
    """The events without an outcome, by game in the order of their acknowledgement."""

    most: int
    found: "queue.SimpleQueue[EventOutcome | BaseException | None]" = field(default_factory=queue.SimpleQueue)
    through: dict[str, _Through] = field(default_factory=dict)  # as the edge has said, by game
    highest: _Through = field(default_factory=_Through)  # of all games, in the newest topic
    untracked: int = 0
    waiting: int = 0
    """The number of events without an outcome."""
    _dropped: dict[int, int] = field(default_factory=dict)  # the last offset of unmatched rows that were forgotten
    _dropped_files: "OrderedDict[str, None]" = field(default_factory=OrderedDict)  # of a landing table, likewise
    _open: dict[str, deque[_Open]] = field(default_factory=dict)
    _by_id: dict[tuple[str, str], list[_Open]] = field(default_factory=dict)
    _refused: "OrderedDict[_Place, None]" = field(default_factory=OrderedDict)  # that have that outcome
    _unmatched: "OrderedDict[tuple[str, str], list[RefusedRow]]" = field(default_factory=OrderedDict)

    def add(self, wrappers: Sequence[bytes], at: LoggedAt, *, is_lost: bool = False) -> None:
        """Take events of one request that are acknowledged, or are in another topic than `at` says."""
        games = set[str]()
        is_known = all(first > self._dropped.get(partition, -1) for partition, (first, _) in at.ranges.items())
        is_known = is_known and not self._dropped_files.keys() & at.rows.keys()
        for raw in wrappers:
            wrapper = Wrapper.FromString(raw)
            name = wrapper.game, wrapper.event_id
            if not wrapper.event_id or not is_known or self.waiting + self.found.qsize() >= self.most:
                self.untracked += 1
                continue
            if is_lost:
                self.found.put(EventUnknown(wrapper.event_id, wrapper.game, TOPIC_REPLACED))
                continue
            made = _Open(wrapper.event_id, at)
            self._by_id.setdefault(name, []).append(made)
            self._open.setdefault(wrapper.game, deque()).append(made)
            self.waiting += 1
            games.add(wrapper.game)
            for row in self._unmatched.pop(name, ()):
                self.refuse(row)
        for game in games:
            self.settle(game)

    def land(
        self, game: str, through: Mapping[int, int], topic_id: str = "", former: frozenset[str] = frozenset()
    ) -> None:
        """Take through-offsets of a game in a topic; within one they never go back."""
        known = self.through.get(game)
        if known is None or known.topic_id != topic_id or known.former != former:
            kept = {} if known is None or differ(known.topic_id, topic_id) else known.offsets
            known = self.through[game] = _Through(topic_id, former, kept)
        if differ(self.highest.topic_id, topic_id) and topic_id not in self.highest.former:
            self.highest = _Through(topic_id, former)
        elif not self.highest.topic_id:
            self.highest = _Through(topic_id, former, self.highest.offsets)
        for partition, offset in through.items():
            known.offsets[partition] = max(offset, known.offsets.get(partition, 0))
            if not differ(self.highest.topic_id, topic_id):
                self.highest.offsets[partition] = max(offset, self.highest.offsets.get(partition, 0))
        self.settle(game)

    def settle(self, game: str) -> None:
        """Give the events of a game that are landed, or were in a topic that is gone, their outcome."""
        waiting, known = self._open.get(game), self.through.get(game, _Through())
        while waiting:
            first = waiting[0]
            if not first.is_settled:
                is_gone = first.at.topic_id in known.former
                ends = {} if differ(first.at.topic_id, known.topic_id) else known.offsets
                if not is_gone and not all(ends.get(each, 0) > last for each, (_, last) in first.at.ranges.items()):
                    return
                gone = EventUnknown(first.event_id, game, TOPIC_REPLACED)
                landed = EventLanded(first.event_id, game, seconds=first.seconds)
                self._end(game, first, gone if is_gone else landed)
            waiting.popleft()

    def skip(self, topic_id: str, partition: int, low: int, high: int) -> None:
        """Take offsets that ingest will never read: an event may be at any offset of its request."""
        for game, event in [*self._all()]:
            first, last = event.at.ranges.get(partition, (0, -1))
            if first <= high and low <= last and not differ(topic_id, event.at.topic_id):
                self._end(game, event, EventUnknown(event.event_id, game, SKIPPED))

    def refuse(self, row: RefusedRow) -> None:
        """Take a refused row, which may come twice; it is of an event only where it lies within its request's offsets.

        Of several events of one id in one request it ends the first: nothing tells them apart.
        """
        name, place = (row.game, row.event_id), _Place.of(row)
        if not row.event_id or place in self._refused:
            return
        event = next((each for each in self._by_id.get(name, ()) if each.at.has(row)), None)
        if event is None:
            self._keep_unmatched(name, row)
            return
        self._refused[place] = None
        while len(self._refused) > self.most:
            self._refused.popitem(last=False)
        why = row.reason, row.detail, row.field
        at = row.partition, row.offset, row.file
        self._end(row.game, event, EventRefused(row.event_id, row.game, *why, *at, seconds=event.seconds))

    def replay(self, row: ReplayedRow) -> None:
        """Take a row that a replay has landed."""
        if (place := _Place.of(row)) in self._refused:
            del self._refused[place]
            self.found.put(EventLanded(row.event_id, row.game, was_refused=True))

    def are_covered(self, since: Mapping[int, int]) -> bool:
        """Return whether all events without an outcome lie at or behind these offsets."""
        return all(covers(since, event.at.ranges) for _, event in self._all())

    def since(self) -> dict[int, int]:
        """Return of each partition the first offset that an event without an outcome may have."""
        found: dict[int, int] = {}
        for _, event in self._all():
            for partition, (first, _) in event.at.ranges.items():
                found[partition] = min(first, found.get(partition, first))
        return found

    def _all(self) -> Iterator[tuple[str, _Open]]:
        return chain.from_iterable(((name[0], each) for each in events) for name, events in self._by_id.items())

    def _end(self, game: str, event: _Open, outcome: EventOutcome) -> None:
        event.is_settled = True
        same = self._by_id[game, event.event_id]
        same.remove(event)
        if not same:
            del self._by_id[game, event.event_id]
        self.waiting -= 1
        self.found.put(outcome)

    def _keep_unmatched(self, name: tuple[str, str], row: RefusedRow) -> None:
        """Keep a row whose event may be acknowledged any moment; events at forgotten places are not tracked."""
        rows = self._unmatched.setdefault(name, [])
        if row not in rows:
            rows.append(row)
        while len(self._unmatched) > _MOST_UNMATCHED:
            for old in self._unmatched.popitem(last=False)[1]:
                if old.file:
                    self._dropped_files[old.file] = None
                else:
                    self._dropped[old.partition] = max(old.offset, self._dropped.get(old.partition, -1))
        while len(self._dropped_files) > _MOST_UNMATCHED:
            self._dropped_files.popitem(last=False)


def differ(one: str, other: str) -> bool:
    """Return whether ids are of two topics; an empty one is not known."""
    return bool(one and other and one != other)


def covers(since: Mapping[int, int], ranges: Ranges) -> bool:
    """Return whether a stream that began at offsets has all refusals of a request's events."""
    return all(partition in since and first >= since[partition] for partition, (first, _) in ranges.items())
