"""Nests the first event type of a game, whose fields are columns of its table, in a struct column, or flattens it.

The schemas are registered again with their new place, the driver writes by them, and a rebuild moves older rows.
Until its switch readers see old rows in their old columns.
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
    StepDefinition,
    StepResult,
    intent_of,
)
from pipeline.control.operations.repairs import REBUILD
from pipeline.control.operations.settling import registering
from pipeline.control.operations.tries import worked
from pipeline.data.contracts.further_types import flattening, game_types, nesting
from pipeline.data.contracts.plans import RegistrationPlan, render_plan
from pipeline.data.contracts.registrations import Registered, Registration
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.report import render_rebuilt
from pipeline.lake.delta.log import exists
from pipeline.store.database.states import OperationKind
from pipeline.store.games import Game, find, known_names
from pipeline.store.operations import Operation, lock_operation, operation

_WORK_SECONDS: Final = 6 * 3600.0  # a game's whole bronze may be read
_LINE: Final = (
    "Then the table is rebuilt: one commit replaces its files and columns, and until then the old ones serve."
)


def propose_nesting(engine: Engine, game: str, actor: str, reason: str = "") -> OperationProposal:
    """Plan to nest the first type of a game, named by key or name.

    Raises:
        Refused: there is no such game, or no type of it can be nested.
    """
    found = find(game, known_names(engine))
    name, _ = nesting(LocalRegistry(engine, None).snapshot(), found.key, found.name, actor)
    return _proposal(OperationKind.NEST_TYPE, engine, found.key, name, actor, reason, None)


def _proposal(
    kind: OperationKind, engine: Engine, key: GameKey, name: str, actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    plans = _plans(kind, LocalRegistry(engine, None), engine, key, name, actor)
    facts: dict[str, list[str]] = {key: [each.hash for each in plans]}
    intent = intent_of("game", kind, facts, actor, reason, undoes)
    intent = replace(intent, parameters={**intent.parameters, "types": [name]})
    return OperationProposal(intent, [*(line for plan in plans for line in render_plan(plan)), _LINE])


def _plans(
    kind: str, registry: LocalRegistry, engine: Engine, key: GameKey, name: str, actor: str
) -> list[RegistrationPlan]:
    return registry.plan_all(_registrations(kind, registry, engine, key, name, actor))


def _registrations(
    kind: str, registry: LocalRegistry, engine: Engine, key: GameKey, name: str, actor: str
) -> list[Registration]:
    schemas, game = registry.snapshot(), known_names(engine)[key]
    if kind == OperationKind.FLATTEN_TYPE:
        return flattening(schemas, key, game, name, actor)
    first, registering = nesting(schemas, key, game, actor)
    if first != name:
        raise Refused(f"The fields of {first} are columns of the table, not those of {name}. Plan again.")
    return registering


def _propose(
    kind: OperationKind, engine: Engine, names: Sequence[str], actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    """Plan the inverse of an operation, about the type that it named."""
    key = find(names[0], known_names(engine)).key
    if undoes is None:
        return propose_nesting(engine, key, actor, reason)
    (name,) = operation(engine, undoes).parameters["types"]
    return _proposal(kind, engine, key, name, actor, reason, undoes)


def _facts(context: ControlContext, asked: Operation) -> Mapping[str, Any]:
    (key,), (name,) = asked.parameters["games"], asked.parameters["types"]
    plans = _plans(asked.kind, context.registry, context.engine, GameKey(key), name, asked.actor)
    return {key: [each.hash for each in plans]}


def _register(context: ControlContext, asked: Operation) -> StepResult:
    """Register the schemas again, all in one transaction; what a killed controller has done is not done again."""
    (key,), (name,) = asked.parameters["games"], asked.parameters["types"]
    registry, is_nesting = context.registry, asked.kind == OperationKind.NEST_TYPE
    (of,) = (each for each in game_types(registry.snapshot(), GameKey(key)) if name in each.names)

    def within(connection: Connection, _: list[Registered]) -> None:
        lock_operation(connection, asked)

    if (of.state == "first") == is_nesting:
        registering = _registrations(asked.kind, registry, context.engine, GameKey(key), name, asked.actor)
        registry.register_many(registering, within)
    return StepResult("done", f"{name}: {'nested' if is_nesting else 'flat'} from the next pass on.")


def _rebuild(context: ControlContext, asked: Operation) -> StepResult:
    return worked(context, asked, partial(_rebuilt, context, asked), "The table is being rebuilt; the old one serves.")


def _rebuilt(context: ControlContext, asked: Operation) -> str:
    (key,) = asked.parameters["games"]
    if not exists(context.paths.table(GameKey(key))):
        return "It has no table yet."
    game = Game(GameKey(key), known_names(context.engine)[GameKey(key)])
    environment, schemas = context.settings.environment, context.registry.snapshot
    return render_rebuilt(rebuild(context.paths, environment, context.engine, schemas, game))


def _done(verb: str, asked: Operation) -> str:
    return f"{verb}: {join_limited(asked.parameters['types'])} of {join_limited(asked.parameters['games'])}."


_REBUILD: Final = (
    StepDefinition("rebuild", _rebuild, _WORK_SECONDS, reports=True),
    next(each for each in REBUILD.steps if each.name == "verify"),
)

NEST: Final = registering(
    OperationKind.NEST_TYPE, _register, _facts, partial(_done, "Nested"), partial(_propose, OperationKind.NEST_TYPE),
    "has no type with columns of the table", OperationKind.FLATTEN_TYPE, *_REBUILD, level=2,
)  # fmt: skip
FLATTEN: Final = registering(
    OperationKind.FLATTEN_TYPE, _register, _facts, partial(_done, "Flattened"),
    partial(_propose, OperationKind.FLATTEN_TYPE), "has a type with columns of the table", OperationKind.NEST_TYPE,
    *_REBUILD, level=2,
)  # fmt: skip
