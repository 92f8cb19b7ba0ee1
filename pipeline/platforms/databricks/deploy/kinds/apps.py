"""Databricks Apps: made without compute, then deployed and started; a name is taken until its old app is deleted.

Facts: databricks-sdk `service/apps.py`; databricks/cli `libs/testserver/apps.go`, `bundle/direct/dresources/app.go`.
The workspace shows no values of variables: `config` is compared with what the journal says was applied last.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.platforms.databricks.deploy.bundle import unresolved
from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.deploy.kinds.folders import let_read
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Scope, State, carries, changed
from pipeline.platforms.databricks.deploy.kinds.permissions import bring_permissions, read_permissions
from pipeline.platforms.databricks.deploy.kinds.secret_scopes import may_read, secret_keys
from pipeline.platforms.databricks.deploy.kinds.waiting import wait_until
from pipeline.platforms.databricks.workspace.client import Absent, AlreadyThere

_API: Final = "/api/2.0/apps"
_FIELDS: Final[tuple[str, ...]] = (
    "description", "resources", "user_api_scopes", "compute_size", "compute_min_instances", "compute_max_instances",
    "budget_policy_id", "usage_policy_id", "telemetry_export_destinations", "forward_user_access_token",
)  # fmt: skip
"""What an update may name [databricks-sdk, `AppUpdate`]; it replaces each field wholly."""

_DEPLOYED: Final = frozenset({"source_code_path", "config", "lifecycle", "resources"})
"""What only a new deployment brings to the app's process."""

_HEALTH: Final = {"path": "/healthz"}  # of app/gate.py, which needs no sign-in
_GOING: Final = "DELETING"
_DELETING_SECONDS: Final = 900.0  # the CLI waits as long; a deletion may take 20 minutes
_START_SECONDS: Final = 1_200.0  # an app must start within ten minutes, with the installation of its packages
_ATTRIBUTES: Final[tuple[str, ...]] = ("name", "url", "service_principal_client_id", "service_principal_id")


class Apps:
    """The kind `apps`; see `Kind`."""

    name: Final = "apps"
    holds_data: Final = False
    fixed: Final = frozenset({"name"})
    unseen: Final = frozenset({"config"})
    filled: Final[Mapping[str, Sequence[Any]]] = {
        "compute_size": ["MEDIUM"],
        "forward_user_access_token": [True],
        "compute_min_instances": [1],
        "compute_max_instances": [1],
        "budget_policy_id": [],
        "usage_policy_id": [],
    }

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        return str(definition["name"])

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`; an app that need not run may have any source."""
        kept = {key: definition[key] for key in ("name", "permissions", *_FIELDS) if key in definition}
        if _runs(definition):
            kept |= {"source_code_path": definition["source_code_path"], "lifecycle": {"started": True}}
        return kept

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """See `Kind`."""
        app = _app(scope, self.label(definition))
        return None if app is None else Found(str(app["name"]), carries(app.get("description"), scope.environment))

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`: an app that is being deleted is gone, and a secret that it may not read has no permission."""
        app = _app(scope, id)
        if app is None:
            return None
        shown = {key: app[key] for key in ("name", *_FIELDS) if key in app}
        if "resources" in shown:
            shown["resources"] = _with_rights(scope, app)
        shown["permissions"] = read_permissions(scope.workspace, f"apps/{id}", str(app.get("creator", "")))
        deployment = app.get("pending_deployment") or app.get("active_deployment") or {}
        shown["source_code_path"] = deployment.get("source_code_path") or app.get("default_source_code_path")
        shown["lifecycle"] = {"started": app.get("app_status", {}).get("state") in {"RUNNING", "DEPLOYING"}}
        attributes = {each: str(app[each]) for each in _ATTRIBUTES if each in app}
        is_ours = carries(app.get("description"), scope.environment)
        return State(shown, {"id": id, **attributes}, is_ours)

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`; waits while an older app of the name is being deleted, and until the new one runs."""
        name = self.label(definition)
        _require_secrets(scope, definition)

        def make() -> bool | None:
            body = {"name": name, **{key: definition[key] for key in _FIELDS if key in definition}}
            try:
                scope.workspace.send("POST", _API, body, {"no_compute": "true"})
            except AlreadyThere:
                app = _app(scope, name)
                if app is None:
                    return None  # it is going, or has just gone
                if not carries(app.get("description"), scope.environment):
                    raise
            return True  # made, also where the answer was lost and the SDK sent it again

        wait_until(make, _DELETING_SECONDS, f"the app {name!r} is still being deleted in the workspace. Apply again")
        self._bring(scope, definition, {"permissions", "source_code_path"})
        return name

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002
        """See `Kind`; waits until the app runs with it."""
        names = changed(found)
        if "resources" in names:
            _require_secrets(scope, definition)
        if fields := sorted(names & set(_FIELDS)):
            _change(scope, id, {each: definition.get(each) for each in fields})
        self._bring(scope, definition, names)

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """See `Kind`: the deletion is only begun."""
        try:
            scope.workspace.send("DELETE", f"{_API}/{id}")
        except Absent:
            return
        except Refused:
            if _app(scope, id) is not None:
                raise

    def _bring(self, scope: Scope, definition: Mapping[str, Any], names: set[str]) -> None:
        name = self.label(definition)
        if "permissions" in names:
            maker = str((_app(scope, name) or {}).get("creator", ""))
            bring_permissions(scope.workspace, f"apps/{name}", definition.get("permissions", []), maker)
        if names & _DEPLOYED and _runs(definition):
            principal = _there(scope, name).get("service_principal_client_id")
            if principal:  # the folder is not for everybody
                let_read(scope.workspace, str(definition["source_code_path"]), str(principal))
            _start(scope, name)
            _deploy(scope, name, definition)


def missing_secrets(scope: Scope, definition: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the scope and key of each secret that an app reads and nobody has put yet, as in a new scope."""
    named = [each["secret"] for each in definition.get("resources", []) if "secret" in each]
    keys: dict[str, set[str]] = {}
    for name in {str(each["scope"]) for each in named}:
        try:
            keys[name] = set() if unresolved(name) else secret_keys(scope, name)
        except Absent:
            keys[name] = set()
    pairs = ((str(each["scope"]), str(each["key"])) for each in named)
    return [(name, key) for name, key in pairs if key not in keys[name]]


def _require_secrets(scope: Scope, definition: Mapping[str, Any]) -> None:
    """Refuse an app that reads secrets which nobody has put yet."""
    for name, key in missing_secrets(scope, definition):
        raise Refused(
            f"The secret scope {name!r} has no key {key!r}, which the app {definition['name']!r} reads. Run "
            f"`databricks secrets put-secret {name} {key}`, then apply again."
        )


def _with_rights(scope: Scope, app: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return an app's resources, secrets without the permission that its principal lacks.

    A scope that is deleted takes the right along, and the app's list of resources does not show that.
    """
    principal = str(app.get("service_principal_client_id", ""))
    names = {str(each["secret"]["scope"]) for each in app["resources"] if "secret" in each}
    unread = {name for name in names if not may_read(scope, name, principal)}
    shown = []
    for each in app["resources"]:
        secret = each.get("secret", {})
        is_lost = secret.get("scope") in unread
        shown.append({**each, "secret": {**secret, "permission": None}} if is_lost else each)
    return shown


def _runs(definition: Mapping[str, Any]) -> bool:
    return bool(definition.get("lifecycle", {}).get("started"))


def _app(scope: Scope, name: str) -> dict[str, Any] | None:
    """Return an app; None where it is not there, or is going."""
    try:
        app = scope.workspace.get(f"{_API}/{name}")
    except Absent:
        return None
    return None if _compute(app) == _GOING else app


def _there(scope: Scope, name: str) -> dict[str, Any]:
    app = _app(scope, name)
    if app is None:
        raise Refused(f"The app {name!r} was deleted meanwhile. Apply again.")
    return app


def _compute(app: Mapping[str, Any]) -> str:
    return str(app.get("compute_status", {}).get("state", ""))


def _change(scope: Scope, name: str, fields: Mapping[str, Any]) -> None:
    """Replace fields, and wait until that is done; an update of before ends first."""
    given = {key: value for key, value in fields.items() if value is not None}
    body = {"app": given, "update_mask": ",".join(fields)}

    def ended() -> Mapping[str, Any] | None:
        status: Mapping[str, Any] = scope.workspace.get(f"{_API}/{name}/update").get("status", {})
        return None if status.get("state") == "IN_PROGRESS" else status

    late = f"the workspace has not ended an update of the app {name!r}. Apply again"
    wait_until(ended, _START_SECONDS, late)
    try:
        scope.workspace.send("POST", f"{_API}/{name}/update", body)
    except Refused:
        if ended() is not None:  # else the answer was lost, and the SDK sent it again
            raise
    status = wait_until(ended, _START_SECONDS, late)
    if status.get("state") == "FAILED":
        raise Refused(f"The workspace could not update the app {name!r}: {status.get('message', 'it says no reason')}.")


def _start(scope: Scope, name: str) -> None:
    """Let the app's compute run, and end what it began by itself with the source of before."""

    def look() -> bool | None:
        app = _there(scope, name)
        if _compute(app) in {"STOPPED", "ERROR"}:
            try:
                scope.workspace.send("POST", f"{_API}/{name}/start")
            except Refused:
                if _compute(_there(scope, name)) in {"STOPPED", "ERROR"}:
                    raise
            return None
        return True if _compute(app) == "ACTIVE" and not app.get("pending_deployment") else None

    wait_until(look, _START_SECONDS, f"the compute of the app {name!r} has not started within 20 minutes. Apply again")


def _deploy(scope: Scope, name: str, definition: Mapping[str, Any]) -> None:
    """Deploy the source, and wait until the app runs."""
    config = definition.get("config", {})
    source = definition["source_code_path"]
    body = {"source_code_path": source, "mode": "SNAPSHOT", "health_check": _HEALTH}
    body |= {
        key: value for key, value in (("command", config.get("command")), ("env_vars", config.get("env"))) if value
    }
    try:
        made = scope.workspace.send("POST", f"{_API}/{name}/deployments", body)
    except Refused:
        made = _there(scope, name).get("pending_deployment") or {}
        if made.get("source_code_path") != source:  # else the answer was lost, and the SDK sent it again
            raise

    def ended() -> str | None:
        deployment = scope.workspace.get(f"{_API}/{name}/deployments/{made['deployment_id']}")
        status = deployment.get("status", {})
        if status.get("state") == "IN_PROGRESS":
            return None
        return "" if status.get("state") == "SUCCEEDED" else str(status.get("message") or status.get("state"))

    late = f"the app {name!r} does not run 20 minutes after its deployment. See its logs, then apply again"
    if reason := wait_until(ended, _START_SECONDS, late):
        raise Refused(f"The app {name!r} does not start: {reason.rstrip('.')}. See `databricks apps logs {name}`.")
    wait_until(lambda: _state(_there(scope, name)) == "RUNNING" or None, _START_SECONDS, late)


def _state(app: Mapping[str, Any]) -> str:
    return str(app.get("app_status", {}).get("state", ""))
