"""Accepts and withdraws event types of a game: their schemas are registered again, then rows that waited are replayed.

Rows that a pass refused while it still had the earlier schema set would be left behind by a replay that comes too soon,
so the operation waits until the game's driver reports that it writes its rows by the new one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Engine

from listeners.sample import Lane
from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    ControlContext,
    OperationDefinition,
    OperationProposal,
    StepDefinition,
    StepResult,
    intent_of,
    of_one_game,
)
from pipeline.control.operations.repairs import REPLAY
from pipeline.control.roles import Role
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.further_types import accepting, game_types, withdrawing
from pipeline.data.contracts.plans import RegistrationPlan, render_plan
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registrations import Registered, Registration
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.lake.storage.location import Location
from pipeline.store.assignments import read_assignments
from pipeline.store.database.states import OperationKind
from pipeline.store.games import find, known_names
from pipeline.store.operations import Intent, Operation, lock_operation, operation, steps
from pipeline.store.schema_versions import newest_registrations

_SETTLE_PASSES: Final = 2.0  # triggers until a pass with the earlier schema set has ended
_NOT_READ: Final = frozenset({Lane.PAUSED, Lane.QUARANTINED})


def propose_types(
    kind: OperationKind, engine: Engine, bronze: Location | None, game: str, types: Sequence[str], actor: str,
    reason: str = "", policies: Sequence[str] = (),
) -> OperationProposal:  # fmt: skip
    """Plan to accept or to withdraw event types of a game, named by key or name; types by full or last name.

    `policies` are those of an acceptance for changes that no column can hold, such as `name=side-column`.

    Raises:
        Refused: there is no such game, no such type waits or was accepted, or its schemas cannot be registered.
    """
    key = find(game, known_names(engine)).key
    facts, plans = _plan(kind, LocalRegistry(engine, bronze), engine, key, types, actor, policies)
    intent = intent_of("game", kind, {key: facts}, actor, reason)
    more = {"types": sorted(facts), "refused_for": "other_type", "policies": list(policies)}
    lines = [line for plan in plans for line in render_plan(plan)]
    return OperationProposal(_with(intent, more), [*lines, *_CONSEQUENCES[kind]])


_CONSEQUENCES: Final[Mapping[OperationKind, Sequence[str]]] = {
    OperationKind.ACCEPT_TYPE: ["Then its rows that wait as other_type are replayed. No other table is touched."],
    OperationKind.WITHDRAW_TYPE: [
        "Its next rows wait in quarantine as other_type. Rows that landed stay until a rebuild, and the column stays."
    ],
}


def _with(intent: Intent, more: Mapping[str, Any]) -> Intent:
    return Intent(
        intent.kind, intent.targets, intent.actor, intent.reason, {**intent.parameters, **more}, intent.preview,
        undoes=intent.undoes,
    )  # fmt: skip


def _plan(
    kind: str, registry: LocalRegistry, engine: Engine, key: GameKey, types: Sequence[str], actor: str,
    policies: Sequence[str],
) -> tuple[dict[str, str], list[RegistrationPlan]]:  # fmt: skip
    """Return what an operation is about: each type's plans, by hash; and the plans themselves."""
    registering = _registrations(kind, registry, engine, key, types, actor, policies)
    plans = registry.plan_all(registering)
    names = {each.name: each.names for each in game_types(registry.snapshot(), key)}
    facts: dict[str, str] = {}
    for plan in plans:
        name = next(each for each, own in names.items() if event_type(plan.message) in own)
        facts[name] = f"{facts.get(name, '')} {plan.hash}".strip()
    return facts, plans


def _registrations(
    kind: str, registry: LocalRegistry, engine: Engine, key: GameKey, types: Sequence[str], actor: str,
    policies: Sequence[str],
) -> list[Registration]:  # fmt: skip
    game = known_names(engine)[key]
    if kind == OperationKind.ACCEPT_TYPE:
        return accepting(registry.snapshot(), key, game, types, actor, parse_policies(policies))
    return withdrawing(registry.snapshot(), key, game, types, actor)


def _propose(
    kind: OperationKind, engine: Engine, names: Sequence[str], actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    """Plan the inverse of an operation, about the types that it named."""
    if undoes is None:
        raise Refused(f"Name the event types: `turnout schemas {kind} GAME TYPE`.")
    done = operation(engine, undoes)
    proposal = propose_types(kind, engine, None, names[0], done.parameters["types"], actor, reason)
    return replace(proposal, intent=replace(proposal.intent, undoes=undoes))


def _facts(context: ControlContext, asked: Operation) -> Mapping[str, Any]:
    registry = context.registry
    found = {}
    for key in asked.parameters["games"]:
        given = asked.parameters["types"], asked.actor, asked.parameters["policies"]
        found[key], _ = _plan(asked.kind, registry, context.engine, GameKey(key), *given)
    return found


def _register(context: ControlContext, asked: Operation) -> StepResult:
    """Register the schemas again, all in one transaction; what a killed controller has done is not done again."""
    registry = context.registry
    wanted = "accepted" if asked.kind == OperationKind.ACCEPT_TYPE else "withdrawn"
    types = asked.parameters["types"]

    def within(connection: Connection, _: list[Registered]) -> None:
        lock_operation(connection, asked)

    for key in asked.parameters["games"]:
        there = {name for each in game_types(registry.snapshot(), GameKey(key)) if each.state == wanted
                 for name in each.names}  # fmt: skip
        if left := [each for each in types if each not in there]:
            given = left, asked.actor, asked.parameters["policies"]
            registering = _registrations(asked.kind, registry, context.engine, GameKey(key), *given)
            registry.register_many(registering, within)
    return StepResult("done", f"{join_limited(types)}: {wanted}.")


def settle(context: ControlContext, asked: Operation) -> StepResult:
    """Wait until the game's driver, where one runs, writes its rows by the new schema set.

    A driver that has just started does not know it before its first pass: then two triggers are enough.
    """
    began = max(each.ended_at or 0.0 for each in steps(context.engine, asked.operation_id) if each.name == "register")
    until = began + _SETTLE_PASSES * context.settings.demux.trigger_seconds
    assignments, numbers = context.read(read_assignments), newest_registrations(context.engine)
    groups = read_group_liveness(context.engine, context.settings.metrics)
    waiting = []
    for key in asked.parameters["games"]:
        if (assignment := assignments.get(key)) is None:
            continue  # no row of it has come yet
        group = groups.get(assignment.group or "")
        if group is None or not group.liveness.is_live or assignment.lane in _NOT_READ:
            continue  # no driver reads its rows, and the next one begins with the newest set
        if assignment.schema_set is None:
            has_settled = (assignment.reported_at or 0.0) > until
        else:
            has_settled = assignment.schema_set >= numbers.get(key, 0)
        if not has_settled:
            waiting.append(key)
    if waiting:
        return StepResult("waiting", f"The driver of {join_limited(waiting)} still writes by the earlier schema set.")
    return StepResult("done", "Passes use the new schema set.")


def _done(verb: str, asked: Operation) -> str:
    return f"{verb}: {join_limited(asked.parameters['types'])} of {join_limited(asked.parameters['games'])}."


def _define(
    kind: OperationKind, verb: str, unchanged: str, inverse: OperationKind, *more: StepDefinition
) -> OperationDefinition:
    given = (
        StepDefinition("register", _register, 30.0),
        StepDefinition("settle", settle, 300.0, verifies=not more, looks=True),
    )
    return OperationDefinition(
        kind, Role.OPERATOR, of_one_game(1), (*given, *more), _facts, partial(_done, verb), inverse,
        propose=partial(_propose, kind), unchanged=unchanged,
    )  # fmt: skip


ACCEPT: Final = _define(
    OperationKind.ACCEPT_TYPE, "Accepted", "has these event types already", OperationKind.WITHDRAW_TYPE, *REPLAY.steps
)
WITHDRAW: Final = _define(OperationKind.WITHDRAW_TYPE, "Withdrawn", "has no such event type", OperationKind.ACCEPT_TYPE)
