"""Guards Lakebase of the stand-in, in front of a real PostgreSQL: tokens are passwords, checked at login only."""

import io
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import AlreadyExists, BadRequest, NotFound, PermissionDenied
from databricks.sdk.service.apps import (
    App,
    AppDeployment,
    AppResource,
    AppResourcePostgres,
    AppResourcePostgresPostgresPermission,
)
from databricks.sdk.service.postgres import (
    Database,
    DatabaseDatabaseSpec,
    Project,
    ProjectSpec,
    Role,
    RoleRoleSpec,
)
from databricks.sdk.service.workspace import ImportFormat
from google.protobuf.duration_pb2 import Duration

from tests.postgres import Postgres, postgres_server
from tests.workspace.fixtures import client, ended, made, started, until, wheel
from tests.workspace.running import StandIn

BRANCH = "projects/turnout-test/branches/production"
ENDPOINT = f"{BRANCH}/endpoints/primary"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def workspace(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with StandIn(tmp_path_factory.mktemp("workspace"), postgres.url()) as started_:
        yield started_


@pytest.fixture(scope="module")
def project(admin: WorkspaceClient) -> str:
    """A project with a role and a database of its own."""
    made_ = admin.postgres.create_project(Project(spec=ProjectSpec(display_name="t")), "turnout-test").wait()
    assert made_.name is not None
    admin.postgres.create_role(
        BRANCH, Role(spec=RoleRoleSpec(postgres_role="turnout_owner")), role_id="turnout-owner"
    ).wait()
    spec = DatabaseDatabaseSpec(role=f"{BRANCH}/roles/turnout-owner", postgres_database="turnout")
    admin.postgres.create_database(BRANCH, Database(spec=spec), database_id="turnout").wait()
    return made_.name


def token_of(mine: WorkspaceClient, seconds: int | None = None) -> str:
    ttl = None if seconds is None else Duration(seconds=seconds)
    token = mine.postgres.generate_database_credential(endpoint=ENDPOINT, ttl=ttl).token
    assert token is not None
    return token


def connect(workspace: StandIn, user: str, token: str) -> psycopg.Connection:
    port = int(workspace.variables()["PGPORT"])
    return psycopg.connect(host="127.0.0.1", port=port, user=user, password=token, dbname="turnout", autocommit=True)


def test_a_project_has_a_branch_and_an_endpoint(admin: WorkspaceClient, project: str) -> None:
    """A project is made with `production` and `primary`; a GET shows its status, not its spec."""
    shown = admin.postgres.get_project(project)
    assert shown.status is not None
    assert (shown.spec, shown.status.display_name) == (None, "t")
    assert [each.name for each in admin.postgres.list_branches(project)] == [BRANCH]
    endpoint = admin.postgres.get_endpoint(ENDPOINT)
    assert endpoint.status is not None
    assert endpoint.status.hosts is not None
    assert endpoint.status.hosts.host == "127.0.0.1"
    with pytest.raises(AlreadyExists):
        admin.postgres.create_project(Project(), "turnout-test")
    with pytest.raises(NotFound):
        admin.postgres.get_project("projects/none")


def test_a_token_is_the_password_of_its_owner(workspace: StandIn, admin: WorkspaceClient, project: str) -> None:
    """A credential logs its owner in; another name, or another password, is refused."""
    mine = token_of(admin)
    with connect(workspace, workspace.admin_name, mine) as connection:
        found = connection.execute("SELECT current_user::text").fetchone()
    assert found == (workspace.admin_name,)
    for user, token in ((workspace.admin_name, "wrong"), ("turnout_owner", mine)):
        with pytest.raises(psycopg.OperationalError):
            connect(workspace, user, token)
    # each credential counts until its own end
    connect(workspace, workspace.admin_name, token_of(admin)).close()
    connect(workspace, workspace.admin_name, mine).close()


def test_an_expired_token_ends_logins_and_no_connection(
    workspace: StandIn, admin: WorkspaceClient, project: str
) -> None:
    """A credential is looked at when somebody logs in: an open connection lives on."""
    with pytest.raises(BadRequest, match="ttl must be 300s"):
        token_of(admin, 1)
    workspace.settings(least_credential_seconds=0.0)
    token = token_of(admin, 1)
    with connect(workspace, workspace.admin_name, token) as connection:

        def is_over() -> bool:
            try:
                connect(workspace, workspace.admin_name, token).close()
            except psycopg.OperationalError:
                return True
            return False

        until(is_over, "the credential does not expire")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_principal_needs_a_role(workspace: StandIn, admin: WorkspaceClient, project: str) -> None:
    """Without a role of its name a principal gets a credential, and cannot log in with it."""
    token = workspace.add_principal("driver")
    driver, name = client(workspace, token), workspace.identity("driver").name
    with pytest.raises(psycopg.OperationalError):
        connect(workspace, name, token_of(driver))
    admin.postgres.create_role(BRANCH, Role(spec=RoleRoleSpec(postgres_role=name)), role_id="driver-role").wait()
    with connect(workspace, name, token_of(driver)) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("CREATE TABLE t (a int)")
    with pytest.raises(PermissionDenied):
        driver.postgres.delete_project(project)


def test_doubles_are_bad_requests(admin: WorkspaceClient, project: str) -> None:
    """A doubled role or database is 400; `replace_existing` adopts it; a database needs a role."""
    role = Role(spec=RoleRoleSpec(postgres_role="turnout_owner"))
    with pytest.raises(BadRequest, match="already exists"):
        admin.postgres.create_role(BRANCH, role, role_id="turnout-owner")
    admin.postgres.create_role(BRANCH, role, role_id="turnout-owner", replace_existing=True).wait()
    with pytest.raises(BadRequest, match="'role' is required"):
        admin.postgres.create_database(BRANCH, Database(spec=DatabaseDatabaseSpec(role="")), database_id="other")
    with pytest.raises(BadRequest, match="Cannot delete first branch"):
        admin.postgres.delete_branch(BRANCH)


def test_an_operation_takes_its_time(workspace: StandIn, admin: WorkspaceClient) -> None:
    """An operation is polled until it is done; a project that is deleted softly can be brought back."""
    workspace.settings(operation_seconds=0.2)
    operation = admin.postgres.create_project(Project(), "slow")
    assert operation.done() is False
    until(operation.done, "the operation does not end")
    workspace.calm()
    admin.postgres.delete_project("projects/slow").wait()
    with pytest.raises(NotFound):
        admin.postgres.get_project("projects/slow")
    admin.postgres.undelete_project("projects/slow").wait()
    assert admin.postgres.get_project("projects/slow").name == "projects/slow"


def test_a_task_finds_the_port(workspace: StandIn, admin: WorkspaceClient) -> None:
    """Tasks and clients get PGPORT: an endpoint has no field for it."""
    run_id = started(admin, made(admin, wheel("0", "-", "{{job.id}}")))
    ended(admin, run_id)
    assert workspace.variables()["PGPORT"].isdecimal()


_APP = """
import http.server, os, psycopg
from databricks.sdk import WorkspaceClient
token = WorkspaceClient().postgres.generate_database_credential(endpoint=os.environ["STORE"]).token
with psycopg.connect(password=token) as connection:
    connection.execute("CREATE SCHEMA app")
    user, database = connection.execute("SELECT current_user::text, current_database()::text").fetchone()
print(user, database, os.environ.get("PGPASSWORD"), flush=True)
port = int(os.environ["DATABRICKS_APP_PORT"])
http.server.ThreadingHTTPServer(("0.0.0.0", port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
_CONFIG = "{command: [python, app.py], env: [{name: STORE, valueFrom: control-store}]}"


def test_an_app_logs_in_as_its_own_principal(workspace: StandIn, admin: WorkspaceClient, project: str) -> None:
    """An app's database resource is its endpoint's path, variables of libpq without a password, and a role."""
    admin.workspace.mkdirs("/Shared/store")
    for name, text in (("app.py", _APP), ("app.yaml", _CONFIG)):
        admin.workspace.upload(f"/Shared/store/{name}", io.BytesIO(text.encode()), format=ImportFormat.AUTO)
    database = f"{BRANCH}/databases/turnout"
    permission = AppResourcePostgresPostgresPermission.CAN_CONNECT_AND_CREATE
    resource = AppResource("control-store", postgres=AppResourcePostgres(BRANCH, database, permission))
    admin.apps.create(App("store", resources=[resource]))
    until(lambda: admin.apps.get("store").as_dict()["compute_status"]["state"] == "ACTIVE", "no compute")
    admin.apps.deploy("store", AppDeployment(source_code_path="/Workspace/Shared/store"))
    until(lambda: admin.apps.get("store").active_deployment, "the app does not start")
    log = (workspace.folder / "apps" / "store.log").read_text("utf-8")
    assert log.splitlines()[0] == f"{admin.apps.get('store').service_principal_client_id} turnout None"


def test_nothing_is_left_in_the_server(postgres: Postgres, tmp_path: Path, project: str) -> None:
    """Another stand-in on the same PostgreSQL begins without databases and roles of the one before."""

    def left(own: psycopg.Connection) -> list[tuple[object, ...]]:
        roles = own.execute("SELECT rolname FROM pg_roles WHERE rolname = 'turnout_owner'").fetchall()
        return roles + own.execute("SELECT datname FROM pg_database WHERE datname = 'turnout'").fetchall()

    with psycopg.connect(postgres.url().replace("+psycopg", ""), autocommit=True) as own:
        assert left(own) == [("turnout_owner",), ("turnout",)]
        with StandIn(tmp_path, postgres.url()) as another:
            another.variables()
            assert left(own) == []
