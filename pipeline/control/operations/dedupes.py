"""The removal of doubled rows as an operation: done in a thread of the controller, and begun again after a kill.

A removal is one commit and finds nothing when it is repeated, so a controller that was killed does no harm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import GameKey, repair_app_id
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    ControlContext,
    Offer,
    OperationDefinition,
    StepDefinition,
    StepResult,
    intent_of,
    of_one_game,
)
from pipeline.control.operations.repairs import Subject, observe, obstacle_by_table, require_possible
from pipeline.control.operations.tries import looked, worked
from pipeline.control.roles import Role
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.repair.dedupe import Deduped, dedupe
from pipeline.data.repair.refusals import unreadable
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.log import infos
from pipeline.lake.delta.scratch import DatabaseError
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.tree import Paths
from pipeline.store.database.states import OperationKind
from pipeline.store.games import Game, known_names
from pipeline.store.operations import Intent, Operation

_WORK_SECONDS: Final = 6 * 3600.0  # all places of a table are read, and others may be before it
_SEEN_SECONDS: Final = 3600.0
_PERHAPS_MEMORY: Final = (
    "perhaps the controller had too little memory for the table. See its log, give it more, and ask again; or run "
    "`turnout repair rebuild` instead."
)


def plan(paths: Paths, environment: str, keys: Sequence[str], subjects: Mapping[str, Subject]) -> dict[str, Any]:
    """Return what a removal of doubled rows is about: game key → generation and number of repairs of its table.

    Raises:
        Refused: as `repairs.require_possible`.
    """
    unique_keys = require_possible(OperationKind.DEDUPE, keys, subjects)
    return {
        key: {"generation": subjects[key].generation, "repairs": _repairs(paths, environment, key)}
        for key in unique_keys
    }


def dedupe_each(
    paths: Paths,
    environment: str,
    schemas: Callable[[], SchemaSet],
    games: Sequence[Game],
    *,
    dry_run: bool,
    shown: Mapping[str, int] | None = None,
) -> tuple[list[Deduped], list[str]]:
    """Dedupe each of these tables; return what was done, and one sentence for each that could not be.

    `shown` has, by game key, how many second copies were agreed to: a table with another number is left as it is.
    """
    done, failed = [], []
    for game in games:
        try:
            done.append(dedupe(paths, environment, schemas, game, dry_run=dry_run, shown=(shown or {}).get(game.key)))
        except (Refused, Transient, DeltaError, OSError, pa.ArrowException, DatabaseError) as error:
            reason = first_line(error)
            failed.append(reason if game.key in reason else f"{game.key}: {reason}")
    return done, failed


def intent(facts: Mapping[str, Any], actor: str, reason: str, deduped: Sequence[Deduped] = ()) -> Intent:
    """Return the operation to submit; of the tables that were found so, only those second copies are removed."""
    shown = {each.game_key: each.removed for each in deduped if each.game_key in facts}
    submitted = intent_of("game", OperationKind.DEDUPE, facts, actor, reason)
    return replace(submitted, parameters={**submitted.parameters, "shown": shown}) if shown else submitted


def render_preview(deduped: Sequence[Deduped], uncounted: Sequence[str] = ()) -> list[str]:
    """Return what an operation removes, as lines for people; `uncounted` are games whose tables were not read."""
    total, tables = sum(each.removed for each in deduped), sum(each.removed > 0 for each in deduped)
    last = f"{total:,} second copies to remove from {tables} table(s), one commit each. One copy of each row stays."
    unknown = [
        f"{key}: not counted, since a page reads only few and small tables: all second copies there are will be "
        f"removed. `turnout repair dedupe {key} --dry-run` counts them."
        for key in uncounted
    ]
    return [*map(sentence, deduped), *unknown, last, "`turnout repair rebuild` makes a table from bronze again."]


def sentence(done: Deduped) -> str:
    """Return what was found in one table."""
    differing = f" {done.differing:,} of them had copies that differ: the one that bronze gives stays."
    return (
        f"{done.game_key}: {done.places:,} row(s) with more than one copy, {done.removed:,} second copies in "
        f"{done.files:,} file(s).{differing if done.differing else ''}"
    )


def _repairs(paths: Paths, environment: str, key: str) -> int:
    try:
        table = CursorTable.open(paths.table(GameKey(key)), repair_app_id(environment, GameKey(key)))
    except (DeltaError, OSError) as error:  # since it was looked at
        raise unreadable(key, error) from error
    return (table.cursor if table else None) or 0


def _facts(context: ControlContext, operation: Operation) -> Mapping[str, Any]:
    keys, environment = operation.parameters["games"], context.settings.environment
    return plan(context.paths, environment, keys, observe(context.paths, environment, context.engine, keys))


def _remove(context: ControlContext, operation: Operation) -> StepResult:
    work = partial(_all, context, operation)
    meanwhile = f"Doubled rows of {len(operation.preview)} are being removed."
    return worked(context, operation, work, meanwhile, _PERHAPS_MEMORY)


def _verify(context: ControlContext, operation: Operation, *, keep: bool = False) -> StepResult:
    """Look again at the tables: nothing in them may be doubled now."""
    return looked(context, operation, partial(_left, context, operation), "The tables are being read again.", keep=keep)


def _left(context: ControlContext, operation: Operation) -> str:
    deduped = _each(context, operation, dry_run=True)
    if left := [each.game_key for each in deduped if each.removed]:
        raise Refused(f"Rows are doubled again in {join_limited(left)}: look at the table's Delta history.")
    return "No row has a second copy now."


def _all(context: ControlContext, operation: Operation) -> str:
    return " ".join(_outcome(context, operation, each) for each in _each(context, operation, dry_run=False))


def _outcome(context: ControlContext, operation: Operation, done: Deduped) -> str:
    """Return what was done to one table, also by a controller that was killed between its commit and the journal."""
    key, environment = done.game_key, context.settings.environment
    if done.removed or _repairs(context.paths, environment, key) == operation.preview[key]["repairs"]:
        return sentence(done)
    since = operation.requested_at * 1000
    noted = ((str(info.get("turnout", "")), info) for _, info in infos(context.paths.table(GameKey(key))))
    notes = [note for note, info in noted if note.startswith("dedupe: ") and info["timestamp"] >= since]
    return f"{key}: removed by an earlier try, which did not end: {notes[-1]}." if notes else sentence(done)


def _each(context: ControlContext, operation: Operation, *, dry_run: bool) -> list[Deduped]:
    schemas, known = context.registry.snapshot, known_names(context.engine)
    games = [Game(GameKey(key), known[key]) for key in sorted(operation.preview)]
    shown = None if dry_run else operation.parameters.get("shown")
    done, failed = dedupe_each(
        context.paths, context.settings.environment, schemas, games, dry_run=dry_run, shown=shown
    )
    if failed:
        others = f" The other {len(done)} are done." if done else ""
        raise Refused(f"{join_limited(failed)}{others}")
    return done


DEDUPE: Final = OperationDefinition(
    OperationKind.DEDUPE,
    Role.OPERATOR,
    of_one_game(2),
    (
        StepDefinition("dedupe", _remove, _WORK_SECONDS, reports=True),
        StepDefinition("verify", _verify, _SEEN_SECONDS, verifies=True, reports=True, seen=partial(_verify, keep=True)),
    ),
    _facts,
    lambda operation: f"Removed doubled rows: {join_limited(sorted(operation.preview))}.",
    of_game=Offer(
        partial(obstacle_by_table, OperationKind.DEDUPE),
        "Reads all places of its table and removes second copies of rows in one commit; without any, nothing.",
        (OperationKind.REPLAY, OperationKind.RETRY),
        repairs=True,
    ),
)
