"""Who may read which game's table: what was granted, what is requested, and the catalog as it was last read."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add tables; nothing that is there changes."""
    op.create_table(
        "entitlements",
        sa.Column("entitlement_id", sa.Integer(), primary_key=True),
        sa.Column("principal", sa.Text(), nullable=False, index=True),
        sa.Column("game_key", sa.String(64), nullable=False, index=True),
        sa.Column("until", sa.Float()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ticket", sa.Text(), nullable=False),
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.String(32), nullable=False),
        sa.Column("given_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float()),
        sa.Column("ended_by", sa.String(32)),
    )
    op.create_table(
        "access_items",
        sa.Column("operation_id", sa.String(32), sa.ForeignKey("operations.operation_id"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("securable", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("adds", sa.Text(), nullable=False),
        sa.Column("removes", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("said", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "access_change_sets",
        sa.Column("operation_id", sa.String(32), sa.ForeignKey("operations.operation_id"), primary_key=True),
        sa.Column("change_set", sa.Text(), nullable=False),
    )
    op.create_table(
        "given_access",
        sa.Column("securable", sa.String(1024), primary_key=True),
        sa.Column("principal", sa.String(1024), primary_key=True),
        sa.Column("privilege", sa.String(64), primary_key=True),
        sa.Column("operation_id", sa.String(32), nullable=False),
    )
    op.create_table(
        "access_requests",
        sa.Column("request_id", sa.String(32), primary_key=True),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("wishes", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("decided_by", sa.Text()),
        sa.Column("said", sa.Text()),
        sa.Column("operation_id", sa.String(32)),
        sa.Column("asked_at", sa.Float(), nullable=False),
        sa.Column("decided_at", sa.Float()),
        sa.Column("version", sa.Integer(), nullable=False),
    )
    op.create_table(
        "ignored_drift",
        sa.Column("finding", sa.String(64), primary_key=True),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("ignored_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "catalog_pictures",
        sa.Column("picture_id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("picture", sa.Text()),
        sa.Column("read_at", sa.Float()),
        sa.Column("problem", sa.Text()),
        sa.Column("tried_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "role_members",
        sa.Column("group_name", sa.String(255), primary_key=True),
        sa.Column("principal", sa.String(255), primary_key=True),
        sa.Column("seen_at", sa.Float(), nullable=False),
    )
