"""Joins a column of undeclared JSON and its side columns by one rebuild; and parts them again.

The choice is a registration, by which drivers split rows from then on; the rebuild moves the values that landed. Until
its switch the old table serves, and rows that do not fit its columns wait.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, shown
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    ControlContext,
    OperationProposal,
    StepDefinition,
    StepResult,
    describe_open,
    intent_of,
)
from pipeline.control.operations.executor import has_effect
from pipeline.control.operations.repairs import REBUILD
from pipeline.control.operations.settling import registering
from pipeline.control.operations.tries import worked
from pipeline.data.contracts.breaches import readers_of
from pipeline.data.contracts.declared_types import FORMAT
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.json.merging import DOUBLE, Columns, column_type, columns_of_keys
from pipeline.data.contracts.formats.json.superset import ANY, Slot
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.output_contracts.rules import ELEMENTS, LANDS, ContractRule, label
from pipeline.data.repair.decoding import RowsWait
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.report import render_rebuilt
from pipeline.data.variations.held_numbers import doubles_hold
from pipeline.data.variations.registering import Registrar, newest_supersets
from pipeline.lake.delta.log import exists
from pipeline.settings.tree import Paths
from pipeline.store.database.states import OperationKind
from pipeline.store.games import Game, find, known_names
from pipeline.store.operations import Operation, list_operations, operation
from pipeline.store.processes.leases import store_time

_WORK_SECONDS: Final = 6 * 3600.0  # a game's whole bronze may be read
_LOOKED: Final = 1_000  # of the newest operations, for a later merge of the same columns
_ROUNDS: Final = 5  # of a rebuild: each may find a row whose shape is to be registered first
_LINES: Final = (
    "Then the table is rebuilt: one commit replaces its files and columns, and until then the old ones serve.",
    "New rows wait until the rebuild has ended, and land afterwards. No other table is touched.",
)


@dataclass(frozen=True, slots=True)
class _Found:
    """The columns of one key, in the table of a game."""

    type: str
    struct: str | None  # the column of its event type
    columns: Columns

    @property
    def prefix(self) -> str:
        """What stands before the names of the columns."""
        return self.columns.path[: -len(self.columns.slots[0].name)]

    def names(self, slots: Sequence[Slot]) -> list[str]:
        """Return the columns of slots as paths in the table."""
        outer = "" if self.struct is None else f"{self.struct}."
        return [f"{outer}{self.prefix}{each.name}" for each in slots]

    def described(self, slots: Sequence[Slot]) -> str:
        """Return columns with their types."""
        both = zip(self.names(slots), slots, strict=True)
        return join_limited([f"{name} {column_type(each.kind)}" for name, each in both], 20)


def propose_merge(
    engine: Engine, paths: Paths, game: str, column: str, of_type: str | None, actor: str, reason: str = ""
) -> OperationProposal:
    """Plan to join a column of a game, named by key or name, with its side columns.

    Raises:
        Refused: there is no such game or column, it has no side column, its event type is declared, or several event
            types have it.
    """
    found_game = find(game, known_names(engine))
    found = _find(engine, found_game, column, of_type)
    if len(found.columns.slots) == 1:
        such = _listed(_every(LocalRegistry(engine).snapshot(), found_game))
        raise Refused(f"{shown(column)} of {shown(found_game.name)} has no side column.{such}")
    to = ANY
    if found.columns.may_be_double:
        (whole,) = (each for each in found.columns.slots if each.kind != DOUBLE)
        (name,) = found.names([whole])
        to = DOUBLE if doubles_hold(paths.table(found_game.key), name.split(".")) else ANY
    return _merging(engine, found_game, found, to, actor, reason, None)


def _merging(
    engine: Engine, game: Game, found: _Found, to: str, actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    more = {"type": found.type, "column": found.columns.path, "to": to}
    fact, lines = _look(OperationKind.MERGE_COLUMNS, engine, game, more)
    intent = intent_of("game", OperationKind.MERGE_COLUMNS, {game.key: fact}, actor, reason, undoes)
    return OperationProposal(replace(intent, parameters={**intent.parameters, **more}), [*lines, *_LINES])


def _look(kind: str, engine: Engine, game: Game, given: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return what an operation is about, which must not change until it begins, and its plan in lines."""
    found = _find(engine, game, given["column"], given["type"])
    slots = found.columns.slots
    if kind == OperationKind.PART_COLUMNS:
        before, after = [each for each in slots if each.since == given["since"] and each.joined], list[Slot]()
        for each in before:
            after += each.joined
        words = "Later values land in the column of their type again."
    else:
        before, after = list(slots), [Slot(given["to"], slots[0].name, 0)]
        words = "Later texts, numbers and truth values land there, too: texts as they are, all else as it is written."
        if given["to"] == DOUBLE:
            words = "Later numbers land there, too. A number that no double holds to all digits opens a side column."
    _require_kept_promises(engine, game, found, before, after)
    what = f"{found.described(before)} → {found.described(after)}"
    gone = sorted(set(found.names(before)) - set(found.names(after)))
    lines = [f"{shown(found.type)} of {shown(game.name)}: {what}", f"    {words}"]
    if gone:
        lines.append(f"    The table no longer has {join_limited(gone, 20)}: change queries that name them.")
    return f"{found.type}: {what}", lines


def _require_kept_promises(
    engine: Engine, game: Game, found: _Found, before: Sequence[Slot], after: Sequence[Slot]
) -> None:
    """Check that no rule of an output contract depends on the columns as they are: the rebuild judges all rows.

    A value moves into another column, as another type; a rule about it would stop the rebuild half-way, move landed
    rows to quarantine, or check nothing any more.

    Raises:
        Refused: one does.
    """
    parts = len(after) > len(before)
    was = {f"{found.prefix}{each.name}": column_type(each.kind) for each in before}
    then = {f"{found.prefix}{each.name}": column_type(each.kind) for each in after}
    for contract in LocalRegistry(engine).snapshot().contracts.get(game.key, ()):
        for rule in contract.rules if contract.covers(found.type) else ():
            column = rule.column.replace(ELEMENTS, "")
            if column not in was | then or (rule.action == LANDS and column in then):
                continue
            leaves_nulls = rule.required and parts  # each row has a value in one of the parted columns only
            if leaves_nulls or _judges_values(rule) or (column in was and column not in then):
                now = f"as {then[column]}" if column in then else "without that column"
                raise Refused(
                    f"The output contract {label(contract, rule)} is for {shown(column)} as it is: {now} the rebuild "
                    f"would judge other values, or none. {readers_of(contract)} Take the rule out by `turnout "
                    f"contracts apply`, change the columns, and write it for them as they are then."
                )


def _judges_values(rule: ContractRule) -> bool:
    """Return whether a rule says more than that there is a value."""
    return replace(rule, required=False, within=False) != ContractRule(rule.name, rule.column, rule.action)


def _find(engine: Engine, game: Game, column: str, of_type: str | None) -> _Found:
    schemas = LocalRegistry(engine).snapshot()
    newest = newest_supersets(schemas, game.key)
    if of_type is not None and of_type not in newest:
        known = join_limited(sorted(map(shown, newest)), 10) or "none"
        raise Refused(f"{shown(of_type)} is no undeclared event type of {shown(game.name)}. Such are: {known}.")
    every = [each for each in _every(schemas, game) if of_type in {None, each.type}]
    found = [each for each in every if _has(each, column, inside=of_type is not None)]
    if not found:
        raise Refused(f"No undeclared event type of {shown(game.name)} has the column {shown(column)}.{_listed(every)}")
    if len(found) > 1:
        types = join_limited([shown(each.type) for each in found], 10)
        raise Refused(f"Several event types have the column {shown(column)}: {types}. Name one by --type.")
    declared = [schema for schema, at in schemas.placed(game.key) if schema.format == FORMAT and at.has_columns]
    if any(event_type(each.message) == found[0].type for each in declared):
        raise Refused(
            f"{shown(found[0].type)} of {shown(game.name)} is declared: its columns stay as declared. Where it was "
            f"declared as its documents came, `turnout schemas undeclare` withdraws that."
        )
    return found[0]


def _has(found: _Found, column: str, *, inside: bool) -> bool:
    """Return whether one of the columns is meant; `inside`: also by its path in the struct of its event type."""
    slots = found.columns.slots
    own = [f"{found.prefix}{each.name}" for each in slots] if inside else []
    return column in {*own, *found.names(slots)}


def _every(schemas: SchemaSet, game: Game) -> list[_Found]:
    return [
        _Found(name, schemas.placement(game.key, schema.schema_id).struct, each)
        for name, schema in sorted(newest_supersets(schemas, game.key).items())
        for each in columns_of_keys(superset_of(schema))
    ]


def _listed(every: Sequence[_Found]) -> str:
    """Return the columns that can be joined, as a sentence with a space before it."""
    names = [shown(each.names(each.columns.slots)[0]) for each in every if len(each.columns.slots) > 1]
    return f" Such have a side column: {join_limited(names, 10) or 'none'}."


def _propose(
    kind: OperationKind, engine: Engine, names: Sequence[str], actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    """Plan the inverse of an operation, about the columns that it named."""
    if undoes is None:
        raise Refused("Name the column: `turnout schemas merge GAME COLUMN`.")
    undone = operation(engine, undoes)
    game, done = find(names[0], known_names(engine)), undone.parameters
    found = _find(engine, game, done["column"], done["type"])
    if kind == OperationKind.MERGE_COLUMNS:
        if done["to"] == DOUBLE and not found.columns.may_be_double:
            raise Refused(
                f"{shown(done['column'])} of {shown(game.name)} has values that no double holds by now: "
                f"`turnout schemas merge` joins it as text."
            )
        return _merging(engine, game, found, done["to"], actor, reason, undoes)
    merged = _slot_of(engine, game, found, undone)
    more = {"type": found.type, "column": found.columns.path, "to": done["to"], "since": merged.since}
    fact, lines = _look(kind, engine, game, more)
    intent = intent_of("game", kind, {game.key: fact}, actor, reason, undoes)
    return OperationProposal(replace(intent, parameters={**intent.parameters, **more}), [*lines, *_LINES])


def _slot_of(engine: Engine, game: Game, found: _Found, done: Operation) -> Slot:
    """Return the slot that a merge made; it may have joined a column that a driver opened since its preview.

    Raises:
        Refused: its columns are parted, or were merged again since: parting them would undo that merge, too.
    """
    column = f"{shown(done.parameters['column'])} of {shown(game.name)}"
    merged = next((each for each in found.columns.slots if each.joined), None)
    every = sorted(list_operations(engine, limit=_LOOKED), key=lambda each: each.requested_at, reverse=True)
    undone = {each.undoes for each in every if each.undoes is not None and has_effect(engine, each)}
    same = {"games": [game.key], "type": found.type, "column": found.columns.path}
    merges = (each for each in every if each.kind == done.kind and same.items() <= each.parameters.items())
    newest = next((each for each in merges if each.operation_id not in undone and has_effect(engine, each)), done)
    if merged is None or (done.operation_id in undone and newest is done):
        raise Refused(f"{column} is not merged.")
    if newest.operation_id != done.operation_id:
        raise Refused(f"{column} was merged again by {describe_open(newest)}: undo that first.")
    return merged


def _facts(context: ControlContext, asked: Operation) -> Mapping[str, Any]:
    (key,) = asked.parameters["games"]
    return {key: _look(asked.kind, context.engine, find(key, known_names(context.engine)), asked.parameters)[0]}


def _register(context: ControlContext, asked: Operation) -> StepResult:
    """Register the choice; what a killed controller has done is not done again."""
    given = asked.parameters
    (key,) = given["games"]
    choice = "split", given["column"], str(given.get("since", 0))
    if asked.kind == OperationKind.MERGE_COLUMNS:
        choice = "merge", given["column"], given["to"]
    _registrar(context).choose(find(key, known_names(context.engine)), given["type"], choice)
    return StepResult("done", f"{shown(given['type'])}: registered.")


def _registrar(context: ControlContext) -> Registrar:
    return Registrar(context.engine, context.paths.bronze, context.settings.environment)


def _rebuild(context: ControlContext, asked: Operation) -> StepResult:
    return worked(context, asked, partial(_rebuilt, context, asked), "The table is being rebuilt; the old one serves.")


def _rebuilt(context: ControlContext, asked: Operation) -> str:
    """Rebuild the table; what a row has that no column takes now is registered first."""
    key = GameKey(asked.parameters["games"][0])
    if not exists(context.paths.table(key)):
        return "It has no table yet."
    game, registrar = Game(key, known_names(context.engine)[key]), _registrar(context)
    environment, schemas = context.settings.environment, context.registry.snapshot
    for left in reversed(range(_ROUNDS)):
        try:
            return render_rebuilt(rebuild(context.paths, environment, context.engine, schemas, game))
        except RowsWait as waiting:
            now = store_time(context.engine)
            needs = waiting.wanted(game, now)
            if not left or not needs or registrar.serve(game, needs, now, time.monotonic()) is not None:
                raise
    raise AssertionError


def _done(verb: str, asked: Operation) -> str:
    return f"{verb}: {shown(asked.parameters['column'])} of {join_limited(asked.parameters['games'])}."


_REBUILD: Final = (
    StepDefinition("rebuild", _rebuild, _WORK_SECONDS, reports=True),
    next(each for each in REBUILD.steps if each.name == "verify"),
)

MERGE: Final = registering(
    OperationKind.MERGE_COLUMNS, _register, _facts, partial(_done, "Merged"),
    partial(_propose, OperationKind.MERGE_COLUMNS), "has no such side column", OperationKind.PART_COLUMNS,
    *_REBUILD, level=2,
)  # fmt: skip
PART: Final = registering(
    OperationKind.PART_COLUMNS, _register, _facts, partial(_done, "Parted"),
    partial(_propose, OperationKind.PART_COLUMNS), "has no such column", OperationKind.MERGE_COLUMNS,
    *_REBUILD, level=2,
)  # fmt: skip
