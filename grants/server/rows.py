"""The SQLite file of the embedded catalog: its tables, and how it is opened.

Principals are hard-deleted, and their grants stay behind without a name, as Databricks shows them.
"""

import sqlite3
import uuid
from pathlib import Path
from typing import Final

from grants.model import EVERYONE, folded

EVERYONE_ID: Final = "account-users"
EXECUTOR: Final = "turnout-executor"
"""The application id of the service principal whose token turnout uses: the metastore's admin."""

_BUSY_TIMEOUT_SECONDS: Final = 30
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS principals (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,  -- user | group | service_principal
    name TEXT NOT NULL,  -- what grants carry
    folded TEXT NOT NULL UNIQUE,
    display TEXT NOT NULL,
    active INTEGER NOT NULL DEFAULT 1,
    admin INTEGER NOT NULL DEFAULT 0  -- 1: of the metastore
) STRICT;
CREATE TABLE IF NOT EXISTS members (
    group_id TEXT NOT NULL REFERENCES principals ON DELETE CASCADE,
    member_id TEXT NOT NULL REFERENCES principals ON DELETE CASCADE,
    PRIMARY KEY (group_id, member_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS members_by_member ON members (member_id);
CREATE TABLE IF NOT EXISTS securables (
    id TEXT PRIMARY KEY,
    full_name TEXT NOT NULL UNIQUE,
    parent_id TEXT REFERENCES securables ON DELETE CASCADE,  -- null: a catalog
    owner_id TEXT NOT NULL,  -- no reference: an owner can be deleted
    location TEXT UNIQUE,  -- of a table
    columns TEXT,  -- JSON, of a table
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS securables_by_parent ON securables (parent_id);
CREATE TABLE IF NOT EXISTS grants (
    securable_id TEXT NOT NULL REFERENCES securables ON DELETE CASCADE,
    principal_id TEXT NOT NULL,  -- no reference: what a deleted principal had stays, without a name
    privilege TEXT NOT NULL,
    PRIMARY KEY (securable_id, principal_id, privilege)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tokens (
    sha256 TEXT PRIMARY KEY,
    principal_id TEXT NOT NULL REFERENCES principals ON DELETE CASCADE,
    expires_at REAL  -- null: the executor's own
) STRICT;
"""


def open_rows(file: Path) -> sqlite3.Connection:
    """Open the catalog's file, made where it is missing, with everyone and the executor in it."""
    rows = sqlite3.connect(file, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None)
    rows.row_factory = sqlite3.Row
    rows.execute("PRAGMA journal_mode=WAL")
    rows.execute("PRAGMA synchronous=FULL")  # what was acknowledged outlives a power cut
    rows.execute("PRAGMA foreign_keys=ON")
    rows.executescript(_TABLES)
    put = (
        "INSERT INTO principals (id, kind, name, folded, display, admin) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING"
    )
    rows.execute(put, (EVERYONE_ID, "group", EVERYONE, folded(EVERYONE), EVERYONE, 0))
    rows.execute(put, (str(uuid.uuid4()), "service_principal", EXECUTOR, folded(EXECUTOR), "turnout", 1))
    return rows
