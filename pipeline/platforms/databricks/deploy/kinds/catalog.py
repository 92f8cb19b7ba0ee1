"""Unity Catalog: the schema of games' tables, and the external location below which their files lie.

Both hold data. The catalog lower-cases names and takes the `/` from the end of a URL (databricks/cli,
`bundle/direct/dresources/resources.yml`). Their comments carry the mark.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.deploy.kinds.grants import READABLE, bring_grants, flat, read_grants
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Scope, State, carries, changed
from pipeline.platforms.databricks.workspace.client import Absent

_API: Final = "/api/2.1/unity-catalog"
_GRANTS: Final = "grants"


class _Securable:
    """What schemas and external locations share; see `Kind`."""

    name: str
    holds_data: Final = True
    unseen: Final = frozenset[str]()
    fixed: frozenset[str]
    filled: Mapping[str, Sequence[Any]]
    _path: str
    _type: str  # as the API of grants calls it
    _left: tuple[str, ...]  # privileges that others may give
    _fields: tuple[str, ...]

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        return str(definition["name"]).lower()

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`."""
        kept = {key: definition[key] for key in self._fields if key in definition}
        for each in kept.keys() & {"name", "catalog_name"}:
            kept[each] = str(kept[each]).lower()
        for each in kept.keys() & {"url", "storage_root"}:
            kept[each] = str(kept[each]).rstrip("/")
        return {**kept, _GRANTS: flat(definition.get(_GRANTS, []))}

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """See `Kind`."""
        there = self._there(scope, self.label(definition))
        return (
            None if there is None else Found(self.label(definition), carries(there.get("comment"), scope.environment))
        )

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`."""
        there = self._there(scope, id)
        if there is None:
            return None
        shown = {**self.comparable(there), _GRANTS: read_grants(scope.workspace, f"{self._type}/{id}")}
        attributes = {"id": id, "name": str(there["name"])}
        attributes |= {each: str(there[each]) for each in ("catalog_name", "url") if each in there}
        return State(shown, attributes, carries(there.get("comment"), scope.environment))

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        made = self.label(definition)
        try:
            scope.workspace.send("POST", f"{_API}/{self._path}", self._body(definition, self._fields))
        except Refused:
            found = self.find(scope, definition)
            if found is None or not found.is_ours:  # else the answer was lost, and the SDK sent it again
                raise
        bring_grants(scope.workspace, f"{self._type}/{made}", definition.get(_GRANTS, []), self._left)
        return made

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002
        """See `Kind`."""
        names = changed(found)
        if fields := names - {_GRANTS} - self.fixed:
            body = {**dict.fromkeys(fields), **self._body(definition, tuple(fields))}
            empty: dict[str, Any] = {"comment": "", "properties": {}, "read_only": False}
            body = {key: empty.get(key) if value is None else value for key, value in body.items()}
            scope.workspace.send("PATCH", f"{_API}/{self._path}/{id}", body)
        if _GRANTS in names:
            bring_grants(scope.workspace, f"{self._type}/{id}", definition.get(_GRANTS, []), self._left)

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """Refuse: they hold data."""
        raise Refused(f"{id} at {scope.workspace.address} holds data, and turnout never deletes it.")

    def _there(self, scope: Scope, name: str) -> dict[str, Any] | None:
        try:
            return scope.workspace.get(f"{_API}/{self._path}/{name}")
        except Absent:
            return None

    def _body(self, definition: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
        return {key: value for key, value in self.comparable(definition).items() if key in fields}


class Schemas(_Securable):
    """The kind `schemas`; see `Kind`. People's rights to read are those of `turnout grants`, and no difference."""

    name = "schemas"
    fixed = frozenset({"name", "catalog_name", "storage_root"})
    filled: Mapping[str, Sequence[Any]] = {
        "storage_root": [],
        "properties.*": [],
        "properties": [],
        _GRANTS: [{"privilege": each} for each in READABLE],
    }
    _path, _type, _left = "schemas", "schema", READABLE
    _fields = ("name", "catalog_name", "comment", "properties", "storage_root")

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`: with the catalog."""
        return f"{definition['catalog_name']}.{definition['name']}".lower()


class ExternalLocations(_Securable):
    """The kind `external_locations`; see `Kind`. Nobody but the bundle gives rights here: files are not for people."""

    name = "external_locations"
    fixed = frozenset({"name", "url", "credential_name"})
    filled: Mapping[str, Sequence[Any]] = {"fallback": [], "isolation_mode": [], "encryption_details": []}
    _path, _type, _left = "external-locations", "external_location", ()
    _fields = ("name", "url", "credential_name", "comment", "read_only", "fallback", "isolation_mode")
