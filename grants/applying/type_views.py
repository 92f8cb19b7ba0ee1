"""Keeps a flat view of each event type of a game in a catalog that has views, granted as the game's table is.

Operations say for which games. The controller makes, changes, grants and drops the views, when an operation asks for it
and in each round: types evolve, access changes, and games are retired. Every statement may run twice.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from sqlalchemy import Engine

from grants.catalog import Catalog, CatalogUnavailable, Change
from grants.catalogs.warehouse import drop_view
from grants.model import ALL_PRIVILEGES, SELECT, Securable, folded
from pipeline.base.errors import Refused, Transient, first_line
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
from pipeline.control.roles import Role
from pipeline.lake.delta.columns import merges_of
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location
from pipeline.settings.access import Access
from pipeline.store.database.states import OperationKind
from pipeline.store.games import find, known_names
from pipeline.store.kept_views import KeptViews, note, read_kept, want
from pipeline.store.operations import Operation, lock_operation

if TYPE_CHECKING:
    from pipeline.data.contracts.registry import LocalRegistry
    from pipeline.data.contracts.type_views import TypeView

_STEP_SECONDS: Final = 900.0  # a catalog may be away this long before an operation needs a person
_HASH_DIGITS: Final = 16
Open = Callable[[], Catalog]


def reconcile(context: ControlContext, catalog: Catalog, key: str) -> str:
    """Let the catalog have exactly the views of a game that are kept, readable by those who may read its table.

    Raises:
        Refused: the catalog has no views, or does not take one; what was made until then is recorded.
        CatalogUnavailable: the catalog cannot be reached.
    """
    (kept,) = read_kept(context.engine, [key]) or (KeptViews(key, wanted=False),)
    access = context.settings.access
    made, granted = dict(kept.made), 0
    try:
        wanted = _wanted(context, key, made) if kept.wanted else {}
        for name in sorted(made.keys() - wanted.keys()):
            catalog.execute(drop_view(_place(access, name)))
            del made[name]
        for name, view in wanted.items():
            if made.get(name) != (mark := _hash(view)):
                made[name] = ""  # it may be there from now on
                note(context.engine, key, made, None)
                catalog.execute(view.unity_catalog.removesuffix(";"))
                made[name] = mark
            granted += _grant(catalog, _place(access, key), _place(access, name))
    except (Refused, Transient) as error:
        note(context.engine, key, made, str(error))
        raise
    note(context.engine, key, made, None)
    if not wanted:
        return "It has no views in the catalog any more."
    return f"{len(wanted)} views are there, {granted} grants on them changed."


def _wanted(context: ControlContext, key: str, made: Mapping[str, str]) -> "dict[str, TypeView]":
    """Return the views of a game by name, of the columns that its table has; it is read where views would change.

    Between a merge of columns and the switch of its rebuild the schemas have others.
    """
    access, registry = context.settings.access, context.registry
    wanted = {each.name: each for each in _views(registry, access, key)}
    if all(made.get(name) == _hash(view) for name, view in wanted.items()):
        return wanted
    return {each.name: each for each in _views(registry, access, key, _merges(context.paths.table(GameKey(key))))}


def _merges(table: Location) -> str | None:
    """Return which columns of a table were merged, None without a table.

    Raises:
        Refused: it cannot be read.
    """
    try:
        return merges_of(pa.schema(open_table(table).schema().to_arrow())) if exists(table) else None
    except (DeltaError, OSError) as error:
        raise Refused(f"Its table cannot be read ({first_line(error)}). Run `turnout verify`.") from error


def reconcile_all(context: ControlContext, catalog: Catalog) -> list[str]:
    """Reconcile the views of all games that have some; return what failed, a sentence for each game.

    Raises:
        CatalogUnavailable: the catalog cannot be reached.
    """
    problems = []
    for kept in read_kept(context.engine):
        try:
            reconcile(context, catalog, kept.game_key)
        except CatalogUnavailable:
            raise
        except Refused as refused:
            problems.append(f"The views of {kept.game_key} are not as they should be: {refused}")
    return problems


def _grant(catalog: Catalog, table: Securable, view: Securable) -> int:
    """Let those read a view who may read the table, and nobody else; return how many grants changed."""
    should, does = _readers(catalog, table), _readers(catalog, view)
    own = folded(catalog.executor)
    changes = [Change(view, who, add=(SELECT,)) for name, who in sorted(should.items()) if name not in does]
    changes += [Change(view, who, remove=(SELECT,)) for name, who in sorted(does.items()) if name not in should]
    changes = [each for each in changes if folded(each.principal) != own]
    for change in changes:
        catalog.change(change)
    return len(changes)


def _readers(catalog: Catalog, securable: Securable) -> Mapping[str, str]:
    """Return who may read it by a grant on it, by folded name."""
    held = catalog.assignments(securable)
    return {folded(who): who for who, privileges in held.items() if who and privileges & {SELECT, ALL_PRIVILEGES}}


def _views(registry: "LocalRegistry", access: Access, key: str, merges: str | None = None) -> "Sequence[TypeView]":
    from pipeline.data.contracts.further_types import game_types  # formats' libraries come with it
    from pipeline.data.contracts.type_views import views

    table = (access.catalog_name, access.schema_name, key)
    return views(key, game_types(registry.snapshot(), GameKey(key), merges), table, "")


def _place(access: Access, name: str) -> Securable:
    return Securable((access.catalog_name, access.schema_name, name))


def _hash(view: "TypeView") -> str:
    return hashlib.sha256(view.unity_catalog.encode()).hexdigest()[:_HASH_DIGITS]


def _propose(
    kind: OperationKind, engine: Engine, names: Sequence[str], actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    """Plan to keep the views of a game, or to drop them.

    Raises:
        Refused: there is no such game, or nothing of it lands.
    """
    from pipeline.data.contracts.registry import LocalRegistry

    key = find(names[0], known_names(engine)).key
    found = _facts_of(kind, engine, LocalRegistry(engine, None), key)
    facts: dict[str, list[str]] = {key: found} if found else {}
    if kind == OperationKind.KEEP_VIEWS:
        if not facts:
            raise Refused(f"No event type of {key} lands yet. Register a schema, or accept a type.")
        if any(each.wanted for each in read_kept(engine, [key])):
            facts = {}
        lines = [f"view {each}" for each in facts.get(key, ())]
        lines.append("Those who may select from the game's table may select from them. Retiring the game drops them.")
    else:
        lines = [f"drop view {each}" for each in facts.get(key, ())]
    return OperationProposal(intent_of("game", kind, facts, actor, reason, undoes), lines)


def _facts_of(kind: str, engine: Engine, registry: "LocalRegistry", key: str) -> list[str]:
    if kind == OperationKind.KEEP_VIEWS:
        return sorted(each.name for each in _views(registry, Access(), key))
    kept = read_kept(engine, [key])
    return sorted(name for each in kept for name in each.made) or (["none yet"] if kept else [])


def _facts(context: ControlContext, asked: Operation) -> Mapping[str, Any]:
    keys = asked.parameters["games"]
    if asked.kind == OperationKind.KEEP_VIEWS:
        context.settings.access.require_views()
    return {key: _facts_of(asked.kind, context.engine, context.registry, key) for key in keys}


def _decide(context: ControlContext, asked: Operation) -> StepResult:
    with context.engine.begin() as connection:
        lock_operation(connection, asked)
        for key in asked.parameters["games"]:
            want(connection, key, wanted=asked.kind == OperationKind.KEEP_VIEWS)
    return StepResult("done", "Recorded.")


def _carry_out(open_catalog: Open, context: ControlContext, asked: Operation) -> StepResult:
    """Reconcile in a thread of the controller, as a catalog may be slow."""
    works, name = context.background_tasks, f"{asked.operation_id} views"
    (key,) = asked.parameters["games"]
    works.submit(name, lambda: reconcile(context, open_catalog(), key))
    try:
        message = works.pop_result(name)
    except Transient as away:
        return StepResult("waiting", str(away))
    return StepResult("waiting", "Waiting for the catalog.") if message is None else StepResult("done", message)


def _done(verb: str, asked: Operation) -> str:
    return f"Views {verb}: {join_limited(asked.parameters['games'])}."


def _define(kind: OperationKind, verb: str, unchanged: str, inverse: OperationKind) -> OperationDefinition:
    return OperationDefinition(
        kind, Role.ACCESS_ADMIN, of_one_game(1), (), _facts, partial(_done, verb), inverse,
        propose=partial(_propose, kind), unchanged=unchanged,
    )  # fmt: skip


KEEP: Final = _define(
    OperationKind.KEEP_VIEWS, "kept", "has its views in the catalog already", OperationKind.DROP_VIEWS
)
DROP: Final = _define(OperationKind.DROP_VIEWS, "dropped", "has no views in the catalog", OperationKind.KEEP_VIEWS)


def steps(open_catalog: Open) -> tuple[StepDefinition, ...]:
    """Return the steps of both kinds, which only the controller takes."""
    return (
        StepDefinition("decide", _decide, 30.0),
        StepDefinition("reconcile", partial(_carry_out, open_catalog), _STEP_SECONDS, reports=True),
    )
