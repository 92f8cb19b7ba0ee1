"""SQL alerts and AI/BI dashboards (databricks-sdk `service/sql.py`, AlertV2, and `service/dashboards.py`).

Names of alerts are not unique, so one that the SDK made twice is deleted. A dashboard is ours by its folder; its
content is compared as JSON.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Scope, State, carries, changed
from pipeline.platforms.databricks.deploy.kinds.permissions import (
    ANY_PERSON,
    bring_permissions,
    of_others,
    read_permissions,
)
from pipeline.platforms.databricks.workspace.client import Absent, AlreadyThere

_ALERTS: Final = "/api/2.0/alerts"
_DASHBOARDS: Final = "/api/2.0/lakeview/dashboards"
_PERMISSIONS: Final = "permissions"


class Alerts:
    """The kind `alerts`; see `Kind`. Their description carries the mark."""

    name: Final = "alerts"
    holds_data: Final = False
    fixed: Final = frozenset({"parent_path"})
    unseen: Final = frozenset[str]()
    filled: Final[Mapping[str, Sequence[Any]]] = {
        "evaluation.state": [],
        "evaluation.last_evaluated_at": [],
        "evaluation.notification.retrigger_seconds": [],
        "evaluation.source.display": [],
        "custom_summary": [],
        "run_as": [],
    }
    _fields: Final[tuple[str, ...]] = (
        "display_name", "query_text", "warehouse_id", "evaluation", "schedule", "custom_summary", "custom_description",
        "run_as",
    )  # fmt: skip

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        return str(definition["display_name"])

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`."""
        return {key: definition[key] for key in (*self._fields, _PERMISSIONS) if key in definition}

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """See `Kind`; an alert that is ours goes before others of the same name."""
        return min(self._named(scope, definition), key=lambda each: not each.is_ours, default=None)

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`: one in the trash is gone."""
        try:
            alert = scope.workspace.get(f"{_ALERTS}/{id}")
        except Absent:
            return None
        if alert.get("lifecycle_state") == "DELETED":
            return None
        shown = {key: alert[key] for key in self._fields if key in alert}
        shown[_PERMISSIONS] = read_permissions(scope.workspace, f"alertsv2/{id}", str(alert.get("owner_user_name", "")))
        return State(shown, {"id": id}, carries(alert.get("custom_description"), scope.environment))

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`: of two that a lost answer left the younger is deleted."""
        body = {key: definition[key] for key in (*self._fields, "parent_path") if key in definition}
        made = str(scope.workspace.send("POST", _ALERTS, body)["id"])
        first, *doubles = [each.id for each in self._named(scope, definition) if each.is_ours] or [made]
        for each in doubles:
            self.delete(scope, each)
        self._permit(scope, first, definition)
        return first

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002
        """See `Kind`."""
        names = changed(found)
        if fields := sorted(names - {_PERMISSIONS}):
            body = {key: definition.get(key) for key in fields}
            scope.workspace.send("PATCH", f"{_ALERTS}/{id}", body, {"update_mask": ",".join(fields)})
        if _PERMISSIONS in names:
            self._permit(scope, id, definition)

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """See `Kind`."""
        try:
            scope.workspace.send("DELETE", f"{_ALERTS}/{id}")
        except Absent:
            return

    def _permit(self, scope: Scope, alert_id: str, definition: Mapping[str, Any]) -> None:
        maker = str(scope.workspace.get(f"{_ALERTS}/{alert_id}").get("owner_user_name", ""))
        bring_permissions(scope.workspace, f"alertsv2/{alert_id}", definition.get(_PERMISSIONS, []), maker)

    def _named(self, scope: Scope, definition: Mapping[str, Any]) -> list[Found]:
        """Return the alerts of an exact name, the oldest first."""
        alerts = scope.workspace.listed(_ALERTS, "alerts", {"page_size": 100})
        rows = [each for each in alerts if each.get("display_name") == self.label(definition)]
        rows.sort(key=lambda each: (str(each.get("create_time")), str(each["id"])))
        return [Found(str(each["id"]), carries(each.get("custom_description"), scope.environment)) for each in rows]


class Dashboards:
    """The kind `dashboards`; see `Kind`. `serialized_dashboard` is the text of the bundle's `file_path`."""

    name: Final = "dashboards"
    holds_data: Final = False
    fixed: Final = frozenset({"parent_path"})
    unseen: Final = frozenset({"dataset_catalog", "dataset_schema"})
    filled: Final[Mapping[str, Sequence[Any]]] = {}
    _fields: Final[tuple[str, ...]] = ("display_name", "warehouse_id")

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`: the path of its file, which is unique."""
        return f"{definition['parent_path']}/{definition['display_name']}.lvdash.json"

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`."""
        kept = {key: definition[key] for key in self._fields if key in definition}
        if _PERMISSIONS in definition:
            kept[_PERMISSIONS] = of_others(definition[_PERMISSIONS])
        content = json.loads(definition["serialized_dashboard"])
        return {**kept, "content": content, "published": {"embed_credentials": _embeds(definition)}}

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """See `Kind`; a dashboard in the target's own folder is ours."""
        path = self.label(definition)
        try:
            node = scope.workspace.get("/api/2.0/workspace/get-status", {"path": path})
            if node.get("resource_id"):
                return Found(str(node["resource_id"]), path.startswith(f"{scope.folder}/"))
        except Absent:
            pass
        for each in scope.workspace.listed(_DASHBOARDS, "dashboards", {"page_size": 100}):
            if _same_path(each.get("path"), path):
                return Found(str(each["dashboard_id"]), path.startswith(f"{scope.folder}/"))
        return None

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`: one in the trash is gone. Changes of the draft count, and a draft that nobody published."""
        try:
            draft = scope.workspace.get(f"{_DASHBOARDS}/{id}")
        except Absent:
            return None
        if draft.get("lifecycle_state") == "TRASHED":
            return None
        shown = {key: draft[key] for key in self._fields if key in draft}
        shown["content"] = json.loads(draft["serialized_dashboard"])
        shown[_PERMISSIONS] = read_permissions(scope.workspace, f"dashboards/{id}", ANY_PERSON)
        try:
            published = scope.workspace.get(f"{_DASHBOARDS}/{id}/published")
            shown["published"] = {"embed_credentials": published.get("embed_credentials", False)}
        except Absent:
            shown["published"] = {"embed_credentials": "(not published)"}
        return State(shown, {"id": id}, str(draft.get("path", "")).startswith(_bare(f"{scope.folder}/")))

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        scope.workspace.send("POST", "/api/2.0/workspace/mkdirs", {"path": definition["parent_path"]})
        body = {key: definition[key] for key in (*self._fields, "parent_path", "serialized_dashboard")}
        query = {key: definition[key] for key in sorted(self.unseen) if key in definition}
        try:
            made = str(scope.workspace.send("POST", _DASHBOARDS, body, query)["dashboard_id"])
        except AlreadyThere:
            found = self.find(scope, definition)
            if found is None:
                raise
            made = found.id  # in our own folder: the answer was lost, and the SDK sent it again
        self._finish(scope, made, definition, {_PERMISSIONS})
        return made

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002
        """See `Kind`; a draft that was changed since we read it is refused by its etag."""
        names = changed(found)
        if names - {_PERMISSIONS, "published"}:
            etag = scope.workspace.get(f"{_DASHBOARDS}/{id}")["etag"]
            body = {key: definition[key] for key in (*self._fields, "serialized_dashboard")}
            query = {key: definition[key] for key in sorted(self.unseen) if key in definition}
            scope.workspace.send("PATCH", f"{_DASHBOARDS}/{id}", {**body, "etag": etag}, query)
        self._finish(scope, id, definition, names)

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """See `Kind`: into the trash."""
        try:
            scope.workspace.send("DELETE", f"{_DASHBOARDS}/{id}")
        except Absent:
            return

    def _finish(self, scope: Scope, dashboard_id: str, definition: Mapping[str, Any], names: set[str]) -> None:
        if _PERMISSIONS in names:
            wanted = definition.get(_PERMISSIONS, [])
            bring_permissions(scope.workspace, f"dashboards/{dashboard_id}", wanted, ANY_PERSON)
        body = {"warehouse_id": definition["warehouse_id"], "embed_credentials": _embeds(definition)}
        scope.workspace.send("POST", f"{_DASHBOARDS}/{dashboard_id}/published", body)


def _embeds(definition: Mapping[str, Any]) -> bool:
    return bool(definition.get("embed_credentials", False))


def _bare(path: str) -> str:
    return path.removeprefix("/Workspace")


def _same_path(one: object, other: str) -> bool:
    return _bare(str(one or "")) == _bare(other)
