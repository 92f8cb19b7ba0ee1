"""Operations with their journal, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; the log begins with an empty head."""
    op.create_table(
        "operations",
        sa.Column("operation_id", sa.String(32), primary_key=True),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("targets", sa.Text(), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.String(64), nullable=False, unique=True),
        sa.Column("preview", sa.Text(), nullable=False),
        sa.Column("preview_hash", sa.String(16), nullable=False),
        sa.Column("undoes", sa.String(32)),
        sa.Column("outcome", sa.Text()),
        sa.Column("asked_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float()),
        sa.Column("version", sa.Integer(), nullable=False),
    )
    op.create_table(
        "operation_steps",
        sa.Column("operation_id", sa.String(32), sa.ForeignKey("operations.operation_id"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("begun_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float()),
    )
    op.create_table(
        "operation_targets",
        sa.Column("target", sa.String(80), primary_key=True),
        sa.Column("operation_id", sa.String(32), sa.ForeignKey("operations.operation_id"), nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("targets", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.String(32)),
        sa.Column("phase", sa.String(8), nullable=False),
        sa.Column("outcome", sa.String(16)),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    head = op.create_table(
        "audit_head",
        sa.Column("head_id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.bulk_insert(head, [{"head_id": 0, "day": "", "number": 0, "at": 0.0, "hash": ""}])
