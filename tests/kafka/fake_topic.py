"""A topic in memory that answers an AdminClient's questions as a broker does: `ends_contract` holds for both.

Offsets of transactions have markers; metadata may be one question old.
"""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import OffsetSpec

from pipeline.data.ingest.identity import Offsets, Position
from pipeline.data.ingest.sources.topic_backlog import TopicBacklog
from pipeline.settings.source import Source

NAME: Final = "events"


@dataclass
class LogEntry:
    """The content of an offset: a record, a record of an open or aborted transaction, or a marker."""

    kind: str  # record | pending | aborted | marker


@dataclass
class BrokerAnswer:
    """A broker's answer about a topic, a partition or an offset."""

    topic_id: Any = None
    partitions: list[Any] = field(default_factory=list)
    id: int = 0
    offset: int = 0


def answered(value: BrokerAnswer) -> "Future[BrokerAnswer]":
    future: Future[BrokerAnswer] = Future()
    future.set_result(value)
    return future


class FakeTopic:
    """One topic, what ingest has planned of it, and the client that asks about it."""

    def __init__(self, random: Random, partitions: int = 2) -> None:
        self._random = random
        self._number = 1  # of the topics of this name
        self.logs: list[list[LogEntry]] = [[] for _ in range(partitions)]
        self._described = partitions  # at the question before
        self._visible = partitions
        self._told: dict[Hashable, int] = {}
        self.is_late = False  # whether an answer may have the metadata of the question before
        self._next: dict[int, int] = {}  # the next offset to read
        self.begin: Position = Offsets({})
        self.meanwhile: Callable[[], None] = lambda: None  # between two questions

    # ------------------------------------------------------------------------------------------------------ producers

    def send(self, partition: int, records: int = 1) -> None:
        self.logs[partition] += [LogEntry("record") for _ in range(records)]

    def begin_transaction(self, partition: int, records: int = 1) -> None:
        self.logs[partition] += [LogEntry("pending") for _ in range(records)]

    def end_transaction(self, partition: int, *, commit: bool) -> None:
        for entry in self.logs[partition]:
            if entry.kind == "pending":
                entry.kind = "record" if commit else "aborted"
        self.logs[partition].append(LogEntry("marker"))

    def add_partition(self) -> None:
        self.logs.append([])

    def recreate(self, partitions: int = 1) -> None:
        self._number += 1
        self.logs = [[] for _ in range(partitions)]
        self._described = partitions

    def has_open(self, partition: int) -> bool:
        return any(entry.kind == "pending" for entry in self.logs[partition])

    # --------------------------------------------------------------------------------------------------- AdminClient

    def describe_topics(self, topics: TopicCollection, request_timeout: float) -> dict[str, "Future[BrokerAnswer]"]:
        self.meanwhile()
        now = len(self.logs)
        self._visible = self._random.choice([self._described, now]) if self.is_late else now
        self._described = now
        found = BrokerAnswer(Uuid(7, self._number), [BrokerAnswer(id=number) for number in range(self._visible)])
        self.meanwhile()
        return {NAME: answered(found)}

    def list_offsets(
        self, wanted: dict[TopicPartition, OffsetSpec], isolation_level: IsolationLevel, request_timeout: float
    ) -> dict[TopicPartition, "Future[BrokerAnswer]"]:
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        ends = {
            place: self._readable(place.partition) if committed else len(self.logs[place.partition]) for place in wanted
        }
        self._told = {(self._number, place.partition): end for place, end in ends.items()}
        self.meanwhile()
        return {place: answered(BrokerAnswer(offset=end)) for place, end in ends.items()}

    def backlog(self) -> TopicBacklog:
        """Return the product's observer, which asks this topic where `AdminClient` is patched."""
        return TopicBacklog(Source(kind="kafka", bootstrap_servers="nowhere:1", topic=NAME))

    # -------------------------------------------------------------------------------------------------------- ingest

    def take(self, count: int) -> list[Hashable]:
        """Take records anywhere, also into open transactions; most partitions are quiet for long."""
        number = self._random.choice([0, 0, 0, *range(len(self.logs))])
        first = len(self.logs[number])
        if any(self.logs) and self._random.random() < (0.5 if self.has_open(number) else 0.2):
            self.begin_transaction(number, count)
        else:
            self.send(number, count)
        return [(self._number, number, first + each) for each in range(count)]

    def is_record(self, place: Any) -> bool:
        """Return whether a record can still land: no transaction was aborted with it, and its topic is there."""
        topic, number, offset = place
        return bool(topic == self._number and self.logs[number][offset].kind != "aborted")

    def plan(self, most: int) -> list[Hashable]:
        rows: list[Hashable] = []
        for number, log in enumerate(self.logs):
            first = self._next.get(number, 0)
            end = min(first + most, self._readable(number))
            self._next[number] = max(first, end)
            rows += [
                (self._number, number, offset) for offset in range(first, end) if log[offset].kind == "record"
            ]  # fmt: skip
        return rows

    def adopt(self) -> None:
        """Begin the topic that is there now at its first records."""
        self._next = {}

    @property
    def offset(self) -> dict[str, Any]:
        return {NAME: {str(number): offset for number, offset in self._next.items()}}

    @property
    def passed(self) -> dict[Hashable, int]:
        return {(self._number, number): offset for number, offset in self._next.items()}

    @property
    def seen(self) -> dict[Hashable, int]:
        return self._told

    def _readable(self, number: int) -> int:
        pending = (at for at, entry in enumerate(self.logs[number]) if entry.kind == "pending")
        return next(pending, len(self.logs[number]))
