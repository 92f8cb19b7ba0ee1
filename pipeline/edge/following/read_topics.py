"""Which topic each of bronze's ends is of, and which offsets ingest was let go on without: from the control store.

Offsets of a recreated topic begin at 0 again, and nothing in them says so.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Engine

from pipeline.data.ingest.identity import Commits, Offsets, Position, parse
from pipeline.store import sources


class SkippedRange(NamedTuple):
    """Offsets of one partition, the last one included, that ingest will never read."""

    topic_id: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """The topics that ingest has read, by id; an empty id is not known."""

    begins: tuple[tuple[int, str], ...] = ()  # growing: rows of bronze above a seq are of this one
    skipped: tuple[SkippedRange, ...] = ()  # the oldest first

    def at(self, seq: int) -> tuple[str, list[str]]:
        """Return the topic of a seq of bronze, and those before it whose offsets mean nothing any more."""
        place = bisect_left(self.begins, seq, key=lambda each: each[0])
        of = [topic_id for _, topic_id in self.begins[:place]]
        current = of[-1] if of else ""
        return current, sorted({*of} - {current, ""})


def read_topics(engine: Engine) -> ReadTopics:
    """Read what ingest has recorded of its source; asked after bronze, it has all that bronze's rows are of."""
    known = {each.generation: each for each in sources.identities(engine)}
    begins = sorted((each.since_seq, each.generation, each.source_id or "") for each in known.values())
    skipped = []
    for gap in sources.accepted_gaps(engine):
        of = known.get(gap.generation)
        onward = None if of is None or of.start is None else parse(of.start)
        if of is None or gap.last is None or onward is None:
            continue
        ends, partition = _ends(onward), gap.partition or 0
        if gap.last < ends.get(partition, 0):  # else bronze has them, and the topic uses the offsets again
            skipped.append(SkippedRange(of.source_id or "", partition, gap.first, gap.last))
    return ReadTopics(tuple((seq, topic_id) for seq, _, topic_id in begins), tuple(skipped))


def _ends(position: Position) -> Mapping[int, int]:
    """Return the number before which all lies behind ingest: offsets by partition, commits under 0."""
    if isinstance(position, Offsets):
        return position.next
    version = position.version if isinstance(position, Commits) else None
    return {} if version is None else {0: version}
