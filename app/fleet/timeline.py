"""The two charts over time of the Fleet page, rows by group and latency, and what happened beside them.

Pure. Both have one time axis, which ends at now, and the same marks: restarts, moves, schemas.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from app import formatting
from app.look import vega
from app.look.axes import Chart, ChartMark, Frame
from app.look.lines import gapped, per_second
from app.look.tokens import Mode
from listeners.series import Series
from pipeline.api.fleet import RegisteredSchema
from pipeline.api.incidents import Cause
from pipeline.api.operations import Operation, OperationKind, OperationState, moved
from pipeline.api.runs import DriverEvent, Run, driver_events
from pipeline.health.facts.fleet import Fleet
from pipeline.health.incidents.incidents import Incident
from pipeline.health.kinds.registry import find, registered

_MARKED: Final = frozenset({OperationKind.MOVE, OperationKind.ISOLATE, OperationKind.RESTORE, OperationKind.REBUILD})
_LONGEST: Final = 24  # characters of a mark
_NEW_GAME_SECONDS: Final = 120.0  # versions registered so soon after a game's first one came with it
_CLOSE_SECONDS, _CLOSE_SHARE = 120.0, 0.1  # starts closer than these seconds, or this share of the range, are one mark


def frame(series: Series, now: float, mode: Mode, events: Sequence[ChartMark]) -> Frame:
    """Return the axis that both charts share."""
    return Frame(series.since, series.slot_seconds, now, mode, events)


def by_group(series: Series) -> dict[str, list[float | None]]:
    """Return the rows that landed each second, by the group of then; None where nobody of a group reported."""
    return {group or "(no group)": per_second(series, rows) for group, rows in series.by_group("rows").items()}


def latency(series: Series, axis: Frame, objective_seconds: float) -> Chart:
    """Return the quantiles of the latency of all games, without rows that were caught up."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return vega.latency(
        axis, dict(zip(shares, map(gapped, series.latencies(tuple(shares.values()))), strict=True)), objective_seconds
    )


def has_rows(series: Series) -> bool:
    """Return whether any row landed."""
    return bool(series.rows.any())


def events(
    fleet: Fleet,
    operations: Sequence[Operation],
    schemas: Sequence[RegisteredSchema],
    since: float,
    runs: Sequence[Run] = (),
    found: Sequence[Incident] = (),
) -> list[ChartMark]:
    """Return starts of drivers, operations that moved or remade games, new schemas and outages of the controller.

    Of a driver that was restarted `runs` has the earlier starts, too.

    Starts close to one another are one mark: their words would overlap.
    """
    done = [
        ChartMark(each.ended_at, _operation(each))
        for each in operations
        if each.kind in _MARKED
        and each.state == OperationState.SUCCEEDED
        and each.ended_at is not None
        and each.ended_at >= since
    ]
    changed = _schemas(schemas, {row.game_key: row.game for row in fleet.rows})
    away = [
        ChartMark(each.since, "controller away")
        for each in found
        if each.finding.cause == Cause.CONTROLLER and each.since >= since
    ]
    return sorted([*_starts(fleet, runs, since), *done, *changed, *away], key=lambda each: each.at)


def _starts(fleet: Fleet, runs: Sequence[Run], since: float) -> list[ChartMark]:
    close = max(_CLOSE_SECONDS, _CLOSE_SHARE * (fleet.read_at - since))
    movers = {kind.name for kind in registered() if kind.moves_rows}
    bundles: list[list[DriverEvent]] = []
    for each in driver_events(fleet.drivers, runs, since):
        if each.what != "starts" or each.kind not in movers or each.at > fleet.read_at:
            continue
        if bundles and each.at - bundles[-1][0].at <= close:
            bundles[-1].append(each)
        else:
            bundles.append([each])
    return [ChartMark(bundle[0].at, _started(bundle)) for bundle in bundles]


def _started(bundle: Sequence[DriverEvent]) -> str:
    names = {(each.kind, each.name) for each in bundle}
    if len(names) > 1:
        return f"{len(names)} drivers start"
    one, again = bundle[0], f" {len(bundle)} times" if len(bundle) > 1 else ""
    return f"{one.kind if find(one.kind).is_one else formatting.shown(one.name, 12)} starts{again}"


def _operation(operation: Operation) -> str:
    """Return `2 games → b`, or what else was done with how many games."""
    games = sum(target.startswith("game:") for target in operation.targets)
    many = f"{games} {'game' if games == 1 else 'games'}"
    groups = {target for _, target in moved(operation).values()}
    if len(groups) == 1:
        return f"{many} → {formatting.shown(groups.pop(), 8)}"[:_LONGEST]
    return f"{operation.kind} {many}"[:_LONGEST]


def _schemas(schemas: Sequence[RegisteredSchema], names: Mapping[str, str]) -> list[ChartMark]:
    """Return a mark per minute in which versions were registered; those of a game that has just come are no change."""
    begun = {each.game_key: each.at for each in schemas if each.version == 1}
    by_minute: dict[int, list[RegisteredSchema]] = {}
    for each in schemas:
        if each.at - begun.get(each.game_key, float("-inf")) > _NEW_GAME_SECONDS:
            by_minute.setdefault(int(each.at // 60), []).append(each)
    marks = []
    for changes in by_minute.values():
        one = changes[0]
        words = f"schema {one.version}" if len(changes) == 1 else f"{len(changes)} schemas"
        name = f" {formatting.shown(names.get(one.game_key, one.game_key), 12)}" if len(changes) == 1 else ""
        marks.append(ChartMark(one.at, f"{words}{name}"[:_LONGEST]))
    return marks
