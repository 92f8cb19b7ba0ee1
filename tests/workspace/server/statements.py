"""SQL on a warehouse: the few statements that turnout sends. A statement that fails is HTTP 200 with FAILED [sdk sql].

`GRANT`, `REVOKE`, `SHOW GRANTS`, `SELECT ... LIMIT 0`, `CREATE SCHEMA`, `CREATE OR REPLACE VIEW`, `DROP VIEW`; the rest
is PARSE_SYNTAX_ERROR.
"""

import dataclasses
import json
import re
import uuid
from collections.abc import Callable
from typing import Any, Final

from grants.server import calls, permissions, securables
from grants.server import rights as catalog_rights
from tests.workspace.server.calls import ApiError, Call, Json, denied, missing, route
from tests.workspace.server.rights import allows
from tests.workspace.server.unity import embedded

_SQL: Final = "/api/2.0/sql/statements"
_NAME: Final = r"(?:`(?:[^`]|``)+`|\w+)(?:\.(?:`(?:[^`]|``)+`|\w+))*"
_ON: Final = rf"ON\s+(?P<kind>CATALOG|SCHEMA|TABLE)?\s*(?P<name>{_NAME})"
_CODES: Final = {403: "PERMISSION_DENIED", 404: "TABLE_OR_VIEW_NOT_FOUND"}
_ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELED", "CLOSED"})


@route("POST", _SQL)
def execute(call: Call) -> Json:
    """Run a statement: at once, or with `wait_timeout: 0s` at the first look."""
    warehouse = str(call.needed("warehouse_id"))
    if warehouse not in call.data.warehouses:
        raise missing(f"Endpoint {warehouse} does not exist.")
    if not allows(call.data, call.who, "warehouses", warehouse, "CAN_USE"):
        raise denied(f"{call.who['name']} does not have CAN_USE permission on warehouse {warehouse}.")
    kept: Json = {
        "statement_id": str(uuid.uuid4()), "statement": str(call.needed("statement")), "who": call.who["id"],
        "status": {"state": "PENDING"}, "rows": [],
    }  # fmt: skip
    call.data.statements[kept["statement_id"]] = kept
    if call.body.get("wait_timeout", "10s") != "0s":
        _run(call, kept)
    return _shown(kept)


@route("GET", f"{_SQL}/{{id}}")
def look(call: Call) -> Json:
    """Return a statement's state, and its rows."""
    kept = _found(call)
    if kept["status"]["state"] == "PENDING":
        _run(call, kept)
    return _shown(kept)


@route("GET", f"{_SQL}/{{id}}/result/chunks/{{chunk}}")
def chunk(call: Call) -> Json:
    """Return a part of the rows: there is only the first."""
    result: Json = _shown(_found(call)).get("result", {})
    return result


@route("POST", f"{_SQL}/{{id}}/cancel")
def cancel(call: Call) -> Json:
    """Cancel a statement; an ended statement keeps its state."""
    kept = _found(call)
    if kept["status"]["state"] not in _ENDED:
        kept["status"] = {"state": "CANCELED"}
    return {}


def _found(call: Call) -> Json:
    kept = call.data.statements.get(call.parts["id"])
    if kept is None or kept["who"] != call.who["id"]:
        raise missing(f"The statement {call.parts['id']} was not found.")
    return kept


def _run(call: Call, kept: Json) -> None:
    try:
        kept["rows"] = _rows(call, kept["statement"].strip().rstrip(";"))
        kept["status"] = {"state": "SUCCEEDED"}
    except ApiError as error:
        code = _CODES.get(error.status, error.code)
        message = f"[{error.code}] {error}"
        kept["status"] = {"state": "FAILED", "error": {"error_code": "BAD_REQUEST", "message": f"{code}: {message}"}}


def _rows(call: Call, text: str) -> list[list[str]]:
    for pattern, act in _STATEMENTS:
        if (found := re.fullmatch(pattern, text, re.IGNORECASE | re.DOTALL)) is not None:
            return act(call, found.groupdict())
    raise ApiError(400, "PARSE_SYNTAX_ERROR", f"Syntax error at or near {text.split(' ', maxsplit=1)[0]!r}.")


def _change(call: Call, found: dict[str, Any]) -> list[list[str]]:
    verb = "add" if found["verb"].upper() == "GRANT" else "remove"
    privileges = [" ".join(each.split()).replace(" ", "_").upper() for each in found["privileges"].split(",")]
    changes = [{"principal": _plain(found["whom"])[0], verb: privileges}]
    _as(call, permissions.change, {"changes": changes}, **_securable(found))
    return []


def _show(call: Call, found: dict[str, Any]) -> list[list[str]]:
    where = _securable(found)
    held = _as(call, permissions.assignments, {}, **where).get("privilege_assignments", [])
    return [
        [each["principal"], privilege.replace("_", " "), where["securable_type"].upper(), where["full_name"]]
        for each in held
        for privilege in each["privileges"]
    ]


def _select(call: Call, found: dict[str, Any]) -> list[list[str]]:
    def act(inner: calls.Call) -> Json:
        table = catalog_rights.find(inner.rows, "table", ".".join(_plain(found["name"])))
        lacking = catalog_rights.standing(inner.rows, inner.caller, table).unreadable()
        if lacking:
            raise denied(f"User does not have {' and '.join(lacking)}.")
        return {}

    embedded(call, act)
    return []


def _make_schema(call: Call, found: dict[str, Any]) -> list[list[str]]:
    catalog, schema = _plain(found["name"])
    try:
        _as(call, securables.make_schema, {"catalog_name": catalog, "name": schema}, full_name="")
    except ApiError as error:
        if error.status != 409 or not found["quiet"]:
            raise
    return []


def _make_view(call: Call, found: dict[str, Any]) -> list[list[str]]:
    """Make a view, or replace its query: it keeps its id and grants. Here it is a table whose location is no place."""
    catalog, schema, name = _plain(found["name"])
    full_name = f"{catalog}.{schema}.{name}"
    if full_name in call.data.views:
        call.data.views[full_name] = found["query"]
        return []
    definition = {
        "catalog_name": catalog, "schema_name": schema, "name": name, "table_type": "EXTERNAL",
        "data_source_format": "DELTA", "storage_location": f"view:/{full_name}", "columns": [],
    }  # fmt: skip
    _as(call, securables.make_table, definition, full_name="")
    call.data.views[full_name] = found["query"]
    return []


def _drop_view(call: Call, found: dict[str, Any]) -> list[list[str]]:
    full_name = ".".join(_plain(found["name"]))
    if call.data.views.pop(full_name, None) is not None:
        _as(call, securables.drop_table, {}, full_name=full_name)
    return []


_STATEMENTS: Final[tuple[tuple[str, Callable[[Call, dict[str, Any]], list[list[str]]]], ...]] = (
    (rf"(?P<verb>GRANT)\s+(?P<privileges>[\w\s,]+?)\s+{_ON}\s+TO\s+(?P<whom>{_NAME})", _change),
    (rf"(?P<verb>REVOKE)\s+(?P<privileges>[\w\s,]+?)\s+{_ON}\s+FROM\s+(?P<whom>{_NAME})", _change),
    (rf"SHOW\s+GRANTS\s+{_ON}", _show),
    (rf"SELECT\s+1\s+FROM\s+(?P<name>{_NAME})\s+LIMIT\s+0", _select),
    (rf"CREATE\s+OR\s+REPLACE\s+VIEW\s+(?P<name>{_NAME})\s+AS\s+(?P<query>SELECT\s.+)", _make_view),
    (rf"DROP\s+VIEW\s+IF\s+EXISTS\s+(?P<name>{_NAME})", _drop_view),
    (rf"CREATE\s+SCHEMA\s+(?P<quiet>IF\s+NOT\s+EXISTS\s+)?(?P<name>{_NAME})", _make_schema),
)


def _as(call: Call, handler: calls.Handler, body: Json, **path: str) -> Json:
    return embedded(dataclasses.replace(call, raw=json.dumps(body).encode(), query={}), handler, **path)


def _securable(found: dict[str, Any]) -> dict[str, str]:
    path = _plain(found["name"])
    kind = (found["kind"] or ("catalog", "schema", "table")[len(path) - 1]).lower()
    return {"securable_type": kind, "full_name": ".".join(path)}


def _plain(name: str) -> list[str]:
    """Return the parts of a name, without quotes; a quoted part may have dots."""
    parts = re.findall(r"`((?:[^`]|``)+)`|(\w+)", name)
    return [quoted.replace("``", "`") or bare for quoted, bare in parts]


def _shown(kept: Json) -> Json:
    answer: Json = {"statement_id": kept["statement_id"], "status": kept["status"]}
    if kept["status"]["state"] == "SUCCEEDED":
        rows = kept["rows"]
        answer["manifest"] = {"format": "JSON_ARRAY", "total_row_count": len(rows), "total_chunk_count": 1}
        answer["result"] = {"chunk_index": 0, "row_count": len(rows), "row_offset": 0, "data_array": rows}
    return answer
