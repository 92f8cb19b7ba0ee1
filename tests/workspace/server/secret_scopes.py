"""Secrets in scopes, and who may read them [sdk workspace, SecretsAPI]."""

import base64
from typing import Final

from tests.workspace.server.calls import ApiError, Call, Json, denied, invalid, missing, route
from tests.workspace.server.people import groups_of, is_admin
from tests.workspace.server.state import Data

_SECRETS: Final = "/api/2.0/secrets"
_LEVELS: Final = ("READ", "WRITE", "MANAGE")
_MAX_BYTES: Final = 131_072  # of a value [sdk workspace, put_secret]: 128 KB


@route("POST", f"{_SECRETS}/scopes/create")
def create_scope(call: Call) -> Json:
    """Make a scope; its maker gets MANAGE, or `initial_manage_principal`, which may only be `users`."""
    name = str(call.needed("scope"))
    if name in call.data.scopes:
        raise ApiError(400, "RESOURCE_ALREADY_EXISTS", f"Scope {name} already exists!")
    first = call.body.get("initial_manage_principal")
    if first not in {None, "users"}:
        raise invalid("initial_manage_principal must be users.")
    call.data.scopes[name] = {"secrets": {}, "acls": {first or call.who["name"]: "MANAGE"}}
    return {}


@route("POST", f"{_SECRETS}/scopes/delete")
def delete_scope(call: Call) -> Json:
    """Delete a scope with all in it."""
    name, _ = _scope(call, call.needed("scope"), "MANAGE")
    del call.data.scopes[name]
    return {}


@route("GET", f"{_SECRETS}/scopes/list")
def list_scopes(call: Call) -> Json:
    """List the scopes that the caller may read."""
    seen = [name for name in sorted(call.data.scopes) if _holds(call.data, call.who, name, "READ")]
    return {"scopes": [{"name": each, "backend_type": "DATABRICKS"} for each in seen]} if seen else {}


@route("POST", f"{_SECRETS}/put")
def put(call: Call) -> Json:
    """Write a secret, or replace it."""
    _, scope = _scope(call, call.needed("scope"), "WRITE")
    body = call.body
    if "bytes_value" in body:
        value = base64.b64decode(body["bytes_value"])
    else:
        value = str(call.needed("string_value")).encode()
    if len(value) > _MAX_BYTES:
        raise ApiError(400, "MAX_SECRET_SIZE_EXCEEDED", "The value of a secret may have at most 128 KB.")
    changed = int(call.world.now() * 1000)
    scope["secrets"][str(call.needed("key"))] = {"value": value.decode("latin-1"), "changed": changed}
    return {}


@route("GET", f"{_SECRETS}/get")
def get(call: Call) -> Json:
    """Return a secret's value in base64."""
    value = value_for(call.data, call.who, call.query.get("scope", ""), call.query.get("key", ""), raw=True)
    return {"key": call.query["key"], "value": base64.b64encode(value.encode("latin-1")).decode()}


@route("GET", f"{_SECRETS}/list")
def list_secrets(call: Call) -> Json:
    """List names of secrets, never values."""
    _, scope = _scope(call, call.query.get("scope", ""), "READ")
    named = [{"key": key, "last_updated_timestamp": each["changed"]} for key, each in sorted(scope["secrets"].items())]
    return {"secrets": named} if named else {}


@route("POST", f"{_SECRETS}/delete")
def delete(call: Call) -> Json:
    """Delete a secret."""
    name, scope = _scope(call, call.needed("scope"), "WRITE")
    if scope["secrets"].pop(call.needed("key"), None) is None:
        raise missing(f"Secret does not exist with scope: {name} and key: {call.body['key']}")
    return {}


@route("POST", f"{_SECRETS}/acls/put")
def put_acl(call: Call) -> Json:
    """Let a principal read, write or manage a scope."""
    _, scope = _scope(call, call.needed("scope"), "MANAGE")
    principal, level = str(call.needed("principal")), call.needed("permission")
    if level not in _LEVELS:
        raise invalid(f"permission must be one of {', '.join(_LEVELS)}.")
    if not any(each["name"] == principal for each in call.data.principals.values()):
        raise missing(f"Principal {principal} does not exist.")
    scope["acls"][principal] = level
    return {}


@route("POST", f"{_SECRETS}/acls/delete")
def delete_acl(call: Call) -> Json:
    """Take a principal's right away."""
    _, scope = _scope(call, call.needed("scope"), "MANAGE")
    if scope["acls"].pop(call.needed("principal"), None) is None:
        raise missing(f"No ACL of {call.body['principal']}.")
    return {}


@route("GET", f"{_SECRETS}/acls/list")
def list_acls(call: Call) -> Json:
    """List who may do what on a scope."""
    _, scope = _scope(call, call.query.get("scope", ""), "MANAGE")
    return {"items": [{"principal": name, "permission": level} for name, level in scope["acls"].items()]}


@route("GET", f"{_SECRETS}/acls/get")
def get_acl(call: Call) -> Json:
    """Return what one principal may do on a scope."""
    _, scope = _scope(call, call.query.get("scope", ""), "MANAGE")
    principal = call.query.get("principal", "")
    if principal not in scope["acls"]:
        raise missing(f"No ACL of {principal}.")
    return {"principal": principal, "permission": scope["acls"][principal]}


def value_for(data: Data, who: Json, scope: str, key: str, *, raw: bool = False) -> str:
    """Return a secret's value where somebody may read it; `raw` has a letter for each byte.

    Raises:
        ApiError: 404, or 403.
    """
    if scope not in data.scopes:
        raise missing(f"Scope {scope} does not exist!")
    if not _holds(data, who, scope, "READ"):
        raise denied(f"User {who['name']} does not have READ permission on scope {scope}")
    kept = data.scopes[scope]["secrets"].get(key)
    if kept is None:
        raise missing(f"Secret does not exist with scope: {scope} and key: {key}")
    value: str = kept["value"]
    return value if raw else value.encode("latin-1").decode("utf-8", "replace")


def _scope(call: Call, name: object, level: str) -> tuple[str, Json]:
    if name not in call.data.scopes:
        raise missing(f"Scope {name} does not exist!")
    if not _holds(call.data, call.who, str(name), level):
        raise denied(f"User {call.who['name']} does not have {level} permission on scope {name}")
    return str(name), call.data.scopes[str(name)]


def _holds(data: Data, who: Json, scope: str, level: str) -> bool:
    acls = data.scopes[scope]["acls"]
    names = [who["name"], *(each["name"] for each in groups_of(data, who["id"]))]
    held = [acls[each] for each in names if each in acls]
    return is_admin(data, who) or any(_LEVELS.index(each) >= _LEVELS.index(level) for each in held)
