"""When an operation began to need a person, which is not when it was requested."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column; of those that need a person already, the end of their last step says it."""
    op.add_column("operations", sa.Column("stuck_since", sa.Float))
    op.execute(
        "UPDATE operations SET stuck_since = (SELECT max(ended_at) FROM operation_steps "
        "WHERE operation_steps.operation_id = operations.operation_id) WHERE state = 'needs_human'"
    )
