"""Starts, stops and restarts cluster groups: here it is decided and its effect looked for, the supervisor does it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pipeline.control.operations.executor import (
    ControlContext,
    OperationDefinition,
    StepDefinition,
    StepResult,
)
from pipeline.control.processes.backends import reference_of
from pipeline.control.processes.signals import STOP_SECONDS
from pipeline.errors import Refused
from pipeline.health.liveness import RUNS
from pipeline.lists import join_limited
from pipeline.store.groups import (
    Group,
    active_drivers,
    ask_to_stop,
    open_runs,
    read_groups,
    reset_restart_budget,
    set_desired_state,
)
from pipeline.store.operations import Intent, Operation, lock_operation

_STOPPED_SECONDS: Final = STOP_SECONDS + 60.0
_RUNS_SECONDS: Final = 180.0  # a JVM starts, and every game's table is opened
INVERSE: Final = {"start": "stop", "stop": "start"}


def plan(kind: str, names: Sequence[str], registered: Mapping[str, Group]) -> dict[str, Any]:
    """Return what an operation is about, group → what is wanted now and its version; those already so are left out.

    Raises:
        Refused: a group does not exist, or it is not ours to start.
    """
    unknown = sorted(set(names) - registered.keys())
    if unknown:
        raise Refused(
            f"There is no cluster group {join_limited(unknown)}. Groups: {join_limited(sorted(registered)) or 'none'}."
        )
    foreign = sorted(name for name in set(names) if registered[name].backend == "none")
    if foreign:
        raise Refused(
            f"turnout does not start group {join_limited(foreign)}, which has no backend: {kind} it there, or let the "
            f"controller run it with `turnout groups set {foreign[0]} --backend local`."
        )
    affected = {name: registered[name] for name in sorted(set(names))}
    if kind == "restart":
        affected = {name: each for name, each in affected.items() if each.desired != "stopped"}
    else:
        affected = {name: each for name, each in affected.items() if (each.desired == "stopped") == (kind == "start")}
    return {name: [each.desired, each.version] for name, each in affected.items()}


def intent(kind: str, facts: Mapping[str, Any], actor: str, reason: str, undoes: str | None = None) -> Intent:
    """Return the operation to ask for; `undoes` is the one it is the inverse of."""
    targets = tuple(f"group:{name}" for name in facts)
    return Intent(kind, targets, actor, reason, {"groups": sorted(facts)}, facts, undoes=undoes)


def render_preview(kind: str, facts: Mapping[str, Any], games: Mapping[str, int]) -> list[str]:
    """Return what an operation does, as lines for people; `games` counts those of each group."""
    lines = [f"group {name}: {facts[name][0]}, {games.get(name, 0)} games" for name in facts]
    count = sum(games.get(name, 0) for name in facts)
    what = {
        "start": f"{count} games go on from their tables' cursors.",
        "stop": f"{count} games stand still until it is started again; `turnout groups drain` moves them away first.",
        "restart": f"{count} games stand still meanwhile and go on from their cursors. No other group is touched.",
    }
    return [*lines, f"{len(facts)} to {kind}. {what[kind]}"]


def _facts(context: ControlContext, operation: Operation) -> Mapping[str, Any]:
    return plan(operation.kind, operation.parameters["groups"], context.read(read_groups))


def _decide(context: ControlContext, operation: Operation) -> StepResult:
    desired = "running" if operation.kind == "start" else "stopped"
    with context.engine.begin() as connection:
        lock_operation(connection, operation)
        for name, (_, version) in operation.preview.items():
            set_desired_state(connection, name, version, desired)
    for name in operation.preview:
        reset_restart_budget(context.engine, name)
    return StepResult("done", f"Decided for {len(operation.preview)}.")


def _end(context: ControlContext, operation: Operation) -> StepResult:
    """Ask the drivers to end that began before the operation was requested; the supervisor sees to it."""
    for name in operation.preview:
        reset_restart_budget(context.engine, name)
    _end_old(context, operation)
    return _see_ended(context, operation)


def _see_ended(context: ControlContext, operation: Operation) -> StepResult:
    old = _old_drivers(context, operation)
    if old:
        return StepResult("waiting", f"Still to end: {join_limited(list(old))}.")
    return StepResult("done", "Their drivers have ended.")


def _end_old(context: ControlContext, operation: Operation) -> None:
    """Ask old drivers to end. One that nobody has started here can be asked once it is found."""
    for run_id in _old_drivers(context, operation).values():
        if run_id is not None:
            ask_to_stop(context.engine, run_id)


def _old_drivers(context: ControlContext, operation: Operation) -> dict[str, int | None]:
    """Return the groups that still have a driver of before the operation, and its run where it can be asked to end."""
    runs, drivers = context.read(open_runs), context.read(active_drivers)
    old: dict[str, int | None] = {}
    for name in operation.preview:
        run, driver = runs.get(name), drivers.get(name)
        holder = driver.process if driver is not None and driver.since <= operation.requested_at else None
        is_old = run is not None and run.started_at <= operation.requested_at
        if is_old or holder is not None:
            asked = run is not None and (is_old or (holder is not None and run.reference == reference_of(holder)))
            old[name] = run.run_id if run is not None and asked else None
    return old


def _see_stopped(context: ControlContext, operation: Operation) -> StepResult:
    registered = context.read(read_groups)
    # Where another request changed it since, the last one wins.
    names = {name for name in operation.preview if name in registered and registered[name].desired == "stopped"}
    left = sorted(names & (context.read(open_runs).keys() | context.read(active_drivers).keys()))
    if left:
        return StepResult("waiting", f"Still to end: {join_limited(left)}.")
    others = sorted(set(operation.preview) - names)
    wished = f" Changed since by another request: {join_limited(others)}." if others else ""
    return StepResult("done", f"No driver runs of {len(names)}.{wished}")


def _see_running(context: ControlContext, operation: Operation) -> StepResult:
    drivers, registered, runs = context.read(active_drivers), context.read(read_groups), context.read(open_runs)
    left = []
    for name in operation.preview:
        if name not in registered or registered[name].desired == "stopped":
            continue  # another request changed it since: the last one wins
        driver = drivers.get(name)
        # A start may find a driver that nobody has asked to end yet: it goes on, and no new one comes.
        goes_on = operation.kind == "start" and name in runs and runs[name].stop_requested_at is None
        if driver is None or driver.state not in RUNS or not (goes_on or driver.since > operation.requested_at):
            left.append(name)
    if left:
        return StepResult("waiting", f"No new driver reports that it runs yet: {join_limited(left)}.")
    return StepResult("done", "Their drivers report that they run.")


def _end_old_and_see_running(context: ControlContext, operation: Operation) -> StepResult:
    _end_old(context, operation)  # one whose lease had run out may have come back
    return _see_running(context, operation)


def _done(operation: Operation) -> str:
    verbs = {"start": "Started and seen", "stop": "Stopped and seen", "restart": "Restarted and seen"}
    return f"{verbs[operation.kind]}: {join_limited(operation.parameters['groups'])}."


_RUNS: Final = StepDefinition("verify", _see_running, _RUNS_SECONDS, verifies=True, looks=True)
_RUNS_AGAIN: Final = replace(_RUNS, act=_end_old_and_see_running, looks=False, seen=_see_running)
KINDS: Final = {
    "start": OperationDefinition("start", (StepDefinition("decide", _decide, 30.0), _RUNS), _facts, _done),
    "stop": OperationDefinition(
        "stop",
        (
            StepDefinition("decide", _decide, 30.0),
            StepDefinition("verify", _see_stopped, _STOPPED_SECONDS, verifies=True, looks=True),
        ),
        _facts,
        _done,
    ),
    "restart": OperationDefinition(
        "restart", (StepDefinition("end", _end, _STOPPED_SECONDS, seen=_see_ended), _RUNS_AGAIN), _facts, _done
    ),
}
