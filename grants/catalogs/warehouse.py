"""SQL on a Databricks warehouse: grants as a user's own statements, and attempts to read as a principal."""

import re
from collections.abc import Mapping
from typing import Any, Final

from grants.catalog import CatalogUnavailable, Change, Denied, NotFound, Probe
from grants.catalogs.rest import Rest
from grants.model import Securable
from pipeline.base.errors import Refused

_PRIVILEGE: Final = re.compile(r"[A-Z]+(?:_[A-Z]+)*")
_DENIED: Final = ("PERMISSION_DENIED", "INSUFFICIENT_PERMISSIONS", "UNAUTHORIZED_ACCESS")
_GONE: Final = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PRINCIPAL_DOES_NOT_EXIST", "NO_SUCH_CATALOG")
_MAX_LETTERS: Final = 300
_WAIT: Final = "10s"


class Warehouse:
    """One SQL warehouse, as one caller."""

    def __init__(self, rest: Rest, warehouse_id: str) -> None:
        self._rest, self._warehouse_id = rest, warehouse_id

    def change(self, change: Change) -> None:
        """Apply a change as GRANT and REVOKE statements.

        Raises:
            Denied: the caller may not.
            NotFound: the principal or the securable does not exist.
            CatalogUnavailable: the warehouse did not finish in time, or cannot be reached.
        """
        for statement in statements(change):
            status = self._run(statement)
            if status.get("state") != "SUCCEEDED":
                raise _failure(status)

    def execute(self, statement: str) -> None:
        """Run a statement that is repeatable.

        Raises:
            Denied: the caller may not.
            NotFound: what it is about does not exist.
            CatalogUnavailable: the warehouse did not finish in time, or cannot be reached.
        """
        status = self._run(statement)
        if status.get("state") != "SUCCEEDED":
            raise _failure(status)

    def probe(self, table: Securable) -> Probe:
        """Try to read a table without reading a row."""
        try:
            status = self._run(f"SELECT 1 FROM {_quoted(table)} LIMIT 0")  # noqa: S608 - quoted, from a checked name
        except Denied as error:
            return Probe(None, f"The probe principal may not use the warehouse: {error}")
        if status.get("state") == "SUCCEEDED":
            return Probe(True, f"A SELECT from {table.full_name} was answered.")
        failure = _failure(status)
        return Probe(False if isinstance(failure, Denied) else None, str(failure))

    def _run(self, statement: str) -> Mapping[str, Any]:
        body_fields = {
            "warehouse_id": self._warehouse_id,
            "statement": statement,
            "wait_timeout": _WAIT,
            "on_wait_timeout": "CANCEL",
        }
        status = self._rest.write("POST", "/api/2.0/sql/statements", body_fields).get("status")
        if not isinstance(status, dict):
            raise CatalogUnavailable("The warehouse did not report the result of a statement.")
        return status


def statements(change: Change) -> tuple[str, ...]:
    """Return a change as SQL, what is given first.

    Raises:
        Refused: a name or privilege cannot be written as SQL.
    """
    on, whom = f"{change.securable.type.upper()} {_quoted(change.securable)}", _quoted_name(change.principal)
    given = (f"GRANT {_privileges(change.add)} ON {on} TO {whom}",) if change.add else ()
    taken = (f"REVOKE {_privileges(change.remove)} ON {on} FROM {whom}",) if change.remove else ()
    return given + taken


def drop_view(view: Securable) -> str:
    """Return the statement that drops a view, if it is there."""
    return f"DROP VIEW IF EXISTS {_quoted(view)}"


def _privileges(names: tuple[str, ...]) -> str:
    for name in names:
        if not _PRIVILEGE.fullmatch(name):
            raise Refused(f"{name!r} cannot be written as a privilege in SQL.")
    return ", ".join(name.replace("_", " ") for name in names)


def _quoted(securable: Securable) -> str:
    return ".".join(_quoted_name(part) for part in securable.path)


def _quoted_name(name: str) -> str:
    if not name or not name.isprintable():
        raise Refused(f"{name!r} cannot be written as a name in SQL.")
    return "`" + name.replace("`", "``") + "`"


def _failure(status: Mapping[str, Any]) -> Exception:
    """Return what a statement that did not succeed means."""
    error = status.get("error")
    code, message = (
        (str(error.get(key, "")) for key in ("error_code", "message")) if isinstance(error, dict) else ("", "")
    )
    reason = f"The warehouse reports: {' '.join(message.split())[:_MAX_LETTERS] or status.get('state')}"
    if status.get("state") != "FAILED":  # cancelled because it took too long, or the warehouse was stopped
        return CatalogUnavailable(f"The warehouse did not finish: {status.get('state')}.")
    if any(mark in code or mark in message for mark in _DENIED):
        return Denied(reason)
    if any(mark in code or mark in message for mark in _GONE):
        return NotFound(reason)
    return Refused(reason)
