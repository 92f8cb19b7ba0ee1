"""Splits the games of a group whose driver dies again and again, until the game that kills it is alone.

Who killed a driver nobody says. But a game that it had in hand each time it died is a suspect; half of the suspects get
a group of their own, and whichever half's driver goes on dying is halved again. A death of which nobody knows what was
in hand says nothing: a driver on another machine writes it down only after its group has died once.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.base.texts import join_limited
from pipeline.control.operations import moves
from pipeline.control.operations.definition import (
    ControlContext,
    OperationDefinition,
    StepDefinition,
    StepResult,
)
from pipeline.control.roles import CONTROLLER, Role
from pipeline.health.facts.placing import placing_by
from pipeline.store.assignments import GameAssignment
from pipeline.store.database.states import OperationKind
from pipeline.store.groups import Group, create, read_groups
from pipeline.store.operations import Intent, Operation
from pipeline.store.processes.runs import DEATHS_COUNT_SECONDS, Run

_DEATHS: Final = 2
_PREFIX: Final = "solo-"


def suspects(ended: Sequence[Run], carried: Mapping[str, GameAssignment], now: float) -> list[str]:
    """Return the games to take out of a group whose runs ended so, the newest first; none where nothing is suspected.

    `carried` are the group's games. A game without rows to come had nothing that could kill; one that is alone in its
    group stays there.
    """
    known = [run for run in ended if run.died and run.active_games is not None]
    lately = [run for run in known if now - (run.ended_at or 0.0) <= DEATHS_COUNT_SECONDS]
    # Where a game that was in hand has left the group since, that one may be to blame, and nothing new is known.
    deaths = [set(games) for run in lately[:_DEATHS] if set(games := _games_in_progress(run)) <= carried.keys()]
    if len(deaths) < _DEATHS or len(carried) <= 1:
        return []
    common = set.intersection(*deaths)
    common = {key for key in common if (carried[key].cursor_seq or 0) < carried[key].last_seq}
    return sorted(common)[: max(1, len(common) // 2)] if common else []


def intent(
    source: Group, ended: Sequence[Run], assignments: Mapping[str, GameAssignment], taken: Sequence[str], now: float
) -> Intent | None:
    """Return the operation that moves the suspects of a group into a new one, None where nothing is suspected.

    `taken` are the names of the groups there are.
    """
    games = suspects(
        ended, {key: assignment for key, assignment in assignments.items() if assignment.group == source.name}, now
    )
    if not games:
        return None
    number = next(number for number in range(1, len(taken) + 2) if f"{_PREFIX}{number}" not in taken)
    target = f"{_PREFIX}{number}"
    preview = {key: [assignments[key].group, target, assignments[key].epoch] for key in games}
    targets = (f"group:{target}", *(f"game:{key}" for key in games))
    parameters = {"assignments": dict.fromkeys(games, target), "like": source.name, "group": target}
    reason = (
        f"Group {source.name} died {_DEATHS} times within {DEATHS_COUNT_SECONDS / 60:.0f} minutes with these games in "
        f"hand; the last time: {ended[0].exit_message}"
    )
    return Intent(
        OperationKind.ISOLATE,
        targets,
        CONTROLLER,
        reason,
        parameters,
        preview,
        idempotency_key=f"isolate-run-{ended[0].run_id}",
    )


def _make(context: ControlContext, operation: Operation) -> StepResult:
    """Make the group; desired `drained`, so that no other game is placed beside a suspect."""
    name, like = operation.parameters["group"], operation.parameters["like"]
    registered = read_groups(context.engine)
    if name not in registered:
        source = registered[like]
        group = Group(name, source.backend, "drained", None, source.priority, source.spark_master)
        create(context.engine, group, CONTROLLER, operation.reason, placing_by(context.settings))
    return StepResult("done", f"Group {name} is there; the controller starts its driver.")


def _done(operation: Operation) -> str:
    games = list(operation.parameters["assignments"])
    return f"In group {operation.parameters['group']} now, without the others: {join_limited(games)}."


ISOLATE: Final = OperationDefinition(
    OperationKind.ISOLATE,
    Role.MOVER,
    lambda _: 3,
    (StepDefinition("make", _make, 30.0), *moves.MOVE.steps),
    moves.MOVE.facts,
    _done,
)


def _games_in_progress(run: Run) -> list[str]:
    active: list[str] = json.loads(run.active_games or "[]")
    return active
