"""Guards the stand-in's catalog: our own client of Databricks works with it, and credentials take their privileges."""

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import BadRequest, DatabricksError, NotFound, PermissionDenied  # type: ignore[attr-defined]
from databricks.sdk.service.catalog import (
    ColumnInfo,
    DataSourceFormat,
    PathOperation,
    PermissionsChange,
    Privilege,
    TableOperation,
    TableType,
)
from databricks.sdk.service.sql import StatementState

from grants.catalog import Change, Denied
from grants.catalog import NotFound as NoSuch
from grants.catalogs.databricks import Databricks
from grants.catalogs.rest import Rest
from grants.catalogs.warehouse import Warehouse
from grants.model import Securable
from tests.workspace.fixtures import client
from tests.workspace.running import StandIn
from tests.workspace.server.boards import WAREHOUSE

GAME = Securable(("main", "games", "chess"))


@pytest.fixture(scope="module")
def table(workspace: StandIn) -> Securable:
    """A game's table, registered as turnout does it."""
    Databricks(Rest(workspace.url, workspace.admin_token)).register(
        GAME, "s3://lake/prod/games/chess", [("seq", "long")]
    )
    return GAME


@pytest.fixture(scope="module")
def location(admin: WorkspaceClient, table: Securable) -> str:
    """The external location of our prefix, made after the table."""
    admin.external_locations.create("turnout", "s3://lake/prod/", "credential")
    return "turnout"


def grant(admin: WorkspaceClient, kind: str, name: str, principal: str, *privileges: Privilege) -> None:
    change = PermissionsChange(add=list(privileges), principal=principal)
    admin.grants.update(kind, name, changes=[change])


def test_our_catalog_client_works_with_it(workspace: StandIn, admin: WorkspaceClient, table: Securable) -> None:
    """Directory, tables, grants and ownership are read and changed through the client that meets real workspaces."""
    workspace.add_principal("analyst@turnout.example", "user", groups=("analysts",))
    ours = Databricks(Rest(workspace.url, workspace.admin_token))
    assert ours.executor == workspace.admin_name
    directory = ours.directory()
    assert "analyst@turnout.example" in directory.principals
    assert "analysts" in directory.groups_of["analyst@turnout.example"]
    assert list(ours.tables(Securable(("main", "games")))) == ["chess"]
    ours.change(Change(table, "analysts", add=("SELECT",)))
    assert ours.assignments(table) == {"analysts": frozenset({"SELECT"})}
    assert ours.owner(table) == workspace.admin_name
    ours.change(Change(table, "analysts", remove=("SELECT",)))
    assert ours.assignments(table) == {}
    assert admin.tables.get("main.games.chess").storage_location == "s3://lake/prod/games/chess"


@pytest.mark.proves("G264")
def test_a_directory_that_shows_no_members_is_noticed(workspace: StandIn) -> None:
    """A directory without members, as an app's principal may see it, does not mean empty groups."""
    token = workspace.add_principal("app", groups=("stewards",))
    workspace.add_principal("member@turnout.example", "user", groups=("readers",))
    ours = Databricks(Rest(workspace.url, token))
    assert ours.directory().hidden == frozenset()
    workspace.settings(shows_members=False)
    try:
        assert ours.directory().hidden >= {"stewards", "readers"}
    finally:
        workspace.settings(shows_members=True)


def test_a_warehouse_gives_and_takes(workspace: StandIn, admin: WorkspaceClient, table: Securable) -> None:
    """GRANT, REVOKE and a probe run as statements; a failed statement is an answer with FAILED, not an error."""
    token = workspace.add_principal("sql@turnout.example", "user")
    warehouse = Warehouse(Rest(workspace.url, workspace.admin_token), WAREHOUSE)
    theirs = Warehouse(Rest(workspace.url, token), WAREHOUSE)
    assert theirs.probe(table).reads is False
    for securable, privilege in (
        (table, "SELECT"),
        (Securable(("main", "games")), "USE_SCHEMA"),
        (Securable(("main",)), "USE_CATALOG"),
    ):
        warehouse.change(Change(securable, "sql@turnout.example", add=(privilege,)))
    assert theirs.probe(table).reads is True
    shown = admin.statement_execution.execute_statement("SHOW GRANTS ON TABLE main.games.chess", WAREHOUSE)
    assert shown.result is not None
    assert shown.result.data_array == [["sql@turnout.example", "SELECT", "TABLE", "main.games.chess"]]
    with pytest.raises(Denied):
        theirs.change(Change(table, "sql@turnout.example", add=("MODIFY",)))
    with pytest.raises(NoSuch):
        warehouse.change(Change(Securable(("main", "games", "none")), "sql@turnout.example", add=("SELECT",)))
    failed = admin.statement_execution.execute_statement("DROP TABLE x", WAREHOUSE, wait_timeout="0s")
    assert failed.status is not None
    assert failed.status.state == StatementState.PENDING
    after = admin.statement_execution.get_statement(str(failed.statement_id))
    assert after.status is not None
    assert after.status.state == StatementState.FAILED
    with pytest.raises(NotFound):
        admin.statement_execution.execute_statement("SELECT 1", "no-warehouse")


def test_a_table_lies_below_a_location(workspace: StandIn, admin: WorkspaceClient, location: str) -> None:
    """With a location known, a table outside it is refused, and inside it takes CREATE EXTERNAL TABLE."""
    columns = [ColumnInfo(name="a", type_text="long")]

    def register(mine: WorkspaceClient, name: str, url: str) -> None:
        mine.tables.create(name, "main", "games", TableType.EXTERNAL, DataSourceFormat.DELTA, url, columns=columns)

    with pytest.raises(PermissionDenied, match="No external location"):
        register(admin, "outside", "s3://elsewhere/x")
    register(admin, "inside", "s3://lake/prod/games/inside")
    stranger = client(workspace, workspace.add_principal("maker"))
    with pytest.raises(PermissionDenied, match="CREATE EXTERNAL TABLE"):
        register(stranger, "theirs", "s3://lake/prod/games/theirs")
    with pytest.raises(BadRequest, match="overlaps"):
        admin.external_locations.create("second", "s3://lake/prod/games", "credential")
    assert [each.name for each in admin.external_locations.list()] == [location]


def test_credentials_for_a_path_take_a_privilege_of_their_own(
    workspace: StandIn, admin: WorkspaceClient, location: str
) -> None:
    """EXTERNAL USE LOCATION is in no ALL PRIVILEGES and no ownership; credentials end at their time."""
    token = workspace.add_principal("writer")
    writer, name = client(workspace, token), workspace.identity("writer").name
    place, operation = "s3://lake/prod/games", PathOperation.PATH_READ_WRITE
    for mine in (admin, writer):
        with pytest.raises(PermissionDenied, match="EXTERNAL USE LOCATION"):
            mine.temporary_path_credentials.generate_temporary_path_credentials(place, operation)
    grant(admin, "external_location", location, name, Privilege.ALL_PRIVILEGES)
    with pytest.raises(PermissionDenied, match="EXTERNAL USE LOCATION"):
        writer.temporary_path_credentials.generate_temporary_path_credentials(place, operation)
    grant(admin, "external_location", location, name, Privilege.EXTERNAL_USE_LOCATION)
    workspace.vend(
        "s3", {"aws_temp_credentials": {"access_key_id": "k", "secret_access_key": "s", "session_token": "t"}}
    )
    workspace.settings(vended_seconds=60.0)
    vended = writer.temporary_path_credentials.generate_temporary_path_credentials(place, operation)
    assert vended.aws_temp_credentials is not None
    assert vended.aws_temp_credentials.session_token == "t"
    assert vended.expiration_time is not None
    dry = writer.temporary_path_credentials.generate_temporary_path_credentials(place, operation, dry_run=True)
    assert dry.aws_temp_credentials is None
    workspace.settings(external_access=False)
    with pytest.raises(PermissionDenied, match="External access is not enabled"):
        writer.temporary_path_credentials.generate_temporary_path_credentials(place, operation)


def test_credentials_for_a_table_take_external_use_schema(
    workspace: StandIn, admin: WorkspaceClient, table: Securable
) -> None:
    """The admin, who owns the table, gets no credentials before EXTERNAL USE SCHEMA is granted."""
    table_id = admin.tables.get(table.full_name).table_id
    vend = admin.temporary_table_credentials.generate_temporary_table_credentials
    with pytest.raises(PermissionDenied, match="EXTERNAL USE SCHEMA"):
        vend(operation=TableOperation.READ, table_id=table_id)
    grant(admin, "schema", "main.games", workspace.admin_name, Privilege.EXTERNAL_USE_SCHEMA)
    assert vend(operation=TableOperation.READ_WRITE, table_id=table_id).url == "s3://lake/prod/games/chess"
    with pytest.raises(DatabricksError):
        vend(operation=TableOperation.READ, table_id="none")


def test_a_schema_with_tables_is_not_dropped(admin: WorkspaceClient, table: Securable) -> None:
    """A schema goes only when it is empty, or by force."""
    admin.schemas.create("empty", "main")
    with pytest.raises(BadRequest, match="not empty"):
        admin.schemas.delete("main.games")
    admin.schemas.delete("main.empty")
    with pytest.raises(NotFound):
        admin.schemas.get("main.empty")


def test_a_workspace_says_what_it_offers(workspace: StandIn, admin: WorkspaceClient) -> None:
    """Runtimes, node types and the metastore's flag are there for checks before a deployment."""
    assert "19.0.x-scala2.13" in {each.key for each in admin.clusters.spark_versions().versions or ()}
    assert [each.num_cores for each in admin.clusters.list_node_types().node_types or ()] == [2.0, 4.0]
    assert admin.metastores.summary().external_access_enabled is True
    workspace.settings(external_access=False)
    assert admin.metastores.summary().external_access_enabled is False
