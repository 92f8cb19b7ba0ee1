"""The first version of the control store: every table as it is defined now. The release of 0.1.0 freezes it.

Until then a change of a table raises `FIRST` and adds no migration: `docs/decisions/0043-what-a-release-freezes.md`.
"""

from alembic import op

from pipeline.store.database import report_tables, tables
from pipeline.store.database.migrate import FIRST

revision = FIRST
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; the audit log begins with an empty head."""
    metadata = tables.audit_head.metadata
    assert report_tables.incidents.metadata is metadata, "its tables are created too"
    metadata.create_all(op.get_bind(), checkfirst=False)
    op.bulk_insert(tables.audit_head, [{"head_id": 0, "day": "", "number": 0, "at": 0.0, "hash": ""}])
