"""Did all processes fall silent at one moment: then they share a cause, most likely a store that takes no writes.

Pure. A process whose end is on record, or that was stopped, has a reason of its own to be silent and does not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.health.verdicts.liveness import RUNS, STORE_REFUSES, DriverFacts, heartbeat_limit
from pipeline.store.rows import START_LIMIT_SECONDS, Driver

_LEAST: Final = 2  # without a refused write a single process says nothing of what processes share
_UP: Final = RUNS | {"starting"}


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
    def nobody(self) -> str:
        """All of them as the subject of a sentence that says what has not happened."""
        return f"none of {len(self.processes)} processes" if len(self.processes) > 1 else "no process"

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
                f"{self.nobody} has reported for {ago}; streams may go on. Find who holds its lock or fills its disk"
            )
        return (
            f"all {count} processes fell silent at one moment, {ago} ago\n"
            "look for what they share, such as the control store, its disk or their machine"
        )


def is_silent(facts: DriverFacts) -> bool:
    """Return whether no process was heard in time, so that the store has to be asked whether it takes writes.

    A driver that is starting beats when Spark has loaded: it is silent where its lease has run out as well.
    """
    known = _saying(facts, _UP)
    is_due = any(each.state in RUNS or not _holds_lease(facts, each, facts.now) for each in known.values())
    return is_due and facts.now - _newest(known) > heartbeat_limit(facts.heartbeat_seconds)


def find_silence(facts: DriverFacts, refusal: str | None = None) -> Silence | None:
    """Return what is known where every process fell silent at one moment; None where one still reports.

    Heartbeats come every few seconds, so the last ones before that moment lie within the limit of each other. What was
    silent long before it, or had lost its lease, is another matter. Without a `refusal` two processes at work must
    share the moment; with one, a single process is enough, and one that is starting counts.
    """
    if refusal is not None and not is_silent(facts):
        return None
    limit = heartbeat_limit(facts.heartbeat_seconds)
    known = _saying(facts, RUNS if refusal is None else _UP)
    newest = _newest(known)
    heard = {key for key, each in known.items() if _was_heard(facts, each, newest, limit)}
    together = frozenset(key for key in heard if not facts.judge(*key).is_over)
    least = _LEAST if refusal is None else 1
    return Silence(together, newest, refusal) if facts.now - newest > limit and len(together) >= least else None


def _saying(facts: DriverFacts, states: frozenset[str]) -> dict[tuple[str, str], Driver]:
    return {key: each for key, each in facts.drivers.items() if each.state in states}


def _newest(known: Mapping[tuple[str, str], Driver]) -> float:
    return max((each.heartbeat_at for each in known.values()), default=float("inf"))


def _was_heard(facts: DriverFacts, driver: Driver, at: float, limit: float) -> bool:
    """Return whether nothing was wrong with a driver yet at a moment."""
    patience = limit if driver.state in RUNS else max(limit, START_LIMIT_SECONDS)
    lease = facts.leases.get((driver.kind, driver.name))
    is_lost = lease is not None and lease.process == driver.process and lease.expires_at <= at
    return at - driver.heartbeat_at <= patience and not is_lost


def _holds_lease(facts: DriverFacts, driver: Driver, at: float) -> bool:
    lease = facts.leases.get((driver.kind, driver.name))
    return lease is not None and lease.process == driver.process and lease.expires_at > at
