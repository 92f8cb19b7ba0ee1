"""Checks before a batch is committed: are its rows those of the sources that it was planned on.

Called by the ingest query after a batch's rows were read. The comparison is that of the start (`source_checks`).
"""

from pipeline.errors import Refused, Transient
from pipeline.ingest.evidence import marks
from pipeline.ingest.evidence.kept import KeptMarks
from pipeline.ingest.evidence.marks import Mark
from pipeline.ingest.identity import Position, SourceRecord
from pipeline.ingest.source_checks import WAY_OUT
from pipeline.ingest.sources.kind import SourceKind


class BatchChecks:
    """Compares the sources of one run of the query with what they were. For one thread."""

    def __init__(self, source: SourceKind, record: SourceRecord, kept: KeptMarks, landed: int | None) -> None:
        """Begin with what is recorded of the sources, and with the marks of the last landed batch."""
        self._source, self._kept = source, kept
        self._witnesses = [(each, witness) for each in source.members if (witness := each.witness()) is not None]
        self._marks = dict(kept.read(landed))
        self._record = record
        self.learn(record)

    def learn(self, record: SourceRecord) -> None:
        """Take what was recorded, with sources that a pattern has found."""
        self._record = record
        of = record.of or {self._source.description: record}
        for described, each in of.items():
            before = self._marks.get(described, Mark())
            self._marks[described] = Mark(each.source_id or before.id, before.epochs, before.first, before.last)

    def require_same(self, batch_id: int, position: Position | None) -> None:
        """Compare each source with its marks, and keep those of this batch; `position` is before its rows.

        Raises:
            Refused: a source is another one, or has lost what ingest has read; as at a start.
            Transient: a broker does not answer.
        """
        now: dict[str, Mark] = {}
        for member, witness in self._witnesses:
            now.update(witness.look([each for each in self._marks if member.owns(each)]))
        for described, before in self._marks.items():
            if not any(member.owns(described) for member, _ in self._witnesses):
                continue
            found = now.get(described)
            clause = "it is gone" if found is None else marks.replaced(before, found)
            if clause is not None:
                self._refuse(described, clause, position)
        if now:
            self._marks.update(now)
            self._kept.write(batch_id, self._marks)

    def _refuse(self, described: str, clause: str, position: Position | None) -> None:
        """Judge the source as a start does, which names the unread records."""
        seen = self._source.observe(position)
        if seen is not None and position is not None:
            problem = self._source.judge(self._record, position, seen)
            if problem is not None:
                raise Refused(f"{problem.sentence} {WAY_OUT}")
        raise Transient(f"The {described} was replaced while a batch of it was read: {clause}. Nothing of it landed.")
