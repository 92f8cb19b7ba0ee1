"""What a cluster group carried over time, and what it can carry as far as that is known. Pure.

Nobody measures a driver's cores over time. Where a group has a limit, its load is estimated from rows and commits as
`pipeline.health.verdicts.placement.capacity` does, without the size of rows. Where it has none, its rows are compared
with the most that it kept up with.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app import formatting
from app.look.axes import ChartMark, Values
from app.look.lines import per_second
from listeners.process_kinds import GROUP
from listeners.series import Series
from pipeline.api.operations import Operation, OperationState
from pipeline.api.runs import Run, driver_events
from pipeline.base.texts import in_utc
from pipeline.health.facts.fleet import Fleet
from pipeline.health.verdicts.placement.capacity import IDLE_CORES, GroupLoad, Load

_LATEST_SLOTS: Final = 3  # slots, back from now, in which to look for the newest report


@dataclass(frozen=True, slots=True)
class Peak:
    """The most rows a minute that a group kept up with, and when (Unix seconds)."""

    per_minute: float
    at: float


@dataclass(frozen=True, slots=True)
class Course:
    """The load of a group over the range on screen; None where nobody knows."""

    per_minute: Values  # rows landed, by slot
    cores: Values  # estimated, by slot
    kept_up: Peak | None

    @property
    def now(self) -> float | None:
        """Rows a minute of the newest slot with a report."""
        return next((each for each in reversed(self.per_minute[-_LATEST_SLOTS:]) if each is not None), None)

    @property
    def trend(self) -> list[int]:
        """Rows a minute of the slots with a report, for a cell of a table."""
        return [round(each) for each in self.per_minute if each is not None]

    @property
    def is_known(self) -> bool:
        """Whether any slot has a report."""
        return any(each is not None for each in self.per_minute)

    def shares(self, capacity_cores: float) -> list[float | None]:
        """Return the estimated load of each slot, as a share of the capacity in cores."""
        return [None if each is None else each / capacity_cores for each in self.cores]


def course(series: Series, group: str, objective_seconds: float) -> Course:
    """Return what a group carried: what games landed while it had them, whichever group has them now."""
    own = series.of_group(group)
    games = own.known.sum(axis=0).tolist()
    rows, commits = per_second(own, own.total("rows")), per_second(own, own.total("commits"))
    return Course(
        [None if each is None else 60 * each for each in rows],
        [_cores(*each) for each in zip(rows, commits, games, strict=True)],
        _peak(own, objective_seconds),
    )


def marks(
    fleet: Fleet, runs: Sequence[Run], operations: Sequence[Operation], group: str, since: float
) -> list[ChartMark]:
    """Return the starts and deaths of a group's drivers, and the games that came to it or left it, since then."""
    drivers = driver_events(fleet.drivers_of(GROUP), runs, since)
    found = [ChartMark(each.at, each.what) for each in drivers if (each.kind, each.name) == (GROUP, group)]
    found += [ChartMark(at, f"{sign}{games} {'game' if games == 1 else 'games'}")
              for at, sign, games in _moved(operations, group)]  # fmt: skip
    return sorted((each for each in found if each.at >= since), key=lambda each: each.at)


def headroom(group: GroupLoad, seen: Course | None, unknown: int) -> str:
    """Say how much more a group can carry, or what its rows compare with; of `unknown` games no load is known."""
    if group.capacity_cores is None:
        return f"No limit is set. {_against_peak(seen)}"
    guessed = f" The load of {unknown} of its games is unknown." if unknown else ""
    left = group.capacity_cores - group.cores
    if left < 0:
        return f"Over its limit by {-left:.2g} cores, as estimated from rows and commits.{guessed}"
    if group.cores <= 0:
        return f"Empty: its {group.capacity_cores:g} cores are free."
    room = left / group.cores
    much = f"{room:.0%} more".replace("%", " %") if room < 1 else f"{1 + room:.2g} times as many"
    return f"Could carry about {much} rows, as estimated from rows and commits.{guessed}"


def _against_peak(seen: Course | None) -> str:
    if seen is None or seen.kept_up is None:
        return "How much it keeps up with is not known yet."
    peak = seen.kept_up
    said = f"It kept up with {formatting.count(peak.per_minute)} rows/min at {in_utc(peak.at, '%H:%M UTC')}"
    if seen.now is None:
        return f"{said}; its rows now are unknown."
    return f"{said}; now {formatting.count(seen.now)}, {seen.now / peak.per_minute:.0%}".replace("%", " %") + " of it."


def _cores(rows: float | None, commits: float | None, games: int) -> float | None:
    cores = Load(rows_per_second=rows, commits_per_second=commits).cores
    return None if cores is None else cores + (games - 1) * IDLE_CORES


def _peak(own: Series, objective_seconds: float) -> Peak | None:
    """Return the most rows of a whole slot in which no game that landed rows was late, or caught up."""
    begins = own.since + own.slot_seconds * np.arange(own.slots)
    late = (own.rows > 0) & ~(own.backlog <= objective_seconds)  # an unknown backlog is no proof
    level = ~late.any(axis=0) & (own.caught_up.sum(axis=0) == 0)
    rows = own.rows.sum(axis=0)
    counted = level & (rows > 0) & (own.seconds >= own.slot_seconds)
    if not counted.any():
        return None
    at = int(np.argmax(np.where(counted, rows, 0)))
    return Peak(60 * float(rows[at]) / own.slot_seconds, float(begins[at]))


def _moved(operations: Sequence[Operation], group: str) -> Iterator[tuple[float, str, int]]:
    """Yield when games came (+) to a group or left (-) it, and how many; who left is in what was previewed."""
    for each in operations:
        assigned = each.parameters.get("assignments")
        if not isinstance(assigned, Mapping) or each.state != OperationState.SUCCEEDED or each.ended_at is None:
            continue
        if came := list(assigned.values()).count(group):
            yield each.ended_at, "+", came
        before = [each.preview.get(key) for key in assigned]
        if left := sum(isinstance(was, list | tuple) and list(was[:1]) == [group] for was in before):
            yield each.ended_at, "-", left
