"""Did all processes fall silent at one moment: then they share a cause, most likely a store that takes no writes.

Pure. A process whose end is on record, or that was stopped, has a reason of its own to be silent and does not count.
"""

from dataclasses import dataclass
from typing import Final

from pipeline.health.liveness import RUNS, STORE_REFUSES, DriverFacts, heartbeat_limit

_LEAST: Final = 2  # a single process says nothing of what processes share


@dataclass(frozen=True, slots=True)
class Silence:
    """All processes that should report, silent since about one moment though no end of theirs is on record."""

    processes: frozenset[tuple[str, str]]  # kind and name
    since: float  # the newest heartbeat of all, Unix seconds
    refusal: str | None  # why the control store takes no write now; None: it does, or nobody knows

    @property
    def unheard(self) -> frozenset[tuple[str, str]]:
        """The processes that the store keeps from reporting; none where it takes writes, or nobody knows."""
        return frozenset() if self.refusal is None else self.processes

    @property
    def note(self) -> str:
        """What it means, as a clause of the headline."""
        if self.refusal is not None:
            return STORE_REFUSES
        return f"all {len(self.processes)} processes fell silent at one moment"

    def text(self, now: float) -> str:
        """Say what is known, and on a second line what follows and what to look for."""
        count, ago = len(self.processes), f"{max(0.0, now - self.since):.0f} s"
        if self.refusal is not None:
            return (
                f"{STORE_REFUSES}: {self.refusal}\n"
                f"none of {count} processes has reported for {ago}; streams may go on. Find who holds its lock"
            )
        return (
            f"all {count} processes fell silent at one moment, {ago} ago\n"
            "look for what they share, such as the control store, its disk or their machine"
        )


def find_silence(facts: DriverFacts, refusal: str | None = None) -> Silence | None:
    """Return what is known where every process fell silent at one moment; None where one still reports.

    Heartbeats come every few seconds, so the last ones before that moment lie within the limit of each other. What was
    silent long before it is another matter.
    """
    limit = heartbeat_limit(facts.heartbeat_seconds)
    beating = {key: each.heartbeat_at for key, each in facts.drivers.items() if each.state in RUNS}
    newest = max(beating.values(), default=None)
    if newest is None or facts.now - newest <= limit:
        return None
    together = frozenset(key for key, at in beating.items() if newest - at <= limit and not facts.judge(*key).is_over)
    return Silence(together, newest, refusal) if len(together) >= _LEAST else None
