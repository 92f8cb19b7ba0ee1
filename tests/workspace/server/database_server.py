"""The real PostgreSQL behind Lakebase: databases and roles of all projects lie on one server.

So two projects cannot have a database of one name. Databases and roles of ours carry a comment, and go at the end.
`pg_hba.conf` lets the superuser in without a password, and everybody else by a credential that `Radius` checks.
"""

import contextlib
import re
import secrets
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.workspace.server.calls import ApiError
from tests.workspace.server.radius import Radius

_MARK: Final = "made by the stand-in of a workspace"


class DatabaseServer:
    """A PostgreSQL server of which we are superuser."""

    def __init__(self, url: str, accepts: Callable[[str, str], bool]) -> None:
        """Connect, clear what a killed stand-in left, and take over who may log in."""
        parsed = urlsplit(re.sub(r"^postgresql\+\w+:", "postgresql:", url))
        self.host, self.port = parsed.hostname or "127.0.0.1", parsed.port or 5_432
        self._superuser = parsed.username or "postgres"
        self._own = psycopg.connect(
            host=self.host, port=self.port, user=self._superuser, password=parsed.password, dbname="postgres",
            autocommit=True,
        )  # fmt: skip
        self._clear()
        secret = secrets.token_hex(8)
        radius = Radius(secret, accepts)
        self._before = self._rules()
        self._write_rules(
            f"local all all trust\nhost all {self._superuser} all trust\n"
            f'host all all 127.0.0.1/32 radius radiusservers="127.0.0.1" radiussecrets="{secret}" '
            f'radiusports="{radius.port}"\n'
        )

    def make_role(self, name: str, attributes: dict[str, Any]) -> None:
        """Make a role that may log in, or change what it may."""
        with contextlib.suppress(psycopg.errors.DuplicateObject):
            self._do("CREATE ROLE {} LOGIN", name)
            self._own.execute(sql.SQL("COMMENT ON ROLE {} IS {}").format(sql.Identifier(name), _MARK))
        for attribute in ("createdb", "createrole", "bypassrls"):
            self._do(f"ALTER ROLE {{}} {'' if attributes.get(attribute) else 'NO'}{attribute}", name)

    def join(self, name: str, group: str) -> None:
        """Make a role a member of another."""
        with contextlib.suppress(psycopg.errors.DuplicateObject):
            self._do("GRANT {} TO {}", group, name)

    def drop_role(self, name: str) -> None:
        """Drop a role, after the superuser has taken over all that it owns."""
        for database in self._named("SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate"):
            with psycopg.connect(
                host=self.host, port=self.port, user=self._superuser, dbname=database, autocommit=True
            ) as inside:
                role, own = sql.Identifier(name), sql.Identifier(self._superuser)
                inside.execute(sql.SQL("REASSIGN OWNED BY {} TO {}").format(role, own))
                inside.execute(sql.SQL("DROP OWNED BY {}").format(role))
        self._do("DROP ROLE IF EXISTS {}", name)

    def make_database(self, name: str, owner: str) -> None:
        """Make a database.

        Raises:
            ApiError: the server has one of this name.
        """
        try:
            self._do("CREATE DATABASE {} OWNER {}", name, owner)
        except psycopg.errors.DuplicateDatabase as error:
            raise ApiError(
                400, "BAD_REQUEST", f"The stand-in has one PostgreSQL server, where database {name} exists already."
            ) from error
        self._own.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(name), _MARK))

    def let_create(self, database: str, role: str) -> None:
        """Give an app's role CONNECT and CREATE [doc databricks-apps/lakebase]."""
        self._do("GRANT CONNECT, CREATE ON DATABASE {} TO {}", database, role)

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected."""
        self._do("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def close(self) -> None:
        """Drop what is ours, and give the server back."""
        self._clear()
        self._write_rules(self._before)
        self._own.close()

    def _clear(self) -> None:
        ours = "SELECT d.datname FROM pg_database d JOIN pg_shdescription s ON s.objoid = d.oid AND s.description = %s"
        for name in self._named(ours, _MARK):
            self.drop_database(name)
        ours = "SELECT r.rolname FROM pg_roles r JOIN pg_shdescription s ON s.objoid = r.oid AND s.description = %s"
        for name in self._named(ours, _MARK):
            self.drop_role(name)

    def _named(self, query: str, *values: str) -> list[str]:
        return [str(row[0]) for row in self._own.execute(query.encode(), values).fetchall()]

    def _rules(self) -> str:
        rows = self._named("SELECT pg_read_file(current_setting('hba_file'))")
        return rows[0]

    def _write_rules(self, text: str) -> None:
        file = self._named("SHOW hba_file")[0]
        rows = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        query = sql.SQL("COPY (SELECT unnest({}::text[])) TO {}").format(sql.Literal(rows), sql.Literal(file))
        self._own.execute(query)
        self._own.execute("SELECT pg_reload_conf()")

    def _do(self, statement: str, *names: str) -> None:
        self._own.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
