"""Checks before a batch is committed: are its rows those of the sources that it was planned on.

Called by the ingest query after a batch's rows were read. The comparisons are those of the start (`source_checks`).
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.errors import Refused, Transient
from pipeline.ingest import identity, parting
from pipeline.ingest.evidence import marks
from pipeline.ingest.evidence.kept import KeptMarks
from pipeline.ingest.evidence.marks import LastRecord, Mark
from pipeline.ingest.identity import Commits, Position
from pipeline.ingest.parting import COMMIT, Last
from pipeline.ingest.source_checks import refusal, since_of
from pipeline.ingest.sources.kind import SourceKind, Witness
from pipeline.source_settings import named_topic
from pipeline.storage.location import Location
from pipeline.store.sources import Identity

_log = logging.getLogger("turnout")


class BatchChecks:
    """Compares the sources of one run of the query with what they were. For one thread."""

    def __init__(self, source: SourceKind, bronze: Location, kept: KeptMarks, landed: int | None, last: Last) -> None:
        """Begin with the marks of the last landed batch, and with the last records in bronze."""
        self._source, self._bronze, self._kept = source, bronze, kept
        self._witnesses = [(each, witness) for each in source.members if (witness := each.witness()) is not None]
        self._marks = {name: mark.with_last(last.get(name, {})) for name, mark in kept.read(landed).items()}
        self._marks |= {name: Mark(last=of) for name, of in last.items() if name not in self._marks}
        self._known: Identity | None = None

    def learn(self, known: Identity | None) -> None:
        """Take what was recorded of the sources, with those that a pattern has found."""
        self._known = known
        record = identity.record_of(known)
        for name, each in (record.of or {self._source.description: record}).items():
            before = self._marks.get(name, Mark())
            self._marks[name] = Mark(each.source_id or before.id, before.epochs, before.first, before.last)

    def require_same(
        self, batch_id: int, position: Position | None, end: Position | None, reported: Sequence[Sequence[Any]]
    ) -> None:
        """Compare each source with its marks, and keep those of this batch.

        `position` is before its rows, `end` behind them; `reported` are the last records of its tasks.

        Raises:
            Refused: a source is another one, or has lost what ingest has read; as at a start.
            Transient: a broker does not answer.
        """
        now: dict[str, Mark] = {}
        for member, witness in self._witnesses:
            own = [name for name in self._marks if member.owns(name)]
            seen = witness.look(own)
            for name in own:
                if name not in seen:
                    self._refuse_replaced(name, "it is gone", position)
                self._compare(witness, name, seen[name], position)
                now[name] = seen[name]
        last = self._last(reported, end)
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
        if parting.differing(witness, name, before.last):
            self._refuse_parted(position)
        if clause is not None:  # weak evidence, which equal last records outweigh
            there = witness.records(name, {number: each.offset for number, each in before.last.items()})
            if there.keys() < before.last.keys() or not before.last:
                raise Refused(f"The {name} was deleted and recreated: {clause}. {parting.ADOPT}")
            _log.warning("%s: %s, but the last records in bronze are still there", name, clause)

    def _last(self, reported: Sequence[Sequence[Any]], end: Position | None) -> dict[str, dict[int, LastRecord]]:
        """Return by source and partition the last record of a batch; of a landing table, its last commit."""
        found: dict[str, dict[int, LastRecord]] = {}
        names = {named_topic(name): name for name in self._marks}
        for topic, number, *record in reported:  # in the order of slices
            found.setdefault(names.get(topic, topic), {})[number] = LastRecord(*record)
        positions = identity.each_position(self._source.description, end)
        for member, witness in self._witnesses:
            for name, at in positions.items():
                if isinstance(at, Commits) and at.version and member.owns(name):
                    found[name] = dict(witness.records(name, {COMMIT: at.version - 1}))
        return found

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
            since = since_of(self._source, self._known)
            problem = parting.judge(self._source, self._bronze, since, last, position, seen)
            if problem is not None:
                raise refusal(problem)
        raise Transient("The source had another record in the place of bronze's last one, and has it no more.")
