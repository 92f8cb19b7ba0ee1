"""SQL warehouses, alerts and AI/BI dashboards: kept and shown; nothing is evaluated or drawn [sdk sql, dashboards]."""

import json
import uuid
from datetime import UTC, datetime
from typing import Final

from tests.workspace.server import rights
from tests.workspace.server.calls import ApiError, Call, Json, invalid, missing, page_of, route
from tests.workspace.server.state import World

WAREHOUSE: Final = "5a1e0b7c3d2f4e69"
"""The id of the warehouse that every stand-in has."""

_WAREHOUSES: Final = "/api/2.0/sql/warehouses"
_ALERTS: Final = "/api/2.0/alerts"
_DASHBOARDS: Final = "/api/2.0/lakeview/dashboards"
_PAGE: Final = 100
_ALERT_NEEDS: Final = ("display_name", "query_text", "warehouse_id", "evaluation", "schedule")
_OPERATORS: Final = frozenset({
    "EQUAL", "NOT_EQUAL", "GREATER_THAN", "GREATER_THAN_OR_EQUAL", "LESS_THAN", "LESS_THAN_OR_EQUAL", "IS_NULL",
    "IS_NOT_NULL",
})  # fmt: skip


def begin(world: World) -> None:
    """Give the workspace its first warehouse, which everybody may use."""
    world.data.warehouses[WAREHOUSE] = _warehouse("Starter Warehouse", WAREHOUSE)
    world.data.acls[f"warehouses/{WAREHOUSE}"] = {("group_name", "users"): "CAN_USE"}


@route("GET", _WAREHOUSES)
def list_warehouses(call: Call) -> Json:
    """List the warehouses that the caller may see."""
    return {
        "warehouses": [
            each
            for key, each in call.data.warehouses.items()
            if rights.allows(call.data, call.who, "warehouses", key, "CAN_VIEW")
        ]
    }


@route("POST", _WAREHOUSES)
def make_warehouse(call: Call) -> Json:
    """Make a warehouse; it runs at once."""
    warehouse_id = uuid.uuid4().hex[:16]
    call.data.warehouses[warehouse_id] = {**_warehouse("", warehouse_id), **call.body}
    rights.own(call.data, "warehouses", warehouse_id, call.who)
    return {"id": warehouse_id}


@route("GET", f"{_WAREHOUSES}/{{id}}")
def read_warehouse(call: Call) -> Json:
    """Return a warehouse."""
    return _one(call.data.warehouses, call.parts["id"], "Endpoint")


@route("DELETE", f"{_WAREHOUSES}/{{id}}")
def drop_warehouse(call: Call) -> Json:
    """Delete a warehouse."""
    _one(call.data.warehouses, call.parts["id"], "Endpoint")
    rights.require(call, "warehouses", call.parts["id"], "CAN_MANAGE")
    del call.data.warehouses[call.parts["id"]]
    return {}


@route("POST", _ALERTS)
def make_alert(call: Call) -> Json:
    """Make an alert of the second version; names are not unique."""
    body = call.body
    _check_alert(call, body)
    alert_id, now = str(uuid.uuid4()), _stamp(call)
    call.data.alerts[alert_id] = {
        **body, "id": alert_id, "create_time": now, "update_time": now, "lifecycle_state": "ACTIVE",
        "owner_user_name": call.who["name"], "run_as_user_name": call.who["name"],
    }  # fmt: skip
    rights.own(call.data, "alertsv2", alert_id, call.who)
    return call.data.alerts[alert_id]


@route("GET", _ALERTS)
def list_alerts(call: Call) -> Json:
    """List the alerts that the caller may see, page by page."""
    rows = [
        each
        for key, each in call.data.alerts.items()
        if rights.allows(call.data, call.who, "alertsv2", key, "CAN_READ")
    ]
    shown, following, _ = page_of(rows, call.number("page_size", _PAGE) or _PAGE, call.query.get("page_token"))
    return {**({"alerts": shown} if shown else {}), **({"next_page_token": following} if following else {})}


@route("GET", f"{_ALERTS}/{{id}}")
def read_alert(call: Call) -> Json:
    """Return an alert."""
    found = _one(call.data.alerts, call.parts["id"], "Alert")
    rights.require(call, "alertsv2", call.parts["id"], "CAN_READ")
    return found


@route("PATCH", f"{_ALERTS}/{{id}}")
def change_alert(call: Call) -> Json:
    """Replace the fields that the mask names."""
    found = _one(call.data.alerts, call.parts["id"], "Alert")
    rights.require(call, "alertsv2", call.parts["id"], "CAN_EDIT")
    mask = [each for each in call.query.get("update_mask", "").split(",") if each]
    if not mask:
        raise invalid("update_mask is required.")
    wanted = dict(call.body) if mask == ["*"] else {each: call.body[each] for each in mask if each in call.body}
    changed = {**found, **wanted, "id": found["id"], "update_time": _stamp(call)}
    _check_alert(call, changed)
    call.data.alerts[found["id"]] = changed
    return changed


@route("DELETE", f"{_ALERTS}/{{id}}")
def drop_alert(call: Call) -> Json:
    """Move an alert to the trash, where nothing lists it."""
    _one(call.data.alerts, call.parts["id"], "Alert")
    rights.require(call, "alertsv2", call.parts["id"], "CAN_MANAGE")
    del call.data.alerts[call.parts["id"]]
    rights.forget(call.data, "alertsv2", call.parts["id"])
    return {}


@route("POST", _DASHBOARDS)
def make_dashboard(call: Call) -> Json:
    """Make a draft of a dashboard: its content is a text of JSON; a file of its name is in the parent's folder."""
    body = call.body
    content = _content(body)
    name, parent = str(call.needed("display_name")), str(body.get("parent_path") or f"/Users/{call.who['name']}")
    path = f"{parent.removeprefix('/Workspace')}/{name}.lvdash.json"
    if any(each["path"] == path for each in call.data.dashboards.values()):
        raise ApiError(409, "RESOURCE_ALREADY_EXISTS", f"Node with name {name}.lvdash.json already exists.")
    dashboard_id, now = f"01f{uuid.uuid4().hex[:29]}", _stamp(call)
    call.data.dashboards[dashboard_id] = {
        "dashboard_id": dashboard_id, "display_name": name, "serialized_dashboard": content, "path": path,
        "parent_path": parent, "warehouse_id": body.get("warehouse_id"), "etag": "1", "create_time": now,
        "update_time": now, "lifecycle_state": "ACTIVE", "published": None,
    }  # fmt: skip
    rights.own(call.data, "dashboards", dashboard_id, call.who)
    return _draft(call.data.dashboards[dashboard_id])


@route("GET", _DASHBOARDS)
def list_dashboards(call: Call) -> Json:
    """List dashboards, without their content."""
    rows = [
        {key: value for key, value in _draft(each).items() if key != "serialized_dashboard"}
        for key, each in call.data.dashboards.items()
        if rights.allows(call.data, call.who, "dashboards", key, "CAN_READ") and each["lifecycle_state"] == "ACTIVE"
    ]
    shown, following, _ = page_of(rows, call.number("page_size", _PAGE) or _PAGE, call.query.get("page_token"))
    return {**({"dashboards": shown} if shown else {}), **({"next_page_token": following} if following else {})}


@route("GET", f"{_DASHBOARDS}/{{id}}")
def read_dashboard(call: Call) -> Json:
    """Return a draft; in the trash, too."""
    return _draft(_dashboard(call, "CAN_READ"))


@route("PATCH", f"{_DASHBOARDS}/{{id}}")
def change_dashboard(call: Call) -> Json:
    """Change a draft: an `etag` that is not the newest is refused; each change makes a new one."""
    found = _dashboard(call, "CAN_EDIT")
    body = call.body
    if body.get("etag") not in {None, found["etag"]}:
        raise ApiError(409, "ABORTED", "The dashboard has been modified since the etag was read.")
    if "serialized_dashboard" in body:
        _content(body)
    found.update({key: body[key] for key in ("display_name", "serialized_dashboard", "warehouse_id") if key in body})
    found.update(etag=str(int(found["etag"]) + 1), update_time=_stamp(call))
    return _draft(found)


@route("DELETE", f"{_DASHBOARDS}/{{id}}")
def drop_dashboard(call: Call) -> Json:
    """Move a dashboard to the trash."""
    found = _dashboard(call, "CAN_MANAGE")
    found.update(lifecycle_state="TRASHED", path=f"/Trash/{found['dashboard_id']}", published=None)
    return {}


@route("POST", f"{_DASHBOARDS}/{{id}}/published")
def publish(call: Call) -> Json:
    """Publish the draft as it is."""
    found = _dashboard(call, "CAN_MANAGE")
    body = call.body
    found["published"] = {
        "display_name": found["display_name"], "warehouse_id": body.get("warehouse_id") or found["warehouse_id"],
        "embed_credentials": bool(body.get("embed_credentials", True)), "revision_create_time": _stamp(call),
    }  # fmt: skip
    published: Json = found["published"]
    return published


@route("GET", f"{_DASHBOARDS}/{{id}}/published")
def read_published(call: Call) -> Json:
    """Return how a dashboard is published."""
    published: Json | None = _dashboard(call, "CAN_READ")["published"]
    if published is None:
        raise missing(f"Dashboard {call.parts['id']} is not published.")
    return published


@route("DELETE", f"{_DASHBOARDS}/{{id}}/published")
def unpublish(call: Call) -> Json:
    """Take the published dashboard back; the draft stays."""
    _dashboard(call, "CAN_MANAGE")["published"] = None
    return {}


def _check_alert(call: Call, alert: Json) -> None:
    for each in _ALERT_NEEDS:
        if not alert.get(each):
            raise invalid(f"Missing required field: {each}")
    if alert["warehouse_id"] not in call.data.warehouses:
        raise missing(f"Warehouse {alert['warehouse_id']} does not exist.")
    evaluation = alert["evaluation"]
    if evaluation.get("comparison_operator") not in _OPERATORS or not (evaluation.get("source") or {}).get("name"):
        raise invalid("evaluation needs comparison_operator and source.name.")
    if not (alert["schedule"].get("quartz_cron_schedule") and alert["schedule"].get("timezone_id")):
        raise invalid("schedule needs quartz_cron_schedule and timezone_id.")


def _content(body: Json) -> str:
    content = body.get("serialized_dashboard")
    try:
        if not isinstance(content, str) or not isinstance(json.loads(content), dict):
            raise invalid("serialized_dashboard must be a string of JSON.")
    except ValueError as error:
        raise invalid("serialized_dashboard is no valid JSON.") from error
    return content


def _dashboard(call: Call, level: str) -> Json:
    found = _one(call.data.dashboards, call.parts["id"], "Dashboard")
    rights.require(call, "dashboards", call.parts["id"], level)
    return found


def _draft(dashboard: Json) -> Json:
    return {key: value for key, value in dashboard.items() if key != "published" and value is not None}


def _one(kept: dict[str, Json], key: str, kind: str) -> Json:
    if key not in kept:
        raise missing(f"{kind} {key} does not exist.")
    return kept[key]


def _warehouse(name: str, warehouse_id: str) -> Json:
    return {
        "id": warehouse_id, "name": name, "cluster_size": "2X-Small", "state": "RUNNING", "num_clusters": 1,
        "enable_serverless_compute": True, "warehouse_type": "PRO", "auto_stop_mins": 10,
    }  # fmt: skip


def _stamp(call: Call) -> str:
    return datetime.fromtimestamp(call.world.now(), UTC).isoformat().replace("+00:00", "Z")
