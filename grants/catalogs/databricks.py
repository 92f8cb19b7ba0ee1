"""The client of a Databricks workspace, and of what speaks like one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Final

from grants.catalog import Change, Kind, Probe
from grants.catalogs import unity_rest
from grants.catalogs.rest import Rest, listed, text_of
from grants.catalogs.warehouse import Warehouse
from grants.model import EVERYONE, Directory, GameTable, Principal, PrincipalKind, Securable, folded
from pipeline.base.errors import Refused

SCIM: Final = "/api/2.0/preview/scim/v2"


class Databricks:
    """A workspace's catalog, by the rights of the token that `rest` has.

    With a `warehouse`, changes are SQL statements there, in the name of whose token that has; without, requests to the
    catalog. With a `prober`, reads are tried as that one principal, on a warehouse. Views need the warehouse `sql`.
    """

    is_local: ClassVar = False
    shows_all: ClassVar = False  # whether the directory has all principals of the account, with all members of groups

    def __init__(
        self,
        rest: Rest,
        *,
        warehouse: Warehouse | None = None,
        prober: tuple[str, Warehouse] | None = None,
        sql: Warehouse | None = None,
    ) -> None:
        self._rest, self._warehouse, self._prober, self._sql = rest, warehouse, prober, sql

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
        """Return the users, service principals and account groups, and the members of each group.

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
        entries = [*users, *services, *groups]
        return _directory(entries) if self.shows_all else self._in_part(entries)

    def _in_part(self, entries: "list[_Entry]") -> Directory:
        """Return the listed principals as a directory, with the groups whose members the catalog may have hidden.

        turnout asks for a group that has a member for sure, one of its own: where such a group shows none, none does.
        A member that is in no list may be a group of the account, and anyone may be in that.
        """
        mine = {text_of(each, "value") for each in listed(self._rest.read(f"{SCIM}/Me"), "groups")}
        own = [each for each in entries if each.scim_id in mine]
        is_blind = any(not each.members for each in own)
        groups = [each for each in entries if each.principal.kind == "group"]
        listed_ids = {each.scim_id for each in entries}
        hidden = [
            each
            for each in groups
            if is_blind or (not own and not each.members) or each.members - listed_ids - each.people
        ]
        names = frozenset(folded(each.principal.name) for each in hidden)
        return replace(_directory(entries), hidden=names, is_whole=False)

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

    def execute(self, statement: str) -> None:
        """Run a statement about a view on a warehouse."""
        if self._sql is None:
            raise Refused("Views need a SQL warehouse of a Databricks workspace. Set access.warehouse.")
        self._sql.execute(statement)

    def probe(self, principal: str, table: GameTable) -> Probe:
        """Try to read a table on a warehouse, for the probe principal only."""
        if self._prober is None or folded(self._prober[0]) != folded(principal):
            return Probe(None, "Granted, not probed: turnout has no token of this principal.")
        return self._prober[1].probe(table.securable)


class _Entry:
    """A principal of a SCIM list, with its id; of a group the ids of its members, and of the `people` among them."""

    def __init__(
        self, principal: Principal, scim_id: str, members: frozenset[str], people: frozenset[str] = frozenset()
    ) -> None:
        self.principal, self.scim_id, self.members, self.people = principal, scim_id, members, people

    @classmethod
    def of(cls, answer: Mapping[str, Any], kind: PrincipalKind, name: str) -> "_Entry":
        """Return the principal of a SCIM resource."""
        scim_id = text_of(answer, "id")
        principal = Principal(text_of(answer, name), kind, answer.get("active") is not False, scim_id)
        shown = listed(answer, "members")
        members = frozenset(text_of(each, "value") for each in shown)
        people = frozenset(text_of(each, "value") for each in shown if _is_no_group(each))
        return cls(principal, scim_id, members, people)


def _is_no_group(member: Mapping[str, Any]) -> bool:
    """Return whether a member of a group says of itself that it is a user or a service principal."""
    kind = str(member.get("$ref") or "").split("/")[-2:-1] or [f"{member.get('type')}s"]
    return kind[0] in {"Users", "ServicePrincipals"}


def _directory(entries: Iterable[_Entry]) -> Directory:
    by_id = {each.scim_id: each for each in entries}
    named: dict[str, list[Principal]] = {}
    for each in by_id.values():
        named.setdefault(folded(each.principal.name), []).append(each.principal)
    ambiguous = {name: tuple(sorted(each.name for each in same)) for name, same in named.items() if len(same) > 1}
    groups_of: dict[str, set[str]] = {}
    doubtful: dict[str, set[str]] = {}
    for group in by_id.values():
        parent = folded(group.principal.name)
        for member in group.members:
            if member in by_id:  # of one that is in no list nothing is known here: see `_in_part`
                name = folded(by_id[member].principal.name)
                kept = doubtful if {name, parent} & ambiguous.keys() else groups_of
                kept.setdefault(name, set()).add(parent)
    return Directory(
        principals={
            folded(EVERYONE): Principal(EVERYONE, "group"),
            **{name: same[0] for name, same in named.items() if len(same) == 1},
        },
        groups_of={name: frozenset(groups) for name, groups in groups_of.items()},
        ambiguous=ambiguous,
        doubtful={name: frozenset(groups) for name, groups in doubtful.items()},
    )
