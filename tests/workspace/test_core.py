"""Guards the stand-in's manners: sign-in, errors, faults before and after the effect, throttling, stale reads."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import InternalError, NotFound, PermissionDenied, Unauthenticated
from databricks.sdk.errors.base import DatabricksError

from pipeline.base.errors import Refused, Unclear
from pipeline.platforms.databricks.workspace.client import open_workspace
from tests.checkout import ROOT
from tests.workspace.core_world import bearer, is_alive
from tests.workspace.fixtures import client, until
from tests.workspace.running import StandIn


def names_of(admin: WorkspaceClient, name: str) -> int:
    return len(list(admin.jobs.list(name=name)))


def test_a_token_is_a_principal(workspace: StandIn, admin: WorkspaceClient) -> None:
    """A token says who calls; without a token, with an unknown or an expired one, the answer is 401."""
    token = workspace.add_principal("someone@turnout.example", "user")
    assert client(workspace, token).current_user.me().user_name == "someone@turnout.example"
    assert admin.current_user.me().user_name == workspace.admin_name
    workspace.expire(token)
    for wrong in (token, "dapi-unknown"):
        with pytest.raises(Unauthenticated):
            client(workspace, wrong).current_user.me()


def test_client_credentials_give_tokens_that_expire(workspace: StandIn) -> None:
    """A service principal signs in with its secret; the SDK gets a new token when the old one has expired."""
    workspace.add_principal("driver")
    driver = workspace.identity("driver")
    workspace.settings(token_seconds=1.0)
    mine = WorkspaceClient(host=workspace.url, client_id=driver.name, client_secret=driver.client_secret)
    assert mine.current_user.me().user_name == driver.name
    before = len(workspace.requests("/oidc/v1/token"))
    first = workspace.requests("/scim/v2/Me")[-1]
    assert (first["status"], first["who"]) == (200, "driver")
    until(lambda: mine.current_user.me() and len(workspace.requests("/oidc/v1/token")) > before, "no new token")
    assert workspace.requests("/scim/v2/Me")[-1]["status"] == 200
    with pytest.raises(ValueError, match="invalid_client"):
        WorkspaceClient(host=workspace.url, client_id=driver.name, client_secret="wrong").current_user.me()


def test_errors_have_the_form_of_the_api(workspace: StandIn, admin: WorkspaceClient) -> None:
    """An unknown job is a NotFound to the SDK, with the request's id in the details."""
    with pytest.raises(NotFound, match="Job 1 does not exist"):
        admin.jobs.get(1)
    plain = requests.get(f"{workspace.url}/api/2.2/jobs/get?job_id=1", headers=bearer(workspace))
    assert plain.status_code == 404
    assert plain.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    assert plain.json()["details"][0]["request_id"]


@pytest.mark.parametrize(("when", "made"), [("before", 0), ("after", 1)])
def test_a_fault_is_before_or_after_the_effect(
    workspace: StandIn, admin: WorkspaceClient, when: str, made: int
) -> None:
    """A fault meets the n-th call that matches, once; `after` is the lost answer: the job is there."""
    name = f"fault {when}"
    workspace.fault("POST", "/jobs/create", 1, 500, when="after" if when == "after" else "before")
    with pytest.raises(InternalError):
        admin.jobs.create(name=name)
    assert names_of(admin, name) == made
    admin.jobs.create(name=name)
    assert names_of(admin, name) == made + 1


def test_a_fault_waits_for_its_call(workspace: StandIn, admin: WorkspaceClient) -> None:
    """A fault of the second call lets the first and the third pass, and calls of other addresses do not count."""
    workspace.fault("GET", "/scim/v2/Me", 2, 500)
    admin.current_user.me()
    list(admin.jobs.list())
    with pytest.raises(InternalError):
        admin.current_user.me()
    admin.current_user.me()


def test_a_cut_connection_makes_the_sdk_send_twice(workspace: StandIn, admin: WorkspaceClient) -> None:
    """The SDK re-sends `jobs/create` after a cut, so a cut after the effect leaves two jobs."""
    workspace.fault("POST", "/jobs/create", 1, "cut", when="after")
    admin.jobs.create(name="doubled")
    assert names_of(admin, "doubled") == 2
    assert [each["status"] for each in workspace.requests("/jobs/create")][-2:] == ["cut", 200]
    workspace.fault("POST", "/jobs/create", 1, "cut", when="before")
    with pytest.raises(requests.ConnectionError):
        requests.post(f"{workspace.url}/api/2.2/jobs/create", json={"name": "never"}, headers=bearer(workspace))
    assert names_of(admin, "never") == 0


_CALLER = """
import requests, sys
requests.post(sys.argv[1] + "/api/2.2/jobs/create", json={"name": "last words"}, headers={"Authorization": sys.argv[2]})
print("lives")
"""


def test_a_caller_is_killed_at_its_request(workspace: StandIn, admin: WorkspaceClient) -> None:
    """The process that sends a request dies at it, here after the effect; nobody else does."""
    workspace.fault("POST", "/jobs/create", 1, "kill", when="after")
    command = [sys.executable, "-c", _CALLER, workspace.url, bearer(workspace)["Authorization"]]
    died = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (died.returncode, died.stdout) == (-signal.SIGKILL, "")
    assert names_of(admin, "last words") == 1
    sent = workspace.requests("/jobs/create")[-1]
    assert (sent["who"], sent["status"]) == (workspace.admin_name, "kill")


def test_our_client_does_not_know_after_a_cut(workspace: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no answer comes within our patience, the client says that the effect is not known."""
    for name, value in workspace.variables().items():
        monkeypatch.setenv(name, value)
    ours = open_workspace(patience_seconds=1)
    for nth in (1, 2, 3, 4):
        workspace.fault("POST", "/jobs/create", nth, "cut")
    with pytest.raises(Unclear):
        ours.send("POST", "/api/2.2/jobs/create", {"name": "unclear"})
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-unknown")
    with pytest.raises(Refused, match="does not know this token"):
        open_workspace(patience_seconds=1).get("/api/2.2/jobs/list")


def test_too_many_requests_say_when_to_return(workspace: StandIn, admin: WorkspaceClient) -> None:
    """429 comes with Retry-After or without; the SDK waits, and sends again."""
    workspace.fault("GET", "/jobs/list", 1, 429, retry_after=1)
    started = time.monotonic()
    list(admin.jobs.list())
    assert time.monotonic() - started >= 1.0
    workspace.throttle(2, 60.0, "/jobs/list")
    seen = [requests.get(f"{workspace.url}/api/2.2/jobs/list", headers=bearer(workspace)) for _ in range(3)]
    workspace.throttle(None)
    assert [each.status_code for each in seen] == [200, 200, 429]
    assert "Retry-After" not in seen[-1].headers
    workspace.throttle(0, 60.0, "/jobs/list", retry_after=1)
    answer = requests.get(f"{workspace.url}/api/2.2/jobs/list", headers=bearer(workspace))
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    workspace.throttle(None)
    assert list(admin.jobs.list()) is not None


def test_the_first_read_after_a_write_is_stale(workspace: StandIn, admin: WorkspaceClient) -> None:
    """With stale reads the first read of each address answers from before the last write, the next from now."""
    workspace.stale_reads("/jobs/list")
    admin.jobs.create(name="late")
    assert [names_of(admin, "late"), names_of(admin, "late")] == [0, 1]
    workspace.stale_reads(on=False)
    admin.jobs.create(name="late")
    assert names_of(admin, "late") == 2


def test_only_the_starter_steers(workspace: StandIn) -> None:
    """The private path is refused without the secret, also to the workspace's admin."""
    answer = requests.post(f"{workspace.url}/_standin/requests", headers=bearer(workspace))
    assert answer.status_code == 403


def test_the_journal_is_a_file_too(workspace: StandIn, admin: WorkspaceClient, tmp_path: Path) -> None:
    """Each request is a line of `requests.jsonl`: method, path, who, status."""
    with pytest.raises(DatabricksError):
        admin.jobs.get(77)
    lines = (workspace.folder / "requests.jsonl").read_text("utf-8").splitlines()
    last = json.loads(lines[-1])
    assert (last["method"], last["who"], last["status"]) == ("GET", workspace.admin_name, 404)
    assert last["path"].endswith("job_id=77")


def test_an_unknown_path_is_no_success(workspace: StandIn, admin: WorkspaceClient) -> None:
    """A path that the stand-in does not know is an error, so that no test passes by an empty answer."""
    with pytest.raises(NotFound, match="No API found"):
        admin.api_client.do("GET", "/api/2.0/unheard-of")


_HOLDER = """
import sys, pathlib, time
from tests.workspace.fixtures import client, made, started, until_printed, wheel
from tests.workspace.running import StandIn
folder = pathlib.Path(sys.argv[1])
(folder / "held").touch()
with StandIn(folder / "workspace") as workspace:
    admin = client(workspace)
    run = started(admin, made(admin, wheel("0", str(folder / "held"))))
    print(workspace.pid, until_printed(workspace, run).split()[-1], flush=True)
    time.sleep(60)
"""


def test_nothing_outlives_a_killed_starter(tmp_path: Path) -> None:
    """The kernel ends the stand-in, and with it a run, when the process that started it is killed."""
    command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        try:
            assert holder.stdout is not None
            started = [int(word) for word in holder.stdout.readline().split()]
            assert [is_alive(pid) for pid in started] == [True, True]
        finally:
            os.kill(holder.pid, signal.SIGKILL)
    until(lambda: not any(is_alive(pid) for pid in started), "something lives on")


def test_a_stranger_may_not_create_principals(workspace: StandIn) -> None:
    """Only admins change people."""
    stranger = client(workspace, workspace.add_principal("stranger"))
    with pytest.raises((PermissionDenied, DatabricksError)):
        stranger.service_principals.create(display_name="x")
