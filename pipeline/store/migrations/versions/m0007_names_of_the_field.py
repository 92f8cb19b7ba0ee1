"""Tables, columns and steps have the names an engineer would look for; what they hold stays, but for the keys below."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_TABLES = {
    "decisions": "stream_control",
    "given_access": "managed_grants",
    "catalog_pictures": "catalog_snapshots",
}
_COLUMNS = (
    ("stream_control", "asked_by", "requested_by"),
    ("stream_control", "asked_at", "requested_at"),
    ("group_runs", "begun_at", "started_at"),
    ("group_runs", "stop_asked_at", "stop_requested_at"),
    ("group_runs", "said", "exit_message"),
    ("group_runs", "in_hand", "active_games"),
    ("leases", "place", "pid_namespace"),
    ("operations", "asked_at", "requested_at"),
    ("operation_steps", "begun_at", "started_at"),
    ("entitlements", "until", "expires_at"),
    ("access_items", "said", "message"),
    ("access_requests", "wishes", "intents"),
    ("access_requests", "said", "decision_reason"),
    ("access_requests", "asked_at", "requested_at"),
    ("catalog_snapshots", "picture_id", "snapshot_id"),
    ("catalog_snapshots", "picture", "snapshot"),
)
_STEPS = {"see": "verify", "take": "acquire", "judge": "finalize", "keep": "record"}


def upgrade() -> None:
    """Rename; an operation that is open goes on at its step, and a driver's process is found again."""
    for old, new in _TABLES.items():
        op.execute(f"ALTER TABLE {old} RENAME TO {new}")
    for table, old, new in _COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    for old, new in _STEPS.items():
        op.execute(sa.text("UPDATE operation_steps SET name = :new WHERE name = :old").bindparams(old=old, new=new))
    _rename_key("operations", "operation_id", "parameters", "wishes", "intents")
    _rename_key("group_runs", "run_id", "reference", "place", "pid_namespace")


def _rename_key(table: str, key: str, column: str, old: str, new: str) -> None:
    rows = sa.table(table, sa.column(key), sa.column(column))
    connection = op.get_bind()
    found = connection.execute(sa.select(rows.c[key], rows.c[column]).where(rows.c[column].like(f'%"{old}"%'))).all()
    for number, text in found:
        try:
            tree: Any = json.loads(text)
        except ValueError:
            continue  # a row edited by hand: it is refused where it is read, not here
        if isinstance(tree, dict) and old in tree:
            renamed = {new if name == old else name: value for name, value in tree.items()}
            mine = sa.update(rows).where(rows.c[key] == number)
            connection.execute(mine.values({column: json.dumps(renamed)}))
