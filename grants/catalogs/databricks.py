"""The client of a Databricks workspace, and of what speaks like one."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from grants.catalog import Change, Kind, Probe
from grants.catalogs import unity_rest
from grants.catalogs.rest import Rest, listed, text_of
from grants.catalogs.warehouse import Warehouse
from grants.model import EVERYONE, Directory, GameTable, Principal, PrincipalKind, Securable, folded
from pipeline.errors import Refused

SCIM: Final = "/api/2.0/preview/scim/v2"


class Databricks:
    """A workspace's catalog, by the rights of the token that `rest` has.

    With a `warehouse`, changes are SQL statements there, in the name of whose token that has; without, requests to the
    catalog. With a `prober`, reads are tried as that one principal, on a warehouse.
    """

    def __init__(
        self, rest: Rest, *, warehouse: Warehouse | None = None, prober: tuple[str, Warehouse] | None = None
    ) -> None:
        self._rest, self._warehouse, self._prober = rest, warehouse, prober

    @property
    def kind(self) -> Kind:
        """Which catalog it is."""
        return "databricks"

    @cached_property
    def executor(self) -> str:
        """The principal whose token is used; of a service principal its application id."""
        return text_of(self._rest.read(f"{SCIM}/Me"), "userName")

    def tables(self, schema: Securable) -> Mapping[str, GameTable]:
        """Return all tables of a schema by name."""
        return unity_rest.tables(self._rest, schema)

    def owner(self, securable: Securable) -> str | None:
        """Return who owns it."""
        return unity_rest.owner(self._rest, securable)

    def assignments(self, securable: Securable) -> Mapping[str, frozenset[str]]:
        """Return who was directly granted what on it."""
        return unity_rest.assignments(self._rest, securable)

    def directory(self) -> Directory:
        """Return the users, service principals and account groups, and who is in which group.

        Groups of the workspace alone are left out: nothing can be granted to them.
        """
        users = [_Entry.of(each, "user", "userName") for each in self._rest.resources(f"{SCIM}/Users")]
        services = [
            _Entry.of(each, "service_principal", "applicationId")
            for each in self._rest.resources(f"{SCIM}/ServicePrincipals")
        ]
        groups = [
            _Entry.of(each, "group", "displayName")
            for each in self._rest.resources(f"{SCIM}/Groups")
            if (each.get("meta") or {}).get("resourceType") != "WorkspaceGroup"
        ]
        return _directory([*users, *services, *groups])

    def change(self, change: Change) -> None:
        """Apply one change. Idempotent."""
        if self._warehouse is not None:
            self._warehouse.change(change)
            return
        body_fields = {"principal": change.principal, "add": list(change.add), "remove": list(change.remove)}
        body = {"changes": [{key: value for key, value in body_fields.items() if value}]}
        self._rest.write("PATCH", unity_rest.permissions_path(change.securable), body)

    def table(self, securable: Securable) -> GameTable | None:
        """Return one table."""
        return unity_rest.table(self._rest, securable)

    def register(self, table: Securable, location: str, columns: Sequence[tuple[str, str]], comment: str = "") -> bool:
        """Make a game's table known."""
        return unity_rest.register(self._rest, table, location, columns, comment)

    def probe(self, principal: str, table: GameTable) -> Probe:
        """Try to read a table on a warehouse, for the probe principal only."""
        if self._prober is None or folded(self._prober[0]) != folded(principal):
            return Probe(None, "Granted, not probed: turnout has no token of this principal.")
        return self._prober[1].probe(table.securable)


class _Entry:
    """A principal of a SCIM list, with its id and, of a group, its members' ids."""

    def __init__(self, principal: Principal, scim_id: str, members: frozenset[str]) -> None:
        self.principal, self.scim_id, self.members = principal, scim_id, members

    @classmethod
    def of(cls, answer: Mapping[str, Any], kind: PrincipalKind, name: str) -> "_Entry":
        """Return the principal of a SCIM resource."""
        scim_id = text_of(answer, "id")
        principal = Principal(text_of(answer, name), kind, answer.get("active") is not False, scim_id)
        members = frozenset(text_of(each, "value") for each in listed(answer, "members"))
        return cls(principal, scim_id, members)


def _directory(entries: Iterable[_Entry]) -> Directory:
    by_id = {each.scim_id: each for each in entries}
    principals = {folded(each.principal.name): each.principal for each in by_id.values()}
    if len(principals) != len(by_id):
        counts = Counter(folded(each.principal.name) for each in by_id.values())
        doubles = ", ".join(repr(name) for name, count in counts.items() if count > 1)
        raise Refused(f"Several principals share a name: {doubles}. Rename them: a grant could mean either.")
    groups_of: dict[str, set[str]] = {}
    for group in by_id.values():
        for member in group.members:
            if member in by_id:  # a member that is in no list has been deleted meanwhile
                groups_of.setdefault(folded(by_id[member].principal.name), set()).add(folded(group.principal.name))
    return Directory(
        principals={folded(EVERYONE): Principal(EVERYONE, "group"), **principals},
        groups_of={name: frozenset(groups) for name, groups in groups_of.items()},
    )
