"""Catalogs, schemas and tables: listed, read, made, given to another owner; tables dropped."""

import json
import sqlite3
import uuid
from collections.abc import Mapping
from typing import Any, Final

from grants.model import USE_CATALOG, USE_SCHEMA, Securable, folded
from grants.server.calls import ApiError, Call, as_list, denied, invalid, now
from grants.server.paging import page
from grants.server.rights import find, require_administration, require_sight, standing, type_of
from pipeline.base.errors import Refused

PREFIX: Final = "/api/2.1/unity-catalog"
_TAKEN: Final = "Another table is registered at that location."
_COLUMN = ("name", "type_text", "type_name", "type_json", "position", "nullable")


def catalogs(call: Call) -> Mapping[str, Any]:
    """List the catalogs the caller may see."""
    return _listed(call, "catalogs", None)


def schemas(call: Call) -> Mapping[str, Any]:
    """List the schemas of a catalog that the caller may see."""
    return _listed(call, "schemas", _visible(call, "catalog", call.query.get("catalog_name", "")))


def tables(call: Call) -> Mapping[str, Any]:
    """List the tables of a schema that the caller may see."""
    name = f"{call.query.get('catalog_name', '')}.{call.query.get('schema_name', '')}"
    return _listed(call, "tables", _visible(call, "schema", name))


def catalog(call: Call) -> Mapping[str, Any]:
    """Return one catalog."""
    return _as_json(call.rows, _visible(call, "catalog", call.path["full_name"]))


def schema(call: Call) -> Mapping[str, Any]:
    """Return one schema."""
    return _as_json(call.rows, _visible(call, "schema", call.path["full_name"]))


def table(call: Call) -> Mapping[str, Any]:
    """Return one table."""
    return _as_json(call.rows, _visible(call, "table", call.path["full_name"]))


def make_catalog(call: Call) -> Mapping[str, Any]:
    """Make a catalog."""
    call.require_admin()
    return _made(call, (call.text("name"),), None)


def make_schema(call: Call) -> Mapping[str, Any]:
    """Make a schema in a catalog the caller owns, or may make schemas in."""
    parent = find(call.rows, "catalog", call.text("catalog_name"))
    _require_making(call, parent, "CREATE_SCHEMA", USE_CATALOG)
    return _made(call, (call.text("catalog_name"), call.text("name")), parent)


def make_table(call: Call) -> Mapping[str, Any]:
    """Make an external Delta table known, in a schema the caller owns or may make tables in."""
    path = (call.text("catalog_name"), call.text("schema_name"), call.text("name"))
    parent = find(call.rows, "schema", ".".join(path[:2]))
    _require_making(call, parent, "CREATE_TABLE", USE_SCHEMA)
    if (call.text("table_type"), call.text("data_source_format")) != ("EXTERNAL", "DELTA"):
        raise invalid("Only external Delta tables can be created.")
    columns = [
        {name: column[name] for name in _COLUMN if name in column}
        for column in as_list(call.body.get("columns"), "columns", dict)
    ]
    return _made(call, path, parent, call.text("storage_location"), json.dumps(columns))


def give_catalog(call: Call) -> Mapping[str, Any]:
    """Give a catalog to another owner."""
    return _given(call, "catalog")


def give_schema(call: Call) -> Mapping[str, Any]:
    """Give a schema to another owner."""
    return _given(call, "schema")


def give_table(call: Call) -> Mapping[str, Any]:
    """Give a table to another owner."""
    return _given(call, "table")


def relocate_table(call: Call) -> Mapping[str, Any]:
    """Change where a table lies, with its id and all grants on it; done twice it is done once."""
    call.require_admin()
    was, place = call.text("from"), call.text("to")
    securable = table_of_id(call.rows, call.text("table_id"))
    if securable["location"] not in {was, place}:
        raise invalid(f"{securable['full_name']!r} lies at {securable['location']!r}, not {was!r}.")
    try:
        call.rows.execute("UPDATE securables SET location = ? WHERE id = ?", (place, securable["id"]))
    except sqlite3.IntegrityError as error:
        raise invalid(_TAKEN) from error
    return {"table_id": securable["id"], "storage_location": place}


def table_of_id(rows: sqlite3.Connection, table_id: str) -> sqlite3.Row:
    """Return the table of an id.

    Raises:
        ApiError: 404 when there is none.
    """
    securable: sqlite3.Row | None
    securable = rows.execute("SELECT * FROM securables WHERE id = ? AND location IS NOT NULL", (table_id,)).fetchone()
    if securable is None:
        raise ApiError(404, "TABLE_DOES_NOT_EXIST", f"Table with id {table_id!r} does not exist.")
    return securable


def drop_table(call: Call) -> Mapping[str, Any]:
    """Forget a table with all grants on it; its files stay where they are."""
    securable = find(call.rows, "table", call.path["full_name"])
    require_administration(call, securable)
    call.rows.execute("DELETE FROM securables WHERE id = ?", (securable["id"],))
    return {}


def principal_named(rows: sqlite3.Connection, name: str) -> sqlite3.Row:
    """Return the principal of a name, whatever its casing.

    Raises:
        ApiError: 404 when there is none.
    """
    principal: sqlite3.Row | None
    principal = rows.execute("SELECT * FROM principals WHERE folded = ?", (folded(name),)).fetchone()
    if principal is None:
        raise ApiError(404, "PRINCIPAL_DOES_NOT_EXIST", f"Could not find principal with name {name!r}.")
    return principal


def _visible(call: Call, securable_type: str, full_name: str) -> sqlite3.Row:
    securable = find(call.rows, securable_type, full_name)
    require_sight(call, securable)
    return securable


def _listed(call: Call, plural: str, parent: sqlite3.Row | None) -> Mapping[str, Any]:
    rows = call.rows.execute(
        "SELECT * FROM securables WHERE parent_id IS ? ORDER BY full_name", (parent["id"] if parent else None,)
    ).fetchall()
    seen = {
        row["full_name"]: row for row in rows if call.caller["admin"] or standing(call.rows, call.caller, row).sees()
    }
    shown, more = page(call, list(seen))
    return {**({plural: [_as_json(call.rows, seen[name]) for name in shown]} if shown else {}), **more}


def _as_json(rows: sqlite3.Connection, securable: sqlite3.Row) -> dict[str, Any]:
    owner = rows.execute("SELECT name FROM principals WHERE id = ?", (securable["owner_id"],)).fetchone()
    path = securable["full_name"].split(".")
    answer = {
        "name": path[-1],
        "full_name": securable["full_name"],
        **({"owner": owner["name"]} if owner else {}),
        "created_at": int(securable["created_at"] * 1000),
        **dict(zip(("catalog_name", "schema_name"), path[:-1], strict=False)),
    }
    if len(path) == 3:
        kind = {"table_type": "EXTERNAL", "data_source_format": "DELTA", "storage_location": securable["location"]}
        return {**answer, **kind, "table_id": securable["id"], "columns": json.loads(securable["columns"])}
    return {**answer, f"{type_of(securable)}_id": securable["id"]}


def _given(call: Call, securable_type: str) -> Mapping[str, Any]:
    securable = find(call.rows, securable_type, call.path["full_name"])
    require_administration(call, securable)
    owner = principal_named(call.rows, call.text("owner"))
    call.rows.execute("UPDATE securables SET owner_id = ? WHERE id = ?", (owner["id"], securable["id"]))
    return _as_json(call.rows, find(call.rows, securable_type, securable["full_name"]))


def _require_making(call: Call, parent: sqlite3.Row, privilege: str, use: str) -> None:
    own = standing(call.rows, call.caller, parent)
    if not (own.administers() or (own.holds(privilege) and own.holds(use) and not own.unusable())):
        raise denied(f"{call.caller['name']} may create nothing in {type_of(parent)} {parent['full_name']!r}.")


def _made(
    call: Call,
    path: tuple[str, ...],
    parent: sqlite3.Row | None,
    location: str | None = None,
    columns: str | None = None,
) -> Mapping[str, Any]:
    try:
        name = Securable(tuple(part.lower() for part in path)).full_name
    except Refused as error:
        raise invalid(str(error)) from error
    securable_id = str(uuid.uuid4())
    try:
        call.rows.execute(
            "INSERT INTO securables VALUES (?, ?, ?, ?, ?, ?, ?)",
            (securable_id, name, parent["id"] if parent else None, call.caller["id"], location, columns, now()),
        )
    except sqlite3.IntegrityError as error:
        if "location" in str(error):
            raise invalid(_TAKEN) from error
        raise ApiError(409, "ALREADY_EXISTS", f"{name!r} already exists.") from error
    row = call.rows.execute("SELECT * FROM securables WHERE id = ?", (securable_id,)).fetchone()
    return _as_json(call.rows, row)
