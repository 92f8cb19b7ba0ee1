"""Which rows of bronze are of a source as it is now: its generation's, and those of earlier ones of the same source.

An adoption begins a generation without a row; bronze's last record of the source is then an earlier generation's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from pipeline.data.ingest import identity
from pipeline.data.ingest.identity import Offsets
from pipeline.lake.delta.lost_seqs import LostSeqs
from pipeline.store import sources


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Rows of a topic above a seq, without those whose offsets got other records before an adoption."""

    since: int
    begun: Mapping[int, int] = field(default_factory=dict)  # by partition, the first offset that was read
    cuts: tuple[tuple[int, Mapping[int, int]], ...] = ()  # up to this seq, rows from these offsets on do not count

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the rows that count; needs `seq`, `partition` and `offset`, of one topic."""
        rows = rows.filter(pc.greater(rows["seq"], self.since))
        for seq, first in self.cuts:
            if rows.num_rows and first:
                cut = pc.and_(pc.less_equal(rows["seq"], seq), pc.invert(_below(rows, first)))
                rows = rows.filter(pc.invert(cut))
        return rows


def up_to(rows: pa.Table, last: Mapping[int, int]) -> pa.Table:
    """Return the rows up to an offset of each partition."""
    return rows.filter(_below(rows, {number: at + 1 for number, at in last.items()})) if last else rows


def _below(rows: pa.Table, ends: Mapping[int, int]) -> pa.Array:
    """Return of each row whether it lies below its partition's end; a partition without one has none."""
    numbers = pa.array(list(ends), pa.int32())
    of_row = pc.take(pa.array(list(ends.values()), pa.int64()), pc.index_in(rows["partition"], numbers))
    return pc.fill_null(pc.less(rows["offset"], of_row), fill_value=True)


def generations_of(
    engine: Engine, described: str, number: int, source_id: str | None, head: int, losses: Sequence[LostSeqs]
) -> list[sources.Identity]:
    """Return what generations up to `number` have recorded of a source, the newest first; nothing of a new one.

    The source may have had another name, such as another broker address; its id identifies it. An older copy of bronze,
    which ends at seq `head`, may end before the last adoption: an earlier generation read its rows then.
    """
    numbers = {
        each: text
        for each, text, its_id in sources.sources_of(engine)
        if each <= number and (sources.is_of(text, described) or (its_id is not None and its_id == source_id))
    }
    recorded = [(text, sources.identity(engine, each)) for each, text in sorted(numbers.items(), reverse=True)]
    known = [identity.alone(each, text) for text, each in recorded if each is not None]
    reached = [each for each in known if each.since_seq <= head and not any(each.since_seq in lost for lost in losses)]
    return reached or known[-1:]


def same_source(generations: Sequence[sources.Identity]) -> list[sources.Identity]:
    """Return those of the newest that have read one source on and on, the newest first."""
    same: list[sources.Identity] = []
    for each in generations:
        ids = {each.source_id, *(one.source_id for one in same)} - {None}
        if len(ids) > 1:
            break
        same.append(each)
        if each.actor is None:  # it has not gone on behind an earlier one
            break
    return same


def own_rows(generations: Sequence[sources.Identity]) -> OwnRows:
    """Return which rows of bronze are of a source by its generations, the newest first."""
    same = same_source(generations)
    *adopted, oldest = [(each.since_seq, _begun(each)) for each in same]
    return OwnRows(*oldest, tuple(adopted))


def _begun(known: sources.Identity) -> Mapping[int, int]:
    start = identity.parse(known.start) if known.start else None
    return start.next if isinstance(start, Offsets) else {}
