"""What a cluster group carried over time, and what it can carry as far as that is known. Pure.

Its load is what its driver measured of its own processes. Where that is not known, as where executors work elsewhere,
it is estimated from rows and commits as `pipeline.health.verdicts.placement.capacity` does, without the size of rows,
and named an estimate. Without a limit a group's rows are compared with the most that it kept up with.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app import formatting
from app.look.axes import ChartMark, Values
from app.look.lines import gapped, per_second
from app.state.shared import once
from listeners.process_kinds import GROUP
from listeners.series import Series
from listeners.status import Status
from pipeline.api.operations import Operation, OperationState, moved
from pipeline.api.runs import Run, driver_events
from pipeline.base.texts import in_utc
from pipeline.health.facts.fleet import Fleet
from pipeline.health.verdicts.placement.capacity import IDLE_CORES, GroupLoad, Load

_ESTIMATED_BESIDE: Final = "; placement estimates {} for its games."
_GROUPS: Final = frozenset({GROUP})
_LEAST_POINTS: Final = 2  # of a trend; fewer are no line
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
    estimated: Values  # cores by slot, without the driver itself
    kept_up: Peak | None
    measured: Values = ()  # cores by slot, of the driver and all its processes; empty: its driver measures none
    is_old: bool = False  # the newest slots could not be read, so that nothing is known of now
    is_partly_measured: bool = False  # its executors, or its JVM, are not among its driver's processes
    partial: Sequence[bool] = ()  # by slot: its driver ended, or stood still, before it reported all; empty: nowhere
    first_slot: int = 0  # that its present driver measured from the beginning

    @property
    def now(self) -> float | None:
        """Rows a minute of the newest slot with a report; None: nobody knows, or a report may be missing since."""
        known = [slot for slot, each in enumerate(self.per_minute) if each is not None]
        if self.is_old or not known or any(self.partial[known[-1] :]):
            return None
        return _newest(self.per_minute)

    @property
    def trend(self) -> list[int]:
        """Rows a minute of the newest slots in a row of which all was reported, for a cell of a table.

        A cell has no gaps: slots around an outage would be joined over it. Empty below two slots.
        """
        marks = self.partial or [False] * len(self.per_minute)
        newest = zip(reversed(self.per_minute), reversed(marks), strict=True)
        whole = itertools.takewhile(lambda each: each[0] is not None and not each[1], newest)
        points = [round(rows) for rows, _ in whole if rows is not None]
        return points[::-1] if len(points) >= _LEAST_POINTS else []

    @property
    def measured_now(self) -> float | None:
        """Cores of the newest slot that its present driver measured, as they are used now; None: nobody knows."""
        return None if self.is_old else _newest(self.measured, self.first_slot)

    @property
    def is_measured(self) -> bool:
        """Whether any slot has a measurement."""
        return any(each is not None for each in self.measured)

    @property
    def is_known(self) -> bool:
        """Whether any slot has a report."""
        return self.is_measured or any(each is not None for each in self.per_minute)

    def shares(self, capacity_cores: float) -> list[float | None]:
        """Return the load of each slot as a share of the capacity in cores: measured, or estimated if nothing is."""
        cores = self.measured if self.is_measured else self.estimated
        return [None if each is None else each / capacity_cores for each in cores]


def courses(series: Series, fleet: Fleet, objective_seconds: float, *, is_old: bool = False) -> Mapping[str, Course]:
    """Return the course of each group, made once for all viewers."""
    groups = [(name, _started_at(fleet, name)) for name in fleet.groups]
    return once(_courses, series, objective_seconds, is_old, *groups)


def _courses(
    series: Series, objective_seconds: float, is_old: bool, *groups: tuple[str, float | None]
) -> Mapping[str, Course]:
    return {name: course(series, name, objective_seconds, at, is_old=is_old) for name, at in groups}


def course(
    series: Series, group: str, objective_seconds: float, started_at: float | None = None, *, is_old: bool = False
) -> Course:
    """Return what a group carried: what games landed while it had them, whichever group has them now.

    Its driver began at `started_at` (Unix seconds): what was measured before is no load of now.
    """
    own = series.of_group(group)
    games = own.known.sum(axis=0).tolist()
    rows, commits = per_second(own, own.total("rows")), per_second(own, own.total("commits"))
    partial = own.is_partial({group}).tolist()
    return Course(
        [None if each is None else 60 * each for each in rows],
        [_cores(*each) for each in zip(rows, commits, games, strict=True)],
        _peak(own, objective_seconds, partial),
        gapped(series.cores[GROUP, group]) if (GROUP, group) in series.cores else (),
        is_old,
        (GROUP, group) in series.partly_measured,
        partial,
        _first_slot(series, started_at),
    )


def why_unknown(fleet: Fleet, group: str, measured: float | None) -> str:
    """Return why nobody knows what a group uses, as a clause; empty where its driver measured it or it can be guessed.

    What a driver that is gone used last is not used now, and what its streams read then is no estimate of it.
    """
    state = fleet.state(GROUP, group)
    if state is not None and not state.liveness.is_live:
        return "No driver of it lives"
    if state is not None and state.liveness.state == "starting":
        return "Its driver is starting"
    statuses = {row.verdict.status for row in fleet.rows if row.group == group}
    return "Its games are starting" if measured is None and statuses == {Status.STARTING} else ""


def why_unmeasured(fleet: Fleet, group: str, measured: float | None) -> str:
    """Return why nobody knows what the driver of a group without games uses; empty where it measured it, or is gone.

    Without games there is nothing to estimate from, and a driver that starts uses most.
    """
    state = fleet.state(GROUP, group)
    if state is None or not state.liveness.is_live:
        return ""
    if state.liveness.state == "starting":
        return "Its driver is starting"
    return "It has no games, and its driver has measured no whole minute" if measured is None else ""


def all_measured_now(series: Series, fleet: Fleet) -> dict[str, float]:
    """Return the cores that each group's driver used in its newest slot with a measurement, where it has one of now."""
    found = {
        name: _newest(gapped(cores), _first_slot(series, _started_at(fleet, name)))
        for (kind, name), cores in series.cores.items()
        if kind in _GROUPS
    }
    return {name: cores for name, cores in found.items() if cores is not None}


def _newest(values: Values, first: int = 0) -> float | None:
    """Return the value of the newest slot that has one, unless that is too long ago or before the first."""
    latest = values[max(first, len(values) - _LATEST_SLOTS) :]
    return next((each for each in reversed(latest) if each is not None), None)


def _first_slot(series: Series, started_at: float | None) -> int:
    """Return the first slot in which a driver worked from the beginning."""
    return 0 if started_at is None else max(0, math.ceil((started_at - series.since) / series.slot_seconds))


def _started_at(fleet: Fleet, group: str) -> float | None:
    driver = fleet.driver(GROUP, group)
    return None if driver is None else driver.started_at


def marks(
    fleet: Fleet, runs: Sequence[Run], operations: Sequence[Operation], group: str, since: float
) -> list[ChartMark]:
    """Return the starts and deaths of a group's drivers, and the games that arrived or left, since then."""
    drivers = driver_events(fleet.drivers_of(GROUP), runs, since, GROUP)
    found = [ChartMark(each.at, each.what) for each in drivers if each.name == group]
    found += [ChartMark(at, f"{sign}{games} {'game' if games == 1 else 'games'}")
              for at, sign, games in _moved(operations, group)]  # fmt: skip
    return sorted((each for each in found if each.at >= since), key=lambda each: each.at)


def headroom(group: GroupLoad, seen: Course | None, unknown: int) -> str:
    """Say how much more a group can carry, or what its rows compare with; of `unknown` games no load is known."""
    if group.capacity_cores is None:
        return f"No limit is set. {_against_peak(seen)}"
    measured = None if seen is None else seen.measured_now
    how = f"as measured{_ESTIMATED_BESIDE.format(formatting.cores(group.cores))}"
    used = measured
    if used is None:
        guessed = f" The load of {unknown} of its games is unknown." if unknown else ""
        how, used = f"{_why_estimated(seen)}.{guessed}", group.cores
    left = group.capacity_cores - used
    if left < 0:
        return f"Over its limit by {formatting.cores(-left)}, {how}"
    if used <= 0:
        return f"Empty: its {group.capacity_cores:g} cores are free."
    room = left / used
    much = f"{room:.0%} more".replace("%", " %") if room < 1 else f"{formatting.cores(1 + room, '')} times as many"
    return f"Could carry about {much} rows, {how}"


def _why_estimated(seen: Course | None) -> str:
    """Say that a load is an estimate, and why it is no measurement."""
    if seen is not None and seen.is_partly_measured:
        return "as estimated from rows and commits, because executors outside its driver's processes are not measured"
    return "as estimated from rows and commits"


def _against_peak(seen: Course | None) -> str:
    if seen is None or seen.kept_up is None:
        return "How much it keeps up with is not known yet."
    peak = seen.kept_up
    said = f"It kept up with {formatting.count(peak.per_minute)} rows/min at {in_utc(peak.at, '%H:%M UTC')}"
    if seen.now is None:
        return f"{said}; its rows of now are not known."
    share = f"{seen.now / peak.per_minute:.0%}".replace("%", " %")
    return f"{said}; lately {formatting.count(seen.now)}, {share} of it."


def _cores(rows: float | None, commits: float | None, games: int) -> float | None:
    cores = Load(rows_per_second=rows, commits_per_second=commits).cores
    return None if cores is None else cores + (games - 1) * IDLE_CORES


def _peak(own: Series, objective_seconds: float, partial: Sequence[bool]) -> Peak | None:
    """Return the most rows of a whole slot in which no game that landed rows was late, or caught up."""
    begins = own.since + own.slot_seconds * np.arange(own.slots)
    late = (own.rows > 0) & ~(own.backlog <= objective_seconds)  # an unknown backlog is no proof
    level = ~late.any(axis=0) & (own.caught_up.sum(axis=0) == 0)
    rows = own.rows.sum(axis=0)
    counted = level & (rows > 0) & (own.seconds >= own.slot_seconds) & ~np.array(partial, bool)
    if not counted.any():
        return None
    at = int(np.argmax(np.where(counted, rows, 0)))
    return Peak(60 * float(rows[at]) / own.slot_seconds, float(begins[at]))


def _moved(operations: Sequence[Operation], group: str) -> Iterator[tuple[float, str, int]]:
    """Yield when games came (+) to a group or left (-) it, and how many; a move's preview has where they were."""
    for each in operations:
        if each.state != OperationState.SUCCEEDED or each.ended_at is None:
            continue
        moves = moved(each).values()
        if came := sum(target == group for _, target in moves):
            yield each.ended_at, "+", came
        if left := sum(source == group for source, _ in moves):
            yield each.ended_at, "-", left
