"""The control store in Lakebase: an engine from `PG*` variables, whose password is a token for each new connection.

`pipeline/store/database/engine.py` finds it by its entry point where `store.url` names an endpoint. The facts are of
Databricks' pages on Lakebase authentication and on Apps with a database, as of October 2026.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event

from pipeline.base.errors import Refused, Transient
from pipeline.platforms.databricks.workspace.client import Absent, Workspace, open_workspace
from pipeline.platforms.databricks.workspace.credentials import DatabaseCredentials

_SCHEME: Final = "lakebase:"
_ENDPOINT: Final = re.compile(
    r"(?:lakebase://)?(?P<endpoint>projects/[\w-]+/branches/[\w-]+/endpoints/[\w-]+)(?:/(?P<database>[^/?#@:\s]+))?/?"
)
_SAFE_MODES: Final = ("require", "verify-ca", "verify-full")
_PATIENCE_SECONDS: Final = 10
_RECYCLE_SECONDS: Final = 2_700  # a connection is cut after 24 idle hours and after 3 days
_DEAD_PEER: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A server that vanished without a word, as in a fail-over, is an error after 30 to 60 s. Seconds; the last in ms."""


def claims(url: str) -> bool:
    """Return whether `store.url` names an endpoint of Lakebase, or tries to."""
    return url.startswith((_SCHEME, "projects/"))


def open_engine(url: str, environ: Mapping[str, str], **pool: Any) -> Engine:
    """Return an engine on an endpoint's database; `PG*` variables win over what the workspace says of it.

    Nobody logs in yet. An error on the way to a token is raised as the driver's OperationalError, as every other error
    of a login, so that callers take it for a store that is away. `pool` goes to SQLAlchemy.

    Raises:
        Refused: something is missing or wrong in the URL or the variables, or the workspace refuses.
        Transient: the workspace does not answer.
    """
    endpoint, database = _parse(url, environ)
    port, host, wanted = _port(environ), environ.get("PGHOST", ""), environ.get("PGSSLMODE", "")
    if host:
        _ssl_mode(host, wanted)  # before anything is sent
    workspace = open_workspace(patience_seconds=_PATIENCE_SECONDS)
    host = host or _host_of(workspace, endpoint)
    user = environ.get("PGUSER") or _user_of(workspace)
    place = URL.create("postgresql+psycopg", user, host=host, port=port, database=database)
    arguments = {"sslmode": _ssl_mode(host, wanted), **_DEAD_PEER}
    engine = create_engine(place, connect_args=arguments, pool_pre_ping=True, pool_recycle=_RECYCLE_SECONDS, **pool)
    credentials = DatabaseCredentials(workspace, endpoint)

    @event.listens_for(engine, "do_connect")
    def log_in(dialect: Any, _record: Any, cargs: Any, cparams: Any) -> Any:
        refused = dialect.loaded_dbapi.OperationalError
        try:
            password = credentials.password()
            try:
                return dialect.connect(*cargs, **{**cparams, "password": password})
            except refused as error:
                if "authentication failed" not in str(error) or not credentials.doubt(password):
                    raise
            return dialect.connect(*cargs, **{**cparams, "password": credentials.password()})
        except (Refused, Transient) as error:
            raise refused(f"no token for the database: {error}".rstrip(".")) from None

    return engine


def _parse(url: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the endpoint's path and the database.

    Raises:
        Refused: one of them is missing. The URL is not repeated, which may have a password in it.
    """
    found = _ENDPOINT.fullmatch(url)
    if found is None:
        raise Refused(
            "store.url names no endpoint of Lakebase. Give it as "
            "lakebase://projects/PROJECT/branches/BRANCH/endpoints/ENDPOINT/DATABASE, without user and password."
        )
    database = found["database"] or environ.get("PGDATABASE", "")
    if not database:
        raise Refused(f"store.url names no database of {found['endpoint']}. Append /DATABASE to it, or set PGDATABASE.")
    return found["endpoint"], database


def _port(environ: Mapping[str, str]) -> int:
    port = environ.get("PGPORT") or "5432"
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise Refused(f"PGPORT: expected a port from 1 to 65535, got {port!r}.")
    return int(port)


def _host_of(workspace: Workspace, endpoint: str) -> str:
    try:
        answer = workspace.get(f"/api/2.0/postgres/{endpoint}")
    except Absent as error:
        raise Refused(f"store.url names {endpoint}, which is not in the workspace at {workspace.address}.") from error
    host: Any = answer
    for part in ("status", "hosts", "host"):
        host = host.get(part) if isinstance(host, dict) else None
    if not host or not isinstance(host, str):
        raise Refused(f"{endpoint} has no address yet. Wait until the endpoint is ready, or set PGHOST.")
    return host


def _user_of(workspace: Workspace) -> str:
    """Return the role of the identity that the token is for: a person's address, or a principal's application id."""
    answer = workspace.get("/api/2.0/preview/scim/v2/Me")
    user = answer.get("userName") or answer.get("applicationId")
    if not user or not isinstance(user, str):
        raise Refused(f"The workspace at {workspace.address} names no user of this token. Set PGUSER to the role.")
    return user


def _ssl_mode(host: str, wanted: str) -> str:
    """Return how to encrypt: always, but on this machine.

    Raises:
        Refused: the variable permits to send the token in the clear.
    """
    if _is_here(host):
        return wanted or "prefer"
    if wanted and wanted not in _SAFE_MODES:
        raise Refused(
            f"PGSSLMODE is {wanted!r}, by which the token may travel unencrypted. Set one of {', '.join(_SAFE_MODES)}."
        )
    return wanted or "require"


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")
