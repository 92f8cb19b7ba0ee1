"""Permissions of objects of the workspace, and what they let somebody do.

`GET|PUT|PATCH /api/2.0/permissions/TYPE/ID` [sdk iam, PermissionsAPI]. PUT replaces all, PATCH adds; admins keep
CAN_MANAGE of everything, inherited. A PUT for a job needs exactly one IS_OWNER [cli testserver/permissions.go; iss
databricks/cli#4466].
"""

from typing import Final

from tests.workspace.server.calls import ApiError, Call, Json, denied, invalid, missing, route
from tests.workspace.server.people import groups_of, is_admin
from tests.workspace.server.state import ADMINS, Data

_LEVELS: Final = {
    "jobs": ("CAN_VIEW", "CAN_MANAGE_RUN", "CAN_MANAGE", "IS_OWNER"),
    "apps": ("CAN_USE", "CAN_MANAGE"),
    "directories": ("CAN_READ", "CAN_RUN", "CAN_EDIT", "CAN_MANAGE"),
    "files": ("CAN_READ", "CAN_RUN", "CAN_EDIT", "CAN_MANAGE"),
    "warehouses": ("CAN_VIEW", "CAN_MONITOR", "CAN_USE", "CAN_MANAGE", "IS_OWNER"),
    "sql/warehouses": ("CAN_VIEW", "CAN_MONITOR", "CAN_USE", "CAN_MANAGE", "IS_OWNER"),
    "dashboards": ("CAN_READ", "CAN_RUN", "CAN_EDIT", "CAN_MANAGE"),
    "alertsv2": ("CAN_READ", "CAN_RUN", "CAN_EDIT", "CAN_MANAGE"),
    "database-projects": ("CAN_USE", "CAN_MANAGE"),
}
"""The levels of each type, each with all before it [sdk iam, PermissionLevel; doc security/auth/access-control]."""

_TYPES: Final = {"jobs": "job", "directories": "directory", "files": "file", "dashboards": "dashboard"}
_WHO: Final = {"user_name": "user", "group_name": "group", "service_principal_name": "service_principal"}
_OWNED: Final = frozenset({"jobs", "warehouses", "sql/warehouses"})


def key_of(who: Json) -> tuple[str, str]:
    """Return how a list of permissions names somebody."""
    return next(field for field, kind in _WHO.items() if kind == who["kind"]), who["name"]


def own(data: Data, kind: str, object_id: object, who: Json) -> None:
    """Begin the permissions of a new object: who made it owns or manages it."""
    data.acls[f"{kind}/{object_id}"] = {key_of(who): _LEVELS[kind][-1]}


def grant(data: Data, kind: str, object_id: object, key: tuple[str, str], level: str) -> None:
    """Give a level, unless a higher one is there."""
    levels, acl = _LEVELS[kind], data.acls.setdefault(f"{kind}/{object_id}", {})
    if key not in acl or levels.index(acl[key]) < levels.index(level):
        acl[key] = level


def forget(data: Data, kind: str, object_id: object) -> None:
    """Drop the permissions of an object that is gone."""
    data.acls.pop(f"{kind}/{object_id}", None)


def allows(data: Data, who: Json, kind: str, object_id: object, level: str) -> bool:
    """Return whether somebody has a level on an object, itself, through groups or as an admin."""
    if is_admin(data, who):
        return True
    levels, acl = _LEVELS[kind], data.acls.get(f"{kind}/{object_id}", {})
    held = [acl[key] for key in (key_of(who), *(key_of(group) for group in groups_of(data, who["id"]))) if key in acl]
    return any(levels.index(each) >= levels.index(level) for each in held)


def require(call: Call, kind: str, object_id: object, level: str) -> None:
    """Let only those go on who have a level on an object.

    Raises:
        ApiError: 403.
    """
    if not allows(call.data, call.who, kind, object_id, level):
        raise denied(f"{call.who['name']} does not have {level} permissions on {_TYPES.get(kind, kind)} {object_id}.")


def owner_of(data: Data, kind: str, object_id: object) -> tuple[str, str] | None:
    """Return who owns an object."""
    acl = data.acls.get(f"{kind}/{object_id}", {})
    return next((key for key, level in acl.items() if level == "IS_OWNER"), None)


@route("GET", "/api/2.0/permissions/{kind}/{id}/permissionLevels")
def levels_of(call: Call) -> Json:
    """Return the levels that a type of object knows."""
    kind, _ = _object(call)
    return {"permission_levels": [{"permission_level": each, "description": each} for each in _LEVELS[kind]]}


@route("GET", "/api/2.0/permissions/{kind}/{id}")
@route("GET", "/api/2.0/permissions/{kind}/{part}/{id}")
def read(call: Call) -> Json:
    """Return the permissions of an object."""
    kind, object_id = _object(call)
    require(call, kind, object_id, _LEVELS[kind][0])
    return _as_json(call.data, kind, object_id)


@route("PUT", "/api/2.0/permissions/{kind}/{id}")
@route("PUT", "/api/2.0/permissions/{kind}/{part}/{id}")
def replace(call: Call) -> Json:
    """Replace all permissions of an object: also those that an app's resource had added [iss databricks/cli#4309]."""
    kind, object_id = _object(call)
    require(call, kind, object_id, "CAN_MANAGE")
    wanted = _wanted(call, kind)
    if kind in _OWNED and list(wanted.values()).count("IS_OWNER") != 1:
        raise invalid(f"The {_TYPES.get(kind, kind)} must have exactly one owner.")
    call.data.acls[f"{kind}/{object_id}"] = wanted
    return _as_json(call.data, kind, object_id)


@route("PATCH", "/api/2.0/permissions/{kind}/{id}")
@route("PATCH", "/api/2.0/permissions/{kind}/{part}/{id}")
def add(call: Call) -> Json:
    """Add to the permissions of an object; a new owner takes the place of the old one [unv]."""
    kind, object_id = _object(call)
    require(call, kind, object_id, "CAN_MANAGE")
    wanted, acl = _wanted(call, kind), call.data.acls.setdefault(f"{kind}/{object_id}", {})
    owners = [key for key, level in wanted.items() if level == "IS_OWNER"]
    if len(owners) > 1:
        raise invalid(f"The {_TYPES.get(kind, kind)} must have exactly one owner.")
    left = {key: level for key, level in acl.items() if not (owners and level == "IS_OWNER")}
    call.data.acls[f"{kind}/{object_id}"] = {**left, **wanted}
    return _as_json(call.data, kind, object_id)


def _object(call: Call) -> tuple[str, str]:
    kind = "/".join(call.parts[part] for part in ("kind", "part") if part in call.parts)
    object_id = call.parts["id"]
    if kind not in _LEVELS:
        raise invalid(f"{kind} is not a supported object type.")
    if not _exists(call.data, kind, object_id):
        if kind == "jobs" and not is_admin(call.data, call.who):
            raise denied(f"{call.who['name']} does not have permissions on job {object_id}.")
        raise missing(f"{_TYPES.get(kind, kind).capitalize()} {object_id} does not exist.")
    return kind, object_id


def _exists(data: Data, kind: str, object_id: str) -> bool:
    if kind == "jobs":
        return object_id.isdecimal() and int(object_id) in data.jobs
    return f"{kind}/{object_id}" in data.acls


def _wanted(call: Call, kind: str) -> dict[tuple[str, str], str]:
    wanted: dict[tuple[str, str], str] = {}
    for each in call.body.get("access_control_list") or ():
        names = [field for field in _WHO if each.get(field)]
        if len(names) != 1:
            raise invalid("Each entry names one of user_name, group_name, service_principal_name.")
        key, level = (names[0], str(each[names[0]])), str(each.get("permission_level"))
        if level not in _LEVELS[kind]:
            raise invalid(f"{level} is not a permission level of {kind}.")
        known = [one for one in call.data.principals.values() if one["kind"] == _WHO[key[0]] and one["name"] == key[1]]
        if not known:
            raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"Principal: {key[0]}({key[1]}) does not exist")
        wanted[key] = level
    return wanted


def _as_json(data: Data, kind: str, object_id: str) -> Json:
    entries: list[Json] = [
        {field: name, "all_permissions": [{"permission_level": level, "inherited": False}]}
        for (field, name), level in data.acls.get(f"{kind}/{object_id}", {}).items()
    ]
    inherited = {"permission_level": "CAN_MANAGE", "inherited": True, "inherited_from_object": [f"/{kind}/"]}
    entries.append({"group_name": ADMINS, "all_permissions": [inherited]})
    return {
        "object_id": f"/{kind}/{object_id}",
        "object_type": _TYPES.get(kind, kind),
        "access_control_list": entries,
    }
