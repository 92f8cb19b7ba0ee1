"""Changes that another person may make in a workspace with turnout: a field of a resource, by the API."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import psycopg
from databricks.sdk import WorkspaceClient
from databricks.sdk.service.dashboards import Dashboard
from databricks.sdk.service.workspace import AclPermission
from psycopg import sql

from tests.workspace.fixtures import until

Change = Callable[[WorkspaceClient], object]


def _send(
    method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None
) -> Change:
    def change(admin: WorkspaceClient) -> object:
        return admin.api_client.do(method, path, query=dict(query or {}), body=dict(body or {}))

    return change


def _job(part: str, edit: Callable[[Any], object]) -> tuple[str, Change]:
    def change(admin: WorkspaceClient) -> object:
        name = f"turnout dev {part.replace('group_', 'group ')}"
        (job,) = admin.jobs.list(name=name)
        found: Any = admin.api_client.do("GET", "/api/2.2/jobs/get", query={"job_id": job.job_id})
        edit(found["settings"])
        body = {"job_id": job.job_id, "new_settings": found["settings"]}
        return admin.api_client.do("POST", "/api/2.2/jobs/reset", body=body)

    return f"jobs.{part}", change


def _job_permission(part: str, level: str) -> tuple[str, Change]:
    def change(admin: WorkspaceClient) -> object:
        (job,) = admin.jobs.list(name=f"turnout dev {part}")
        body = {"access_control_list": [{"group_name": "users", "permission_level": level}]}
        return admin.api_client.do("PATCH", f"/api/2.0/permissions/jobs/{job.job_id}", body=body)

    return f"jobs.{part}", change


def _removed_job(part: str) -> tuple[str, Change]:
    def change(admin: WorkspaceClient) -> object:
        (job,) = admin.jobs.list(name=f"turnout dev {part}")
        return admin.jobs.delete(job.job_id or 0)

    return f"jobs.{part}", change


def _cluster(settings: Any) -> Any:
    return settings["job_clusters"][0]["new_cluster"]


def _app_update(fields: Mapping[str, Any]) -> Change:
    path = "/api/2.0/apps/turnout-dev/update"
    send = _send("POST", path, {"app": fields, "update_mask": ",".join(fields)})

    def change(admin: WorkspaceClient) -> object:
        def is_done() -> bool:
            said: Any = admin.api_client.do("GET", path)
            return bool(said["status"]["state"] == "SUCCEEDED")

        send(admin)
        return until(is_done, "the update of the app does not end")

    return change


def _grant(thing: str, principal: str, privilege: str) -> Change:
    changes = [{"principal": principal, "add": [privilege]}]
    return _send("PATCH", f"/api/2.1/unity-catalog/permissions/{thing}", {"changes": changes})


def _take(thing: str, privilege: str) -> Change:
    def change(admin: WorkspaceClient) -> object:
        path = f"/api/2.1/unity-catalog/permissions/{thing}"
        held: Any = admin.api_client.do("GET", path)
        changes = [{"principal": held["privilege_assignments"][0]["principal"], "remove": [privilege]}]
        return admin.api_client.do("PATCH", path, body={"changes": changes})

    return change


def _reader_gone(*, is_app: bool) -> Change:
    def change(admin: WorkspaceClient) -> object:
        of_app = admin.apps.get("turnout-dev").service_principal_client_id  # its right comes with a resource of the app
        principal = next(
            each.principal
            for each in admin.secrets.list_acls("turnout-dev")
            if each.permission == AclPermission.READ and (each.principal == of_app) is is_app
        )
        return admin.secrets.delete_acl("turnout-dev", str(principal))

    return change


def _alert(edit: Callable[[Any], Mapping[str, Any]]) -> Change:
    def change(admin: WorkspaceClient) -> object:
        found = next(
            each.as_dict()
            for each in admin.alerts_v2.list_alerts()
            if "cannot keep up with its source" in str(each.display_name)
        )
        body = edit(found)
        return admin.api_client.do(
            "PATCH", f"/api/2.0/alerts/{found['id']}", query={"update_mask": ",".join(body)}, body=body
        )

    return change


def _board(act: Callable[[WorkspaceClient, str, str], object]) -> Change:
    def change(admin: WorkspaceClient) -> object:
        (found,) = admin.lakeview.list()
        return act(admin, str(found.dashboard_id), str(found.serialized_dashboard))

    return change


def _no_member(admin: WorkspaceClient) -> object:
    """Take the drivers' membership away, in the database."""
    drivers = next(
        str(each.application_id) for each in admin.service_principals.list() if each.display_name == "drivers"
    )
    token = admin.postgres.generate_database_credential(
        endpoint="projects/turnout-dev/branches/production/endpoints/primary"
    ).token
    name = str(admin.current_user.me().user_name)
    with psycopg.connect(
        host="127.0.0.1", port=os.environ["PGPORT"], user=name, password=token, dbname="turnout", autocommit=True
    ) as connection:
        return connection.execute(sql.SQL("REVOKE turnout_user FROM {}").format(sql.Identifier(drivers)))


def _project(field: str, value: Any) -> Change:
    body, query = {"spec": {field: value}}, {"update_mask": f"spec.{field}"}
    return _send("PATCH", "/api/2.0/postgres/projects/turnout-dev", body, query)


DRIFTS: Final[list[tuple[str, Change]]] = [
    _job("ingest", lambda settings: settings.update(max_concurrent_runs=3)),
    _job("ingest", lambda settings: settings["tags"].update(owner="somebody")),
    _job("ingest", lambda settings: settings["tags"].pop("turnout_env")),
    _job("ingest", lambda settings: settings["continuous"].update(pause_status="PAUSED")),
    _job("ingest", lambda settings: _cluster(settings).update(num_workers=9)),
    _job("ingest", lambda settings: _cluster(settings)["spark_conf"].update({"spark.x": "1"})),
    _job("ingest", lambda settings: _cluster(settings)["spark_env_vars"].pop("TURNOUT_ENVIRONMENT")),
    _job("maintenance", lambda settings: settings["tasks"][0].update(max_retries=4)),
    _job("ingest", lambda settings: settings["tasks"][0].update(libraries=[])),
    _job("controller", lambda settings: settings["tasks"][0]["python_wheel_task"]["parameters"].append("--help")),
    _job("controller", lambda settings: settings.update(timeout_seconds=60)),
    _job("controller", lambda settings: settings.update(name="theirs")),
    _job("maintenance", lambda settings: settings.update(queue={"enabled": True})),
    _job("group_main", lambda settings: settings.update(run_as={"user_name": "admin@turnout.example"})),
    _job("group_main", lambda settings: settings["tasks"].append({"task_key": "more", "job_cluster_key": "driver"})),
    _job_permission("controller", "CAN_MANAGE"),
    _removed_job("maintenance"),
    ("schemas.games", _grant("schema/main.turnout_dev", "admin@turnout.example", "MODIFY")),
    ("schemas.games", _take("schema/main.turnout_dev", "CREATE_TABLE")),
    (
        "external_locations.tables",
        _send("PATCH", "/api/2.1/unity-catalog/external-locations/turnout_dev", {"read_only": True}),
    ),
    ("external_locations.tables", _grant("external_location/turnout_dev", "admin@turnout.example", "READ_FILES")),
    ("external_locations.tables", _take("external_location/turnout_dev", "WRITE_FILES")),
    (
        "secret_scopes.turnout",
        _send(
            "POST", "/api/2.0/secrets/acls/put", {"scope": "turnout-dev", "principal": "users", "permission": "READ"}
        ),
    ),
    ("secret_scopes.turnout", _reader_gone(is_app=False)),
    ("apps.dashboard", _reader_gone(is_app=True)),
    ("postgres_projects.store", _project("display_name", "mine")),
    ("postgres_projects.store", _project("default_endpoint_settings", {"no_suspension": False})),
    ("alerts.source_backlog", _alert(lambda alert: {"query_text": "SELECT 1 AS waits_seconds"})),
    (
        "alerts.source_backlog",
        _alert(lambda alert: {"evaluation": {**alert["evaluation"], "comparison_operator": "LESS_THAN"}}),
    ),
    ("alerts.source_backlog", _alert(lambda alert: {"schedule": {**alert["schedule"], "pause_status": "PAUSED"}})),
    ("alerts.source_backlog", _alert(lambda alert: {"custom_description": "mine"})),
    ("dashboards.turnout", _board(lambda admin, key, _: admin.lakeview.unpublish(key))),
    ("dashboards.turnout", _board(lambda admin, key, _: admin.lakeview.trash(key))),
    (
        "dashboards.turnout",
        _board(lambda admin, key, _: admin.lakeview.update(key, Dashboard(serialized_dashboard='{"pages": []}'))),
    ),
    ("store_roles.members", _no_member),
    ("apps.dashboard", _app_update({"user_api_scopes": ["sql", "files.files"]})),
    ("apps.dashboard", _app_update({"compute_size": "LARGE"})),
    ("apps.dashboard", _app_update({"resources": None})),
    ("apps.dashboard", lambda admin: admin.apps.stop("turnout-dev")),
    (
        "apps.dashboard",
        _send(
            "PATCH", "/api/2.0/permissions/apps/turnout-dev",
            {"access_control_list": [{"group_name": "users", "permission_level": "CAN_MANAGE"}]},
        ),
    ),
]  # fmt: skip
"""Each with the address of the resource that it changes."""

SECRET: Final = "sentinel-of-another-person"
_, write_secret = _job("ingest", lambda settings: _cluster(settings)["spark_env_vars"].update(
    AWS_SECRET_ACCESS_KEY=SECRET, DB_PASSWORD=SECRET,
))  # fmt: skip
"""Writes a secret into a variable that the bundle takes from a scope, and adds a variable with another."""

UNMARKED: Final[list[tuple[str, Change]]] = [
    ("schemas.games", _send("PATCH", "/api/2.1/unity-catalog/schemas/main.turnout_dev", {"comment": "mine"})),
    (
        "external_locations.tables",
        _send("PATCH", "/api/2.1/unity-catalog/external-locations/turnout_dev", {"comment": "mine"}),
    ),
    (
        "secret_scopes.turnout",
        _send("POST", "/api/2.0/secrets/delete", {"scope": "turnout-dev", "key": "turnout_env.dev"}),
    ),
    ("postgres_projects.store", _project("custom_tags", [])),
    ("apps.dashboard", _app_update({"description": "mine"})),
]
"""Each takes the mark from a thing whose id is its name: nobody can tell it from a thing of others."""
