"""Starts, stops and restarts cluster groups: here it is decided and its effect looked for, the supervisor does it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.control.backends.backend import Limits
from pipeline.control.backends.local import Local
from pipeline.control.backends.starting import STARTING
from pipeline.control.operations.definition import (
    Change,
    ControlContext,
    Offer,
    OperationDefinition,
    OperationProposal,
    StepDefinition,
    StepResult,
    intent_of,
)
from pipeline.control.operations.facts import GameFacts, GroupFacts
from pipeline.control.roles import Role
from pipeline.health.verdicts.liveness import RUNS
from pipeline.platforms.local.signals import STOP_SECONDS
from pipeline.store.assignments import read_assignments
from pipeline.store.backends import backend_kind
from pipeline.store.database.states import OperationKind
from pipeline.store.groups import Group, read_groups, set_desired_state
from pipeline.store.operation_events import TargetEvent
from pipeline.store.operations import Intent, Operation, lock_operation
from pipeline.store.processes.runs import active_drivers, open_runs, reset_restart_budget, submit_stop

_STOPPED_SECONDS: Final = STOP_SECONDS + 60.0
_RUNS_SECONDS: Final = 180.0  # a JVM starts, and every game's table is opened
intent: Final = partial(intent_of, "group")


def plan(kind: str, names: Sequence[str], registered: Mapping[str, Group]) -> dict[str, Any]:
    """Return the groups that an operation changes: group → its desired state now, and its version.

    Raises:
        Refused: a group does not exist, or it is not ours to start.
    """
    unknown = sorted(set(names) - registered.keys())
    if unknown:
        raise Refused(
            f"There is no cluster group {join_limited(unknown)}. Groups: {join_limited(sorted(registered)) or 'none'}."
        )
    chosen = [registered[name] for name in sorted(set(names))]
    for each in chosen:
        if (why := _not_ours(each.name, each.backend)) is not None:
            raise Refused(why)
    return {each.name: [each.desired, each.version] for each in chosen if _changes(kind, each.desired)}


def _not_ours(name: str, backend: str | None) -> str | None:
    if backend is not None and backend_kind(backend).starts:
        return None
    return (
        f"turnout does not start group {name}, which has no backend: do it there, or let the controller run it with "
        f"`turnout groups set {name} --backend local`."
    )


def _changes(kind: str, desired: str) -> bool:
    """Return whether an operation would change anything of a group."""
    return (desired == "stopped") == (kind == OperationKind.START)


def render_preview(kind: str, facts: Mapping[str, Any], games: Mapping[str, int]) -> list[str]:
    """Return what an operation does, as lines for people; `games` counts those of each group."""
    lines = [
        f"group {name}: {'set to run' if facts[name][0] == 'running' else 'stopped'}, {games.get(name, 0)} games"
        for name in facts
    ]
    count = sum(games.get(name, 0) for name in facts)
    what = {
        OperationKind.START: f"{count} games go on from their tables' cursors.",
        OperationKind.STOP: (
            f"{count} games stand still until it is started again; `turnout groups drain` moves them away first."
        ),
        OperationKind.RESTART: (
            f"{count} games go on from their cursors; those that run stand still meanwhile. No other group is touched."
        ),
    }
    return [*lines, f"{len(facts)} to {kind}. {what[OperationKind(kind)]}"]


def _propose(
    kind: OperationKind, engine: Engine, names: Sequence[str], actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    facts = plan(kind, names, read_groups(engine))
    counts = Counter(each.group for each in read_assignments(engine).values() if each.group is not None)
    return OperationProposal(intent(kind, facts, actor, reason, undoes), render_preview(kind, facts, counts))


def _facts(context: ControlContext, operation: Operation) -> Mapping[str, Any]:
    return plan(operation.kind, operation.parameters["groups"], context.read(read_groups))


def _decide(context: ControlContext, operation: Operation) -> StepResult:
    desired = "running" if operation.kind == OperationKind.START else "stopped"
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
    seen = _events("end", "its driver has ended", operation.preview.keys() - old.keys())
    if old:
        return replace(_still_to_end(context, list(old)), seen=seen)
    return StepResult("done", "Their drivers have ended.", seen)


def _events(step: str, fact: str, names: Iterable[str]) -> tuple[TargetEvent, ...]:
    """Return what became of those groups that a step does not wait for any more."""
    return tuple(TargetEvent(f"group:{name}", step, fact) for name in sorted(names))


def _end_old(context: ControlContext, operation: Operation) -> None:
    """Ask old drivers to end. One that nobody has started here can be asked once it is found."""
    for run_id in _old_drivers(context, operation).values():
        if run_id is not None:
            submit_stop(context.engine, run_id)


def _old_drivers(context: ControlContext, operation: Operation) -> dict[str, int | None]:
    """Return the groups that still have a driver of before the operation, and its run where it can be asked to end."""
    runs, drivers = context.read(open_runs), context.read(active_drivers)
    old: dict[str, int | None] = {}
    for name in operation.preview:
        run, driver = runs.get(name), drivers.get(name)
        holder = driver if driver is not None and driver.since <= operation.requested_at else None
        is_old = run is not None and run.started_at <= operation.requested_at
        if is_old or holder is not None:
            requested = run is not None and (is_old or (holder is not None and holder.run_id == run.run_id))
            old[name] = run.run_id if run is not None and requested else None
    return old


def _see_stopped(context: ControlContext, operation: Operation) -> StepResult:
    registered = context.read(read_groups)
    # Where another request changed it since, the last one wins.
    names = {name for name in operation.preview if name in registered and registered[name].desired == "stopped"}
    left = sorted(names & (context.read(open_runs).keys() | context.read(active_drivers).keys()))
    seen = _events("verify", "no driver of it runs", names - set(left))
    if left:
        return replace(_still_to_end(context, left), seen=seen)
    others = sorted(set(operation.preview) - names)
    changed = f" Changed since by another request: {join_limited(others)}." if others else ""
    return StepResult("done", f"No driver runs of {len(names)}.{changed}", seen)


def _still_to_end(context: ControlContext, names: Sequence[str]) -> StepResult:
    """Return whom an operation waits for, and whose end is up to a person: a run that no controller started."""
    registered, drivers = context.read(read_groups), context.read(active_drivers)
    by_person = [
        name
        for name in names
        if (driver := drivers.get(name)) is not None
        and driver.run_id is None
        and (group := registered.get(name)) is not None
        and backend_kind(group.backend).is_job
    ]
    advice = f" A person started {join_limited(by_person)}: cancel that run in the workspace." if by_person else ""
    return StepResult("waiting", f"Still to end: {join_limited(names)}.{advice}")


def _see_running(context: ControlContext, operation: Operation) -> StepResult:
    # Drivers last: of an earlier moment than the runs, one that is gone would have the run of the next.
    runs, registered, drivers = context.read(open_runs), context.read(read_groups), context.read(active_drivers)
    left, starting, runs_now = list[str](), list[str](), list[str]()
    for name in operation.preview:
        if name not in registered or registered[name].desired == "stopped":
            continue  # another request changed it since: the last one wins
        driver = drivers.get(name)
        # A start may find a driver that nobody has asked to end yet: it goes on, and no new one comes.
        goes_on = operation.kind == OperationKind.START and name in runs and runs[name].stop_requested_at is None
        if driver is None or driver.state not in RUNS or not (goes_on or driver.since > operation.requested_at):
            is_new = driver is not None and driver.since > operation.requested_at
            (starting if is_new else left).append(name)
        else:
            runs_now.append(name)
    seen = _events("verify", "its driver reports that it runs", runs_now)
    if left:
        return StepResult("waiting", f"No new driver reports that it runs yet: {join_limited(left)}.", seen)
    if starting:
        return StepResult("waiting", f"A new driver is starting: {join_limited(starting)}.", seen)
    return StepResult("done", "Their drivers report that they run.", seen)


def _end_old_and_see_running(context: ControlContext, operation: Operation) -> StepResult:
    _end_old(context, operation)  # one whose lease had run out may have come back
    return _see_running(context, operation)


def _longest(context: ControlContext, operation: Operation) -> Limits:
    """Return the limits of the slowest backend of an operation's groups."""
    registered = context.read(read_groups)
    backends = {registered[name].backend for name in operation.preview if name in registered}
    known = [STARTING[each].limits for each in backends if each in STARTING] or [Local.limits]
    return max(known, key=lambda limits: limits.start_seconds)


def _until_stopped(context: ControlContext, operation: Operation) -> float:
    return _longest(context, operation).stop_seconds + 60.0


def _until_running(context: ControlContext, operation: Operation) -> float:
    return _longest(context, operation).start_seconds + 60.0


def _done(verb: str, operation: Operation) -> str:
    return f"{verb} and seen: {join_limited(operation.parameters['groups'])}."


def _obstacle(kind: OperationKind, unchanged: str, facts: GroupFacts) -> str | None:
    group = facts.groups[facts.name]
    return _not_ours(group.name, group.backend) or (None if _changes(kind, group.desired) else f"It {unchanged}.")


def _obstacle_of_game(facts: GameFacts) -> str | None:
    if facts.group is None:
        return "No group carries it yet, so there is nothing to restart."
    if (why := _not_ours(facts.group, facts.backend)) is not None:
        return why
    return None if _changes(OperationKind.RESTART, facts.group_desired) else f"Group {facts.group} is stopped."


def _restart_of_game(facts: GameFacts) -> str:
    if facts.group is None:
        return "All games of a group stand still while its driver starts; no row is lost or doubled."
    return (
        f"It and the {facts.neighbours} other games of group {facts.group} stand still while their driver starts; "
        "no row is lost or doubled."
    )


def _they_stand(facts: GroupFacts) -> str:
    count = len(facts.games)
    return "Its only game stands" if count == 1 else f"Its {count} games stand"


def _changed(kind: OperationKind, intended: Intent) -> list[Change]:
    now = _NOW.get(kind)
    return [Change(f"group:{name}", now or desired, _THEN[kind]) for name, (desired, _) in intended.preview.items()]


def _define(
    kind: OperationKind, role: Role, verb: str, unchanged: str, touches: Callable[[GroupFacts], str],
    instead: OperationKind, steps: tuple[StepDefinition, ...], inverse: OperationKind | None = None,
) -> OperationDefinition:  # fmt: skip
    return OperationDefinition(
        kind, role, lambda _: 3, steps, _facts, partial(_done, verb), inverse,
        propose=partial(_propose, kind), unchanged=unchanged, changes=partial(_changed, kind),
        of_group=Offer(partial(_obstacle, kind, unchanged), touches, (instead,)),
    )  # fmt: skip


_THEN: Final[Mapping[OperationKind, str]] = {
    OperationKind.START: "running", OperationKind.STOP: "stopped", OperationKind.RESTART: "a new driver",
}  # fmt: skip
_NOW: Final[Mapping[OperationKind, str]] = {OperationKind.RESTART: "the driver that it has"}
"""What is changed where that is not the desired state."""

_DECIDES: Final = StepDefinition("decide", _decide, 30.0)
_RUNS: Final = StepDefinition("verify", _see_running, _RUNS_SECONDS, verifies=True, looks=True, patience=_until_running)
_RUNS_AGAIN: Final = replace(_RUNS, act=_end_old_and_see_running, looks=False, seen=_see_running)
_ENDS: Final = StepDefinition(
    "verify", _see_stopped, _STOPPED_SECONDS, verifies=True, looks=True, patience=_until_stopped
)
_ENDS_OLD: Final = StepDefinition("end", _end, _STOPPED_SECONDS, seen=_see_ended, patience=_until_stopped)
START: Final = _define(
    OperationKind.START, Role.MOVER, "Started", "is set to run already",
    lambda facts: f"The controller starts its driver; its {len(facts.games)} games go on from their cursors.",
    OperationKind.RESTART, (_DECIDES, _RUNS), OperationKind.STOP,
)  # fmt: skip
STOP: Final = _define(
    OperationKind.STOP, Role.MOVER, "Stopped", "is stopped already",
    lambda facts: f"{_they_stand(facts)} still until it is started again.", OperationKind.START,
    (_DECIDES, _ENDS),
    OperationKind.START,
)  # fmt: skip
RESTART: Final = replace(
    _define(
        OperationKind.RESTART, Role.OPERATOR, "Restarted", "is stopped",
        lambda facts: f"{_they_stand(facts)} still while its driver starts; no row is lost or doubled.",
        OperationKind.START, (_ENDS_OLD, _RUNS_AGAIN),
    ),
    of_game=Offer(
        _obstacle_of_game, _restart_of_game, (OperationKind.RETRY, OperationKind.REBUILD), repairs=True,
        is_of_its_group=True,
    ),
)  # fmt: skip
