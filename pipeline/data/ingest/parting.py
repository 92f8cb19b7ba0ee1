"""Where a source parted from bronze: a log that was cut and has grown again has other records at offsets given before.

Called at each start, by `adopt`, and before a commit behind an election. The last record of bronze decides; where it
differs, bronze is read backwards until both agree.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from math import isinf
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.ingest import bronze_progress, identity
from pipeline.data.ingest.bronze_progress import newest_first
from pipeline.data.ingest.evidence.marks import LastRecord
from pipeline.data.ingest.evidence.records import RECORD_COLUMNS, records_of
from pipeline.data.ingest.identity import Commits, Offsets, Position, SourceObservation, SourceProblem, TopicObservation
from pipeline.data.ingest.lineage import OwnRows
from pipeline.data.ingest.sources.kind import SourceKind, Witness
from pipeline.lake.delta.files import read_file
from pipeline.lake.storage.location import Location
from pipeline.settings.source import named_topic

COMMIT: Final = -1
"""Stands for the partition of a landing table, whose last record is the last commit that was read."""

ADOPT: Final = "Run `turnout ingest adopt`: it goes on behind the last record that bronze and the source both have."

Last = Mapping[str, Mapping[int, LastRecord]]
"""The last record in bronze, by description of a source and by partition."""

_COMPARED: Final = 20  # records of bronze, backwards, until the source has one of them
_ALL: Final = OwnRows(0)


class From(Protocol):
    """Finds records of one topic."""

    @property
    def ends(self) -> Mapping[int, int]:
        """The offset after the last one, by partition."""

    def __call__(self, number: int, offset: int) -> LastRecord | None:
        """Return the first record at or after an offset of a partition; None where there is none."""


def differing(
    witness: Witness, described: str, last: Mapping[int, LastRecord], bronze: Location, own: OwnRows
) -> dict[int, int]:
    """Return by partition an offset at which the source has another record than bronze.

    Where it has none in the place of bronze's last one, the newest one before decides: retention and compaction remove
    records, and so does a log that was cut and has a transaction's marker there. Without one before, nothing differs.
    """
    found: dict[int, int] = {}
    for _ in range(_COMPARED):
        there = witness.onward(described, {number: record.offset for number, record in last.items()})
        absent: dict[int, int] = {}
        for number, record in last.items():
            at = there.get(number)
            if at is None or at.offset != record.offset:
                absent[number] = record.offset
            elif record.is_other(at):
                found[number] = record.offset
        newest = _newest_before(witness, described, absent)
        newest = {number: at for number, at in newest.items() if at >= own.begun.get(number, 0)}
        if not newest:
            break
        # Bronze lacks records of aborted transactions: its own before them is compared next.
        last = bronze_progress.last_records(bronze, named_topic(described), own, set(newest), newest)
    return found


def _newest_before(witness: Witness, described: str, absent: Mapping[int, int]) -> dict[int, int]:
    """Return by partition the offset of the source's newest record before the offset that it lacks, if it has any."""
    first = witness.onward(described, dict.fromkeys(absent, 0)) if absent else {}
    found = {number: each.offset for number, each in first.items() if each.offset < absent[number]}
    high = {number: absent[number] for number in found}  # no record lies from there to the absent one
    while middles := {number: (at + high[number]) // 2 for number, at in found.items() if at + 1 < high[number]}:
        there = witness.onward(described, middles)
        for number, middle in middles.items():
            each = there.get(number)
            if each is None or each.offset > absent[number]:
                high[number] = middle
            else:
                found[number] = each.offset
    return found


def judge(
    source: SourceKind,
    bronze: Location,
    owns: Mapping[str, OwnRows],
    last: Last,
    position: Position,
    seen: SourceObservation,
    problem: SourceProblem | None = None,
    anew: Collection[str] = (),
) -> SourceProblem | None:
    """Compare the last records with each source, and join what is lost with a `problem` that was found before.

    `owns` gives the rows of each source in bronze. The topics `anew` have another id: all their
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
        with closing(witness):
            for name, of in own.items():
                at, there = positions.get(name), observed[name]
                rows = owns.get(name, _ALL)
                if isinstance(at, Offsets) and isinstance(there, TopicObservation):
                    if name in anew:
                        read[name] = _read_already(witness, name, there, bronze, rows, of)
                    elif parted := _parted(witness, name, there, bronze, rows, of):
                        found[name] = _lost(there, at, parted)
                elif isinstance(at, Commits) and is_other_commit(witness, name, of):
                    found[name] = _older_copy(member.landing, of[COMMIT], at)
    return _joined(source, found, _behind(source, problem, read), position)


def is_other_commit(witness: Witness, described: str, of: Mapping[int, LastRecord]) -> bool:
    """Return whether a landing table has another commit in the place of the last commit that ingest read."""
    there = witness.records(described, {COMMIT: of[COMMIT].offset}).get(COMMIT)
    return there is not None and of[COMMIT].is_other(there)


def _read_already(
    witness: Witness, described: str, seen: TopicObservation, bronze: Location, own: OwnRows,
    of: Mapping[int, LastRecord],
) -> dict[int, tuple[int, int]]:  # fmt: skip
    """Return by partition the first offset of a new topic in bronze, and the next one to read; where it has any."""
    there = witness.records(described, {number: each.offset for number, each in of.items() if number in seen.latest})
    last = {number: of[number].offset for number, each in there.items() if not of[number].is_other(each)}
    at = _From(witness, described, seen.latest)
    firsts = walk(bronze, seen.name, own, last, at, lambda record, found: not _differs(record, found))
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
    witness: Witness, described: str, seen: TopicObservation, bronze: Location, own: OwnRows,
    of: Mapping[int, LastRecord],
) -> dict[int, int]:  # fmt: skip
    """Return by partition the first offset in bronze that is another record in the topic, or none any more."""
    ends = seen.latest
    gone = {number: at.offset for number, at in of.items() if number in ends and at.offset >= ends[number]}
    there = {number: at for number, at in of.items() if number in ends and number not in gone}
    suspects = {**gone, **differing(witness, described, there, bronze, own)}
    at = _From(witness, described, ends)
    return walk(bronze, seen.name, own, suspects, at, _differs)


def _differs(record: LastRecord, found: LastRecord | None) -> bool:
    return found is None or record.is_other(found)


@dataclass(slots=True)
class _Between:
    """The place of the parting in a partition: behind the last record that agrees."""

    high: int  # the first offset that is known to differ
    low: int = -1
    low_seq: int = -1


@dataclass(frozen=True, slots=True)
class _From:
    """Asks one topic for its first record at or after an offset; None where there is none."""

    witness: Witness
    described: str
    ends: Mapping[int, int]  # by partition, the offset after the last one

    def __call__(self, number: int, offset: int) -> LastRecord | None:
        return self.witness.onward(self.described, {number: offset}).get(number)


def walk(
    bronze: Location,
    topic: str,
    own: OwnRows,
    suspects: Mapping[int, int],
    source: From,
    differs: Callable[[LastRecord, LastRecord | None], bool],
) -> dict[int, int]:
    """Return the first differing offset of each partition; `suspects` gives some differing offset of each.

    Bronze's files are read from the newest on, until a record agrees whose seq no older file reaches. Within the files
    of one commit the place is bisected. A record that the source no longer has says nothing, unless it lies behind the
    end: `differs` gets None for it.
    """
    found = {number: _Between(offset) for number, offset in suspects.items()}
    for (newest, _), files in groupby(newest_first(bronze, own.since) if found else (), _of_one_seq):
        unsure = [number for number, each in found.items() if each.low_seq <= newest]
        if not unsure:
            break
        parts = [own.of(_rows(read_file(file, ["seq", *RECORD_COLUMNS]), topic, unsure)) for _, file in files]
        rows = pa.concat_tables(parts)
        for number in unsure:
            _bisect(rows.filter(pc.equal(rows.column("partition"), number)), number, found[number], source, differs)
    return {number: each.high for number, each in found.items()}


def _of_one_seq(file: tuple[float, Location]) -> tuple[float, str]:
    """Return what files of one commit share: the records of a partition lie in several, by game."""
    newest, path = file
    return newest, str(path) if isinf(newest) else ""


def _rows(rows: pa.Table, topic: str, partitions: Collection[int]) -> pa.Table:
    of_topic = pc.and_(pc.equal(rows["topic"], topic), pc.is_in(rows["partition"], pa.array(partitions, pa.int32())))
    return rows.filter(of_topic)


def _bisect(
    rows: pa.Table, number: int, between: _Between, source: From,
    differs: Callable[[LastRecord, LastRecord | None], bool],
) -> None:  # fmt: skip
    """Narrow the place down; records that the source lacks are passed in one step."""
    offsets, seqs = rows.column("offset").to_pylist(), rows.column("seq").to_pylist()
    places = sorted(range(rows.num_rows), key=offsets.__getitem__)
    places = [at for at in places if between.low < offsets[at] < between.high]
    while places:
        first = middle = len(places) // 2
        found = None
        if offsets[places[middle]] < source.ends.get(number, 0):
            found = source(number, offsets[places[middle]])
            if found is None:
                places = places[:middle]
                continue
            middle = bisect_left(places, found.offset, middle, key=offsets.__getitem__)
            if middle == len(places) or offsets[places[middle]] != found.offset:
                places = places[:first] + places[middle:]
                continue
        at = places[middle]
        _, _, record = next(records_of(rows.slice(at, 1)))
        if differs(record, found):
            between.high, places = record.offset, places[:first]
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
