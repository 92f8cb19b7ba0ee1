"""The client of an open-source Unity Catalog server (0.6): its spelling, its users, and groups it does not have.

A group is a user of the server that is named like it; who is in it stands in a file beside. A principal reads what is
granted to them or to one of their groups. That is an emulation, and is labelled so.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Final

from grants.catalog import CatalogUnavailable, Change, Denied, Kind, NotFound, Probe, Unauthenticated
from grants.catalogs import unity_rest
from grants.catalogs.members import Members
from grants.catalogs.rest import Rest, text_of
from grants.catalogs.unity_key import UnityKey
from grants.model import EVERYONE, Directory, GameTable, Principal, PrincipalKind, Securable, folded
from pipeline.base.errors import Refused

SCIM: Final = "/api/1.0/unity-control/scim2"
_UNASKED: Final = "No user found"  # what it says of the caller where it does not look at tokens
_CREDENTIALS_PATH: Final = f"{unity_rest.PREFIX}/temporary-table-credentials"


class Unity:
    """An open-source server's catalog, by the rights of the token that `rest` has: its admin's, who alone sees users.

    Without a `key` to make users' tokens with, nothing can be read as another principal to see whether it works.
    """

    is_local: ClassVar = False

    def __init__(self, rest: Rest, members: Members, key: UnityKey | None = None) -> None:
        self._rest, self._members, self._key = rest, members, key
        self._seen: Final[set[str]] = set()  # folded names of the caller and all who were seen with a grant
        self._known: Mapping[str, Principal] = {}  # the users as last read, by folded name
        self._ambiguous: Mapping[str, tuple[str, ...]] = {}  # active users that differ in case only, by folded name

    @property
    def kind(self) -> Kind:
        """Which catalog it is."""
        return "unity"

    @cached_property
    def executor(self) -> str:
        """The user whose token is used.

        Raises:
            Refused: the server does not look at tokens, so that everybody may do anything and grants are not kept.
        """
        try:
            return _email(self._rest.read(f"{SCIM}/Me"))
        except CatalogUnavailable as away:
            if _UNASKED not in str(away):
                raise
            raise Refused(
                f"The server at {self._rest.url} ignores grants and lets everybody read: start it with "
                f"server.authorization=enable."
            ) from away

    def tables(self, schema: Securable) -> Mapping[str, GameTable]:
        """Return all tables of a schema by name."""
        return unity_rest.tables(self._rest, schema)

    def owner(self, securable: Securable) -> str | None:
        """Return who owns it."""
        return unity_rest.owner(self._rest, securable)

    def assignments(self, securable: Securable) -> Mapping[str, frozenset[str]]:
        """Return who was directly granted what on it."""
        granted = unity_rest.assignments(self._rest, securable)
        self._seen.update(map(folded, granted))
        return granted

    def directory(self) -> Directory:
        """Return the server's users, those of them that stand for groups, and who the file says is in which.

        Raises:
            Refused: the server's list leaves out users, or it keeps no grants.
        """
        self._seen.add(folded(self.executor))
        users = self._users()
        missing = sorted(self._seen - users.keys() - self._ambiguous.keys())
        if missing:
            raise Refused(
                f"The server's list of users omits {missing[0]!r}: it does so where users share "
                f"a display name. Give each user a display name of their own."
            )
        groups = self._members.groups()
        emulated = {*groups, folded(EVERYONE)}
        kinds: dict[str, PrincipalKind] = {name: "group" if name in emulated else "user" for name in users}
        principals = {name: replace(each, kind=kinds[name]) for name, each in users.items()}
        groups_of = self._members.groups_of()
        return Directory(principals, groups_of, emulated_groups=True, ambiguous=self._ambiguous)

    def change(self, change: Change) -> None:
        """Apply one change. Idempotent."""
        body_fields = {
            "add": [_spaced(name) for name in change.add],
            "remove": [_spaced(name) for name in change.remove],
        }
        body = {
            "changes": [{"principal": change.principal, **{key: value for key, value in body_fields.items() if value}}]
        }
        self._rest.write("PATCH", unity_rest.permissions_path(change.securable), body)

    def table(self, securable: Securable) -> GameTable | None:
        """Return one table."""
        return unity_rest.table(self._rest, securable)

    def register(self, table: Securable, location: str, columns: Sequence[tuple[str, str]], comment: str = "") -> bool:
        """Make a game's table known."""
        return unity_rest.register(self._rest, table, location, columns, comment)

    def execute(self, statement: str) -> None:  # noqa: ARG002 - it has no SQL
        """Refuse: an open-source server has no views."""
        raise Refused("An open-source Unity Catalog has no views. `turnout schemas views` prints them for DuckDB.")

    def probe(self, principal: str, table: GameTable) -> Probe:
        """Try to read a table as a user, and then as each of their groups, the last of them everybody."""
        if self._key is None:
            return Probe(None, "Granted, not probed: turnout has no key to sign users' tokens.")
        groups = self._members.all_groups_of(principal)
        if not self._known.keys() >= {folded(principal), *groups}:
            self._users()
        known = self._known.get(folded(principal), Principal(principal, "user", active=False))
        result = self._tried(self._key, known.name, table)
        if result.reads is not False or not known.active:  # who is not active reads by no group either
            return result
        for name in (*groups, folded(EVERYONE)):
            probe = self._tried(self._key, self._known[name].name, table) if name in self._known else result
            if probe.reads is not False:
                return replace(probe, stand_in=self._known[name].name)
        return result

    def _tried(self, key: UnityKey, name: str, table: GameTable) -> Probe:
        try:
            as_them = Rest(self._rest.url, key.token(name))
            as_them.write("POST", _CREDENTIALS_PATH, {"table_id": table.table_id, "operation": "READ"})
        except (
            Unauthenticated,
            CatalogUnavailable,
        ) as error:  # 401 or 500: the key is another server's, and nothing was tried
            self._rest.read(f"{SCIM}/Me")  # if this fails too the catalog is away
            return Probe(
                None, f"Granted, not probed: the server rejects tokens signed with UNITY_CATALOG_KEY_FOLDER. {error}"
            )
        except Denied as error:
            return Probe(False, str(error))
        except NotFound as error:
            return Probe(None, str(error))
        return Probe(True, f"The catalog gave {name} credentials for {table.securable.full_name}.")

    def _users(self) -> Mapping[str, Principal]:
        """Read all users, by folded name. A deleted user stays in the list for ever, so an active namesake counts."""
        by_name: dict[str, list[Principal]] = defaultdict(list)
        for each in self._rest.shown(f"{SCIM}/Users"):
            name = _email(each)
            by_name[folded(name)].append(_principal(name, each))
        active = {name: tuple(sorted(each.name for each in same if each.active)) for name, same in by_name.items()}
        self._ambiguous = {name: spellings for name, spellings in active.items() if len(spellings) > 1}
        sole = {name: same for name, same in by_name.items() if name not in self._ambiguous}
        self._known = {name: max(same, key=lambda each: each.active) for name, same in sole.items()}
        return self._known


def _email(user: Mapping[str, Any]) -> str:
    """Return what grants call a user: the primary address, which need not look like one."""
    emails = user.get("emails")
    if not isinstance(emails, list) or not emails or not all(isinstance(each, dict) for each in emails):
        raise CatalogUnavailable("The catalog lists a user without an e-mail address.")
    return text_of(next((each for each in emails if each.get("primary")), emails[0]), "value")


def _spaced(privilege: str) -> str:
    """Return a privilege as the server spells it."""
    if not privilege.replace("_", "").isalpha():
        raise Refused(f"{privilege!r} is no privilege.")
    return privilege.replace("_", " ")


def _principal(name: str, answer: Mapping[str, Any]) -> Principal:
    return Principal(name, "user", answer.get("active") is not False, str(answer.get("id") or ""))
