"""Dead groups whose games cannot go, so that who reads the store knows it beside the controller."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; the controller fills it at its next look."""
    op.create_table(
        "waiting_evacuations",
        sa.Column("group_name", sa.String(40), primary_key=True),
        sa.Column("games", sa.Integer, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
    )
