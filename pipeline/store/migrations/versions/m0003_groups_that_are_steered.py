"""What is wanted of cluster groups and games, and the processes that were started for groups."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns; existing groups keep their backend."""
    op.add_column("groups", sa.Column("backend", sa.String(16), nullable=False, server_default="none"))
    op.add_column("groups", sa.Column("desired", sa.String(16), nullable=False, server_default="running"))
    op.add_column("groups", sa.Column("capacity_cores", sa.Float()))
    op.add_column("groups", sa.Column("priority", sa.String(8), nullable=False, server_default="normal"))
    op.add_column("groups", sa.Column("spark_master", sa.Text()))
    op.add_column("groups", sa.Column("version", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("games", sa.Column("priority", sa.String(8), nullable=False, server_default="normal"))
    op.add_column("games", sa.Column("retired_at", sa.Float()))
    op.create_table(
        "group_runs",
        sa.Column("run_id", sa.Integer(), primary_key=True),
        sa.Column("group_name", sa.String(40), nullable=False, index=True),
        sa.Column("reference", sa.Text()),
        sa.Column("begun_at", sa.Float(), nullable=False),
        sa.Column("stop_asked_at", sa.Float()),
        sa.Column("ended_at", sa.Float()),
        sa.Column("died", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("said", sa.Text()),
        sa.Column("in_hand", sa.Text()),
    )
