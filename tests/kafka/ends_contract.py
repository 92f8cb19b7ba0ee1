"""The contract of a topic's ends, for a real broker and for `FakeTopic`: the times of `turnout wait` rest on it."""

import time
from contextlib import suppress
from typing import Protocol

import pytest

from pipeline.base.errors import Transient
from pipeline.data.ingest.sources.topic_backlog import TopicBacklog


class ContractTopic(Protocol):
    """A topic with two partitions."""

    def send(self, partition: int, records: int = 1) -> None:
        """Send records outside of transactions."""

    def begin_transaction(self, partition: int, records: int = 1) -> None:
        """Send records in a transaction that stays open."""

    def end_transaction(self, partition: int, *, commit: bool) -> None:
        """End that transaction."""

    def add_partition(self) -> None:
        """Give the topic one more partition."""

    def recreate(self) -> None:
        """Delete the topic, and make another one of its name."""


def eventually(backlog: TopicBacklog, ends: dict[int, int]) -> None:
    """Wait until a topic ends there: a broker's metadata follow a change, and so does who leads a new partition."""
    deadline, seen = time.monotonic() + 30, None
    while seen != [ends]:
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)
        with suppress(Transient):
            seen = list((backlog.ends() or {}).values())


def require_ends(topic: ContractTopic, backlog: TopicBacklog) -> None:
    """Each record counts once it is acknowledged, a transaction's end is one offset more, another topic has no end."""
    eventually(backlog, {0: 0, 1: 0})
    topic.send(0, 3)
    eventually(backlog, {0: 3, 1: 0})
    topic.begin_transaction(1, 2)
    eventually(backlog, {0: 3, 1: 2})
    topic.end_transaction(1, commit=False)
    eventually(backlog, {0: 3, 1: 3})
    topic.begin_transaction(0)
    topic.send(0)
    eventually(backlog, {0: 5, 1: 3})
    topic.end_transaction(0, commit=True)
    eventually(backlog, {0: 6, 1: 3})
    topic.add_partition()
    eventually(backlog, {0: 6, 1: 3, 2: 0})
    topic.send(2)
    eventually(backlog, {0: 6, 1: 3, 2: 1})
    topic.recreate()
    with pytest.raises(Transient, match=r"deleted and recreated|does not report"):
        backlog.ends()
