"""Declares an event type by the JSON Schema of the columns that followed from its documents, and withdraws it again.

The type's superset is tried first, so no value moves. The schema follows from the newest superset alone, so a killed
controller registers the same.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
from sqlalchemy import Connection, Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, shown
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    CHANGED,
    ControlContext,
    OperationProposal,
    StepResult,
    intent_of,
)
from pipeline.control.operations.repairs import REPLAY
from pipeline.control.operations.settling import registering
from pipeline.data.contracts.declared_types import FORMAT
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.json.declaring import definition_of
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.plans import RegistrationPlan, render_plan
from pipeline.data.contracts.registrations import Registered, Registration
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.contracts.shape import has_columns, placed_columns
from pipeline.data.variations.registering import newest_supersets
from pipeline.store.database.states import OperationKind
from pipeline.store.games import Game, find, known_names
from pipeline.store.operations import Operation, lock_operation, operation

_MOST_COLUMNS: Final = 20  # of a preview
_MOST_LINES: Final = 40  # of a schema in a preview
_REASON: Final = "malformed_payload"  # of a document that neither its type's superset nor the declared schema takes


@dataclass(frozen=True, slots=True)
class Declaration:
    """The schema that declares an event type as its documents came."""

    game: Game
    type: str  # as documents give it
    definition: bytes  # the JSON Schema, as text for people
    columns: tuple[str, ...]  # those of the table that it has
    superset: Schema  # the newest one of the type
    placement: FieldPlacement  # its
    schema: Schema | None  # the game's schema of this very definition, where it has that

    @property
    def registration(self) -> Registration:
        """The registration of the schema."""
        return Registration(self.game.name, self.superset.message, self.definition, format=FORMAT)

    @property
    def fingerprint(self) -> str:
        """The id of the definition, 16 hex digits of a hash."""
        return hashlib.sha256(self.definition).hexdigest()[:16]


def declaration_of(known: SchemaSet, game: Game, name: str) -> Declaration:
    """Return the schema that declares an event type of a game.

    Raises:
        Refused: no columns of such a type follow from documents, it waits to be accepted, or a key cannot be declared.
    """
    newest = newest_supersets(known, game.key)
    if (own := newest.get(event_type(name))) is None:
        listed = join_limited(sorted(map(shown, newest)), 10) or "none"
        raise Refused(f"{shown(name)} is no undeclared event type of {shown(game.name)}. Such are: {listed}.")
    at = known.placement(game.key, own.schema_id)
    if at.other_type:
        raise Refused(
            f"{shown(name)} is not accepted as an event type of {shown(game.name)}. "
            f"Run `turnout schemas accept-type` first."
        )
    text = definition_of(own.message, superset_of(own))
    canonical = format_of(FORMAT).canonical(own.message, text)
    held = (each for each in known.of(game.key) if (each.format, each.definition) == (FORMAT, canonical))
    columns = tuple(placed_columns(own, replace(at, struct=None)).names)
    return Declaration(game, name, text, columns, own, at, next(held, None))


def propose_declaration(
    kind: OperationKind, registry: LocalRegistry, engine: Engine, game: str, name: str, actor: str, reason: str = "",
) -> OperationProposal:  # fmt: skip
    """Plan to declare an event type of a game (name or key) as its documents came, or to withdraw that.

    Raises:
        Refused: there is no such game or type, it has that state already, the schema would have other columns, or a
            schema of the type that differs is declared.
    """
    found = find(game, known_names(engine))
    facts, lines, _ = _LOOKS[kind](registry, found, name)
    intent = intent_of("game", kind, {found.key: facts}, actor, reason)
    more = {"type": name, "fingerprint": facts.split()[-1], "refused_for": _REASON}
    return OperationProposal(replace(intent, parameters={**intent.parameters, **more}), lines)


_Look: TypeAlias = tuple[str, list[str], RegistrationPlan]


def _look_before(registry: LocalRegistry, game: Game, name: str) -> _Look:
    """Return what a declaration is about, which must not change until it begins, and its plan in lines."""
    known = registry.snapshot()
    declaration = declaration_of(known, game, name)
    if (other := _declared(known, game.key, name)) is not None:
        raise Refused(f"{shown(name)} of {shown(game.name)} is declared already, as schema {other.schema_id}.")
    plan = _checked_plan(registry, declaration)
    superset, columns = superset_of(declaration.superset), list(declaration.columns)
    stay = join_limited(columns, _MOST_COLUMNS)
    lines = [
        f"declare {shown(name)} of {shown(game.name)}, as version {plan.version}, by the JSON Schema below",
        f"  {len(columns):,} column(s) stay, and no value moves: {stay}",
        "  A later document lands as before where these columns take it, or else where the schema takes it.",
        f"  All others go to quarantine as {_REASON}. The type gets no further columns by itself.",
    ]
    if superset.refused:
        lines.append(f"  Documents of {len(superset.refused):,} refused variation(s) land where the schema takes them.")
    return (
        f"{name}: {plan.hash} {declaration.fingerprint}",
        [*lines, *list(render_plan(plan))[1:-1], *_preview(declaration.definition)],
        plan,
    )


def _look_after(registry: LocalRegistry, game: Game, name: str) -> _Look:
    """Return what a withdrawal is about, which must not change until it begins, and its plan in lines."""
    known = registry.snapshot()
    declaration = declaration_of(known, game, name)
    if declaration.schema is None or _declared(known, game.key, name) is None:
        raise Refused(
            f"{shown(name)} of {shown(game.name)} is not declared as its documents came. "
            f"`turnout schemas declare` does so."
        )
    if (other := _declared(known, game.key, name, but=declaration.schema)) is not None:
        raise Refused(
            f"{shown(name)} of {shown(game.name)} has the declared schema {other.schema_id}, too, whose columns may be "
            f"others. Leave it declared."
        )
    plan = registry.require_possible(replace(declaration.registration, undeclares=True))
    lines = [
        f"undeclare {shown(name)} of {shown(game.name)}: {len(declaration.columns):,} column(s) stay",
        "  Rows that landed stay until a rebuild. Documents with something new get columns again.",
        f"  Then its rows that wait as {_REASON} are replayed. No other table is touched.",
    ]
    return f"{name}: {plan.hash} {declaration.fingerprint}", lines, plan


_LOOKS: Final = {OperationKind.DECLARE_TYPE: _look_before, OperationKind.UNDECLARE_TYPE: _look_after}


def _preview(definition: bytes) -> list[str]:
    """Return the first lines of a schema; a key in it may have any character."""
    lines = json.dumps(json.loads(definition), indent=2).split("\n")
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], f"and {more:,} more lines, which --print prints"]


def _declared(known: SchemaSet, key: GameKey, name: str, but: Schema | None = None) -> Schema | None:
    """Return a declared schema of an event type by which rows land."""
    own = (schema for schema, at in known.placed(key) if schema.format == FORMAT and at.quarantined is None)
    return next((each for each in own if event_type(each.message) == event_type(name) and each != but), None)


def _checked_plan(registry: LocalRegistry, declaration: Declaration) -> RegistrationPlan:
    """Return the plan of a declaration, whose columns are those of the table.

    Raises:
        Refused: the schema would have others, or cannot be registered.
    """
    plan = registry.require_possible(declaration.registration)
    own = Schema(0, FORMAT, declaration.superset.message, declaration.definition)
    held = placed_columns(declaration.superset, declaration.placement)
    if moved := [each.name for each in placed_columns(own, plan.placement) if not has_columns(held, pa.schema([each]))]:
        raise Refused(
            f"A declared schema would have other columns than the table: {join_limited(moved, 10)}. "
            f"Leave {shown(declaration.type)} undeclared, or register a schema of your own."
        )
    return plan


def _propose(
    kind: OperationKind, engine: Engine, names: Sequence[str], actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    """Plan the inverse of an operation, about the type that it named."""
    if undoes is None:
        raise Refused(f"Name the event type: `turnout schemas {kind} GAME --type TYPE`.")
    name = operation(engine, undoes).parameters["type"]
    proposal = propose_declaration(kind, LocalRegistry(engine), engine, names[0], name, actor, reason)
    return replace(proposal, intent=replace(proposal.intent, undoes=undoes))


def _facts(context: ControlContext, asked: Operation) -> Mapping[str, Any]:
    known, name, facts = known_names(context.engine), asked.parameters["type"], dict[str, str]()
    for key in asked.parameters["games"]:
        facts[key], _, plan = _LOOKS[OperationKind(asked.kind)](context.registry, find(key, known), name)
        if asked.kind == OperationKind.DECLARE_TYPE and context.settings.schemas.second_person and plan.breaking:
            raise Refused(
                f"The schema of {shown(name)} has a breaking change, which a second person must approve. "
                f"Print it by `turnout schemas declare --print`, and register it."
            )
    return facts


def _register(context: ControlContext, asked: Operation) -> StepResult:
    """Register the schema, or its withdrawal; what a killed controller has done is not done again."""
    registry, known = context.registry, known_names(context.engine)
    name, declares = asked.parameters["type"], asked.kind == OperationKind.DECLARE_TYPE

    def within(connection: Connection, _: list[Registered]) -> None:
        lock_operation(connection, asked)

    for key in asked.parameters["games"]:
        game, schemas = find(key, known), registry.snapshot()
        declaration = declaration_of(schemas, game, name)
        held = declaration.schema
        if held is not None and (schemas.placement(game.key, held.schema_id).quarantined is None) is declares:
            continue
        if declaration.fingerprint != asked.parameters["fingerprint"]:
            return StepResult("failed", CHANGED)
        given = replace(declaration.registration, actor=asked.actor, undeclares=not declares)
        registry.register_many([given], within)
    return StepResult("done", f"{shown(name)}: {'declared' if declares else 'undeclared'}.")


def _done(verb: str, asked: Operation) -> str:
    return f"{verb}: {shown(asked.parameters['type'])} of {join_limited(asked.parameters['games'])}."


DECLARE: Final = registering(
    OperationKind.DECLARE_TYPE, _register, _facts, partial(_done, "Declared"),
    partial(_propose, OperationKind.DECLARE_TYPE), "is declared already", OperationKind.UNDECLARE_TYPE,
)  # fmt: skip
UNDECLARE: Final = registering(
    OperationKind.UNDECLARE_TYPE, _register, _facts, partial(_done, "Undeclared"),
    partial(_propose, OperationKind.UNDECLARE_TYPE), "is not declared", OperationKind.DECLARE_TYPE, *REPLAY.steps,
)  # fmt: skip
