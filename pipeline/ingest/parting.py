"""Where a source parted from bronze: a log that was cut and has grown again has other records at offsets given before.

Called at each start, by `adopt`, and before a commit behind an election. The last record of bronze decides; where it
differs, bronze is read backwards until both agree.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.delta.files import read_file
from pipeline.ingest import identity
from pipeline.ingest.bronze_progress import newest_first
from pipeline.ingest.evidence.marks import LastRecord
from pipeline.ingest.evidence.records import RECORD_COLUMNS, records_of
from pipeline.ingest.identity import Commits, Offsets, Position, SourceObservation, SourceProblem, TopicObservation
from pipeline.ingest.sources.kind import SourceKind, Witness
from pipeline.storage.location import Location

COMMIT: Final = -1
"""Stands for the partition of a landing table, whose last record is the last commit that was read."""

ADOPT: Final = "Run `turnout ingest adopt`: it goes on behind the last record that bronze and the source both have."

Last = Mapping[str, Mapping[int, LastRecord]]
"""By the description of a source and by partition, the last record in bronze."""


def differing(witness: Witness, described: str, last: Mapping[int, LastRecord]) -> list[int]:
    """Return the partitions that have another record in the place of bronze's last one.

    One that has none there lost it to retention or compaction, which is no difference.
    """
    there = witness.records(described, {number: record.offset for number, record in last.items()})
    return sorted(number for number, record in last.items() if number in there and record.is_other(there[number]))


def judge(
    source: SourceKind,
    bronze: Location,
    since: Mapping[str, int],
    last: Last,
    position: Position,
    seen: SourceObservation,
    problem: SourceProblem | None = None,
    anew: Collection[str] = (),
) -> SourceProblem | None:
    """Compare the last records with each source, and join what is lost with a `problem` that was found before.

    `since` gives the seq above which bronze has the rows of each source. The topics `anew` have another id: all their
    records are others, except those that an ingest has read of the new one without noticing.

    Raises:
        Transient: a broker does not answer.
    """
    observed = identity.each_source(source.description, seen)
    positions = identity.each_position(source.description, position)
    found: dict[str, SourceProblem] = {}
    read: dict[str, dict[int, tuple[int, int]]] = {}
    for member in source.members:
        own = {name: of for name, of in last.items() if of and member.owns(name) and name in observed}
        witness = member.witness() if own else None
        if witness is None:
            continue
        for name, of in own.items():
            at, there = positions.get(name), observed[name]
            if isinstance(at, Offsets) and isinstance(there, TopicObservation):
                if name in anew:
                    read[name] = _read_already(witness, name, there, bronze, since.get(name, 0), of)
                elif parted := _parted(witness, name, there, bronze, since.get(name, 0), of):
                    found[name] = _lost(there, at, parted)
            elif isinstance(at, Commits) and differing(witness, name, of):
                found[name] = _older_copy(member.landing, of[COMMIT], at)
    return _joined(source, found, _behind(source, problem, read), position)


def _read_already(
    witness: Witness, described: str, seen: TopicObservation, bronze: Location, since: int, of: Mapping[int, LastRecord]
) -> dict[int, tuple[int, int]]:
    """Return by partition the first offset of a new topic in bronze, and the next one to read; where it has any."""

    def is_same(number: int, record: LastRecord) -> bool | None:
        if not seen.earliest.get(number, 0) <= record.offset < seen.latest.get(number, 0):
            return None
        found = witness.records(described, {number: record.offset}).get(number)
        return None if found is None else not record.is_other(found)

    last = {number: record.offset for number, record in of.items() if is_same(number, record)}
    firsts = walk(bronze, seen.name, since, last, is_same)
    return {number: (first, last[number] + 1) for number, first in firsts.items()}


def _behind(
    source: SourceKind, problem: SourceProblem | None, read: Mapping[str, Mapping[int, tuple[int, int]]]
) -> SourceProblem | None:
    """Let reading go on behind records of a new topic that bronze has already; those before them are a gap."""
    if problem is None or not any(read.values()):
        return problem
    onward = dict(identity.each_position(source.description, problem.onward))
    gaps, there = [], []
    for name, of in read.items():
        next_of = onward.get(name)
        if not isinstance(next_of, Offsets):
            continue
        which = name if source.is_several else None
        for number, (first, end) in sorted(of.items()):
            there.append(identity.Gap(number, first, end - 1, which))
            if (begun := next_of.next.get(number, 0)) < first:
                gaps.append(identity.Gap(number, begun, first - 1, which))
        onward[name] = Offsets({**next_of.next, **{number: end for number, (_, end) in of.items()}})
    sentence = f"{problem.sentence} Bronze has of the new one already: {identity.ranges(there)}."
    if gaps:
        sentence += f" Before them lie, and cannot be read without reading those twice: {identity.ranges(gaps)}."
    whole = identity.Positions(onward) if source.is_several else onward[source.description]
    return replace(problem, sentence=sentence, gaps=(*problem.gaps, *gaps), onward=whole)


def _parted(
    witness: Witness, described: str, seen: TopicObservation, bronze: Location, since: int, of: Mapping[int, LastRecord]
) -> dict[int, int]:
    """Return by partition the first offset in bronze that is another record in the topic, or none any more."""
    gone = {number: at for number, at in of.items() if number in seen.latest and at.offset >= seen.latest[number]}
    there = {number: at for number, at in of.items() if number in seen.latest and number not in gone}
    suspects = {*gone, *differing(witness, described, there)}
    if not suspects:
        return {}

    def differs(number: int, record: LastRecord) -> bool | None:
        if record.offset >= seen.latest[number]:
            return True
        if record.offset < seen.earliest[number]:
            return None
        found = witness.records(described, {number: record.offset}).get(number)
        return None if found is None else record.is_other(found)

    return walk(bronze, seen.name, since, {number: of[number].offset for number in suspects}, differs)


@dataclass(slots=True)
class _Between:
    """The place of the parting in a partition: behind the last record that agrees."""

    high: int  # the first offset that is known to differ
    low: int = -1
    low_seq: int = -1


def walk(
    bronze: Location,
    topic: str,
    since: int,
    suspects: Mapping[int, int],
    differs: Callable[[int, LastRecord], bool | None],
) -> dict[int, int]:
    """Return the first differing offset of each partition; `suspects` gives some differing offset of each.

    Bronze's files are read from the newest on, until a record agrees whose seq no older file reaches; within a file the
    place is bisected. A record that the source no longer has says nothing.
    """
    found = {number: _Between(offset) for number, offset in suspects.items()}
    for newest, file in newest_first(bronze, since):
        unsure = [number for number, each in found.items() if each.low_seq <= newest]
        if not unsure:
            break
        rows = _rows(read_file(file, ["seq", *RECORD_COLUMNS]), topic, since, unsure)
        for number in unsure:
            _bisect(rows.filter(pc.equal(rows.column("partition"), number)), number, found[number], differs)
    return {number: each.high for number, each in found.items()}


def _rows(rows: pa.Table, topic: str, since: int, partitions: Collection[int]) -> pa.Table:
    of_topic = pc.and_(pc.equal(rows["topic"], topic), pc.is_in(rows["partition"], pa.array(partitions, pa.int32())))
    return rows.filter(pc.and_(of_topic, pc.greater(rows["seq"], since)))


def _bisect(rows: pa.Table, number: int, between: _Between, differs: Callable[[int, LastRecord], bool | None]) -> None:
    offsets, seqs = rows.column("offset").to_pylist(), rows.column("seq").to_pylist()
    places = sorted(range(rows.num_rows), key=offsets.__getitem__)
    places = [at for at in places if between.low < offsets[at] < between.high]
    while places:
        middle = len(places) // 2
        at = places[middle]
        _, _, record = next(records_of(rows.slice(at, 1)))
        verdict = differs(number, record)
        if verdict is None:
            del places[middle]
        elif verdict:
            between.high, places = record.offset, places[:middle]
        else:
            between.low, between.low_seq, places = record.offset, seqs[at], places[middle + 1 :]


def _lost(seen: TopicObservation, position: Offsets, parted: Mapping[int, int]) -> SourceProblem:
    gaps = tuple(
        identity.Gap(number, first, max(first, position.next.get(number, 0) - 1))
        for number, first in sorted(parted.items())
    )
    return SourceProblem(
        "truncated",
        f"The Kafka topic {seen.name!r} has lost records: instead of {identity.ranges(gaps)}, which ingest has read, "
        f"it has others or none.",
        gaps,
        Offsets({**position.next, **parted}),
    )


def _older_copy(landing: Location | None, last: LastRecord, position: Commits) -> SourceProblem:
    return SourceProblem(
        "older_copy",
        f"The landing table {landing} is an older copy that has grown again: its commit {last.offset} is not the one "
        f"that ingest has read.",
        (),
        position,
    )


def _joined(
    source: SourceKind, found: Mapping[str, SourceProblem], problem: SourceProblem | None, position: Position
) -> SourceProblem | None:
    """Join what has parted with another problem; of a partition that has parted, only that counts."""
    if not found:
        return problem
    only = None if source.is_several else found[source.description]
    parted = only or identity.join_problems(found, identity.Positions(identity.each_position("", position)))
    if problem is None or parted is None:
        return parted
    own = {(gap.source, gap.partition) for gap in parted.gaps}
    others = tuple(gap for gap in problem.gaps if (gap.source, gap.partition) not in own)
    onward = dict(identity.each_position(source.description, problem.onward))
    for name, each in found.items():
        before = onward.get(name)
        if isinstance(before, Offsets) and isinstance(each.onward, Offsets):
            later = {gap.partition: gap.first for gap in each.gaps if gap.partition is not None}
            onward[name] = Offsets({**before.next, **later})
    sentence = f"{parted.sentence} {problem.sentence}" if others else parted.sentence
    whole = identity.Positions(onward) if source.is_several else onward[source.description]
    return replace(parted, sentence=sentence, gaps=(*parted.gaps, *others), onward=whole)
