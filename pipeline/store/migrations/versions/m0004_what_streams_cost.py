"""The bytes and commits of a stream as drivers report them, so that its cost is known."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns; drivers fill them with their next heartbeat."""
    op.add_column("streams", sa.Column("bytes_per_second", sa.Float()))
    op.add_column("streams", sa.Column("commits_per_second", sa.Float()))
