"""Checks before a batch is committed: are its rows those of the sources that it was planned on.

Called by the ingest query after a batch's rows were read. The comparisons are those of the start (`source_checks`).
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from pipeline.base.errors import Refused, Transient
from pipeline.data.ingest import identity, parting
from pipeline.data.ingest.evidence import marks
from pipeline.data.ingest.evidence.kept import KeptMarks
from pipeline.data.ingest.evidence.marks import LastRecord, Mark
from pipeline.data.ingest.identity import Commits, Position
from pipeline.data.ingest.lineage import OwnRows
from pipeline.data.ingest.parting import COMMIT
from pipeline.data.ingest.source_checks import refusal
from pipeline.data.ingest.sources.kind import Begin, SourceKind, Witness
from pipeline.lake.storage.location import Location
from pipeline.settings.source import named_topic
from pipeline.store.sources import Identity

_log = logging.getLogger("turnout")


class BatchChecks:
    """Compares the sources of one run of the query with their earlier state. For one thread."""

    def __init__(self, source: SourceKind, bronze: Location, kept: KeptMarks, landed: int | None, begin: Begin) -> None:
        """Begin with the marks of the last landed batch, and with the last records in bronze."""
        self._source, self._bronze, self._kept, self._owns = source, bronze, kept, dict(begin.owns)
        last = begin.last
        self._witnesses = [(each, witness) for each in source.members if (witness := each.witness()) is not None]
        self._marks = {name: mark.with_last(last.get(name, {})) for name, mark in kept.read(landed).items()}
        self._marks |= {name: Mark(last=of) for name, of in last.items() if name not in self._marks}
        self._known: Identity | None = None
        self._commits: dict[str, dict[int, LastRecord]] = {}  # of the batch

    def learn(self, known: Identity | None) -> None:
        """Take what was recorded of the sources, with those that a pattern has found."""
        self._known = known
        record = identity.record_of(known)
        for name, each in (record.of or {self._source.description: record}).items():
            before = self._marks.get(name, Mark())
            self._marks[name] = Mark(each.source_id or before.id, before.epochs, before.first, before.last)
            self._owns.setdefault(name, OwnRows(0 if known is None else known.since_seq))

    def note_commits(self, end: Position | None) -> None:
        """Note the last commit of each landing table in a batch before its rows are read: a table may be put back."""
        self._commits = {
            name: dict(witness.records(name, {COMMIT: at.version - 1}))
            for member, witness in self._witnesses
            for name, at in identity.each_position(self._source.description, end).items()
            if isinstance(at, Commits) and at.version and member.owns(name)
        }

    def require_same(self, batch_id: int, position: Position | None, reported: Sequence[Sequence[Any]]) -> None:
        """Compare each source with its marks, and keep those of this batch.

        `position` is before its rows; `reported` are the last records of its tasks.

        Raises:
            Refused: a source is another one, or has lost what ingest has read; as at a start.
            Transient: a broker does not answer.
        """
        now: dict[str, Mark] = {}
        last = self._last(reported)
        for member, witness in self._witnesses:
            own = [name for name in self._marks if member.owns(name)]
            with closing(witness):
                seen = witness.look(own)
                for name in own:
                    if name not in seen:
                        self._refuse_replaced(name, "it is gone", position)
                    self._compare(witness, name, seen[name], position)
                    if marks.is_elected(self._marks[name], seen[name]):
                        _require_there(witness, name, last.get(name, {}))
                    now[name] = seen[name]
        for name, mark in now.items():
            self._marks[name] = mark.with_last({**self._marks[name].last, **last.get(name, {})})
        if now:
            self._kept.write(batch_id, self._marks)

    def _compare(self, witness: Witness, name: str, now: Mark, position: Position | None) -> None:
        before = self._marks[name]
        clause = marks.replaced(before, now)
        if clause is not None and None not in {before.id, now.id}:
            self._refuse_replaced(name, clause, position)
        is_table = COMMIT in before.last
        if clause is None and not is_table and not marks.is_elected(before, now):
            return
        is_parted = (
            parting.is_other_commit(witness, name, before.last)
            if is_table
            else parting.differing(witness, name, before.last, self._bronze, self._owns.get(name, OwnRows(0)))
        )
        if is_parted:
            self._refuse_parted(position)
        if clause is not None:  # weak evidence, which equal last records outweigh
            there = witness.records(name, {number: each.offset for number, each in before.last.items()})
            if there.keys() < before.last.keys() or not before.last:
                raise Refused(f"The {name} was deleted and recreated: {clause}. {parting.ADOPT}")
            _log.warning("%s: %s, but the last records in bronze are still there", name, clause)

    def _last(self, reported: Sequence[Sequence[Any]]) -> dict[str, dict[int, LastRecord]]:
        """Return by source and partition the last record of a batch; of a landing table, its last commit."""
        found: dict[str, dict[int, LastRecord]] = {}
        names = {named_topic(name): name for name in self._marks}
        for topic, number, *record in reported:  # in the order of slices
            found.setdefault(names.get(topic, topic), {})[number] = LastRecord(*record)
        return found | self._commits

    def _refuse_replaced(self, name: str, clause: str, position: Position | None) -> None:
        """Judge the source as a start does, which names the unread records."""
        seen = self._source.observe(position)
        if seen is not None and position is not None:
            problem = self._source.judge(identity.record_of(self._known), position, seen)
            if problem is not None:
                raise refusal(problem)
        raise Transient(f"The {name} was replaced while a batch of it was read: {clause}. Nothing of it landed.")

    def _refuse_parted(self, position: Position | None) -> None:
        """Find where the source has parted from bronze, as a start does."""
        seen = self._source.observe(position)
        if seen is not None and position is not None:
            last: Mapping[str, Mapping[int, LastRecord]] = {name: mark.last for name, mark in self._marks.items()}
            problem = parting.judge(self._source, self._bronze, self._owns, last, position, seen)
            if problem is not None:
                raise refusal(problem)
        raise Transient("The source had another record in the place of bronze's last one, and has it no more.")


def _require_there(witness: Witness, name: str, read: Mapping[int, LastRecord]) -> None:
    """Require behind an election that the last records of a batch are still those that were read."""
    there = witness.records(name, {number: each.offset for number, each in read.items()})
    if any(number not in there or each.is_other(there[number]) for number, each in read.items()):
        raise Transient(
            f"An election gave the {name} another leader, without records that this batch has read. Nothing of the "
            f"batch landed: it is read again."
        )
