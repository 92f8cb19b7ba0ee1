"""Accepts and withdraws event types of a game: their schemas are registered again, then rows that waited are replayed.

The replay begins once the game's driver writes its rows by the new schema set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    ControlContext,
    OperationProposal,
    StepResult,
    intent_of,
)
from pipeline.control.operations.repairs import REPLAY
from pipeline.control.operations.settling import registering
from pipeline.data.contracts.breaches import breach_lines
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.further_types import accepting, game_types, withdrawing
from pipeline.data.contracts.plans import RegistrationPlan, render_plan
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registrations import Registered, Registration
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.lake.storage.location import Location
from pipeline.store.database.states import OperationKind
from pipeline.store.games import find, known_names
from pipeline.store.operations import Intent, Operation, lock_operation, operation


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
    registry = LocalRegistry(engine, bronze)
    facts, plans = _plan(kind, registry, engine, key, types, actor, policies)
    intent = intent_of("game", kind, {key: facts}, actor, reason)
    more = {"types": sorted(facts), "refused_for": "other_type", "policies": list(policies)}
    lines = [line for plan in plans for line in render_plan(plan)]
    lines += breach_lines(engine, registry.snapshot(), plans)
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


def _done(verb: str, asked: Operation) -> str:
    return f"{verb}: {join_limited(asked.parameters['types'])} of {join_limited(asked.parameters['games'])}."


ACCEPT: Final = registering(
    OperationKind.ACCEPT_TYPE, _register, _facts, partial(_done, "Accepted"),
    partial(_propose, OperationKind.ACCEPT_TYPE), "has these event types already", OperationKind.WITHDRAW_TYPE,
    *REPLAY.steps,
)  # fmt: skip
WITHDRAW: Final = registering(
    OperationKind.WITHDRAW_TYPE, _register, _facts, partial(_done, "Withdrawn"),
    partial(_propose, OperationKind.WITHDRAW_TYPE), "has no such event type", OperationKind.ACCEPT_TYPE,
)  # fmt: skip
