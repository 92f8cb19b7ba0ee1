"""Whose clock the times of a source's records are of, so that latency can be labelled with it."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column; ingest fills it at its next start."""
    op.add_column("ingest_identities", sa.Column("source_clock", sa.String(16)))
