"""Tokens of callers, kept only as hashes; and credentials to read a table."""

import hashlib
import secrets
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grants.server.calls import ApiError, Call, denied, invalid, now
from grants.server.rights import standing
from grants.server.rows import EXECUTOR
from grants.server.securables import principal_named, table_of_id
from pipeline.base import private_files

_LONGEST_SECONDS = 3_600


def keep_own_token(rows: sqlite3.Connection, file: Path) -> str:
    """Let the token in the file be the executor's, and no other; make both where the file is missing; return it."""
    if not file.exists():
        private_files.write_file(file, secrets.token_urlsafe(32))
    file.chmod(0o600)
    token, executor = file.read_text("utf-8").strip(), principal_named(rows, EXECUTOR)
    rows.execute("BEGIN IMMEDIATE")
    rows.execute("DELETE FROM tokens WHERE expires_at IS NULL OR expires_at <= ?", (now(),))
    rows.execute("INSERT INTO tokens VALUES (?, ?, NULL)", (_hash(token), executor["id"]))
    rows.execute("COMMIT")
    return token


def caller_of(rows: sqlite3.Connection, authorization: str) -> sqlite3.Row:
    """Return who calls.

    Raises:
        ApiError: 401 without a token, with an unknown or expired one, or of a user who is not active.
    """
    caller: sqlite3.Row | None
    scheme, _, token = authorization.partition(" ")
    caller = rows.execute(
        "SELECT principals.*, expires_at FROM tokens JOIN principals ON principals.id = principal_id WHERE sha256 = ?",
        (_hash(token.strip()),),
    ).fetchone()
    if scheme.lower() != "bearer" or caller is None:
        raise ApiError(401, "UNAUTHENTICATED", "The token is missing or unknown.")
    if caller["expires_at"] is not None and caller["expires_at"] <= now():
        raise ApiError(401, "UNAUTHENTICATED", "The token has expired.")
    if not caller["active"]:
        raise ApiError(401, "UNAUTHENTICATED", f"{caller['name']} is not active.")
    return caller


def mint(call: Call) -> Mapping[str, Any]:
    """Make a token for a user or service principal, for a while."""
    call.require_admin()
    principal = principal_named(call.rows, call.text("principal"))
    seconds = call.body.get("seconds")
    if type(seconds) is not int or not 0 < seconds <= _LONGEST_SECONDS:
        raise invalid(f"seconds must be a number from 1 to {_LONGEST_SECONDS}.")
    if principal["kind"] == "group" or not principal["active"]:
        raise invalid(f"{principal['name']} is {'a group' if principal['kind'] == 'group' else 'not active'}.")
    token, expires_at = secrets.token_urlsafe(32), now() + seconds
    call.rows.execute("DELETE FROM tokens WHERE expires_at <= ?", (now(),))
    call.rows.execute("INSERT INTO tokens VALUES (?, ?, ?)", (_hash(token), principal["id"], expires_at))
    return {"token": token, "expires_at": expires_at}


def credentials(call: Call) -> Mapping[str, Any]:
    """Answer with a table's address where the caller may read it: the way every read goes through here."""
    if call.text("operation") != "READ":
        raise invalid("operation must be READ: nobody writes with credentials of this catalog.")
    securable = table_of_id(call.rows, call.text("table_id"))
    missing = standing(call.rows, call.caller, securable).unreadable()
    if missing:
        raise denied(f"{call.caller['name']} does not have {' and '.join(missing)}.")
    return {
        "table_id": securable["id"],
        "url": securable["location"],
        "expiration_time": int((now() + _LONGEST_SECONDS) * 1000),
    }


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
