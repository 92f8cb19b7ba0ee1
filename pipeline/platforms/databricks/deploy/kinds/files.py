"""Files of the workspace: the wheel and the folder of the app. A path has a hash of the content: no file changes.

What is there is read and hashed, too: a file that a person replaced runs with the rights of every driver.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Scope, State
from pipeline.platforms.databricks.workspace.client import Absent, AlreadyThere


class Files:
    """The kind `files`, which only `turnout deploy` knows: a bundle names the local file. See `Kind`."""

    name: Final = "files"
    holds_data: Final = False
    unseen: Final = frozenset[str]()
    fixed: Final = frozenset({"path"})
    filled: Final[Mapping[str, Sequence[Any]]] = {"sha256": []}  # an older journal has none

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        return str(definition["path"])

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`."""
        return {key: definition[key] for key in ("path", "sha256") if key in definition}

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """See `Kind`; a file in the target's own folder is ours."""
        path = self.label(definition)
        return None if self.read(scope, path) is None else Found(path, path.startswith(f"{scope.folder}/"))

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`."""
        try:
            exported = scope.workspace.get("/api/2.0/workspace/export", {"path": id, "format": "AUTO"})
        except Absent:
            return None
        digest = hashlib.sha256(base64.b64decode(exported.get("content", ""))).hexdigest()
        return State({"path": id, "sha256": digest}, {"id": id}, is_ours=id.startswith(f"{scope.folder}/"))

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        path = self.label(definition)
        scope.workspace.send("POST", "/api/2.0/workspace/mkdirs", {"path": path.rpartition("/")[0]})
        try:
            _write(scope, path, definition, overwrite=False)
        except AlreadyThere:  # the answer was lost, or somebody else wrote it
            _write(scope, path, definition, overwrite=True)
        return path

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002, ARG002
        """See `Kind`: write what should be there."""
        _write(scope, id, definition, overwrite=True)

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """See `Kind`."""
        try:
            scope.workspace.send("POST", "/api/2.0/workspace/delete", {"path": id, "recursive": False})
        except Absent:
            return


def _write(scope: Scope, path: str, definition: Mapping[str, Any], *, overwrite: bool) -> None:
    content = base64.b64encode(Path(definition["local"]).read_bytes()).decode()
    body = {"path": path, "format": "RAW", "content": content, "overwrite": overwrite}
    scope.workspace.send("POST", "/api/2.0/workspace/import", body)
