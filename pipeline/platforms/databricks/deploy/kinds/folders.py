"""The folder of a target, and who may write there: a person who replaces the wheel has the rights of every driver.

Facts: databricks-sdk `service/workspace.py` (get_status has the id of a folder), `service/iam.py` (`directories`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Scope, State
from pipeline.platforms.databricks.deploy.kinds.permissions import bring_permissions, read_permissions
from pipeline.platforms.databricks.workspace.client import Absent, Workspace


class Folders:
    """The kind `folders`, of `turnout deploy` alone; see `Kind`. It has the journal, so `uninstall` leaves it."""

    name: Final = "folders"
    holds_data: Final = True
    unseen: Final = frozenset[str]()
    fixed: Final = frozenset({"path"})
    filled: Final[Mapping[str, Sequence[Any]]] = {}

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        return str(definition["path"])

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`."""
        return definition

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """See `Kind`; the journal in it says whose it is, so it is ours."""
        path = self.label(definition)
        return None if _id(scope.workspace, path) is None else Found(path, is_ours=True)

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`; what is inherited from above is not ours."""
        number = _id(scope.workspace, id)
        if number is None:
            return None
        return State(
            {"path": id, "permissions": read_permissions(scope.workspace, f"directories/{number}")}, {"id": id}
        )

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`; a folder that is there is taken."""
        path = self.label(definition)
        scope.workspace.send("POST", "/api/2.0/workspace/mkdirs", {"path": path})
        self.update(scope, path, definition, ())
        return path

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002, ARG002
        """See `Kind`."""
        number = _id(scope.workspace, id)
        bring_permissions(scope.workspace, f"directories/{number}", definition["permissions"])

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """Do nothing: the journal is in it until the last."""


def let_read(workspace: Workspace, path: str, principal: str) -> None:
    """Let a service principal read a folder, beside those who may."""
    entry = {"service_principal_name": principal, "permission_level": "CAN_READ"}
    number = _id(workspace, path)
    if number is not None:
        workspace.send("PATCH", f"/api/2.0/permissions/directories/{number}", {"access_control_list": [entry]})


def _id(workspace: Workspace, path: str) -> str | None:
    """Return the id of a folder; None where it is not there."""
    try:
        return str(workspace.get("/api/2.0/workspace/get-status", {"path": path})["object_id"])
    except Absent:
        return None
