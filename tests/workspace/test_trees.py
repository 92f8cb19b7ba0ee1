"""Guards files of the stand-in: the workspace's tree, and volumes."""

import base64
import io

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import AlreadyExists, BadRequest, NotFound, ResourceAlreadyExists
from databricks.sdk.service.workspace import ImportFormat, ObjectType


def test_a_file_is_written_once(admin: WorkspaceClient) -> None:
    """Without `overwrite` a file that is there is refused, and keeps its content; with it, it is replaced."""
    admin.workspace.mkdirs("/Shared/once")
    content = [base64.b64encode(text).decode() for text in (b"one", b"two")]
    admin.workspace.import_("/Shared/once/a.json", content=content[0], format=ImportFormat.AUTO, overwrite=False)
    with pytest.raises(ResourceAlreadyExists):
        admin.workspace.import_("/Shared/once/a.json", content=content[1], format=ImportFormat.AUTO, overwrite=False)
    assert base64.b64decode(admin.workspace.export("/Shared/once/a.json").content or "") == b"one"
    admin.workspace.import_("/Workspace/Shared/once/a.json", content=content[1], overwrite=True)
    assert admin.workspace.download("/Shared/once/a.json").read() == b"two"
    admin.workspace.upload("/Shared/once/b.bin", io.BytesIO(b"\r\n\x00\xff"), format=ImportFormat.AUTO)
    assert admin.workspace.download("/Shared/once/b.bin").read() == b"\r\n\x00\xff"


def test_a_file_needs_its_folder(admin: WorkspaceClient) -> None:
    """A file is not written where there is no folder for it."""
    with pytest.raises(NotFound, match="parent folder"):
        admin.workspace.import_("/Shared/nowhere/a.json", content="")


def test_folders_are_listed_and_deleted(admin: WorkspaceClient) -> None:
    """A folder lists what is directly in it, and is deleted with its content only on demand."""
    admin.workspace.mkdirs("/Users/me/deep/er")
    admin.workspace.mkdirs("/Users/me/deep")
    admin.workspace.import_("/Users/me/deep/x", content="YQ==")
    shown = {each.path: each.object_type for each in admin.workspace.list("/Users/me/deep")}
    assert shown == {"/Users/me/deep/er": ObjectType.DIRECTORY, "/Users/me/deep/x": ObjectType.FILE}
    assert admin.workspace.get_status("/Users/me/deep/x").size == 1
    assert list(admin.workspace.list("/Users/me/deep/er")) == []
    with pytest.raises(BadRequest, match="not empty"):
        admin.workspace.delete("/Users/me/deep")
    admin.workspace.delete("/Users/me/deep", recursive=True)
    with pytest.raises(NotFound):
        admin.workspace.get_status("/Users/me/deep/x")


def test_a_volume_keeps_bytes(admin: WorkspaceClient) -> None:
    """A file of a volume is written, read, listed, deleted; a write without `overwrite` refuses an existing file."""
    path = "/Volumes/main/turnout/files/logs/a.bin"
    admin.files.upload(path, io.BytesIO(b"one"), overwrite=False)
    with pytest.raises(AlreadyExists):
        admin.files.upload(path, io.BytesIO(b"two"), overwrite=False)
    admin.files.upload(path, io.BytesIO(b"three"), overwrite=True)
    contents = admin.files.download(path).contents
    assert contents is not None
    assert contents.read() == b"three"
    assert admin.files.get_metadata(path).content_length == 5
    listed = list(admin.files.list_directory_contents("/Volumes/main/turnout/files"))
    assert [(each.name, each.is_directory) for each in listed] == [("logs", True)]
    admin.files.delete(path)
    with pytest.raises(NotFound):
        admin.files.download(path)
    admin.files.create_directory("/Volumes/main/turnout/files/empty")
    admin.files.get_directory_metadata("/Volumes/main/turnout/files/empty")
    admin.files.delete_directory("/Volumes/main/turnout/files/empty")
    with pytest.raises(NotFound):
        admin.files.get_directory_metadata("/Volumes/main/turnout/files/empty")
