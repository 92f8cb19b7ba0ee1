"""Several topics of one cluster as a source, by a list or a pattern: one subscription of Spark's own Kafka reader.

Each topic keeps its own identity, position and gaps, as if it were read alone (`topic`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.base.errors import Refused
from pipeline.data.ingest import identity
from pipeline.data.ingest.identity import (
    Observations,
    Offsets,
    Position,
    Positions,
    SourceObservation,
    SourceProblem,
    SourceRecord,
    TopicObservation,
)
from pipeline.data.ingest.sources import topic_observation
from pipeline.data.ingest.sources.kind import Begin, Probe, RowsOf, SampledRecord, as_they_come
from pipeline.data.ingest.sources.topic import Topic, read_records
from pipeline.data.ingest.sources.topic_again import ranges, read_again
from pipeline.lake.storage.location import Location
from pipeline.settings.source import topic_described, topic_of, topics_described
from pipeline.settings.tree import Ingest
from pipeline.store.sources import Identity


class Topics(Topic):
    """The topics that the settings list, or that match their pattern: what each does alone, `Topic` does."""

    beginning: Position = Positions({})
    is_several = True

    @property
    def description(self) -> str:
        """One line that names the list or the pattern, and the brokers."""
        return topics_described(self._source)

    def owns(self, described: str) -> bool:
        """Return whether a description is of a listed topic, or of a topic that matches the pattern."""
        topic = topic_of(described, self._source)
        if topic is None or not self._source.topic_pattern:
            return topic in self._source.topics
        return re.fullmatch(self._source.topic_pattern, topic, re.ASCII) is not None

    def observe(self, position: Position | None) -> SourceObservation | None:  # noqa: ARG002 - the kinds' signature
        """Ask the broker about each topic; None when it cannot be asked with the given options."""
        seen = topic_observation.observe_topics(self._source)
        if seen is None:
            return None
        return Observations({topic_described(topic, self._source): each for topic, each in seen.items()})

    def judge(self, known: SourceRecord, position: Position, seen: SourceObservation) -> SourceProblem | None:
        """Compare each topic with what was read of it; a new topic begins at its first record."""
        if not isinstance(seen, Observations) or not isinstance(position, Positions):
            raise TypeError(f"a position {position} does not belong to sources {seen}")
        found: dict[str, SourceProblem] = {}
        kept: dict[str, Offsets] = {}
        for name in sorted(seen.of.keys() | position.of.keys()):
            at = position.of.get(name, Offsets({}))
            if not isinstance(at, Offsets):
                raise TypeError(f"a position {at} does not belong to a topic")
            if name not in seen.of:
                found[name] = identity.judge_vanished(topic_of(name, self._source) or name, name, at)
                continue
            kept[name] = at
            problem = self._topic(name).judge(known.of.get(name, SourceRecord()), at, seen.of[name])
            if problem is not None:
                found[name] = problem
        return identity.join_problems(found, Positions(kept))

    def first(self, seen: SourceObservation | None) -> Position | None:
        """Return the offsets that the setting asks for, of each topic.

        Raises:
            Refused: no topic matches the pattern.
        """
        if not isinstance(seen, Observations):
            return None
        if not seen.of:
            raise Refused(
                f"No topic at {self._source.bootstrap_servers} matches {self._source.topic_pattern!r}. Create one, or "
                f"correct source.topic_pattern."
            )
        started = {name: self._topic(name).first(each) for name, each in seen.of.items()}
        return Positions({name: each for name, each in started.items() if isinstance(each, Offsets)})

    def passed(self, offset: Mapping[str, Any] | None) -> Position | None:
        """Return the next offset of each topic and partition."""
        if offset is None:
            return None
        return Positions({
            topic_described(topic, self._source): Offsets({int(number): at for number, at in after.items()})
            for topic, after in offset.items()
        })  # fmt: skip

    def offset_at(self, position: Position, seen: SourceObservation) -> Mapping[str, Any]:
        """Return a position as Spark's offset, which names every partition."""
        of, own = identity.each_source(self.description, seen), identity.each_position(self.description, position)
        return {
            topic: after
            for name, each in of.items()
            for topic, after in self._topic(name).offset_at(own[name], each).items()
        }

    def require_readable(self, position: Position, seen: SourceObservation) -> None:
        """Refuse for now to continue at a position that an open transaction of one topic hides."""
        for name, each in identity.each_source(self.description, seen).items():
            at = identity.each_position(self.description, position).get(name)
            if at is not None:
                self._topic(name).require_readable(at, each)

    def end_of_bronze(
        self, bronze: Location, known: Mapping[str, Identity], seen: SourceObservation,
        checkpointed: Callable[[], Position | None],
    ) -> tuple[Position, SourceObservation]:  # fmt: skip
        """Return the position of each topic after its last record in bronze."""
        ends = {}
        for name, each in identity.each_source(self.description, seen).items():
            mine = {name: known[name]} if name in known else {}
            end, _ = self._topic(name).end_of_bronze(bronze, mine, each, checkpointed)
            if isinstance(end, Offsets):
                ends[name] = end
        return Positions(ends), seen

    def read(self, spark: SparkSession, ingest: Ingest, begin: Begin) -> tuple[DataFrame, RowsOf]:
        """Return the topics as one stream with all columns."""
        starting = self._source.starting_offsets
        if isinstance(begin.position, Positions):
            seen = {} if begin.seen is None else identity.each_source(self.description, begin.seen)
            starting = identity.offsets_json(
                {self._name(name): at for name, at in begin.position.of.items() if isinstance(at, Offsets)},
                {self._name(name): each for name, each in seen.items() if isinstance(each, TopicObservation)},
            )
        return read_records(spark, ingest, self._source, self._subscription(), starting), as_they_come

    def read_again(
        self, spark: SparkSession, start: Mapping[str, Any] | None, end: Mapping[str, Any], begin: Begin
    ) -> DataFrame:
        """Return the records between two offsets by another client than Spark's."""
        if start is None and begin.seen is not None and begin.position is not None:
            start = self.offset_at(begin.position, begin.seen)
        return read_again(spark, self._source, ranges(start or {}, end))

    def sample(self, most: int) -> list[SampledRecord]:
        """Return some of the newest records of each topic.

        Raises:
            Refused: there are no topics, or the broker cannot be asked.
        """
        seen = self.observe(None)
        names = () if seen is None else tuple(identity.each_source(self.description, seen))
        if not names:
            raise Refused(f"There is nothing to read: {self.description}.")
        each = -(-most // len(names))
        return [record for name in names for record in self._topic(name).sample(each)][:most]

    def prober(self, described: str) -> Probe | None:
        """Return what asks a broker for records of one of the topics between two offsets."""
        return self._topic(described).prober(described)

    def _topic(self, described: str) -> Topic:
        source = replace(self._source, topic=self._name(described), topics=(), topic_pattern="")
        return Topic(source, self._landing)

    def _name(self, described: str) -> str:
        return topic_of(described, self._source) or described

    def _subscription(self) -> tuple[str, str]:
        if self._source.topic_pattern:
            return "subscribePattern", f"^(?:{self._source.topic_pattern})$"
        return "subscribe", ",".join(self._source.topics)
