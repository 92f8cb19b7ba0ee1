"""Whether the catalog's tables of games are those that turnout writes: external, where the game's table lies.

`pipeline.platforms.local.catalog_checks` finds `tables_of_games` as an extension. Only reads.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from grants.applying.proposals import schema_of
from grants.catalog import Catalog, CatalogUnavailable, NotFound
from grants.catalogs.opening import open_catalog
from grants.model import GameTable, Securable
from grants.observing.external import judged
from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.platforms.local.catalog_checks import CatalogCheck
from pipeline.settings.tree import Paths, Settings

_FEW: Final = 3  # games that are looked up one by one; for more the whole schema is listed


def tables_of_games(
    settings: Settings, paths: Paths, keys: Collection[str], environ: Mapping[str, str]
) -> list[CatalogCheck]:
    """Return what the catalog says of the tables of these games."""
    schema = schema_of(settings.access)
    try:
        tables = _tables(open_catalog(settings.access, paths, environ), schema, keys)
    except (CatalogUnavailable, Refused) as problem:
        detail = f"did not report its tables: {problem}"
        return [CatalogCheck("unknown", f"The catalog of {schema.full_name}", detail, "Run turnout doctor later.")]
    writer = settings.demux.writer
    found = [*(each for key in sorted(keys) if (each := judged(tables.get(key), _place(paths, key), writer)))]
    known = sum(key in tables for key in keys)
    detail = f"has {known} of {len(keys)} tables of games, none of them in the way"
    return found or [CatalogCheck("ok", f"The catalog of {schema.full_name}", detail)]


def _tables(catalog: Catalog, schema: Securable, keys: Collection[str]) -> Mapping[str, GameTable]:
    if len(keys) <= _FEW:
        return {table.key: table for table in _looked_up(catalog, schema, keys)}
    try:
        return catalog.tables(schema)
    except NotFound:  # the controller makes it with the first table
        return {}


def _looked_up(catalog: Catalog, schema: Securable, keys: Collection[str]) -> Iterator[GameTable]:
    for key in keys:
        table = catalog.table(Securable((*schema.path, key)))
        if table is not None:
            yield table


def _place(paths: Paths, key: str) -> str:
    return paths.table(GameKey(key)).uri
