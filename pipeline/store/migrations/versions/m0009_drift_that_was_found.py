"""Findings of drift beside the picture of the catalog in which they were found, so that ingest can export them."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column; the controller fills it at its next look."""
    op.add_column("catalog_snapshots", sa.Column("drift", sa.Text))
