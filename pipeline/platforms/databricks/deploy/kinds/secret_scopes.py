"""Secret scopes, and who may read them. A scope has no comment: a key of the environment's name is its mark.

Values are never read here: a list of keys says whose scope it is. People put the values.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Scope, State, carries, changed
from pipeline.platforms.databricks.workspace.client import Absent, AlreadyThere
from pipeline.platforms.databricks.workspace.jobs import ENVIRONMENT_TAG

_API: Final = "/api/2.0/secrets"
_WHO: Final = ("service_principal_name", "group_name", "user_name")
_MANAGE: Final = "MANAGE"


class SecretScopes:
    """The kind `secret_scopes`; see `Kind`."""

    name: Final = "secret_scopes"
    holds_data: Final = False
    fixed: Final = frozenset({"name"})
    unseen: Final = frozenset[str]()
    filled: Final[Mapping[str, Sequence[Any]]] = {"permissions": [{"permission": "MANAGE"}]}  # of each deployer

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        return str(definition["name"])

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`; the API names a principal without its kind."""
        return {
            "name": definition["name"],
            "is_marked": True,
            "permissions": _acls(
                (next(str(each[name]) for name in _WHO if name in each), str(each["level"]))
                for each in definition.get("permissions", [])
            ),
        }

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:
        """See `Kind`."""
        name = self.label(definition)
        if name not in _names(scope):
            return None
        keys = secret_keys(scope, name)
        is_ours = _mark(scope) in keys
        held = _held(scope, name)
        is_bare = not keys and len(held) < 2 and all(permission == _MANAGE for _, permission in held)
        return Found(name, is_ours, is_bare)

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`; what its maker holds is no difference, nor what the workspace gave to an app of ours."""
        if id not in _names(scope):
            return None
        keys = secret_keys(scope, id)
        is_ours = _mark(scope) in keys
        shown = {"name": id, "is_marked": is_ours, "permissions": _acls(self._given(scope, id))}
        contents = tuple(f"the secret {each}" for each in sorted(keys - {_mark(scope)}))
        return State(shown, {"id": id, "name": id}, is_ours, contents)

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`; an empty scope of the name, which one person alone may manage, is what an earlier try left."""
        name = self.label(definition)
        try:
            scope.workspace.send("POST", f"{_API}/scopes/create", {"scope": name})
        except AlreadyThere:
            found = self.find(scope, definition)
            if found is None or not (found.is_ours or found.is_bare):
                raise
        self._mark(scope, name)
        self._bring(scope, name, definition)
        return name

    def update(self, scope: Scope, id: str, definition: Mapping[str, Any], found: Sequence[Change]) -> None:  # noqa: A002
        """See `Kind`."""
        if "is_marked" in changed(found):
            self._mark(scope, id)
        self._bring(scope, id, definition)

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """See `Kind`; with the secrets in it."""
        try:
            scope.workspace.send("POST", f"{_API}/scopes/delete", {"scope": id})
        except Absent:
            return

    def _mark(self, scope: Scope, name: str) -> None:
        body = {"scope": name, "key": _mark(scope), "string_value": scope.environment}
        scope.workspace.send("POST", f"{_API}/put", body)

    def _bring(self, scope: Scope, name: str, definition: Mapping[str, Any]) -> None:
        wanted = {each["principal"]: each["permission"] for each in self.comparable(definition)["permissions"]}
        held = dict(self._given(scope, name))
        for principal, permission in wanted.items():
            if held.get(principal) != permission:
                body = {"scope": name, "principal": principal, "permission": permission}
                scope.workspace.send("POST", f"{_API}/acls/put", body)
        for principal in sorted(who for who, level in held.items() if who not in wanted and level != _MANAGE):
            try:
                scope.workspace.send("POST", f"{_API}/acls/delete", {"scope": name, "principal": principal})
            except Absent:
                continue

    def _given(self, scope: Scope, name: str) -> list[tuple[str, str]]:
        """Return the rights that a bundle or a person gave."""
        others = {(_me(scope), _MANAGE), *((each, "READ") for each in _apps_of(scope, name))}
        return [pair for pair in _held(scope, name) if pair not in others]


def _mark(scope: Scope) -> str:
    return f"{ENVIRONMENT_TAG}.{scope.environment}"


def _acls(pairs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"principal": who, "permission": level} for who, level in sorted(pairs)]


def _names(scope: Scope) -> set[str]:
    return {str(each["name"]) for each in scope.workspace.get(f"{_API}/scopes/list").get("scopes", [])}


def secret_keys(scope: Scope, name: str) -> set[str]:
    """Return the keys in a scope, without values."""
    return {str(each["key"]) for each in scope.workspace.get(f"{_API}/list", {"scope": name}).get("secrets", [])}


def may_read(scope: Scope, name: str, principal: str) -> bool:
    """Return whether a principal has a right of its own on a scope; also where we may not see who has."""
    try:
        return principal in {who for who, _ in _held(scope, name)}
    except Absent:
        return False
    except Refused:
        return True  # a scope of others: the bundle says that they let the app read it


def _held(scope: Scope, name: str) -> list[tuple[str, str]]:
    items = scope.workspace.get(f"{_API}/acls/list", {"scope": name}).get("items", [])
    return [(str(each["principal"]), str(each["permission"])) for each in items]


def _apps_of(scope: Scope, name: str) -> set[str]:
    """Return the principals of our apps, and of apps with a secret of the scope as a resource, which lets them read it.

    Either is enough: an app that a person has changed must not lose its secrets before it is set back.
    """
    found: set[str] = set()
    for app in scope.workspace.listed("/api/2.0/apps", "apps"):
        scopes = {each.get("secret", {}).get("scope") for each in app.get("resources", [])}
        if name in scopes or carries(app.get("description"), scope.environment):
            found.add(str(app.get("service_principal_client_id")))
    return found


def _me(scope: Scope) -> str:
    return str(scope.workspace.get("/api/2.0/preview/scim/v2/Me").get("userName", ""))
