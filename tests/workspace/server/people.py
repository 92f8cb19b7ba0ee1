"""Sign-in by client credentials, and users, groups and service principals in SCIM's form.

The SDK reads `/.well-known/databricks-config` first, then the address of the token endpoint. Tokens of client
credentials live for `token_seconds`.
"""

import base64
import binascii
import re
import secrets
from typing import Any, Final
from urllib.parse import parse_qsl

from tests.workspace.server.calls import Answer, Call, Json, as_json, missing, route
from tests.workspace.server.state import ADMINS, EVERYBODY, WORKSPACE_ID, Data, World

_SCIM: Final = "/api/2.0/preview/scim/v2"
_KINDS: Final = {"Users": "user", "Groups": "group", "ServicePrincipals": "service_principal"}
_NAMES: Final = {"user": "userName", "group": "displayName", "service_principal": "applicationId"}
_FILTER: Final = re.compile(r'(\w+) +(eq|co|sw) +"([^"]*)"|(\w+) +(eq|co|sw) +(\S+)')
_ONE_MEMBER: Final = re.compile(r'members\[value eq "([^"\]]+)"\]')
_MAX_PAGE: Final = 100


@route("GET", "/.well-known/databricks-config", is_open=True)
def known_config(call: Call) -> Json:
    """Say where sign-in is: databricks-sdk 0.156 finds the token endpoint of client credentials nowhere else.

    A 404 here leaves tokens usable, and breaks client credentials [sdk config.py, `databricks_oidc_endpoints`; run].
    """
    if not call.world.settings.has_config:
        raise missing("No API found for 'GET /.well-known/databricks-config'")
    return {"oidc_endpoint": f"{call.world.url}/oidc", "workspace_id": WORKSPACE_ID}


@route("GET", "/oidc/.well-known/oauth-authorization-server", is_open=True)
def endpoints(call: Call) -> Json:
    """Say where tokens are [sdk oauth.py, `get_workspace_endpoints`]."""
    return {
        "authorization_endpoint": f"{call.world.url}/oidc/v1/authorize",
        "token_endpoint": f"{call.world.url}/oidc/v1/token",
    }


@route("POST", "/oidc/v1/token", is_open=True)
def token(call: Call) -> Answer:
    """Give a short-lived token for client credentials: Basic, or in the form [sdk oauth.py, `ClientCredentials`]."""
    form = dict(parse_qsl(call.raw.decode()))
    client, secret = form.get("client_id", ""), form.get("client_secret", "")
    scheme, _, given = call.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            client, _, secret = base64.b64decode(given).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return as_json({"error": "invalid_request"}, 400)
    if form.get("grant_type") != "client_credentials":
        return as_json({"error": "unsupported_grant_type"}, 400)
    who = named(call.world.data, client)
    kept = call.world.data.client_secrets.get(client)
    if who is None or kept is None or not secrets.compare_digest(kept, secret):
        return as_json({"error": "invalid_client", "error_description": "Client authentication failed"}, 401)
    seconds = call.world.settings.token_seconds
    made = call.world.mint(who["id"], seconds)
    return as_json(
        {"access_token": made, "token_type": "Bearer", "expires_in": max(1, int(seconds)), "scope": "all-apis"}
    )


def new_client_secret(world: World, application_id: str) -> str:
    """Return the secret with which a service principal gets tokens."""
    world.data.client_secrets[application_id] = f"dose{secrets.token_hex(16)}"
    return world.data.client_secrets[application_id]


def named(data: Data, name: str) -> Json | None:
    """Return a user or service principal by its name: an e-mail address, or an application id."""
    return next((each for each in data.principals.values() if each["kind"] != "group" and each["name"] == name), None)


def groups_of(data: Data, principal_id: str) -> list[Json]:
    """Return the groups that a principal is in, itself or through others."""
    found: dict[str, Json] = {}
    waiting = [principal_id]
    while waiting:
        inner = waiting.pop()
        for each in data.principals.values():
            if inner in each["members"] and each["id"] not in found:
                found[each["id"]] = each
                waiting.append(each["id"])
    return list(found.values())


def is_admin(data: Data, who: Json) -> bool:
    """Return whether somebody is in the group `admins`."""
    return any(each["display"] == ADMINS for each in groups_of(data, who["id"]))


def scim_error(status: int, detail: str, kind: str | None = None) -> Answer:
    """Return an error in SCIM's form [sdk errors/parser.py, `_parse_scim`]."""
    body: Json = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:Error"],
        "detail": detail,
        "status": str(status),
        **({"scimType": kind} if kind else {}),
    }
    return as_json(body, status)


@route("GET", f"{_SCIM}/Me")
def me(call: Call) -> Json:
    """Return the caller; `userName` of a service principal is its application id [sdk iam, CurrentUserAPI]."""
    return {"userName": call.who["name"], **_resource(call.data, call.who)}


@route("GET", f"{_SCIM}/{{kind}}")
def listed(call: Call) -> Json | Answer:
    """List one kind, `count` from `startIndex` on, by a filter such as `userName eq "x"` [sdk iam]."""
    kind = _kind(call)
    rows = [each for each in call.data.principals.values() if each["kind"] == kind]
    if text := call.query.get("filter"):
        found = _FILTER.fullmatch(text.strip())
        if found is None:
            return scim_error(400, f"Given filter operator is not supported: {text}", "invalidFilter")
        field, operator, value = found.groups()[:3] if found[1] else found.groups()[3:]
        rows = [each for each in rows if _holds(_resource(call.data, each).get(field), operator, value)]
    start = max(1, call.number("startIndex", 1))
    shown = rows[start - 1 : start - 1 + min(call.number("count", _MAX_PAGE), _MAX_PAGE)]
    page = {"totalResults": len(rows), "startIndex": start, "itemsPerPage": len(shown)}
    resources = [_resource(call.data, each) for each in shown]
    if not (call.world.settings.shows_members or is_admin(call.data, call.who)):
        resources = [{name: value for name, value in each.items() if name != "members"} for each in resources]
    return {**page, "Resources": resources}


@route("POST", f"{_SCIM}/{{kind}}")
def make(call: Call) -> Answer:
    """Make a principal: 201, or 409 where one has this name. Only admins may."""
    if not is_admin(call.data, call.who):
        return scim_error(403, "Only admins can create principals.")
    kind, body = _kind(call), call.body
    display = body.get("displayName") or body.get("userName") or ""
    name = {"user": body.get("userName"), "group": display}.get(kind) or body.get("applicationId") or ""
    if kind != "service_principal" and not name:
        return scim_error(400, f"Missing {_NAMES[kind]}", "invalidValue")
    if any(each["kind"] == kind and each["name"].lower() == name.lower() for each in call.data.principals.values()):
        return scim_error(409, f"{kind} with name {name} already exists.", "uniqueness")
    members = tuple(str(each["value"]) for each in body.get("members") or ())
    made = call.world.add_principal(kind, name, display, member_ids=members)
    if kind == "service_principal" and not name:
        made["name"] = made["uuid"]
    return as_json(_resource(call.data, made), 201)


@route("GET", f"{_SCIM}/{{kind}}/{{id}}")
def one(call: Call) -> Json | Answer:
    """Return one principal by its id."""
    found = _found(call)
    return _resource(call.data, found) if found else _absent(call)


@route("PATCH", f"{_SCIM}/{{kind}}/{{id}}")
def patch(call: Call) -> Json | Answer:
    """Change members of a group, or whether somebody is active."""
    found = _found(call)
    if found is None:
        return _absent(call)
    if not is_admin(call.data, call.who):
        return scim_error(403, "Only admins can change principals.")
    for each in call.body.get("Operations") or ():
        verb, path, value = str(each.get("op", "")).lower(), each.get("path"), each.get("value")
        if verb == "add" and path in {None, "members"}:
            added = value["members"] if path is None else value
            known = [str(member["value"]) for member in added if str(member["value"]) not in found["members"]]
            found["members"].extend(known)
        elif verb == "remove" and isinstance(path, str) and (member := _ONE_MEMBER.fullmatch(path)):
            found["members"] = [one_id for one_id in found["members"] if one_id != member[1]]
        elif verb == "replace" and path in {"active", "displayName"}:
            found["active" if path == "active" else "display"] = value
        else:
            return scim_error(400, f"Unsupported operation: {each}", "invalidPath")
    return _resource(call.data, found)


@route("DELETE", f"{_SCIM}/{{kind}}/{{id}}")
def delete(call: Call) -> Answer:
    """Delete a principal; its tokens are worth nothing from then on."""
    found = _found(call)
    if found is None:
        return _absent(call)
    if not is_admin(call.data, call.who):
        return scim_error(403, "Only admins can delete principals.")
    remove(call.data, found)
    return Answer(204, b"")


def remove(data: Data, principal: Json) -> None:
    """Take a principal out of the workspace and of all its groups."""
    del data.principals[principal["id"]]
    data.client_secrets.pop(principal["name"], None)
    for each in data.principals.values():
        each["members"] = [one_id for one_id in each["members"] if one_id != principal["id"]]


def _kind(call: Call) -> str:
    if call.parts["kind"] not in _KINDS:
        raise missing(f"No API found for '{call.method} {call.path}'")
    return _KINDS[call.parts["kind"]]


def _found(call: Call) -> Json | None:
    found = call.data.principals.get(call.parts["id"])
    return found if found is not None and found["kind"] == _kind(call) else None


def _absent(call: Call) -> Answer:
    return scim_error(404, f"{_kind(call)} with id {call.parts['id']} not found.")


def _holds(found: Any, operator: str, value: str) -> bool:
    text, wanted = str(found or "").lower(), value.lower()
    return {"eq": text == wanted, "co": wanted in text, "sw": text.startswith(wanted)}[operator]


def _resource(data: Data, each: Json) -> Json:
    resource: Json = {"id": each["id"], _NAMES[each["kind"]]: each["name"], "displayName": each["display"]}
    inside = [one for one in data.principals.values() if each["id"] in one["members"]]
    resource["groups"] = [
        {"value": one["id"], "display": one["display"], "type": "direct", "$ref": f"Groups/{one['id']}"}
        for one in inside
        if one["display"] != EVERYBODY
    ]
    if each["kind"] != "group":
        emails = {"emails": [{"value": each["name"], "primary": True}]} if each["kind"] == "user" else {}
        return {**resource, "active": each["active"], **emails}
    plurals = {kind: plural for plural, kind in _KINDS.items()}
    members = [data.principals[one] for one in each["members"] if one in data.principals]
    resource["members"] = [
        {"value": one["id"], "display": one["display"], "$ref": f"{plurals[one['kind']]}/{one['id']}"}
        for one in members
    ]
    kind = "WorkspaceGroup" if each["display"] in {ADMINS, EVERYBODY} else "Group"
    return {**resource, "meta": {"resourceType": kind}}
