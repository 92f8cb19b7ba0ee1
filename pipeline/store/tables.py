"""The control store's tables. Times are Unix seconds (UTC); what is told here is never trusted for correctness."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

games = Table(  # every game found in bronze, with the group that carries it
    "games",
    metadata,
    Column("game_key", String(64), primary_key=True),
    Column("game", Text, nullable=False),  # the exact name; data, never part of a path or a statement
    Column("group_name", String(40)),  # null until a group exists
    Column("epoch", Integer, nullable=False, default=1),  # grows with every assignment
    Column("generation", Integer, nullable=False, default=1),
    Column("last_seq", BigInteger, nullable=False),  # the last bronze seq in which the game had rows
    Column("discovered_at", Float, nullable=False),
)

groups = Table(  # cluster groups that may carry games
    "groups",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("created_at", Float, nullable=False),
)

drivers = Table(  # running processes and their heartbeats
    "drivers",
    metadata,
    Column("kind", String(16), primary_key=True),  # ingest | group
    Column("name", String(40), primary_key=True),
    Column("pid", Integer, nullable=False),
    Column("host", String(255), nullable=False),
    Column("started_at", Float, nullable=False),
    Column("heartbeat_at", Float, nullable=False),
    Column("state", String(16), nullable=False),  # starting | running | failed | stopped
    Column("error", Text),  # why it failed; null when it did not
    Column("metrics_address", String(255)),
    Column("frontier_seq", BigInteger),  # the last bronze seq this driver has passed
)

streams = Table(  # observed state of each stream, written by the driver that carries it
    "streams",
    metadata,
    Column("game_key", String(64), primary_key=True),
    Column("group_name", String(40), nullable=False),
    Column("lane", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    Column("status_since", Float, nullable=False),
    Column("cursor_seq", BigInteger, nullable=False),
    Column("last_commit_at", Float),  # null before the first commit
    Column("backlog_age_seconds", Float),  # null when unknown
    Column("rows_per_second", Float),  # null when unknown
    Column("latency_p95_seconds", Float),  # null when nothing was committed in the window
    Column("rows_total", BigInteger, nullable=False),  # landed since the driver started
    Column("rejects_total", BigInteger, nullable=False),  # refused since the driver started
    Column("last_error", Text),
    Column("updated_at", Float, nullable=False),
)

bronze_commits = Table(  # the newest bronze commits: how old is a backlog, how long took ingest
    "bronze_commits",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("rows", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Column("oldest_source_at", Float),  # null when the source does not tell
    Column("committed_at", Float, nullable=False),
)

ingest_generations = Table(  # one per source that was ever ingested: each has a checkpoint of its own
    "ingest_generations",
    metadata,
    Column("generation", Integer, primary_key=True),
    Column("source", Text, nullable=False, unique=True),  # what it reads, as one line
    Column("created_at", Float, nullable=False),
)

schemas = Table(  # payload schemas; equal definitions share one id
    "schemas",
    metadata,
    Column("schema_id", Integer, primary_key=True),
    Column("fingerprint", String(64), nullable=False, unique=True),
    Column("format", String(16), nullable=False),  # protobuf
    Column("message", Text, nullable=False),  # full name of the message
    Column("descriptor", LargeBinary, nullable=False),  # a serialised FileDescriptorSet
    Column("created_at", Float, nullable=False),
)

registrations = Table(  # which schemas a game may use, in order; append-only, its ids number the schema sets
    "registrations",
    metadata,
    Column("registration_id", Integer, primary_key=True),
    Column("game_key", String(64), nullable=False, index=True),
    Column("game", Text, nullable=False),
    Column("version", Integer, nullable=False),  # 1, 2, … per game
    Column("schema_id", Integer, ForeignKey("schemas.schema_id"), nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("game_key", "version"),
    UniqueConstraint("game_key", "schema_id"),
)
