"""Guards apps of the stand-in: created, updated, deployed as real processes behind a proxy, stopped, deleted."""

import base64
import io
import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import BadRequest, NotFound, PermissionDenied, ResourceAlreadyExists
from databricks.sdk.service.apps import (
    App,
    AppAccessControlRequest,
    AppDeployment,
    AppDeploymentState,
    AppPermissionLevel,
    AppResource,
    AppResourceJob,
    AppResourceJobJobPermission,
    AppResourceSecret,
    AppResourceSecretSecretPermission,
    ComputeState,
)
from databricks.sdk.service.jobs import JobAccessControlRequest, JobPermissionLevel
from databricks.sdk.service.workspace import ImportFormat

from tests.workspace.core_world import bearer, is_alive
from tests.workspace.fixtures import made, until
from tests.workspace.running import StandIn

_SOURCE = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Echo(BaseHTTPRequestHandler):
    def do_GET(self):
        if "Upgrade" in self.headers:
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: echo\\r\\n\\r\\n")
            while part := self.connection.recv(100):
                self.connection.sendall(part.upper())
            return
        body = json.dumps({"headers": list(self.headers.items()), "env": dict(os.environ), "pid": os.getpid()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

if "fail" in sys.argv:
    sys.exit(3)
ThreadingHTTPServer(("0.0.0.0", int(os.environ["DATABRICKS_APP_PORT"])), Echo).serve_forever()
"""
_CONFIG = """
command: ["python", "echo.py"]
env:
  - {name: PLAIN, value: "1"}
  - {name: SECRET, valueFrom: password}
  - {name: JOB, valueFrom: the-job}
"""


@pytest.fixture(scope="module")
def job_id(admin: WorkspaceClient) -> str:
    return str(made(admin))


@pytest.fixture(scope="module")
def app(workspace: StandIn, admin: WorkspaceClient, job_id: str) -> App:
    """An app that is deployed and runs."""
    write(admin, "/Shared/echo", _CONFIG)
    admin.secrets.create_scope("apps")
    admin.secrets.put_secret("apps", "password", string_value="hidden")
    secret = AppResourceSecret("apps", "password", AppResourceSecretSecretPermission.READ)
    job = AppResourceJob(job_id, AppResourceJobJobPermission.CAN_MANAGE_RUN)
    resources = [AppResource("password", secret=secret), AppResource("the-job", job=job)]
    admin.apps.create(App("echo", resources=resources))
    until_compute(admin, "echo", ComputeState.ACTIVE)
    deploy(admin, "echo", AppDeployment(source_code_path="/Workspace/Shared/echo"))
    return admin.apps.get("echo")


def write(admin: WorkspaceClient, folder: str, config: str) -> None:
    admin.workspace.mkdirs(folder)
    for name, text in (("echo.py", _SOURCE), ("app.yaml", config)):
        admin.workspace.upload(f"{folder}/{name}", io.BytesIO(text.encode()), format=ImportFormat.AUTO, overwrite=True)


def until_compute(admin: WorkspaceClient, name: str, state: ComputeState) -> None:
    def look() -> bool:
        status = admin.apps.get(name).compute_status
        return status is not None and status.state == state

    until(look, f"{name} does not become {state}")


def deploy(admin: WorkspaceClient, name: str, wanted: AppDeployment) -> AppDeployment:
    deployment_id = str(admin.apps.deploy(name, wanted).bind()["deployment_id"])

    def look() -> AppDeployment | None:
        found = admin.apps.get_deployment(name, deployment_id)
        return found if found.status and found.status.state != AppDeploymentState.IN_PROGRESS else None

    return until(look, f"the deployment of {name} does not end")


def said(workspace: StandIn, app: App, **headers: str) -> dict[str, Any]:
    answer = requests.get(f"{app.url}/page?a=b", headers={**bearer(workspace), **headers}, timeout=10)
    assert answer.ok, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_an_app_is_a_process_with_its_variables(workspace: StandIn, app: App, job_id: str) -> None:
    """An app gets the values of its resources, and signs in to the workspace as its own service principal."""
    env = said(workspace, app)["env"]
    assert (env["PLAIN"], env["SECRET"], env["JOB"]) == ("1", "hidden", job_id)
    assert env["DATABRICKS_CLIENT_ID"] == app.service_principal_client_id
    mine = WorkspaceClient(
        host=env["DATABRICKS_HOST"],
        client_id=env["DATABRICKS_CLIENT_ID"],
        client_secret=env["DATABRICKS_CLIENT_SECRET"],
    )
    assert mine.current_user.me().user_name == app.service_principal_client_id
    assert mine.jobs.get(int(job_id)).job_id == int(job_id)
    value = mine.secrets.get_secret("apps", "password").value or ""
    assert base64.b64decode(value) == b"hidden"


def test_the_proxy_says_who_is_signed_in(workspace: StandIn, app: App) -> None:
    """A token or a cookie names the person, without whom nothing passes; forged headers pass beside ours."""
    assert requests.get(str(app.url), timeout=10).status_code == 401
    headers = said(workspace, app, **{"X-Forwarded-Email": "forged@example"})["headers"]
    emails = [value for name, value in headers if name.lower() == "x-forwarded-email"]
    assert emails == ["forged@example", workspace.admin_name]
    assert "authorization" not in {name.lower() for name, _ in headers}
    workspace.add_principal("viewer@turnout.example", "user")
    session = requests.Session()
    refused = session.get(f"{app.url}/?standin_user=viewer@turnout.example", timeout=10)
    assert refused.status_code == 403
    browser = session.get(f"{app.url}/?standin_user={workspace.admin_name}&x=y", timeout=10)
    assert browser.url == f"{app.url}/?x=y"
    shown = dict(browser.json()["headers"])
    assert shown["X-Forwarded-Email"] == workspace.admin_name
    assert shown["X-Forwarded-Access-Token"]
    again = session.get(f"{app.url}/", timeout=10, headers={"Origin": str(app.url)}).json()["headers"]
    assert dict(again)["Origin"] == str(app.url).replace("http:", "https:")


def test_an_upgrade_passes(workspace: StandIn, app: App) -> None:
    """The proxy lets a WebSocket's bytes through in both directions."""
    place = urlsplit(str(app.url))
    with socket.create_connection((str(place.hostname), int(place.port or 0)), 10) as connection:
        head = f"GET / HTTP/1.1\r\nHost: {place.netloc}\r\nUpgrade: echo\r\nConnection: Upgrade\r\n"
        connection.sendall(f"{head}Authorization: Bearer {workspace.admin_token}\r\n\r\n".encode())
        assert b"101 Switching" in connection.recv(4_096)
        connection.sendall(b"hello")
        assert connection.recv(100) == b"HELLO"


def test_permissions_open_an_app(workspace: StandIn, admin: WorkspaceClient, app: App) -> None:
    """CAN_USE lets somebody in, and nothing more."""
    token = workspace.add_principal("user@turnout.example", "user")
    level = AppAccessControlRequest(permission_level=AppPermissionLevel.CAN_USE, user_name="user@turnout.example")
    admin.apps.update_permissions("echo", access_control_list=[level])
    header = {"Authorization": f"Bearer {token}"}
    assert requests.get(str(app.url), headers=header, timeout=10).ok
    user = WorkspaceClient(host=workspace.url, token=token)
    with pytest.raises(PermissionDenied):
        user.apps.stop("echo")


def test_a_name_is_taken_until_the_deletion_is_over(workspace: StandIn, admin: WorkspaceClient) -> None:
    """A deleted app answers as DELETING for a while: a second DELETE is 400, a create 409; then the name is free."""
    workspace.settings(deleting_seconds=0.5)
    admin.apps.create(App("short"), no_compute=True)
    with pytest.raises(ResourceAlreadyExists, match="same name already exists: short"):
        admin.apps.create(App("short"), no_compute=True)
    admin.apps.delete("short")
    with pytest.raises(BadRequest, match="not terminal with state DELETING"):
        admin.apps.delete("short")
    until_compute(admin, "short", ComputeState.DELETING)
    with pytest.raises(ResourceAlreadyExists):
        admin.apps.create(App("short"), no_compute=True)

    def is_gone() -> bool:
        try:
            admin.apps.get("short")
        except NotFound:
            return True
        return False

    until(is_gone, "short stays")
    first = admin.apps.create(App("short"), no_compute=True).bind()
    assert first["name"] == "short"


def test_an_app_without_compute_is_stopped(admin: WorkspaceClient) -> None:
    """`no_compute` makes a stopped app, which cannot be deployed before it is started."""
    admin.apps.create(App("stopped"), no_compute=True)
    until_compute(admin, "stopped", ComputeState.STOPPED)
    with pytest.raises(BadRequest, match="compute is STOPPED"):
        admin.apps.deploy("stopped", AppDeployment(source_code_path="/Workspace/Shared/echo"))
    admin.apps.start("stopped")
    until_compute(admin, "stopped", ComputeState.ACTIVE)
    shown = admin.apps.get("stopped")
    assert (shown.active_deployment, shown.compute_status is not None) == (None, True)


def test_an_update_takes_what_its_mask_names(workspace: StandIn, admin: WorkspaceClient, job_id: str) -> None:
    """An update replaces each named field wholly and later; a name without a value detaches resources."""
    job = AppResourceJob(job_id, AppResourceJobJobPermission.CAN_VIEW)
    app = App("masked", description="before", resources=[AppResource("j", job=job)])
    admin.apps.create(app, no_compute=True)
    workspace.settings(app_seconds=0.2)
    admin.apps.create_update("masked", "description", app=App("masked", description="after"))
    assert admin.apps.get("masked").description == "before"
    until(lambda: admin.apps.get("masked").description == "after", "the update does not end")
    assert len(admin.apps.get("masked").resources or []) == 1
    admin.apps.create_update("masked", "resources", app=App("masked"))
    until(lambda: not admin.apps.get("masked").resources, "the update does not end")
    with pytest.raises(BadRequest, match="unknown field"):
        admin.apps.create_update("masked", "nonsense", app=App("masked"))


def test_a_put_of_the_job_s_permissions_locks_the_app_out(
    workspace: StandIn, admin: WorkspaceClient, app: App, job_id: str
) -> None:
    """The right that an app's resource gave on a job is gone after a PUT that leaves the app out."""
    name = app.service_principal_client_id

    def held() -> bool:
        shown = admin.jobs.get_permissions(job_id).access_control_list or []
        return name in {each.service_principal_name for each in shown}

    assert held()
    owner = JobAccessControlRequest(permission_level=JobPermissionLevel.IS_OWNER, user_name=workspace.admin_name)
    admin.jobs.set_permissions(job_id, access_control_list=[owner])
    assert not held()
    admin.apps.create_update("echo", "resources", app=App("echo", resources=app.resources))
    assert held()


def test_a_bad_source_fails_the_deployment(workspace: StandIn, admin: WorkspaceClient, app: App) -> None:
    """A folder that is not there, a resource that is not listed, and a process that ends fail a deployment."""
    admin.apps.create(App("bad"))
    until_compute(admin, "bad", ComputeState.ACTIVE)
    write(admin, "/Shared/bad", _CONFIG)
    write(admin, "/Shared/exits", 'command: ["python", "echo.py", "fail"]')
    for path, reason in (("none", "does not exist"), ("bad", "unknown resource"), ("exits", "exited with code 3")):
        failed = deploy(admin, "bad", AppDeployment(source_code_path=f"/Workspace/Shared/{path}"))
        assert failed.status is not None
        assert failed.status.state == AppDeploymentState.FAILED
        assert reason in str(failed.status.message)


def test_a_stop_ends_the_process_and_a_start_brings_it_back(
    workspace: StandIn, admin: WorkspaceClient, app: App
) -> None:
    """After a stop deployments read back empty and the process is gone; a start runs the last source again."""
    pid = said(workspace, app)["pid"]
    admin.apps.stop("echo")
    until_compute(admin, "echo", ComputeState.STOPPED)
    assert not is_alive(pid)
    assert admin.apps.get("echo").active_deployment is None
    assert requests.get(str(app.url), headers=bearer(workspace), timeout=10).status_code == 502
    admin.apps.start("echo")
    until(lambda: admin.apps.get("echo").active_deployment, "echo does not come back")
    assert said(workspace, app)["pid"] != pid


def test_a_deployment_hides_values(workspace: StandIn, admin: WorkspaceClient, app: App) -> None:
    """Variables of a deployment reach the app, and only their names are read back; a health check is called."""
    from databricks.sdk.service.apps import AppHealthCheck, EnvVar

    wanted = AppDeployment(
        source_code_path="/Workspace/Shared/echo",
        env_vars=[EnvVar("GIVEN", "given"), EnvVar("FROM", value_from="password")],
        health_check=AppHealthCheck(path="/healthz"),
    )
    done = deploy(admin, "echo", wanted)
    assert done.status is not None
    assert done.status.state == AppDeploymentState.SUCCEEDED
    assert [(each.name, each.value) for each in done.env_vars or ()] == [("GIVEN", None), ("FROM", None)]
    env = said(workspace, app)["env"]
    assert (env["GIVEN"], env["FROM"]) == ("given", "hidden")
    assert json.dumps(done.as_dict()).count("given") == 0
