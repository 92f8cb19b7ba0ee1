"""When drivers started and died: from the control store's runs, and from drivers that no controller started."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.api.environment import OpenEnvironment
from pipeline.store.database.engine import reading
from pipeline.store.processes.runs import RELEASED, Run, runs_since
from pipeline.store.rows import Driver

__all__ = ["DriverEvent", "Run", "driver_events", "runs"]

_MOST: Final = 2_000  # runs of a range, the newest


@dataclass(frozen=True, slots=True)
class DriverEvent:
    """A driver started, or died, at a moment (Unix seconds)."""

    kind: str
    name: str
    at: float
    what: Literal["starts", "died"]


@reading()
def runs(environment: OpenEnvironment, seconds: float) -> tuple[Run, ...]:
    """Read the runs that began or ended in the last `seconds`, newest first."""
    return tuple(runs_since(environment.engine, time.time() - seconds, _MOST))


def driver_events(
    drivers: Sequence[Driver], known: Sequence[Run], since: float, kind: str | None = None
) -> tuple[DriverEvent, ...]:
    """Return the starts and deaths since then, oldest first, by default of all kinds of drivers.

    Runs have also those of earlier drivers. A death stays one where a person has reset the budget of restarts: an end
    that nobody requested counts.
    """
    named = {each.run_id for each in known}
    found = [event for each in known for event in _events(each)]
    found += [
        DriverEvent(each.kind, each.name, each.started_at, "starts") for each in drivers if each.run_id not in named
    ]
    wanted = [each for each in found if each.at >= since and kind in {None, each.kind}]
    return tuple(sorted(wanted, key=lambda each: (each.at, each.kind, each.name)))


def _events(run: Run) -> Iterator[DriverEvent]:
    yield DriverEvent(run.kind, run.group_name, run.started_at, "starts")
    if run.ended_at is not None and run.stop_requested_at is None and run.exit_message != RELEASED:
        yield DriverEvent(run.kind, run.group_name, run.ended_at, "died")
