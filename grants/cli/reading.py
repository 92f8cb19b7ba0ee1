"""Reads a game's table as a principal, only by what the catalog hands out to it: the way any reader goes."""

from dataclasses import replace
from urllib.parse import unquote, urlsplit

from grants.applying import proposals
from grants.catalogs.opening import embedded
from grants.observing.left_places import beside
from pipeline.base.errors import Refused
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.opening import rows_of
from pipeline.lake.storage.places import located
from pipeline.settings.access import Access
from pipeline.settings.tree import Paths

Rows = list[tuple[object, ...]]


def rows(access: Access, paths: Paths, key: str, principal: str, limit: int) -> tuple[list[str], Rows]:
    """Return the columns' names and some rows of a game's table, read as a principal.

    Requests a credential with the principal's token; without the right the catalog answers 403, and no file is opened.

    Raises:
        Denied: the principal may not read it; the sentence says what is missing.
        Refused: there is no such principal, no table of this game, or the catalog's table is another one.
        CatalogUnavailable: the catalog cannot be reached.
    """
    catalog = embedded(access, paths)
    schema = proposals.schema_of(access)
    table = catalog.tables(schema).get(key)
    if table is None:
        raise Refused(f"The catalog has no table of {key} yet: the controller registers it after its first rows.")
    location = catalog.location(catalog.token_of(principal), table.table_id)
    other = beside(replace(table, location=location), paths.named(key).uri, catalog.is_local).other
    if other is not None:
        raise Refused(other)
    place = located(location if "://" in location else unquote(urlsplit(location).path))
    try:
        table_rows = rows_of(place).head(limit)
    except DeltaError as error:
        raise Refused(f"The table at {location} cannot be read: {error}") from error
    return table_rows.column_names, [tuple(row.values()) for row in table_rows.to_pylist()]
