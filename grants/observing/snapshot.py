"""The whole catalog as one snapshot: read table by table, kept in the control store, shown with its age.

A catalog of hundreds of tables takes many requests, so pages and the matrix show the snapshot the controller last took;
the planner of a change reads again what the change is about.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from grants.catalog import Catalog, NotFound
from grants.model import Directory, GameTable, Observed, OwnTable, Principal, Securable, folded, securable
from grants.observing.left_places import beside
from pipeline.store.database.tables import catalog_snapshots
from pipeline.store.processes.leases import store_now, store_time

_ONLY = 1  # the id of the only row


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """The last snapshot of the catalog, with its age and error."""

    observed: Observed | None  # None: it was never read
    problem: str | None  # why the newest attempt to read it failed; None: it did not
    tried_at: float | None  # Unix seconds by the store's clock; None: nobody has tried


def observe(
    catalog: Catalog,
    schema: Securable,
    now: float,
    own: Mapping[str, OwnTable],
    keys: Iterable[str] | None = None,
    directory: Directory | None = None,
) -> Observed:
    """Read the tables of games and all that bears on them; with `keys` the assignments of these tables only.

    With a game's key go those of its silver and gold tables. `own` are the tables that turnout writes, by key: a
    catalog's table that lies elsewhere is another one.
    What was not read is not in the snapshot, so nobody takes it for empty. A table that goes meanwhile is left out.
    A `directory` that was just read is not read again.

    Raises:
        CatalogUnavailable: the catalog cannot be reached.
        Denied: it does not let us look.
        NotFound: there is no such catalog or schema.
    """
    tables = {key: _beside(each, own.get(key), catalog) for key, each in catalog.tables(schema).items()}
    outer = list(schema.chain())
    direct = {each: catalog.assignments(each) for each in outer}
    owners: dict[Securable, str | None] = {each: catalog.owner(each) for each in outer}
    for key in _read_at_all(tables, keys):
        try:
            direct[tables[key].securable] = catalog.assignments(tables[key].securable)
        except NotFound:
            del tables[key]
            continue
        owners[tables[key].securable] = tables[key].owner
    listed = directory or catalog.directory()
    return Observed(schema, tables, owners, direct, listed, now, reader=catalog.executor)


def _beside(table: GameTable, own: OwnTable | None, catalog: Catalog) -> GameTable:
    if own is None:
        return table
    return replace(beside(table, own.uri, catalog.is_local), game=own.game, follows=own.follows)


def _read_at_all(tables: Mapping[str, GameTable], keys: Iterable[str] | None) -> list[str]:
    """Return of which tables the assignments are read, sorted."""
    if keys is None:
        return sorted(tables)
    named = set(keys)
    return sorted(key for key, table in tables.items() if key in named or table.game in named)


def keep(
    engine: Engine, observed: Observed | None, problem: str | None = None, drift: Mapping[str, int] | None = None
) -> None:
    """Keep the newest snapshot; with None only that it could not be taken: the one before stays, its age tells.

    `drift` are the findings in it that nobody ignores, by class with zeros; None: what has drifted is not known.
    """
    values: dict[str, Any] = {"problem": problem, "tried_at": store_now()}
    if observed is not None:
        found = None if drift is None else json.dumps(dict(drift))
        values |= {"snapshot": as_json(observed), "read_at": observed.read_at, "drift": found}
    with engine.begin() as connection:
        if connection.execute(update(catalog_snapshots).values(values)).rowcount:
            return
    try:
        with engine.begin() as connection:
            connection.execute(insert(catalog_snapshots).values(snapshot_id=_ONLY, **values))
    except IntegrityError:  # another process was first
        with engine.begin() as connection:
            connection.execute(update(catalog_snapshots).values(values))


def read(engine: Engine) -> CatalogSnapshot:
    """Return the snapshot that was kept last."""
    with engine.connect() as connection:
        row = connection.execute(select(catalog_snapshots)).first()
    if row is None:
        return CatalogSnapshot(None, None, None)
    try:
        observed = None if row.snapshot is None else from_json(row.snapshot)
    except (AttributeError, KeyError, TypeError, ValueError):
        return CatalogSnapshot(
            None, "The last reading of the catalog, in table catalog_snapshots, is invalid.", row.tried_at
        )
    return CatalogSnapshot(observed, row.problem, row.tried_at)


def with_fresh(observed: Observed, fresh: Observed) -> Observed:
    """Lay what was just read over an older snapshot; what was not read again stays as it was, but what is gone goes."""
    securables = {*observed.schema.chain(), *(each.securable for each in fresh.tables.values())}
    return replace(
        fresh,
        owners={where: who for where, who in {**observed.owners, **fresh.owners}.items() if where in securables},
        direct={where: held for where, held in {**observed.direct, **fresh.direct}.items() if where in securables},
    )


def as_json(observed: Observed) -> str:
    """Return a snapshot as text for `from_json`."""
    tree = {
        "schema": observed.schema.path,
        "tables": [{**asdict(each), "securable": each.securable.path} for each in observed.tables.values()],
        "owners": [[securable.path, owner] for securable, owner in observed.owners.items()],
        "direct": [
            [securable.path, {principal: sorted(had) for principal, had in grants.items()}]
            for securable, grants in observed.direct.items()
        ],
        "principals": [asdict(each) for each in observed.directory.principals.values()],
        "groups_of": {name: sorted(groups) for name, groups in observed.directory.groups_of.items()},
        "emulated_groups": observed.directory.emulated_groups,
        "ambiguous": {name: list(all_of) for name, all_of in observed.directory.ambiguous.items()},
        "doubtful": {name: sorted(groups) for name, groups in observed.directory.doubtful.items()},
        "hidden": sorted(observed.directory.hidden),
        "whole": [observed.directory.is_whole, observed.directory.is_read],
        "read_at": observed.read_at,
        "notes": observed.notes,
        "reader": observed.reader,
    }
    return json.dumps(tree, separators=(",", ":"))


def from_json(text: str) -> Observed:
    """Return the snapshot that `as_json` wrote."""
    tree: Mapping[str, Any] = json.loads(text)
    principals = [Principal(**each) for each in tree["principals"]]
    tables = [_table(each) for each in tree["tables"]]
    return Observed(
        schema=_securable(tree["schema"]),
        tables={each.key: each for each in tables},
        owners={_securable(path): owner for path, owner in tree["owners"]},
        direct={
            _securable(path): {principal: frozenset(had) for principal, had in grants.items()}
            for path, grants in tree["direct"]
        },
        directory=Directory(
            {folded(each.name): each for each in principals},
            {name: frozenset(groups) for name, groups in tree["groups_of"].items()},
            tree["emulated_groups"],
            {name: tuple(all_of) for name, all_of in tree["ambiguous"].items()},
            {name: frozenset(groups) for name, groups in tree["doubtful"].items()},
            frozenset(tree["hidden"]),
            *tree["whole"],
        ),
        read_at=tree["read_at"],
        notes=tuple(tree["notes"]),
        reader=tree.get("reader", ""),
    )


def age(engine: Engine, observed: Observed) -> float:
    """Return how many seconds ago a snapshot was read, by the store's clock."""
    return max(0.0, store_time(engine) - observed.read_at)


def _table(tree: Mapping[str, Any]) -> GameTable:
    typed = {"securable": _securable(tree["securable"]), "masked_columns": tuple(tree["masked_columns"])}
    return GameTable(**{**tree, **typed})


def _securable(path: Iterable[str]) -> Securable:
    return securable(tuple(path))
