"""The part of Unity Catalog's REST API that Databricks, the open-source server and ours have in common."""

from collections.abc import Mapping, Sequence
from typing import Final

from grants.catalog import CatalogUnavailable, NotFound
from grants.catalogs.columns import described, table_of
from grants.catalogs.rest import Rest, path_of
from grants.model import GameTable, Securable, same_place, spelled
from pipeline.base.errors import Refused

PREFIX: Final = "/api/2.1/unity-catalog"


def tables(rest: Rest, schema: Securable) -> Mapping[str, GameTable]:
    """Return the tables of a schema by name, without views and those whose name no game's table can have."""
    catalog_name, schema_name = schema.path
    rest.read(path_of(f"{PREFIX}/schemas", schema.full_name))  # some answer for a schema that is gone with no tables
    body_fields = {"catalog_name": catalog_name, "schema_name": schema_name}
    found = rest.pages(f"{PREFIX}/tables", "tables", body_fields)
    listed_tables = (table_of(schema, each) for each in found if each.get("table_type") != "VIEW")
    return {table.key: table for table in listed_tables if table is not None}


def table(rest: Rest, securable: Securable) -> GameTable | None:
    """Return one table; None where the catalog has none of that name."""
    try:
        answer = rest.read(path_of(f"{PREFIX}/tables", securable.full_name))
    except NotFound:
        return None
    return table_of(Securable(securable.path[:2]), answer)


def owner(rest: Rest, securable: Securable) -> str | None:
    """Return who owns a securable; None where that is not known."""
    name = rest.read(path_of(f"{PREFIX}/{securable.type}s", securable.full_name)).get("owner")
    return name if isinstance(name, str) and name else None


def permissions_path(securable: Securable) -> str:
    """Return where the grants on a securable are read and changed; types are in lower case everywhere."""
    return path_of(f"{PREFIX}/permissions", securable.type, securable.full_name)


def assignments(rest: Rest, securable: Securable) -> Mapping[str, frozenset[str]]:
    """Return the assignments in our spelling; deleted principals have no name and count as one."""
    held: dict[str, frozenset[str]] = {}
    for each in rest.pages(permissions_path(securable), "privilege_assignments"):
        principal, privileges = each.get("principal") or "", each.get("privileges") or []
        are_listed = isinstance(privileges, list) and all(isinstance(privilege, str) for privilege in privileges)
        if not isinstance(principal, str) or not are_listed:
            raise CatalogUnavailable(f"The grants on {securable.full_name} are malformed in the catalog's answer.")
        held[principal] = held.get(principal, frozenset()) | {spelled(privilege) for privilege in privileges}
    return {principal: privileges for principal, privileges in held.items() if privileges}


def register(rest: Rest, table: Securable, location: str, columns: Sequence[tuple[str, str]], comment: str) -> bool:
    """Register a table with its schema and catalog; return False if it was known.

    Raises:
        Refused: the name is taken by a table that lies elsewhere, or the catalog does not take it.
    """
    catalog_name, schema_name, name = table.path
    if _is_known(rest, table, location):
        return False
    definition = {
        "name": name,
        "catalog_name": catalog_name,
        "schema_name": schema_name,
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": location,
        "columns": described(columns),
        **({"comment": comment} if comment else {}),
    }
    try:
        try:
            rest.write("POST", f"{PREFIX}/tables", definition)
        except NotFound:
            _make(rest, Securable(table.path[:1]), {"name": catalog_name})
            _make(rest, Securable(table.path[:2]), {"name": schema_name, "catalog_name": catalog_name})
            rest.write("POST", f"{PREFIX}/tables", definition)
    except Refused:
        if not _is_known(rest, table, location):  # known by now: ours whose answer was lost, or another process's
            raise
        return False
    return True


def _is_known(rest: Rest, table: Securable, location: str) -> bool:
    try:
        answer = rest.read(path_of(f"{PREFIX}/tables", table.full_name))
    except NotFound:
        return False
    registered_at = str(answer.get("storage_location") or "")
    if answer.get("table_type") == "MANAGED":
        raise Refused(f"{table.full_name} is a managed table of the catalog, not the one at {location!r}.")
    if not same_place(registered_at, location):
        raise Refused(f"{table.full_name} is registered in the catalog at {registered_at!r}, not {location!r}.")
    return True


def _make(rest: Rest, securable: Securable, body: Mapping[str, str]) -> None:
    try:
        rest.read(path_of(f"{PREFIX}/{securable.type}s", securable.full_name))
        return
    except NotFound:
        pass
    try:
        rest.write("POST", f"{PREFIX}/{securable.type}s", body)
    except Refused:
        rest.read(path_of(f"{PREFIX}/{securable.type}s", securable.full_name))  # fine if it is there by now
