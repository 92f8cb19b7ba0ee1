"""Whether a source is still the one that ingest has been reading, and which unread records it lost.

Pure values and comparisons: `topic`, `landing_log` and `checkpoint` observe, `source_checks` and `adopt` act on the
verdict. Each verdict is one sentence with exact ranges, and the position from which to continue if the loss is
accepted.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.base.errors import Refused
from pipeline.base.texts import in_utc
from pipeline.store.sources import AcceptedGap, Identity, Part


@dataclass(frozen=True, slots=True)
class Offsets:
    """The position in a topic: the next offset by partition. A missing partition begins at 0."""

    next: Mapping[int, int]

    def render(self) -> str:
        """Return it as text for `parse`."""
        return json.dumps({"offsets": {str(number): offset for number, offset in sorted(self.next.items())}})

    def describe(self) -> str:
        """Return it for a person."""
        return "offsets " + ", ".join(f"{number}: {offset}" for number, offset in sorted(self.next.items()))


@dataclass(frozen=True, slots=True)
class Commits:
    """The position in a landing table: this commit, without those of its files that bronze already has."""

    version: int | None  # None: a snapshot of the table, because its log does not reach back to the beginning
    skip: frozenset[str] = frozenset()  # file names
    before: str | None = field(default=None, compare=False)  # a digest of the commit before, where it is known

    def render(self) -> str:
        """Return it as text for `parse`."""
        known = {} if self.before is None else {"before": self.before}
        return json.dumps({"version": self.version, "skip": sorted(self.skip), **known})

    def describe(self) -> str:
        """Return it for a person."""
        if self.version is None:
            return "a snapshot of the table"
        without = f", without {len(self.skip)} of its files, which are in bronze" if self.skip else ""
        return f"commit {self.version}{without}"


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions in the sources that one query reads together, by the source's description."""

    of: Mapping[str, Offsets | Commits]

    def render(self) -> str:
        """Return it as text for `parse`."""
        return json.dumps({"sources": {name: json.loads(each.render()) for name, each in sorted(self.of.items())}})

    def describe(self) -> str:
        """Return it for a person."""
        return "; ".join(f"{name}: {each.describe()}" for name, each in sorted(self.of.items()))


Position = Offsets | Commits | Positions


@dataclass(frozen=True, slots=True)
class TopicObservation:
    """A topic as its broker describes it: by partition, the first offset and the one after the last.

    Not every offset between the two holds a record: transactions write markers, and compaction leaves holes.
    """

    name: str
    id: str | None  # None: the broker gives none
    earliest: Mapping[int, int]
    latest: Mapping[int, int]
    # Where an open transaction blocks readers of committed records; None: nowhere.
    readable: Mapping[int, int] | None = None
    clock: str | None = None  # whose time records have by the topic's configuration: broker or producer; None: unknown

    @property
    def partitions(self) -> int | None:
        """How many partitions it has."""
        return len(self.earliest)


@dataclass(frozen=True, slots=True)
class LandingObservation:
    """A landing table as its log describes it, from the next commit to read."""

    path: str
    id: str
    first: int  # the oldest commit in the log
    last: int
    changed: Mapping[int, str] = field(default_factory=dict)  # commit that removed or changed rows → its operation
    missing: Mapping[int, str] = field(default_factory=dict)  # commit → its first missing file
    replaced: str | None = None  # a landed file, to be skipped, that is no longer in the table
    clock: str | None = "landing"  # whose time its rows have
    partitions: int | None = None  # it has none


@dataclass(frozen=True, slots=True)
class Observations:
    """What was observed of the sources that one query reads together, by the source's description."""

    of: Mapping[str, TopicObservation | LandingObservation]
    id: None = None  # each has its own
    partitions: None = None

    @property
    def clock(self) -> str | None:
        """Whose time all records have; None: unknown, or it differs."""
        clocks = {each.clock for each in self.of.values()}
        return clocks.pop() if len(clocks) == 1 else None


SourceObservation = TopicObservation | LandingObservation | Observations


def each_source(described: str, seen: SourceObservation) -> Mapping[str, TopicObservation | LandingObservation]:
    """Return each source by its description: several, or the only one."""
    return seen.of if isinstance(seen, Observations) else {described: seen}


def each_position(described: str, position: Position | None) -> Mapping[str, Offsets | Commits]:
    """Return the position in each source by its description: in several, or the only one."""
    if isinstance(position, Positions):
        return position.of
    return {} if position is None else {described: position}


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The record of a source when it was last read; None is what was unknown then."""

    source_id: str | None = None
    partitions: int | None = None  # of a topic
    of: Mapping[str, "SourceRecord"] = field(default_factory=dict)  # of each of several, by its description


def record_of(known: Identity | None) -> SourceRecord:
    """Return what a generation's source was, or each of its sources."""
    if known is None:
        return SourceRecord()
    of = {part.source: SourceRecord(part.source_id, part.partitions) for part in known.parts}
    return SourceRecord(known.source_id, known.partitions, of)


def with_ids(known: SourceRecord, described: str, ids: Mapping[str, str | None]) -> SourceRecord:
    """Return a record with the ids, by description, that it lacks."""
    of = {name: replace(each, source_id=each.source_id or ids.get(name)) for name, each in known.of.items()}
    return replace(known, source_id=known.source_id or ids.get(described), of=of)


def parts_seen(seen: SourceObservation | None, known: Identity | None = None) -> tuple[Part, ...]:
    """Return what to record of several sources: what was seen of each, and the ids that were known before."""
    if not isinstance(seen, Observations):
        return () if known is None else known.parts
    before = {} if known is None else {part.source: part for part in known.parts}
    return tuple(
        Part(name, (before[name].source_id if name in before else None) or each.id, each.partitions, each.clock)
        for name, each in sorted(seen.of.items())
    )


def with_new(start: str | None, seen: SourceObservation | None) -> str | None:
    """Return the beginning of several sources with those that appeared later, which are read from their first record.

    Without the latter, what such a source loses before it is read would be no gap.
    """
    position = parse(start) if start else None
    if not isinstance(position, Positions) or not isinstance(seen, Observations):
        return start
    return Positions({**dict.fromkeys(seen.of, Offsets({})), **position.of}).render()


def alone(known: Identity, source: str) -> Identity:
    """Return what a generation has recorded of one of its sources, as if that were read alone."""
    part = next((each for each in known.parts if each.source == source), None)
    if part is None:
        return known
    start = each_position(source, parse(known.start) if known.start else None).get(source)
    return replace(
        known, source_id=part.source_id, partitions=part.partitions, source_clock=part.source_clock, parts=(),
        start=None if start is None else start.render(),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of unread records that is gone: offsets of a partition, or commits of the landing table."""

    partition: int | None  # None for the landing table
    first: int
    last: int | None  # None: its end is unknown
    source: str | None = None  # of which of several; None: of the only one


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """Why a source cannot simply be continued."""

    reason: str
    sentence: str
    gaps: tuple[Gap, ...]
    onward: Position  # the position to continue from if the gaps are accepted


def first_offsets(setting: str, seen: TopicObservation) -> Offsets:
    """Return the offsets at which a first start on a topic begins: `earliest`, `latest` or Spark's JSON of offsets.

    Raises:
        Refused: the setting is something else, or does not name each partition.
    """
    if setting in {"earliest", "latest"}:
        return Offsets(dict(seen.earliest if setting == "earliest" else seen.readable or seen.latest))
    try:
        requested = {int(number): int(offset) for number, offset in json.loads(setting)[seen.name].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(
            f"source.starting_offsets is {setting!r}: expected earliest, latest, or JSON such as "
            f'{{"{seen.name}": {{"0": 17}}}}.'
        ) from error
    if wrong := sorted(requested.keys() ^ seen.earliest.keys()):
        raise Refused(
            f"source.starting_offsets must name each of the {len(seen.earliest)} partitions of {seen.name!r} "
            f"and no other: correct {_listed('partition', wrong)}."
        )
    special = {-2: seen.earliest, -1: seen.readable or seen.latest}
    return Offsets({number: special.get(offset, requested)[number] for number, offset in requested.items()})


def open_transactions(position: Offsets, seen: TopicObservation) -> str | None:
    """Return the ranges that were read already but lie in or behind an open transaction, so that reading is blocked.

    They come from earlier reading with `read_uncommitted`: a consumer of committed records stops in front of an open
    transaction.
    """
    limits = seen.readable or {}
    behind = [
        Gap(part, limits[part], at - 1) for part, at in sorted(position.next.items()) if at > limits.get(part, at)
    ]
    return ranges(behind) if behind else None


def offsets_json(position: Mapping[str, Offsets], seen: Mapping[str, TopicObservation]) -> str:
    """Return positions by topic as Spark's `startingOffsets`, which must name every partition."""
    named = {}
    for topic in sorted(position.keys() | seen.keys()):
        after = position[topic].next if topic in position else {}
        numbers = sorted(after.keys() | (seen[topic].earliest.keys() if topic in seen else set()))
        named[topic] = {str(number): after.get(number, 0) for number in numbers}
    return json.dumps(named)


def parse(text: str) -> Position:
    """Parse the text of a position's `render`."""
    kept: dict[str, Any] = json.loads(text)
    if "sources" in kept:
        return Positions({name: _parsed(each) for name, each in kept["sources"].items()})
    return _parsed(kept)


def _parsed(kept: Mapping[str, Any]) -> Offsets | Commits:
    if "offsets" in kept:
        return Offsets({int(number): offset for number, offset in kept["offsets"].items()})
    return Commits(kept["version"], frozenset(kept["skip"]), kept.get("before"))


def judge_topic(known: SourceRecord, position: Offsets, seen: TopicObservation) -> SourceProblem | None:
    """Compare the record and the position with a topic; None when all of it can be read."""
    topic = f"The Kafka topic {seen.name!r}"
    begun_late = tuple(Gap(number, 0, first - 1) for number, first in sorted(seen.earliest.items()) if first > 0)
    fresh = Offsets(dict(seen.earliest))
    if None not in {known.source_id, seen.id} and known.source_id != seen.id:
        unread = tuple(Gap(number, offset, None) for number, offset in sorted(position.next.items()))
        return SourceProblem(
            "recreated",
            f"{topic} was deleted and recreated: its id is {seen.id}, ingest has read {known.source_id}. The unread "
            f"records of the old one are gone: {ranges(unread)}.",
            (*unread, *begun_late),
            fresh,
        )
    had = max([known.partitions or 0, *(number + 1 for number in position.next)])
    if vanished := sorted(set(range(had)) - seen.earliest.keys()):
        unread = tuple(Gap(number, position.next.get(number, 0), None) for number in vanished)
        kept = {number: offset for number, offset in position.next.items() if number in seen.earliest}
        return SourceProblem(
            "partitions",
            f"{topic} had {had} partitions and now has {len(seen.earliest)}: {_listed('partition', vanished)} "
            f"vanished with unread records, {ranges(unread)}.",
            unread,
            Offsets(kept),
        )
    return _judge_offsets(topic, position, seen)


def join_problems(found: Mapping[str, SourceProblem], position: Positions) -> SourceProblem | None:
    """Return the problems of several sources as one, None without any; a source without a problem goes on."""
    if not found:
        return None
    reasons = {problem.reason for problem in found.values()}
    gaps = tuple(
        replace(gap, source=gap.source or name) for name, problem in sorted(found.items()) for gap in problem.gaps
    )
    onward = dict(position.of)
    for name, problem in found.items():
        onward.update(each_position(name, problem.onward))
    sentence = " ".join(problem.sentence for _, problem in sorted(found.items()))
    return SourceProblem(next(iter(sorted(reasons))), sentence, gaps, Positions(onward))


def judge_vanished(topic: str, described: str, position: Offsets) -> SourceProblem:
    """Return that a topic that was read is gone; what goes on is the others."""
    gaps = tuple(Gap(number, at, None, described) for number, at in sorted(position.next.items()))
    sentence = f"The Kafka topic {topic!r} is gone, with unread records: {ranges(gaps)}."
    return SourceProblem("partitions", sentence, gaps, Positions({}))


def _judge_offsets(topic: str, position: Offsets, seen: TopicObservation) -> SourceProblem | None:
    """Judge each partition's next offset: before the first all is gone, after the last nothing existed."""
    wanted = {number: position.next.get(number, 0) for number in sorted(seen.earliest)}
    within = {number: min(max(at, seen.earliest[number]), seen.latest[number]) for number, at in wanted.items()}
    back = tuple(Gap(number, seen.latest[number], at - 1) for number, at in wanted.items() if at > seen.latest[number])
    if back:
        return SourceProblem(
            "truncated",
            f"{topic} has lost records: it no longer has {ranges(back)}, which ingest has read, and may reuse their "
            f"offsets.",
            back,
            Offsets(within),
        )
    gone = tuple(Gap(number, at, within[number] - 1) for number, at in wanted.items() if at < within[number])
    if gone:
        return SourceProblem(
            "retention",
            f"{topic} has lost unread records: retention has removed {ranges(gone)}.",
            gone,
            Offsets(within),
        )
    return None


def judge_landing(known: SourceRecord, position: Commits, seen: LandingObservation) -> SourceProblem | None:
    """Compare the record and the position with a landing table; None when all of it can be read."""
    table = f"The landing table {seen.path}"
    at = position.version
    if known.source_id is not None and known.source_id != seen.id:
        unread = Gap(None, at or 0, None)
        return SourceProblem(
            "recreated",
            f"{table} was deleted and recreated: its id is {seen.id}, ingest has read {known.source_id}. The unread "
            f"records of the old one are gone: {ranges([unread])}.",
            (unread,),
            Commits(0 if seen.first == 0 else None),
        )
    if at is None:
        return _judge_snapshot(table, seen)
    if at > seen.last + 1:
        back = Gap(None, seen.last + 1, at - 1)
        return SourceProblem(
            "truncated",
            f"{table} was rolled back: it ends at commit {seen.last}, but ingest has read {ranges([back])}.",
            (back,),
            Commits(seen.last + 1),
        )
    if at < seen.first:
        gone = Gap(None, at, seen.first - 1)
        return SourceProblem(
            "retention",
            f"{table} no longer has the log of unread commits: {ranges([gone])}.",
            (gone,),
            Commits(seen.first),
        )
    return _judge_commits(table, at, seen)


def _judge_snapshot(table: str, seen: LandingObservation) -> SourceProblem | None:
    """Judge a table that is read as a snapshot without some files: they must not have been merged with others."""
    if seen.replaced is None:
        return None
    gap = Gap(None, 0, seen.last)
    return SourceProblem(
        "rewritten",
        f"{table} was rewritten, so its landed rows are unknown: {seen.replaced} is no longer in it. To skip: "
        f"{ranges([gap])}.",
        (gap,),
        Commits(seen.last + 1),
    )


def _judge_commits(table: str, at: int, seen: LandingObservation) -> SourceProblem | None:
    """Judge the unread commits: each must only have added rows, and must still have its files."""
    for reason, found, text in (
        ("rewritten", seen.changed, "was changed, and ingest reads only appended rows: commit {} {}"),
        ("retention", seen.missing, "no longer has an unread file: commit {} added {}"),
    ):
        if found:
            version = min(found)
            gap = Gap(None, at, max(found))
            sentence = f"{table} {text.format(version, found[version])}. To skip: {ranges([gap])}."
            return SourceProblem(reason, sentence, (gap,), Commits(max(found) + 1))
    return None


def ranges(gaps: Iterable[Gap]) -> str:
    """Return gaps as text, each with both ends."""
    return "; ".join(describe_gap(gap.partition, gap.first, gap.last) for gap in gaps) or "nothing"


def describe_gap(partition: int | None, first: int, last: int | None) -> str:
    """Return a gap as text, with both ends."""
    what = "commit" if partition is None else f"partition {partition} offset"
    if last is None:
        return f"{what}s from {first} on"
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


def describe_accepted(gap: AcceptedGap) -> str:
    """Return an accepted gap as one line."""
    what = describe_gap(gap.partition, gap.first, gap.last)
    at = in_utc(gap.accepted_at, "%Y-%m-%d %H:%M:%S UTC")
    return f"{at}  {gap.source}: {what} ({gap.reason}), accepted by {gap.actor}"


def _listed(what: str, numbers: Iterable[int]) -> str:
    return f"{what} " + ", ".join(str(number) for number in numbers)
