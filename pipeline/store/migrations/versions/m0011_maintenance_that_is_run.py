"""Maintenance as a process that the controller starts: the kind of each process, and how each round went."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column, in which what was started so far is a group's driver, and a table."""
    op.add_column("group_runs", sa.Column("kind", sa.String(16), nullable=False, server_default="group"))
    op.create_table(
        "maintenance_rounds",
        sa.Column("round_id", sa.Integer, primary_key=True),
        sa.Column("began_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float, nullable=False),
        sa.Column("ok", sa.Integer, nullable=False),
        sa.Column("tables", sa.Integer, nullable=False),
        sa.Column("failed_tables", sa.Integer, nullable=False),
        sa.Column("files_before", sa.BigInteger, nullable=False),
        sa.Column("files_after", sa.BigInteger, nullable=False),
        sa.Column("error", sa.Text),
    )
