"""Who owns the control store's tables on PostgreSQL, and who else may use them; SQLite has no roles.

Processes of one environment log in as different roles, and only its owner may migrate a table. So `turnout_owner`,
where the server has it, owns every table; its members migrate, and members of `turnout_user` read and write rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from pipeline.base.errors import Refused

OWNER: Final = "turnout_owner"
USERS: Final = "turnout_user"
MISSING_RIGHT: Final = "42501"
_SET_SINCE: Final = (16,)  # from this PostgreSQL on a member may lack the right to SET ROLE

_LOOK: Final = text("""
    SELECT current_user AS role, current_database() AS database, current_schema() AS schema,
           pg_get_userbyid((SELECT relowner FROM pg_class WHERE oid = to_regclass('alembic_version'))) AS owner,
           EXISTS (SELECT FROM pg_roles WHERE rolname = :owner) AS has_owner
""")
_NOT_SHARED: Final = text("""
    SELECT EXISTS (
        SELECT FROM pg_class each JOIN pg_roles users ON users.rolname = :users
        WHERE each.relnamespace = current_schema()::regnamespace AND each.relkind IN ('r', 'S')
          AND each.relowner = (SELECT relowner FROM pg_class WHERE oid = to_regclass('alembic_version'))
          AND NOT CASE each.relkind WHEN 'r' THEN has_table_privilege(users.oid, each.oid, 'SELECT')
              ELSE has_sequence_privilege(users.oid, each.oid, 'USAGE') END
    )
""")
_MAY_OPEN_SCHEMA: Final = text("""
    SELECT NOT has_schema_privilege(:users, oid, 'USAGE') AND pg_has_role(nspowner, 'USAGE')
    FROM pg_namespace WHERE nspname = current_schema()
""")
_OWN: Final = text("""
    SELECT relname FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = :kind AND relowner = current_user::regrole
""")
_TABLES: Final = {"kind": "r"}
_SEQUENCES: Final = {"kind": "S"}  # which number rows


@dataclass(frozen=True, slots=True)
class _Seen:
    role: str
    database: str
    schema: str | None  # None: this role may use none
    owner: str | None  # of the tables; None: there are none that this role sees
    has_owner: bool

    @property
    def creator(self) -> str:
        """The role that owns the tables, or is to own them."""
        return self.owner or (OWNER if self.has_owner else self.role)


def become_owner(connection: Connection) -> None:
    """Let the rest of the transaction act as the role that owns the tables, or is to own them.

    Raises:
        Refused: this role may not become it.
    """
    if not _has_roles(connection):
        return
    seen = _look(connection)
    if seen.schema is None or seen.creator == seen.role:
        return
    if not _may_become(connection, seen.creator):
        lack = "has an older version's tables" if seen.owner else "has no tables yet"
        raise Refused(
            f"The control store {lack}. Role {seen.creator} migrates it, and role {seen.role} is not a member. Start "
            "the controller first, or another process whose role is a member, or let an administrator run: "
            f"GRANT {_quoted(connection, seen.creator)} TO {_quoted(connection, seen.role)}."
        )
    connection.execute(text(f"SET LOCAL ROLE {_quoted(connection, seen.creator)}"))


def share(connection: Connection) -> None:
    """Let members of `turnout_user`, where the server has it, use all tables of this role, also those made later."""
    if not _has_roles(connection) or not connection.scalar(
        text("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :it)"), {"it": USERS}
    ):
        return
    schema = _quoted(connection, str(_look(connection).schema))
    if connection.scalar(_MAY_OPEN_SCHEMA, {"users": USERS}):
        connection.execute(text(f"GRANT USAGE ON SCHEMA {schema} TO {USERS}"))
    tables, sequences = (
        ", ".join(f"{schema}.{_quoted(connection, name)}" for name in connection.scalars(_OWN, kind).all())
        for kind in (_TABLES, _SEQUENCES)
    )
    rows, numbers = "SELECT, INSERT, UPDATE, DELETE", "USAGE, SELECT"
    connection.execute(text(f"GRANT {rows} ON {tables} TO {USERS}"))
    if sequences:
        connection.execute(text(f"GRANT {numbers} ON SEQUENCE {sequences} TO {USERS}"))
    connection.execute(text(f"REVOKE INSERT, UPDATE, DELETE ON {schema}.alembic_version FROM {USERS}"))
    connection.execute(text(f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT {rows} ON TABLES TO {USERS}"))
    connection.execute(text(f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT {numbers} ON SEQUENCES TO {USERS}"))


def is_shared_late(connection: Connection) -> bool:
    """Return whether `turnout_user` lacks rights that this role can give, as it was made after the tables."""
    if not _has_roles(connection) or not connection.scalar(_NOT_SHARED, {"users": USERS}):
        return False
    return _may_become(connection, _look(connection).creator)


@contextmanager
def rights_explained(connection: Connection) -> Iterator[None]:
    """Turn a right that is missing, in a block that reads or makes the tables, into a sentence with the statement.

    Raises:
        Refused: this role lacks a right.
    """
    if not _has_roles(connection):
        yield
        return
    seen = _look(connection)
    if seen.schema is None:
        raise Refused(
            f"Role {seen.role} may use no schema of database {seen.database}. Let an administrator run: "
            f"GRANT USAGE ON SCHEMA public TO {_quoted(connection, seen.role)}."
        )
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != MISSING_RIGHT:
            raise
        said = str(error.orig).splitlines()[0]
        if seen.owner is None:
            raise Refused(
                f"The control store has no tables yet, and role {seen.creator} may not create them in database "
                f"{seen.database}: {said}. Start the controller first, or another process whose role may, or let an "
                f"administrator run: GRANT CREATE, USAGE ON SCHEMA {_quoted(connection, seen.schema)} TO "
                f"{_quoted(connection, seen.creator)}."
            ) from error
        raise Refused(
            f"Role {seen.role} may not use the control store's tables, which belong to role {seen.owner}: {said}. "
            f"Let an administrator run: GRANT {USERS} TO {_quoted(connection, seen.role)}. "
            "docs/deploy/lakebase.md has the roles."
        ) from error


def _look(connection: Connection) -> _Seen:
    return _Seen(*connection.execute(_LOOK, {"owner": OWNER}).one())


def _has_roles(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def _may_become(connection: Connection, role: str) -> bool:
    right = "SET" if (connection.dialect.server_version_info or (0,)) >= _SET_SINCE else "MEMBER"
    asked = {"role": role, "right": right}
    return bool(connection.scalar(text("SELECT pg_has_role(current_user, :role, :right)"), asked))


def _quoted(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote(name)
