"""Guards people and secrets of the stand-in: SCIM as the SDK reads it, and scopes with their lists of rights."""

import base64

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound, PermissionDenied, ResourceAlreadyExists
from databricks.sdk.errors.base import DatabricksError
from databricks.sdk.service.iam import ComplexValue, Patch, PatchOp
from databricks.sdk.service.workspace import AclPermission

from tests.workspace.fixtures import client
from tests.workspace.running import StandIn


def test_people_are_found_by_name(workspace: StandIn, admin: WorkspaceClient) -> None:
    """Users and service principals are listed whole and by filter; a service principal is its application id."""
    workspace.add_principal("listed@turnout.example", "user")
    workspace.add_principal("listed driver")
    driver = workspace.identity("listed driver")
    users = list(admin.users.list(filter='userName eq "listed@turnout.example"'))
    assert [each.user_name for each in users] == ["listed@turnout.example"]
    found = list(admin.service_principals.list(filter='displayName eq "listed driver"'))
    assert [(each.id, each.application_id) for each in found] == [(driver.id, driver.name)]
    assert client(workspace, driver.token).current_user.me().user_name == driver.name
    assert len(list(admin.users.list(count=1))) == len(list(admin.users.list()))


def test_groups_have_members(workspace: StandIn, admin: WorkspaceClient) -> None:
    """A group is made with members, changed by PATCH, and shown by its members."""
    workspace.add_principal("first")
    workspace.add_principal("second")
    first, second = workspace.identity("first"), workspace.identity("second")
    group = admin.groups.create(display_name="drivers", members=[ComplexValue(value=first.id)])
    assert group.id is not None
    added = Patch(op=PatchOp.ADD, path="members", value=[{"value": second.id}])
    removed = Patch(op=PatchOp.REMOVE, path=f'members[value eq "{first.id}"]')
    admin.groups.patch(group.id, operations=[added, removed])
    assert [each.value for each in admin.groups.get(group.id).members or ()] == [second.id]
    mine = client(workspace, second.token).current_user.me()
    assert [each.display for each in mine.groups or ()] == ["drivers"]
    admin.groups.delete(group.id)
    with pytest.raises(NotFound):
        admin.groups.get(group.id)


def test_a_name_is_taken_once(admin: WorkspaceClient) -> None:
    """A second user of the same name is refused."""
    admin.users.create(user_name="once@turnout.example")
    with pytest.raises(DatabricksError, match="already exists"):
        admin.users.create(user_name="once@turnout.example")


def test_a_deleted_principal_is_locked_out(workspace: StandIn, admin: WorkspaceClient) -> None:
    """The tokens of a deleted or inactive principal sign nobody in."""
    gone = client(workspace, workspace.add_principal("gone"))
    gone.current_user.me()
    admin.service_principals.delete(workspace.identity("gone").id)
    with pytest.raises(DatabricksError, match="not active"):
        gone.current_user.me()


def test_a_scope_has_rights(workspace: StandIn, admin: WorkspaceClient) -> None:
    """READ gives values, WRITE changes them, MANAGE changes rights; without a right a scope is not listed."""
    token = workspace.add_principal("reader")
    reader, name = client(workspace, token), workspace.identity("reader").name
    admin.secrets.create_scope("rights")
    with pytest.raises(ResourceAlreadyExists, match="already exists"):
        admin.secrets.create_scope("rights")
    admin.secrets.put_secret("rights", "key", string_value="válue")
    with pytest.raises(PermissionDenied):
        reader.secrets.get_secret("rights", "key")
    assert list(reader.secrets.list_scopes()) == []
    admin.secrets.put_acl("rights", name, AclPermission.READ)
    value = reader.secrets.get_secret("rights", "key").value
    assert value is not None
    assert base64.b64decode(value).decode() == "válue"
    assert [each.key for each in reader.secrets.list_secrets("rights")] == ["key"]
    with pytest.raises(PermissionDenied):
        reader.secrets.put_secret("rights", "key", string_value="x")
    rights = {each.principal: each.permission for each in admin.secrets.list_acls("rights")}
    assert rights == {workspace.admin_name: AclPermission.MANAGE, name: AclPermission.READ}
    admin.secrets.delete_secret("rights", "key")
    with pytest.raises(NotFound):
        admin.secrets.get_secret("rights", "key")
    admin.secrets.delete_scope("rights")
    with pytest.raises(NotFound):
        admin.secrets.list_acls("rights")


def test_bytes_are_kept(admin: WorkspaceClient) -> None:
    """A secret of bytes comes back as it was."""
    admin.secrets.create_scope("bytes")
    raw = bytes(range(256))
    admin.secrets.put_secret("bytes", "key", bytes_value=base64.b64encode(raw).decode())
    assert base64.b64decode(admin.secrets.get_secret("bytes", "key").value or "") == raw
