"""Pins an event type of undeclared JSON, or refuses one of its variations; and the inverse of each.

A choice is a registration, so it holds for rows that passes split from then on, with the schema set that has it. Rows
that landed stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    ControlContext,
    OperationDefinition,
    OperationProposal,
    StepDefinition,
    StepResult,
    intent_of,
)
from pipeline.control.operations.repairs import REPLAY
from pipeline.control.operations.settling import registering
from pipeline.data.contracts.formats.json.choices import PINNED, REFUSED
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.variations.registering import Registrar, newest_supersets
from pipeline.store.database.states import OperationKind
from pipeline.store.games import Game, find, known_names
from pipeline.store.operations import Operation, operation
from pipeline.store.variations import read_variations

_REASONS: Final[Mapping[OperationKind, str]] = {
    OperationKind.PIN_VARIATIONS: PINNED,
    OperationKind.UNPIN_VARIATIONS: PINNED,
    OperationKind.REFUSE_VARIATION: REFUSED,
    OperationKind.ALLOW_VARIATION: REFUSED,
}
_MOST: Final = 10_000  # variations of a type; no setting lets one have more
_STAY: Final = "Rows that landed stay until a rebuild, and no column goes."
_WORDS: Final[Mapping[OperationKind, tuple[str, str]]] = {
    OperationKind.PIN_VARIATIONS: ("pin", f"Rows with something new go to quarantine as {PINNED}. {_STAY}"),
    OperationKind.UNPIN_VARIATIONS: (
        "unpin",
        f"Then its rows that wait as {PINNED} are replayed, and their shapes registered. No other table is touched.",
    ),
    OperationKind.REFUSE_VARIATION: ("refuse", f"Rows with one of these facts go to quarantine as {REFUSED}. {_STAY}"),
    OperationKind.ALLOW_VARIATION: (
        "allow",
        f"Then its rows that wait as {REFUSED} are replayed. No other table is touched.",
    ),
}


def propose_choice(
    kind: OperationKind, engine: Engine, game: str, event_type: str, actor: str, reason: str = "",
    variation: str | None = None,
) -> OperationProposal:  # fmt: skip
    """Plan a choice about an undeclared event type of a game, named by key or name; `variation` is a fingerprint.

    Raises:
        Refused: there is no such game, type or variation, or it has that state already.
    """
    found = find(game, known_names(engine))
    facts, lines = _look(kind, engine, found, event_type, variation)
    intent = intent_of("game", kind, {found.key: facts}, actor, reason)
    more = {"type": event_type, "variation": variation, "refused_for": _REASONS[kind]}
    proposed = replace(intent, parameters={**intent.parameters, **more})
    return OperationProposal(proposed, [*lines, _WORDS[kind][1]])


def _look(
    kind: OperationKind, engine: Engine, game: Game, event_type: str, variation: str | None
) -> tuple[str, list[str]]:
    """Return what an operation is about, which must not change until it begins, and its plan in lines."""
    superset = _superset(engine, game, event_type)
    begin = f"{_WORDS[kind][0]} {shown(event_type)} of {shown(game.name)}"
    if variation is None:
        is_pinned = bool(superset.pinned)
        if is_pinned is (kind == OperationKind.PIN_VARIATIONS):
            state = "pinned already" if is_pinned else "not pinned"
            raise Refused(f"{shown(event_type)} of {shown(game.name)} is {state}.")
        return f"{event_type}: {'pinned' if is_pinned else 'grows'}", [f"{begin}: {superset.columns():,} columns"]
    is_refused = variation in dict(superset.refused)
    if is_refused is (kind == OperationKind.REFUSE_VARIATION):
        state = "refused already" if is_refused else "not refused"
        raise Refused(f"Variation {shown(variation)} of {shown(event_type)} is {state}.")
    held = dict(superset.refused).get(variation) or _form(engine, game, event_type, variation).split("\n")[1:]
    lines = [f"{begin}, variation {variation}", *(f"    {fact}" for fact in held)]
    return f"{event_type} {variation}: {'refused' if is_refused else 'lands'}", lines


def _superset(engine: Engine, game: Game, event_type: str) -> Superset:
    newest = newest_supersets(LocalRegistry(engine).snapshot(), game.key)
    if event_type not in newest:
        known = join_limited(sorted(map(shown, newest)), 10) or "none"
        raise Refused(f"{shown(event_type)} is no undeclared event type of {shown(game.name)}. Such are: {known}.")
    return superset_of(newest[event_type])


def _form(engine: Engine, game: Game, event_type: str, variation: str) -> str:
    found = read_variations(engine, game.key, event_type, most=_MOST)
    one = next((each for each in found if each.fingerprint == variation), None)
    if one is None:
        raise Refused(
            f"{shown(event_type)} of {shown(game.name)} has no variation {shown(variation)}. "
            f"`turnout schemas variations` lists them."
        )
    return one.form


def _propose(
    kind: OperationKind, engine: Engine, names: Sequence[str], actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    """Plan the inverse of an operation, about the type and variation that it named."""
    if undoes is None:
        raise Refused(f"Name the event type: `turnout schemas {kind} GAME --type TYPE`.")
    done = operation(engine, undoes).parameters
    proposal = propose_choice(kind, engine, names[0], done["type"], actor, reason, done["variation"])
    return replace(proposal, intent=replace(proposal.intent, undoes=undoes))


def _facts(context: ControlContext, asked: Operation) -> Mapping[str, Any]:
    known, found = known_names(context.engine), {}
    for key in asked.parameters["games"]:
        game = find(key, known)
        given = asked.parameters["type"], asked.parameters["variation"]
        found[key], _ = _look(OperationKind(asked.kind), context.engine, game, *given)
    return found


def _choose(context: ControlContext, asked: Operation) -> StepResult:
    """Register the choice; what a killed controller has done is not done again."""
    kind, known = OperationKind(asked.kind), known_names(context.engine)
    name, variation = asked.parameters["type"], asked.parameters["variation"]
    registrar = Registrar(context.engine, context.paths.bronze, context.settings.environment)
    for key in asked.parameters["games"]:
        game = find(key, known)
        choice: tuple[str, ...] = (_WORDS[kind][0],) if variation is None else (_WORDS[kind][0], variation)
        if kind == OperationKind.REFUSE_VARIATION:
            choice = (*choice, _form(context.engine, game, name, variation))
        registrar.choose(game, name, choice)
    return StepResult("done", f"{shown(name)}: registered.")


def _done(verb: str, asked: Operation) -> str:
    what = asked.parameters["type"] if asked.parameters["variation"] is None else asked.parameters["variation"]
    return f"{verb}: {shown(what)} of {join_limited(asked.parameters['games'])}."


def _define(
    kind: OperationKind, verb: str, unchanged: str, inverse: OperationKind, *more: StepDefinition
) -> OperationDefinition:
    return registering(kind, _choose, _facts, partial(_done, verb), partial(_propose, kind), unchanged, inverse, *more)


PIN: Final = _define(OperationKind.PIN_VARIATIONS, "Pinned", "is pinned already", OperationKind.UNPIN_VARIATIONS)
UNPIN: Final = _define(
    OperationKind.UNPIN_VARIATIONS, "Unpinned", "is not pinned", OperationKind.PIN_VARIATIONS, *REPLAY.steps
)
REFUSE: Final = _define(OperationKind.REFUSE_VARIATION, "Refused", "refuses it already", OperationKind.ALLOW_VARIATION)
ALLOW: Final = _define(
    OperationKind.ALLOW_VARIATION, "Allowed", "takes it already", OperationKind.REFUSE_VARIATION, *REPLAY.steps
)
