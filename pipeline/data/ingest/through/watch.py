"""Which time bronze is complete through: observations of the source's ends wait until bronze has passed them. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pipeline.data.ingest.sources.kind import Ends
from pipeline.lake.delta.lost_seqs import LostSeqs
from pipeline.lake.delta.through import ThroughPair
from pipeline.store.sources import AcceptedGap

CLOCK: Final = "clock"
"""The incident of a control store's clock that went back."""

RESTORE: Final = "restore"
"""The incident of a bronze that was restored from an older copy."""

_STEP_SECONDS: Final = 0.05  # a clock that was set back by less is not noticed
_MOST_WAITING: Final = 256  # observations; beyond, every second one is dropped
_READ: Final = frozenset({"truncated", "older_copy"})  # reasons of gaps with records that ingest had read


@dataclass(frozen=True, slots=True)
class EndsSeen:
    """One observation: the source had taken nothing beyond these ends by this time."""

    at: float  # Unix seconds by the control store's clock, read before the ends were
    ends: Ends


@dataclass(slots=True)
class ThroughWatch:
    """The observations that bronze has not passed yet, the oldest first; the last one waits for the next."""

    waiting: list[EndsSeen] = field(default_factory=list)

    def add(self, seen: EndsSeen) -> None:
        """Take the next observation. Partitions that it is the first to see count for the one before, too."""
        if self.waiting:
            before = self.waiting[-1]
            self.waiting[-1] = EndsSeen(before.at, _with_new(before.ends, seen.ends))
        if len(self.waiting) >= _MOST_WAITING:
            del self.waiting[1:-1:2]
        self.waiting.append(seen)

    def passed(self, reached: Ends) -> EndsSeen | None:
        """Return the newest observation whose ends bronze has reached, and forget it with all before; None: none."""
        for number in range(len(self.waiting) - 2, -1, -1):
            if has_reached(reached, self.waiting[number].ends):
                found = self.waiting[number]
                del self.waiting[: number + 1]
                return found
        return None

    def withdraw(self, above: float) -> None:
        """Forget the observations after a time."""
        self.waiting = [seen for seen in self.waiting if seen.at <= above]


def has_reached(reached: Ends, ends: Ends) -> bool:
    """Return whether each end is reached; a partition from which nothing was read is reached up to 0."""
    return all(
        reached.get(source, {}).get(number, 0) >= end for source, of in ends.items() for number, end in of.items()
    )


def is_shorter(ends: Ends, reached: Ends) -> bool:
    """Return whether a source ends before the place that bronze had reached: it lost records, or is another one."""
    return not has_reached(ends, reached)


def clock_floor(before: tuple[float, float], at: float, asked_at: float) -> float | None:
    """Return the least time that a clock can have shown since a reading of it, None where it was not set back.

    Args:
        before: that reading, and the monotonic time just after it.
        at: the clock now.
        asked_at: the monotonic time just before this reading.
    """
    last, answered_at = before
    least = at - max(0.0, asked_at - answered_at)
    return least if least < last - _STEP_SECONDS else None


def rendered(ends: Ends) -> str:
    """Return ends as the table has them."""
    return json.dumps({source: {str(number): end for number, end in sorted(of.items())} for source, of in ends.items()})


def withdrawn_by(pair: ThroughPair, losses: Iterable[LostSeqs], gaps: Iterable[tuple[AcceptedGap, int]]) -> str | None:
    """Return the incident that makes a pair void, None without one.

    Args:
        pair: as the table has it.
        losses: the seqs that bronze lost.
        gaps: what a source no longer had, with the last seq before ingest went on behind it.
    """
    if any(pair.seq in lost for lost in losses):
        return RESTORE
    for gap, seq in gaps:
        if gap.reason in _READ and pair.seq <= seq:
            ends: Mapping[str, Mapping[str, int]] = json.loads(pair.ends)
            if ends.get(gap.source, {}).get(str(gap.partition or 0), 0) > gap.first:
                return gap.reason
    return None


def _with_new(ends: Ends, next_ends: Ends) -> Ends:
    return {source: {**of, **ends.get(source, {})} for source, of in next_ends.items()} | {
        source: of for source, of in ends.items() if source not in next_ends
    }
