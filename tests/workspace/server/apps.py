"""Databricks Apps as the API shows and changes them [sdk apps; cli testserver/apps.go, dresources/app.go].

`running_apps` starts them as processes of this machine. An app has a service principal of its own, whose client id and
secret its process gets.
"""

import uuid
from datetime import UTC, datetime
from typing import Any, Final

from tests.workspace.server import lakebase, rights, secret_scopes
from tests.workspace.server.app_proxy import AppProxy
from tests.workspace.server.calls import ApiError, Call, Json, denied, invalid, missing, page_of, route
from tests.workspace.server.people import new_client_secret
from tests.workspace.server.state import World

_APPS: Final = "/api/2.0/apps"
_FIELDS: Final = (
    "description", "resources", "user_api_scopes", "compute_size", "compute_min_instances", "compute_max_instances",
    "budget_policy_id", "usage_policy_id", "telemetry_export_destinations", "git_repository",
    "forward_user_access_token",
)  # fmt: skip
"""The fields of an update [sdk apps, AppUpdate]."""

_KINDS: Final = (
    "app", "database", "experiment", "genie_space", "job", "postgres", "secret", "serving_endpoint", "sql_warehouse",
    "uc_securable",
)  # fmt: skip
_DEPLOYED: Final = ("source_code_path", "mode", "command", "env_vars", "health_check")
_UNDEPLOYED: Final = "App status is unavailable."


@route("POST", _APPS)
def create(call: Call) -> Json:
    """Make an app: 409 where one has this name, also while that is DELETING; `no_compute` leaves it stopped."""
    body = call.body
    name = str(call.needed("name"))
    if name in call.data.apps:
        raise ApiError(409, "RESOURCE_ALREADY_EXISTS", f"An app with the same name already exists: {name}")
    principal = call.world.add_principal("service_principal", "", f"app-{name}")
    principal["name"] = principal["uuid"]
    new_client_secret(call.world, principal["name"])
    is_stopped = call.says("no_compute")
    app: Json = {
        "name": name, "id": str(uuid.uuid4()), "principal": principal["id"],
        "client_id": principal["name"], "creator": call.who["name"],
        "fields": {"compute_size": "MEDIUM", **{key: body[key] for key in _FIELDS if key in body}},
        "compute": "STOPPED" if is_stopped else "STARTING", "since": call.world.now(),
        "status": "UNAVAILABLE", "message": _UNDEPLOYED, "source": None,
        "active": None, "pending": None, "deployments": {}, "update": None, "created": call.world.now(),
    }  # fmt: skip
    attach(call, app, app["fields"].get("resources") or [])
    proxy = call.world.alive[f"proxy {name}"] = AppProxy(call.world, name)
    app["url"] = proxy.url
    call.data.apps[name] = app
    rights.own(call.data, "apps", name, call.who)
    return shown(app)


@route("GET", _APPS)
def listed(call: Call) -> Json:
    """List the apps that the caller may use, page by page."""
    apps = [
        app
        for name, app in sorted(call.data.apps.items())
        if rights.allows(call.data, call.who, "apps", name, "CAN_USE")
    ]
    page, following, _ = page_of(apps, call.number("page_size", 100) or 100, call.query.get("page_token"))
    return {
        **({"apps": [shown(app) for app in page]} if page else {}),
        **({"next_page_token": following} if following else {}),
    }


@route("GET", f"{_APPS}/{{name}}")
def get(call: Call) -> Json:
    """Return an app; while it is DELETING, too."""
    return shown(_app(call, "CAN_USE"))


@route("PATCH", f"{_APPS}/{{name}}")
def patch(call: Call) -> Json:
    """Replace the fields that the body has: the old way [sdk apps]."""
    app = _app(call, "CAN_MANAGE")
    _change(call, app, {key: call.body[key] for key in _FIELDS if key in call.body})
    return shown(app)


@route("POST", f"{_APPS}/{{name}}/update")
def update(call: Call) -> Json:
    """Begin to replace each field that the mask names, wholly; a field that the body lacks is emptied."""
    app = _app(call, "CAN_MANAGE")
    mask = [each.strip() for each in str(call.needed("update_mask")).split(",") if each.strip()]
    unknown = [each for each in mask if each not in _FIELDS]
    if unknown:
        raise invalid(f"update_mask: unknown field {unknown[0]}.")
    if (app["update"] or {}).get("state") == "IN_PROGRESS":
        raise ApiError(409, "RESOURCE_CONFLICT", f"App {app['name']} is being updated.")
    given = call.body.get("app") or {}
    wanted = {each: given.get(each) for each in mask}
    attach(call, app, wanted.get("resources") or [])
    app["update"] = {"state": "IN_PROGRESS", "fields": wanted, "since": call.world.now()}
    return _update_json(app)


@route("GET", f"{_APPS}/{{name}}/update")
def see_update(call: Call) -> Json:
    """Return the last update's state."""
    return _update_json(_app(call, "CAN_USE"))


@route("POST", f"{_APPS}/{{name}}/deployments")
def deploy(call: Call) -> Json:
    """Begin to deploy what lies at `source_code_path`, on compute that is active."""
    app = _app(call, "CAN_MANAGE")
    body = call.body
    if app["compute"] != "ACTIVE":
        raise ApiError(400, "BAD_REQUEST", f"Cannot deploy app {app['name']} as its compute is {app['compute']}.")
    if app["pending"] is not None:
        raise ApiError(409, "RESOURCE_CONFLICT", f"App {app['name']} has a deployment in progress.")
    source = body.get("source_code_path") or app["source"]
    if not source:
        raise invalid("source_code_path is required.")
    return begin_deployment(call.world, app, {**body, "source_code_path": source}, call.who["name"])


@route("GET", f"{_APPS}/{{name}}/deployments/{{id}}")
def see_deployment(call: Call) -> Json:
    """Return a deployment; values of variables are never returned."""
    app = _app(call, "CAN_USE")
    found = app["deployments"].get(call.parts["id"])
    if found is None:
        raise missing(f"Deployment {call.parts['id']} does not exist.")
    return _deployment_json(found)


@route("GET", f"{_APPS}/{{name}}/deployments")
def list_deployments(call: Call) -> Json:
    """List deployments, the newest first."""
    rows = list(_app(call, "CAN_USE")["deployments"].values())[::-1]
    page, following, _ = page_of(rows, call.number("page_size", 100) or 100, call.query.get("page_token"))
    answer = {"app_deployments": [_deployment_json(each) for each in page]} if page else {}
    return {**answer, **({"next_page_token": following} if following else {})}


@route("POST", f"{_APPS}/{{name}}/start")
def start(call: Call) -> Json:
    """Begin to start the compute, which runs again the source of the last deployment."""
    app = _app(call, "CAN_MANAGE")
    if app["compute"] in {"ACTIVE", "STARTING"}:
        raise ApiError(400, "BAD_REQUEST", f"App {app['name']} is not in STOPPED state: it is {app['compute']}.")
    app.update(compute="STARTING", since=call.world.now())
    return shown(app)


@route("POST", f"{_APPS}/{{name}}/stop")
def stop(call: Call) -> Json:
    """Begin to stop; afterwards the deployments read back empty [cli testserver/apps.go]."""
    app = _app(call, "CAN_MANAGE")
    app.update(compute="STOPPING", since=call.world.now(), active=None, pending=None)
    return shown(app)


@route("DELETE", f"{_APPS}/{{name}}")
def delete(call: Call) -> Json:
    """Begin to delete: the app is DELETING for a while, and a second DELETE is 400."""
    app = _app(call, "CAN_MANAGE", is_deletion=True)
    if app["compute"] == "DELETING":
        raise ApiError(
            400, "BAD_REQUEST",
            f"Cannot delete app {app['name']} as it is not terminal with state DELETING, wait until it is terminal.",
        )  # fmt: skip
    app.update(compute="DELETING", since=call.world.now(), status="UNAVAILABLE", message="App is being deleted.")
    return shown(app)


def begin_deployment(world: World, app: Json, wanted: Json, creator: str) -> Json:
    """Begin a deployment, and return it as the API shows it."""
    deployment: Json = {
        "deployment_id": f"01f0{uuid.uuid4().hex[:28]}", "creator": creator, "created": world.now(),
        "state": "IN_PROGRESS", "message": "Deployment is in progress.", "began": False,
        **{key: wanted[key] for key in _DEPLOYED if key in wanted},
    }  # fmt: skip
    app["deployments"][deployment["deployment_id"]] = deployment
    app.update(pending=deployment["deployment_id"], source=deployment["source_code_path"], status="DEPLOYING")
    return _deployment_json(deployment)


def attach(call: Call, app: Json, resources: list[Json]) -> None:
    """Give the app's service principal what its resources say, where the caller may give that."""
    who = call.data.principals[app["principal"]]
    key = ("service_principal_name", who["name"])
    if len({each.get("name") for each in resources}) != len(resources):
        raise invalid("Each resource of an app needs a name of its own.")
    for each in resources:
        kinds = [kind for kind in _KINDS if kind in each]
        if len(kinds) != 1:
            raise invalid(f"Resource {each.get('name')} must have exactly one kind.")
        of = each[kinds[0]]
        if kinds == ["job"]:
            if not str(of["id"]).isdecimal() or int(of["id"]) not in call.data.jobs:
                raise missing(f"Job {of['id']} does not exist.")
            rights.require(call, "jobs", of["id"], "CAN_MANAGE")
            rights.grant(call.data, "jobs", of["id"], key, of["permission"])
        elif kinds == ["secret"]:
            secret_scopes.value_for(call.data, call.who, of["scope"], of["key"])
            call.data.scopes[of["scope"]]["acls"].setdefault(who["name"], of["permission"])
        elif kinds == ["postgres"]:
            lakebase.attach(call, of, who["name"])
        elif kinds == ["sql_warehouse"]:
            if of["id"] not in call.data.warehouses:
                raise missing(f"Warehouse {of['id']} does not exist.")
            rights.grant(call.data, "warehouses", of["id"], key, of["permission"])


def shown(app: Json) -> Json:
    """Return an app as the API shows it."""
    answer: Json = {
        "name": app["name"], "id": app["id"], "creator": app["creator"], "create_time": _stamp(app["created"]),
        "url": app["url"], "service_principal_client_id": app["client_id"],
        "service_principal_id": int(app["principal"]),
        "service_principal_name": f"app-{app['name']}", "forward_user_access_token": True,
        "app_status": {"state": app["status"], "message": app["message"]},
        "compute_status": {"state": app["compute"], "message": f"App compute is {app['compute'].lower()}."},
        **{key: value for key, value in app["fields"].items() if value is not None},
    }  # fmt: skip
    answer["effective_user_api_scopes"] = app["fields"].get("user_api_scopes") or []
    for field in ("active", "pending"):
        if app[field] is not None:
            answer[f"{field}_deployment"] = _deployment_json(app["deployments"][app[field]])
    if app["source"]:
        answer["default_source_code_path"] = app["source"]
    return answer


def _change(call: Call, app: Json, fields: dict[str, Any]) -> None:
    attach(call, app, fields.get("resources") or [])
    app["fields"].update(fields)


def _app(call: Call, level: str, *, is_deletion: bool = False) -> Json:
    name = call.parts["name"]
    found = call.data.apps.get(name)
    if found is None:
        raise missing(f"App with name {name} does not exist or is deleted.")
    if not rights.allows(call.data, call.who, "apps", name, level):
        raise denied(f"{call.who['name']} does not have {level} permission on app {name}.")
    if level == "CAN_MANAGE" and found["compute"] == "DELETING" and not is_deletion:
        raise ApiError(400, "BAD_REQUEST", f"App {name} is being deleted.")
    return found


def _update_json(app: Json) -> Json:
    update = app["update"] or {"state": "NOT_UPDATED"}
    return {**app["fields"], "status": {"state": update["state"], "message": ""}}


def _deployment_json(deployment: Json) -> Json:
    hidden = {"state", "message", "created", "began", "env_vars"}
    variables = [{"name": each["name"]} for each in deployment.get("env_vars") or ()]
    return {
        **{key: value for key, value in deployment.items() if key not in hidden},
        **({"env_vars": variables} if variables else {}),
        "create_time": _stamp(deployment["created"]),
        "status": {"state": deployment["state"], "message": deployment["message"]},
    }


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
