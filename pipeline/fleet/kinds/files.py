"""Files of the workspace: the wheel and the folder of the app. A path has a hash of the content: no file changes."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pipeline.fleet.compare import Change
from pipeline.fleet.kinds.kind import Found, Scope, State
from pipeline.workspace.client import Absent, AlreadyThere


class Files:
    """The kind `files`, which only `fleet` knows: a bundle names the local file. See `Kind`."""

    name: Final = "files"
    holds_data: Final = False
    unseen: Final = frozenset[str]()
    fixed: Final = frozenset({"path"})
    filled: Final[Mapping[str, Sequence[Any]]] = {}

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        return str(definition["path"])

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`: the path says the content."""
        return {"path": definition["path"]}

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """See `Kind`; a file in the target's own folder is ours."""
        path = self.label(definition)
        return None if self.read(scope, path) is None else Found(path, path.startswith(f"{scope.folder}/"))

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`."""
        try:
            scope.workspace.get("/api/2.0/workspace/get-status", {"path": id})
        except Absent:
            return None
        return State({"path": id}, {"id": id}, is_ours=id.startswith(f"{scope.folder}/"))

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        path = self.label(definition)
        content = base64.b64encode(Path(definition["local"]).read_bytes()).decode()
        scope.workspace.send("POST", "/api/2.0/workspace/mkdirs", {"path": path.rpartition("/")[0]})
        body = {"path": path, "format": "RAW", "content": content, "overwrite": False}
        try:
            scope.workspace.send("POST", "/api/2.0/workspace/import", body)
        except AlreadyThere:
            return path  # the same content: its answer was lost
        return path

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002
        """See `Kind`: nothing of a file can change."""

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """See `Kind`."""
        try:
            scope.workspace.send("POST", "/api/2.0/workspace/delete", {"path": id, "recursive": False})
        except Absent:
            return
