"""Who is a member of `turnout_owner` and `turnout_user` in the control store: PostgreSQL's, which no API shows.

The kind `store_roles`, which only `turnout deploy` knows: see docs/deploy/lakebase.md. The person who runs it logs in.
Members beside those of the bundle are no difference: a person may be one.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from pipeline.base.errors import Refused, Transient
from pipeline.base.reasons import innermost
from pipeline.platforms.databricks.deploy.compare import Change
from pipeline.platforms.databricks.deploy.kinds.kind import Found, Scope, State
from pipeline.platforms.databricks.lakebase import open_engine
from pipeline.platforms.databricks.workspace.client import Absent

_MEMBERS: Final = text(
    "SELECT r.rolname, m.rolname FROM pg_auth_members a"
    " JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member"
    " WHERE r.rolname IN ('turnout_owner', 'turnout_user')"
)


class StoreRoles:
    """The kind `store_roles`; see `Kind`. It lies in what holds data, so `uninstall` leaves it."""

    name: Final = "store_roles"
    holds_data: Final = True
    fixed: Final = frozenset({"endpoint", "database"})
    unseen: Final = frozenset[str]()
    filled: Final[Mapping[str, Sequence[Any]]] = {"members": []}

    def label(self, definition: Mapping[str, Any]) -> str:
        """See `Kind`: the address of the store."""
        return f"{definition['endpoint']}/{definition['database']}"

    def comparable(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Kind`."""
        pairs = sorted((role, member) for role, members in definition["members"].items() for member in members)
        return {"members": [_member(*pair) for pair in pairs]}

    def find(self, scope: Scope, definition: Mapping[str, Any]) -> Found | None:  # noqa: ARG002
        """See `Kind`: they have no name, and to make them twice changes nothing."""
        return None

    def read(self, scope: Scope, id: str) -> State | None:  # noqa: A002
        """See `Kind`; logs in, where the database is there."""
        endpoint, _, database = id.rpartition("/")
        try:
            branch = endpoint.partition("/endpoints/")[0]
            listed = scope.workspace.get(f"/api/2.0/postgres/{branch}/databases").get("databases", [])
        except Absent:
            return None
        if database not in {each.get("status", {}).get("postgres_database") for each in listed}:
            return None
        with _Session(id) as connection:
            pairs = sorted((str(role), str(member)) for role, member in connection.execute(_MEMBERS))
        return State({"members": [_member(*pair) for pair in pairs]}, {"id": id})

    def create(self, scope: Scope, definition: Mapping[str, Any]) -> str:
        """See `Kind`."""
        del scope  # the store has an address of its own
        self._grant(self.label(definition), self.comparable(definition)["members"])
        return self.label(definition)

    def update(
        self,
        scope: Scope,  # noqa: ARG002 - as of every kind
        id: str,  # noqa: A002
        definition: Mapping[str, Any],
        found: Sequence[Change],  # noqa: ARG002
    ) -> None:
        """See `Kind`."""
        self._grant(id, self.comparable(definition)["members"])

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """Refuse: a store without them serves nobody."""
        raise Refused(f"The members of {id} at {scope.workspace.address} stay, as the store does.")

    def _grant(self, store: str, members: Sequence[Mapping[str, str]]) -> None:
        with _Session(store) as connection:
            quote = connection.dialect.identifier_preparer.quote_identifier
            held = {(str(role), str(member)) for role, member in connection.execute(_MEMBERS)}
            for each in members:
                if (each["role"], each["member"]) not in held:
                    connection.execute(text(f"GRANT {quote(each['role'])} TO {quote(each['member'])}"))
            with suppress(DBAPIError), connection.begin_nested():  # who deploys may make groups before anything runs
                connection.execute(text("GRANT turnout_owner TO CURRENT_USER"))
            connection.commit()


def _member(role: str, member: str) -> dict[str, str]:
    return {"key": f"{role} {member}", "role": role, "member": member}


class _Session:
    """A connection to the store's database; errors on the way are sentences."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._engine = open_engine(f"lakebase://{store}", os.environ, poolclass=NullPool)

    def __enter__(self) -> Connection:
        try:
            self._connection = self._engine.connect()
        except SQLAlchemyError as error:
            raise self._said(error) from error
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._connection.close()
        self._engine.dispose()
        if isinstance(error, SQLAlchemyError):
            raise self._said(error) from error

    def _said(self, error: SQLAlchemyError) -> Refused | Transient:
        reason = innermost(str(error.orig if isinstance(error, DBAPIError) else error)).rstrip(".")
        if (user := self._engine.url.username) and f'role "{user}" does not exist' in reason:
            branch = self._store.partition("/endpoints/")[0]
            return Refused(
                f"You have no PostgreSQL role in {branch}. Let its owner make the role {user}, of the identity type "
                "USER or SERVICE_PRINCIPAL, a member of turnout_owner and turnout_user with the admin option; or let "
                "the owner run this."
            )
        if isinstance(error, OperationalError) and "authentication failed" not in reason:
            return Transient(f"the control store {self._store} cannot be reached: {reason}")
        return Refused(
            f"The members of roles of {self._store} cannot be read or set: {reason}. docs/deploy/lakebase.md has the "
            "statements: run them as the project's owner."
        )
