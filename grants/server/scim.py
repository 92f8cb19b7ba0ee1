"""Users, groups and service principals, in SCIM's form: listed, made, put into groups, deactivated, deleted."""

import re
import sqlite3
import uuid
from collections.abc import Mapping
from typing import Any, Final

from grants.model import folded
from grants.server.calls import ApiError, Call, as_list, as_text, invalid
from grants.server.rows import EVERYONE_ID

PREFIX: Final = "/api/2.0/preview/scim/v2"
_KINDS: Final = {"Users": "user", "Groups": "group", "ServicePrincipals": "service_principal"}
_NAME: Final = {"user": "userName", "group": "displayName", "service_principal": "applicationId"}
_MAX_PAGE: Final = 100  # of one page
_ONE_MEMBER: Final = re.compile(r'members\[value eq "([^"\]]+)"\]')


def me(call: Call) -> Mapping[str, Any]:
    """Return the caller, a service principal's application id as its user name."""
    return {"userName": call.caller["name"], **_as_json(call.rows, call.caller)}


def listed(call: Call) -> Mapping[str, Any]:
    """List all of one kind, `count` from `startIndex` on."""
    call.require_admin()
    start = max(1, call.number("startIndex", 1))
    rows = call.rows.execute(
        "SELECT * FROM principals WHERE kind = ? AND id != ? ORDER BY rowid", (_kind(call), EVERYONE_ID)
    ).fetchall()
    shown = rows[start - 1 : start - 1 + min(call.number("count", _MAX_PAGE), _MAX_PAGE)]
    page = {"totalResults": len(rows), "startIndex": start, "itemsPerPage": len(shown)}
    return {**page, "Resources": [_as_json(call.rows, row) for row in shown]}


def one(call: Call) -> Mapping[str, Any]:
    """Return one principal by its id."""
    call.require_admin()
    return _as_json(call.rows, _found(call))


def make(call: Call) -> Mapping[str, Any]:
    """Make a principal; a group with its members."""
    call.require_admin()
    kind = _kind(call)
    name = call.text(_NAME[kind], str(uuid.uuid4()) if kind == "service_principal" else None)
    display = call.text("displayName", name)
    principal_id = str(uuid.uuid4())
    try:
        call.rows.execute(
            "INSERT INTO principals (id, kind, name, folded, display) VALUES (?, ?, ?, ?, ?)",
            (principal_id, kind, name, folded(name), display),
        )
    except sqlite3.IntegrityError as error:
        raise ApiError(409, "RESOURCE_ALREADY_EXISTS", f"A principal named {name!r} already exists.") from error
    if kind == "group":
        _add(call.rows, principal_id, as_list(call.body.get("members"), "members", dict))
    return _as_json(call.rows, _by_id(call.rows, kind, principal_id))


def patch(call: Call) -> Mapping[str, Any]:
    """Change a group's members, or whether a user is active."""
    call.require_admin()
    principal = _found(call)
    for operation in as_list(call.body.get("Operations"), "Operations", dict):
        if principal["kind"] == "group":
            _patch_members(call.rows, principal["id"], operation)
        else:
            _patch_activity(call.rows, principal, operation)
    return _as_json(call.rows, _found(call))


def delete(call: Call) -> Mapping[str, Any]:
    """Delete a principal with its tokens and memberships; what it was granted stays, without a name."""
    call.require_admin()
    principal = _found(call)
    if principal["admin"]:
        raise invalid("The metastore admin cannot be deleted: nobody could change anything afterwards.")
    call.rows.execute("DELETE FROM principals WHERE id = ?", (principal["id"],))
    return {}


def _kind(call: Call) -> str:
    kind = _KINDS.get(call.path["kind"])
    if kind is None:
        raise ApiError(404, "ENDPOINT_NOT_FOUND", "Unknown resource. Use Users, Groups or ServicePrincipals.")
    return kind


def _found(call: Call) -> sqlite3.Row:
    return _by_id(call.rows, _kind(call), call.path["id"])


def _by_id(rows: sqlite3.Connection, kind: str, principal_id: str) -> sqlite3.Row:
    principal: sqlite3.Row | None
    principal = rows.execute("SELECT * FROM principals WHERE kind = ? AND id = ?", (kind, principal_id)).fetchone()
    if principal is None or principal_id == EVERYONE_ID:
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"No {kind.replace('_', ' ')} has that id.")
    return principal


def _as_json(rows: sqlite3.Connection, principal: sqlite3.Row) -> dict[str, Any]:
    resource = {"id": principal["id"], _NAME[principal["kind"]]: principal["name"], "displayName": principal["display"]}
    parents = _related(rows, "member_id", "group_id", principal["id"])
    resource["groups"] = [{"value": row["id"], "display": row["name"], "type": "direct"} for row in parents]
    if principal["kind"] != "group":
        return {**resource, "active": bool(principal["active"])}
    members = [
        {"value": row["id"], "display": row["display"], "$ref": f"{_plural(row['kind'])}/{row['id']}"}
        for row in _related(rows, "group_id", "member_id", principal["id"])
    ]
    return {**resource, "members": members, "meta": {"resourceType": "Group"}}


def _related(rows: sqlite3.Connection, by: str, wanted: str, principal_id: str) -> list[sqlite3.Row]:
    return rows.execute(
        f"SELECT principals.* FROM members JOIN principals ON principals.id = {wanted}"  # noqa: S608 - two constants
        f" WHERE {by} = ? ORDER BY principals.rowid",
        (principal_id,),
    ).fetchall()


def _plural(kind: str) -> str:
    return next(plural for plural, each in _KINDS.items() if each == kind)


def _add(rows: sqlite3.Connection, group_id: str, members: list[dict[str, Any]]) -> None:
    for member in members:
        value = as_text(member.get("value"), "members.value")
        if value == EVERYONE_ID or not rows.execute("SELECT 1 FROM principals WHERE id = ?", (value,)).fetchone():
            raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"No principal has the id {value!r}.")
        rows.execute("INSERT INTO members VALUES (?, ?) ON CONFLICT DO NOTHING", (group_id, value))


def _patch_members(rows: sqlite3.Connection, group_id: str, operation: Mapping[str, Any]) -> None:
    verb, path, value = operation.get("op"), operation.get("path"), operation.get("value")
    if verb == "add" and path == "members":
        _add(rows, group_id, as_list(value, "value", dict))
    elif verb == "add" and path is None and isinstance(value, dict):
        _add(rows, group_id, as_list(value.get("members"), "members", dict))
    elif verb == "remove" and isinstance(path, str) and (member := _ONE_MEMBER.fullmatch(path)):
        rows.execute("DELETE FROM members WHERE group_id = ? AND member_id = ?", (group_id, member[1]))
    else:
        raise invalid('Add members with the path members, and remove them with members[value eq "ID"].')


def _patch_activity(rows: sqlite3.Connection, principal: sqlite3.Row, operation: Mapping[str, Any]) -> None:
    value = operation.get("value")
    if operation.get("op") != "replace" or operation.get("path") != "active" or not isinstance(value, bool):
        raise invalid("Only `active` of a user or service principal can be replaced.")
    if principal["admin"] and not value:
        raise invalid("The metastore admin cannot be deactivated: nobody could change anything afterwards.")
    rows.execute("UPDATE principals SET active = ? WHERE id = ?", (int(value), principal["id"]))
