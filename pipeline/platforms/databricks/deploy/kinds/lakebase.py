"""Lakebase: projects, roles and databases (Postgres API, databricks-sdk `service/postgres.py`). All of them hold data.

A GET shows `status` and no `spec`; changes are long-running operations. A doubled role or database is 400, not 409
(databricks/cli, `libs/testserver/postgres.go`), so each is looked for before it is made.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.base.errors import Refused, Transient
from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Scope, State
from pipeline.platforms.databricks.workspace.client import Absent
from pipeline.platforms.databricks.workspace.jobs import ENVIRONMENT_TAG

_API: Final = "/api/2.0/postgres"
_OPERATION_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.5
_TAGS: Final = "custom_tags"


class _Lakebase:
    """What projects, roles and databases share; see `Kind`."""

    name: str
    holds_data: Final = True
    unseen: Final = frozenset[str]()
    filled: Mapping[str, Sequence[Any]] = {}
    fixed: frozenset[str]
    _singular: str
    _collection: str
    _fields: tuple[str, ...]  # of the spec, as far as a bundle may state them

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`: the full name, by which all calls go."""
        parent = definition.get("parent")
        own = f"{self._collection}/{definition[f'{self._singular}_id']}"
        return f"{parent}/{own}" if parent else own

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`: what a definition leaves out the server decides."""
        return {key: value for key, value in definition.items() if key in self._fields}

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """See `Kind`."""
        state = self.read(scope, self.label(definition))
        return None if state is None else Found(self.label(definition), state.is_ours)

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`."""
        try:
            found = scope.workspace.get(f"{_API}/{id}")
        except Absent:
            return None
        status = found.get("status", {})
        shown = {key: status[key] for key in self._fields if key in status}
        return State(shown, {"id": id, "name": id}, self._is_ours(scope, status))

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        parent, own = definition.get("parent"), str(definition[f"{self._singular}_id"])
        path = f"{_API}/{parent}/{self._collection}" if parent else f"{_API}/{self._collection}"
        body = {"spec": dict(self.comparable(definition))}
        _wait(scope, scope.workspace.send("POST", path, body, {f"{self._singular}_id": own}))
        return self.label(definition)

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002
        """See `Kind`."""
        spec = self.comparable(definition)
        fields = sorted({change.path.split(".")[0].split("[")[0] for change in found} & spec.keys())
        mask = ",".join(f"spec.{field}" for field in fields)
        body = {"spec": {field: spec[field] for field in fields}}
        _wait(scope, scope.workspace.send("PATCH", f"{_API}/{id}", body, {"update_mask": mask}))

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """Refuse: they hold data."""
        raise Refused(f"{id} at {scope.workspace.address} holds data, and turnout never deletes it.")

    def _is_ours(self, scope: Scope, status: Mapping[str, Any]) -> bool:  # noqa: ARG002 - it lies in a project of ours
        return True


class Projects(_Lakebase):
    """The kind `postgres_projects`; see `Kind`."""

    name = "postgres_projects"
    fixed = frozenset({"pg_version"})
    _singular, _collection = "project", "projects"
    _fields = ("display_name", "pg_version", "default_endpoint_settings", "enable_pg_native_login", _TAGS)

    def _is_ours(self, scope: Scope, status: Mapping[str, Any]) -> bool:
        return {"key": ENVIRONMENT_TAG, "value": scope.environment} in status.get(_TAGS, [])


class Roles(_Lakebase):
    """The kind `postgres_roles`; see `Kind`."""

    name = "postgres_roles"
    fixed = frozenset({"postgres_role", "auth_method", "identity_type"})
    filled: Mapping[str, Sequence[Any]] = {"auth_method": [], "identity_type": [], "attributes": []}
    _singular, _collection = "role", "roles"
    _fields = ("postgres_role", "auth_method", "identity_type", "attributes", "membership_roles")


class Databases(_Lakebase):
    """The kind `postgres_databases`; see `Kind`."""

    name = "postgres_databases"
    fixed = frozenset[str]()
    _singular, _collection = "database", "databases"
    _fields = ("postgres_database", "role")


def _wait(scope: Scope, operation: Mapping[str, Any]) -> None:
    """Wait for the end of a long-running operation.

    Raises:
        Refused: it failed.
        Transient: it has not ended for ten minutes.
    """
    deadline = time.monotonic() + _OPERATION_SECONDS
    while not operation.get("done", True):
        if time.monotonic() > deadline:
            raise Transient(f"the workspace has not ended {operation.get('name')} within ten minutes. Apply again")
        time.sleep(_POLL_SECONDS)
        operation = scope.workspace.get(f"{_API}/{operation['name']}")
    if (error := operation.get("error")) is not None:
        raise Refused(f"The workspace could not do it: {error.get('message', error)}.")
