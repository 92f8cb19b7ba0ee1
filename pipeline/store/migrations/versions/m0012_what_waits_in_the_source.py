"""What ingest last measured of its source: the age and number of the rows that are not in bronze yet."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table of one row; it stays empty until ingest measures."""
    op.create_table(
        "source_backlog",
        sa.Column("backlog_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("measured_at", sa.Float, nullable=False),
        sa.Column("age_seconds", sa.Float),
        sa.Column("peak_seconds", sa.Float),
        sa.Column("rows", sa.BigInteger),
        sa.Column("limit_seconds", sa.Float, nullable=False),
        sa.Column("reason", sa.Text),
    )
