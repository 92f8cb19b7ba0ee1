"""The tables as they were when migrations began; what an older store has of them is kept and completed."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import CreateColumn

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

metadata = sa.MetaData()

sa.Table(
    "bronze_commits",
    metadata,
    sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column("rows", sa.BigInteger(), nullable=False),
    sa.Column("refused", sa.BigInteger(), nullable=False),
    sa.Column("oldest_source_at", sa.Float(), nullable=True),
    sa.Column("committed_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("seq"),
)
sa.Table(
    "decisions",
    metadata,
    sa.Column("game_key", sa.String(length=64), nullable=False),
    sa.Column("desired", sa.String(length=16), nullable=False),
    sa.Column("own_query", sa.Integer(), nullable=False),
    sa.Column("parked_at", sa.Float(), nullable=True),
    sa.Column("failures", sa.Integer(), nullable=False),
    sa.Column("failure_class", sa.String(length=16), nullable=True),
    sa.Column("evidence", sa.Text(), nullable=True),
    sa.Column("failed_at", sa.Float(), nullable=True),
    sa.Column("retry_at", sa.Float(), nullable=False),
    sa.Column("asked_by", sa.Text(), nullable=True),
    sa.Column("asked_at", sa.Float(), nullable=True),
    sa.PrimaryKeyConstraint("game_key"),
)
sa.Table(
    "drivers",
    metadata,
    sa.Column("kind", sa.String(length=16), nullable=False),
    sa.Column("name", sa.String(length=40), nullable=False),
    sa.Column("pid", sa.Integer(), nullable=False),
    sa.Column("host", sa.String(length=255), nullable=False),
    sa.Column("started_at", sa.Float(), nullable=False),
    sa.Column("heartbeat_at", sa.Float(), nullable=False),
    sa.Column("state", sa.String(length=16), nullable=False),
    sa.Column("error", sa.Text(), nullable=True),
    sa.Column("metrics_address", sa.String(length=255), nullable=True),
    sa.Column("frontier_seq", sa.BigInteger(), nullable=True),
    sa.PrimaryKeyConstraint("kind", "name"),
)
sa.Table(
    "games",
    metadata,
    sa.Column("game_key", sa.String(length=64), nullable=False),
    sa.Column("game", sa.Text(), nullable=False),
    sa.Column("group_name", sa.String(length=40), nullable=True),
    sa.Column("epoch", sa.Integer(), nullable=False),
    sa.Column("held_by", sa.String(length=40), nullable=True),
    sa.Column("held_epoch", sa.Integer(), nullable=True),
    sa.Column("generation", sa.Integer(), nullable=False),
    sa.Column("last_seq", sa.BigInteger(), nullable=False),
    sa.Column("discovered_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("game_key"),
)
sa.Table(
    "groups",
    metadata,
    sa.Column("name", sa.String(length=40), nullable=False),
    sa.Column("created_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("name"),
)
sa.Table(
    "ingest_gaps",
    metadata,
    sa.Column("gap_id", sa.Integer(), nullable=False),
    sa.Column("generation", sa.Integer(), nullable=False),
    sa.Column("source", sa.Text(), nullable=False),
    sa.Column("partition", sa.Integer(), nullable=True),
    sa.Column("first", sa.BigInteger(), nullable=False),
    sa.Column("last", sa.BigInteger(), nullable=True),
    sa.Column("reason", sa.String(length=16), nullable=False),
    sa.Column("actor", sa.String(length=255), nullable=False),
    sa.Column("accepted_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("gap_id"),
)
sa.Table(
    "ingest_generations",
    metadata,
    sa.Column("generation", sa.Integer(), nullable=False),
    sa.Column("source", sa.Text(), nullable=False),
    sa.Column("created_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("generation"),
    sa.UniqueConstraint("source"),
)
sa.Table(
    "ingest_identities",
    metadata,
    sa.Column("generation", sa.Integer(), autoincrement=False, nullable=False),
    sa.Column("source_id", sa.String(length=64), nullable=True),
    sa.Column("partitions", sa.Integer(), nullable=True),
    sa.Column("bronze_id", sa.String(length=64), nullable=False),
    sa.Column("since_seq", sa.BigInteger(), nullable=False),
    sa.Column("start", sa.Text(), nullable=True),
    sa.Column("actor", sa.String(length=255), nullable=True),
    sa.Column("recorded_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("generation"),
)
sa.Table(
    "leases",
    metadata,
    sa.Column("kind", sa.String(length=16), nullable=False),
    sa.Column("name", sa.String(length=40), nullable=False),
    sa.Column("host", sa.String(length=255), nullable=False),
    sa.Column("place", sa.String(length=128), nullable=True),
    sa.Column("pid", sa.Integer(), nullable=False),
    sa.Column("started", sa.BigInteger(), nullable=True),
    sa.Column("token", sa.String(length=32), nullable=False),
    sa.Column("epoch", sa.Integer(), nullable=False),
    sa.Column("since", sa.Float(), nullable=False),
    sa.Column("expires_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("kind", "name"),
)
sa.Table(
    "name_sketches",
    metadata,
    sa.Column("sketch_id", sa.Integer(), autoincrement=False, nullable=False),
    sa.Column("sketch", sa.Text(), nullable=False),
    sa.Column("written_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("sketch_id"),
)
sa.Table(
    "onboardings",
    metadata,
    sa.Column("onboarding_id", sa.Integer(), nullable=False),
    sa.Column("game_key", sa.String(length=64), nullable=False),
    sa.Column("game", sa.Text(), nullable=False),
    sa.Column("how", sa.String(length=16), nullable=False),
    sa.Column("prefix", sa.Text(), nullable=True),
    sa.Column("actor", sa.String(length=255), nullable=True),
    sa.Column("reason", sa.Text(), nullable=True),
    sa.Column("onboarded_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("onboarding_id"),
    sa.UniqueConstraint("game_key"),
)
sa.Table(
    "refused_names",
    metadata,
    sa.Column("game", sa.String(length=256), nullable=False),
    sa.Column("actor", sa.String(length=255), nullable=False),
    sa.Column("reason", sa.Text(), nullable=True),
    sa.Column("refused_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("game"),
)
sa.Table(
    "schemas",
    metadata,
    sa.Column("schema_id", sa.Integer(), nullable=False),
    sa.Column("fingerprint", sa.String(length=64), nullable=False),
    sa.Column("format", sa.String(length=16), nullable=False),
    sa.Column("message", sa.Text(), nullable=False),
    sa.Column("descriptor", sa.LargeBinary(), nullable=False),
    sa.Column("created_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("schema_id"),
    sa.UniqueConstraint("fingerprint"),
)
sa.Table(
    "streams",
    metadata,
    sa.Column("game_key", sa.String(length=64), nullable=False),
    sa.Column("group_name", sa.String(length=40), nullable=False),
    sa.Column("lane", sa.String(length=16), nullable=False),
    sa.Column("status", sa.String(length=16), nullable=False),
    sa.Column("status_since", sa.Float(), nullable=False),
    sa.Column("cursor_seq", sa.BigInteger(), nullable=False),
    sa.Column("last_commit_at", sa.Float(), nullable=True),
    sa.Column("backlog_age_seconds", sa.Float(), nullable=True),
    sa.Column("rows_per_second", sa.Float(), nullable=True),
    sa.Column("latency_p95_seconds", sa.Float(), nullable=True),
    sa.Column("rows_total", sa.BigInteger(), nullable=False),
    sa.Column("rejects_total", sa.BigInteger(), nullable=False),
    sa.Column("last_error", sa.Text(), nullable=True),
    sa.Column("updated_at", sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint("game_key"),
)
sa.Table(
    "registrations",
    metadata,
    sa.Column("registration_id", sa.Integer(), nullable=False),
    sa.Column("game_key", sa.String(length=64), nullable=False),
    sa.Column("game", sa.Text(), nullable=False),
    sa.Column("version", sa.Integer(), nullable=False),
    sa.Column("schema_id", sa.Integer(), nullable=False),
    sa.Column("created_at", sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(
        ["schema_id"],
        ["schemas.schema_id"],
    ),
    sa.PrimaryKeyConstraint("registration_id"),
    sa.UniqueConstraint("game_key", "version"),
)
sa.Index("ix_registrations_game_key", metadata.tables["registrations"].c.game_key)
sa.Table(
    "placements",
    metadata,
    sa.Column("registration_id", sa.Integer(), nullable=False),
    sa.Column("names", sa.Text(), nullable=False),
    sa.Column("quarantined", sa.Text(), nullable=True),
    sa.Column("policies", sa.Text(), nullable=False),
    sa.Column("plan_hash", sa.String(length=16), nullable=False),
    sa.ForeignKeyConstraint(
        ["registration_id"],
        ["registrations.registration_id"],
    ),
    sa.PrimaryKeyConstraint("registration_id"),
)


def upgrade() -> None:
    """Create what is missing: tables, and columns, which may all be null."""
    connection = op.get_bind()
    metadata.create_all(connection)
    there = sa.inspect(connection).get_multi_columns()
    for table in metadata.sorted_tables:
        known = {column["name"] for column in there[None, table.name]}
        for column in table.columns:
            if column.name not in known:
                spelled = CreateColumn(column).compile(connection)
                connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {spelled}"))
