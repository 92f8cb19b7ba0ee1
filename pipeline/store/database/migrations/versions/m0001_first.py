"""The control store of version 0.1: every table, with what its database refuses."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = None
branch_labels = None
depends_on = None

_STATUSES = (
    "RUNNING", "PAUSED", "STARTING", "BACKFILLING", "CATCHING_UP", "AT_RISK", "LAGGING", "UNKNOWN", "MISSING",
    "STALLED", "FAILED", "CRASH_LOOP",
)  # fmt: skip
_ON_SQLITE: dict[type, Any] = {sa.String: sa.Text(), sa.BigInteger: sa.Integer(), sa.Float: sa.REAL()}


def upgrade() -> None:
    """Create the tables; the audit log begins with an empty head."""
    _table(
        "games",
        sa.Column("game_key", sa.String(64), primary_key=True), sa.Column("game", sa.Text, nullable=False),
        sa.Column("group_name", sa.String(40)), sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("held_by", sa.String(40)), sa.Column("held_epoch", sa.Integer),
        sa.Column("generation", sa.Integer, nullable=False), sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("discovered_at", sa.Float, nullable=False),
        sa.Column("priority", sa.String(8), nullable=False, server_default="normal"),
        sa.Column("retired_at", sa.Float),
        allowed={"epoch": "> 0", "generation": "> 0", "last_seq": ">= 0", "priority": ("high", "normal", "low")},
    )  # fmt: skip
    _table(
        "stream_control",
        sa.Column("game_key", sa.String(64), primary_key=True), sa.Column("desired", sa.String(16), nullable=False),
        sa.Column("own_query", sa.Integer, nullable=False), sa.Column("parked_at", sa.Float),
        sa.Column("failures", sa.Integer, nullable=False), sa.Column("failure_class", sa.String(16)),
        sa.Column("evidence", sa.Text), sa.Column("failed_at", sa.Float),
        sa.Column("retry_at", sa.Float, nullable=False), sa.Column("requested_by", sa.Text),
        sa.Column("requested_at", sa.Float),
        allowed={
            "desired": ("running", "paused"), "own_query": "IN (0, 1)", "failures": ">= 0",
            "failure_class": ("expected", "transient", "poison", "fatal"),
        },
    )  # fmt: skip
    _table(
        "groups",
        sa.Column("name", sa.String(40), primary_key=True), sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("backend", sa.String(16), nullable=False, server_default="none"),
        sa.Column("desired", sa.String(16), nullable=False, server_default="running"),
        sa.Column("capacity_cores", sa.Float),
        sa.Column("priority", sa.String(8), nullable=False, server_default="normal"),
        sa.Column("spark_master", sa.Text), sa.Column("version", sa.Integer, nullable=False, server_default="1"),
        allowed={
            "backend": ("none", "local", "databricks"), "desired": ("running", "drained", "stopped"),
            "capacity_cores": "> 0",
            "priority": ("high", "normal", "low"), "version": "> 0",
        },
    )  # fmt: skip
    _table(
        "group_runs",
        sa.Column("run_id", sa.Integer, primary_key=True),
        sa.Column("group_name", sa.String(40), nullable=False, index=True), sa.Column("reference", sa.Text),
        sa.Column("started_at", sa.Float, nullable=False), sa.Column("stop_requested_at", sa.Float),
        sa.Column("ended_at", sa.Float), sa.Column("died", sa.Integer, nullable=False, server_default="0"),
        sa.Column("exit_message", sa.Text), sa.Column("active_games", sa.Text),
        sa.Column("kind", sa.String(16), nullable=False, server_default="group"),
        sa.Column("start_seconds", sa.Float, nullable=False, server_default="120"),
        sa.Column("backend", sa.String(16), nullable=False, server_default="local"),
        sa.Column("token", sa.String(32), nullable=False, server_default=""),
        allowed={"died": "IN (0, 1)", "backend": ("none", "local", "databricks")},
    )  # fmt: skip
    _table(
        "waiting_evacuations",
        sa.Column("group_name", sa.String(40), primary_key=True), sa.Column("games", sa.Integer, nullable=False),
        sa.Column("since", sa.Float, nullable=False), allowed={"games": ">= 0"},
    )  # fmt: skip
    _table(
        "drivers",
        sa.Column("kind", sa.String(16), primary_key=True), sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("pid", sa.Integer, nullable=False), sa.Column("host", sa.String(255), nullable=False),
        sa.Column("started_at", sa.Float, nullable=False), sa.Column("heartbeat_at", sa.Float, nullable=False),
        sa.Column("state", sa.String(16), nullable=False), sa.Column("error", sa.Text),
        sa.Column("metrics_address", sa.String(255)), sa.Column("frontier_seq", sa.BigInteger),
        sa.Column("reads_from", sa.BigInteger), sa.Column("run_id", sa.Integer),
        allowed={
            "pid": "BETWEEN 1 AND 2147483647",
            "state": ("starting", "running", "skewed", "failed", "stopped"),
        },
    )  # fmt: skip
    _table(
        "leases",
        sa.Column("kind", sa.String(16), primary_key=True), sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("host", sa.String(255), nullable=False), sa.Column("pid_namespace", sa.String(128)),
        sa.Column("pid", sa.Integer, nullable=False), sa.Column("started", sa.BigInteger),
        sa.Column("token", sa.String(32), nullable=False), sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("since", sa.Float, nullable=False), sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("run_id", sa.Integer),
        allowed={"pid": "BETWEEN 1 AND 2147483647", "epoch": "> 0"},
    )  # fmt: skip
    _table(
        "streams",
        sa.Column("game_key", sa.String(64), primary_key=True), sa.Column("group_name", sa.String(40), nullable=False),
        sa.Column("lane", sa.String(16), nullable=False), sa.Column("status", sa.String(16), nullable=False),
        sa.Column("status_since", sa.Float, nullable=False), sa.Column("cursor_seq", sa.BigInteger, nullable=False),
        sa.Column("last_commit_at", sa.Float), sa.Column("backlog_age_seconds", sa.Float),
        sa.Column("rows_per_second", sa.Float), sa.Column("latency_p95_seconds", sa.Float),
        sa.Column("rows_total", sa.BigInteger, nullable=False),
        sa.Column("rejects_total", sa.BigInteger, nullable=False), sa.Column("last_error", sa.Text),
        sa.Column("updated_at", sa.Float, nullable=False), sa.Column("bytes_per_second", sa.Float),
        sa.Column("commits_per_second", sa.Float), sa.Column("waits_for", sa.Text),
        sa.Column("refused", sa.Text), sa.Column("landed", sa.BigInteger), sa.Column("commit_mean_seconds", sa.Float),
        sa.Column("latency_p50_seconds", sa.Float), sa.Column("latency_p99_seconds", sa.Float),
        sa.Column("latency_p99_last_minute_seconds", sa.Float), sa.Column("queue_seconds", sa.Float),
        sa.Column("process_seconds", sa.Float), sa.Column("commit_seconds", sa.Float),
        sa.Column("upstream_seconds", sa.Float),
        allowed={
            "lane": ("RUN", "CATCHUP", "QUARANTINED", "PAUSED"), "status": _STATUSES, "cursor_seq": ">= 0",
            "rows_total": ">= 0", "rejects_total": ">= 0",
        },
    )  # fmt: skip
    _table(
        "bronze_commits",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("rows", sa.BigInteger, nullable=False), sa.Column("refused", sa.BigInteger, nullable=False),
        sa.Column("oldest_source_at", sa.Float), sa.Column("committed_at", sa.Float, nullable=False),
        sa.Column("read_since", sa.Float),
    )  # fmt: skip
    _table(
        "ingest_generations",
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("source", sa.Text, nullable=False, unique=True), sa.Column("created_at", sa.Float, nullable=False),
    )  # fmt: skip
    _identities()
    _table(
        "ingest_gaps",
        sa.Column("gap_id", sa.Integer, primary_key=True), sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("source", sa.Text, nullable=False), sa.Column("partition", sa.Integer),
        sa.Column("first", sa.BigInteger, nullable=False), sa.Column("last", sa.BigInteger),
        sa.Column("reason", sa.String(16), nullable=False), sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("accepted_at", sa.Float, nullable=False),
    )  # fmt: skip
    _table(
        "onboardings",
        sa.Column("onboarding_id", sa.Integer, primary_key=True),
        sa.Column("game_key", sa.String(64), nullable=False, unique=True), sa.Column("game", sa.Text, nullable=False),
        sa.Column("how", sa.String(16), nullable=False), sa.Column("prefix", sa.Text),
        sa.Column("actor", sa.String(255)), sa.Column("reason", sa.Text), sa.Column("rule", sa.Text),
        sa.Column("onboarded_at", sa.Float, nullable=False), allowed={"how": ("schema", "name", "prefix", "approval")},
    )  # fmt: skip
    _table(
        "onboarding_rules",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rules", sa.Text, nullable=False), sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False), sa.Column("applied_at", sa.Float, nullable=False),
        allowed={"number": "> 0"}, json={"rules": "array"},
    )  # fmt: skip
    _table(
        "refused_names",
        sa.Column("game", sa.String(256), primary_key=True), sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("reason", sa.Text), sa.Column("refused_at", sa.Float, nullable=False),
    )  # fmt: skip
    _table(
        "name_sketches",
        sa.Column("sketch_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("sketch", sa.Text, nullable=False), sa.Column("written_at", sa.Float, nullable=False),
    )  # fmt: skip
    _table(
        "definition_parts",
        sa.Column("digest", sa.LargeBinary, primary_key=True), sa.Column("content", sa.LargeBinary, nullable=False),
    )  # fmt: skip
    _table(
        "schemas",
        sa.Column("schema_id", sa.Integer, primary_key=True),
        sa.Column("fingerprint", sa.String(64), nullable=False, unique=True),
        sa.Column("format", sa.String(16), nullable=False), sa.Column("message", sa.Text, nullable=False),
        sa.Column("parts", sa.LargeBinary, nullable=False), sa.Column("created_at", sa.Float, nullable=False),
    )  # fmt: skip
    _table(
        "registrations",
        sa.Column("registration_id", sa.Integer, primary_key=True),
        sa.Column("game_key", sa.String(64), nullable=False, index=True), sa.Column("game", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("schema_id", sa.Integer, sa.ForeignKey("schemas.schema_id"), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False), sa.Column("actor", sa.Text),
        sa.Column("registry", sa.String(600)), sa.UniqueConstraint("game_key", "version"),
        allowed={"registry": "IS NULL OR actor IS NULL"},
    )  # fmt: skip
    _table(
        "placements",
        sa.Column("registration_id", sa.Integer, sa.ForeignKey("registrations.registration_id"), primary_key=True),
        sa.Column("names", sa.Text, nullable=False), sa.Column("quarantined", sa.Text),
        sa.Column("other_type", sa.Integer, nullable=False), sa.Column("continues", sa.Text),
        sa.Column("policies", sa.Text, nullable=False), sa.Column("plan_hash", sa.String(16), nullable=False),
        allowed={"other_type": "= 0 OR other_type = 1 AND quarantined IS NOT NULL"},
    )  # fmt: skip
    _table(
        "writers",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("registry", sa.String(600), nullable=False), sa.Column("writer", sa.LargeBinary, nullable=False),
        sa.Column("schema_id", sa.Integer, sa.ForeignKey("schemas.schema_id")), sa.Column("refused", sa.Text),
        sa.Column("indexed", sa.Integer, nullable=False), sa.Column("fingerprint", sa.String(64)),
        sa.Column("subject", sa.Text), sa.Column("version", sa.Integer),
        sa.Column("created_at", sa.Float, nullable=False), sa.UniqueConstraint("registry", "writer", "number"),
        allowed={
            "indexed": "IN (0, 1) AND indexed = CASE WHEN schema_id IS NULL AND refused IS NULL THEN 1 "
            "WHEN schema_id IS NULL OR refused IS NULL THEN 0 ELSE 2 END"
        },
    )  # fmt: skip
    _table(
        "profiles",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("fingerprint", sa.String(64), nullable=False, unique=True),
        sa.Column("definition", sa.Text, nullable=False), sa.Column("created_at", sa.Float, nullable=False),
        json={"definition": "object"},
    )  # fmt: skip
    _table(
        "registry_states",
        sa.Column("registry", sa.String(600), primary_key=True), sa.Column("state", sa.String(16), nullable=False),
        sa.Column("since", sa.Float, nullable=False), sa.Column("detail", sa.Text),
        sa.Column("checked_at", sa.Float, nullable=False), sa.Column("retry_at", sa.Float),
        allowed={"state": ("ok", "away", "mistrusted")},
    )  # fmt: skip
    _table(
        "schema_needs",
        sa.Column("registry", sa.String(600), primary_key=True), sa.Column("writer", sa.LargeBinary, primary_key=True),
        sa.Column("game_key", sa.String(64), primary_key=True), sa.Column("game", sa.Text, nullable=False),
        sa.Column("wanted_at", sa.Float, nullable=False), sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("pos", sa.Integer, nullable=False), sa.Column("asked_at", sa.Float),
        sa.Column("absences", sa.Integer, nullable=False), sa.Column("absent_since", sa.Float),
        sa.Column("answer", sa.Text), sa.Column("again", sa.Integer, nullable=False),
        sa.Column("reads_again_at", sa.Float),
        allowed={"absences": ">= 0", "again": "IN (0, 1)"},
    )  # fmt: skip
    _table(
        "operations",
        sa.Column("operation_id", sa.String(32), primary_key=True), sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("state", sa.String(16), nullable=False), sa.Column("targets", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False), sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.String(64), nullable=False, unique=True),
        sa.Column("preview", sa.Text, nullable=False), sa.Column("preview_hash", sa.String(16), nullable=False),
        sa.Column("undoes", sa.String(32)), sa.Column("outcome", sa.Text),
        sa.Column("requested_at", sa.Float, nullable=False), sa.Column("ended_at", sa.Float),
        sa.Column("stuck_since", sa.Float), sa.Column("version", sa.Integer, nullable=False),
        allowed={
            "state": ("planned", "running", "verifying", "needs_human", "succeeded", "failed", "cancelled"),
            "version": "> 0",
        },
        json={"targets": "array", "parameters": "object", "preview": "object"},
    )  # fmt: skip
    _table(
        "operation_steps",
        sa.Column("operation_id", sa.String(32), sa.ForeignKey("operations.operation_id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(40), nullable=False), sa.Column("state", sa.String(16), nullable=False),
        sa.Column("detail", sa.Text, nullable=False), sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float), allowed={"number": "> 0", "state": ("running", "done", "failed")},
    )  # fmt: skip
    _table(
        "operation_targets",
        sa.Column("target", sa.String(80), primary_key=True),
        sa.Column("operation_id", sa.String(32), sa.ForeignKey("operations.operation_id"), nullable=False),
    )  # fmt: skip
    _make_tables_of_access_and_logs()

    head = sa.table("audit_head", *(sa.column(name) for name in ("head_id", "day", "number", "at", "hash")))
    op.bulk_insert(head, [{"head_id": 0, "day": "", "number": 0, "at": 0.0, "hash": ""}])


def _make_tables_of_access_and_logs() -> None:
    _table(
        "entitlements",
        sa.Column("entitlement_id", sa.Integer, primary_key=True),
        sa.Column("principal", sa.Text, nullable=False, index=True),
        sa.Column("game_key", sa.String(64), nullable=False, index=True), sa.Column("expires_at", sa.Float),
        sa.Column("reason", sa.Text, nullable=False), sa.Column("ticket", sa.Text, nullable=False),
        sa.Column("table_id", sa.Text, nullable=False), sa.Column("principal_id", sa.Text, nullable=False),
        sa.Column("operation_id", sa.String(32), nullable=False),
        sa.Column("given_at", sa.Float, nullable=False), sa.Column("revoked_at", sa.Float),
        sa.Column("ended_at", sa.Float), sa.Column("ended_by", sa.String(32)),
    )  # fmt: skip
    _table(
        "access_items",
        sa.Column("operation_id", sa.String(32), sa.ForeignKey("operations.operation_id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("securable", sa.Text, nullable=False), sa.Column("principal", sa.Text, nullable=False),
        sa.Column("adds", sa.Text, nullable=False), sa.Column("removes", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False), sa.Column("message", sa.Text, nullable=False),
        sa.Column("changed_at", sa.Float, nullable=False),
        allowed={"number": "> 0", "state": ("planned", "applied", "observed", "unseen", "failed")},
    )  # fmt: skip
    _table(
        "access_change_sets",
        sa.Column("operation_id", sa.String(32), sa.ForeignKey("operations.operation_id"), primary_key=True),
        sa.Column("change_set", sa.Text, nullable=False),
    )  # fmt: skip
    _table(
        "managed_grants",
        sa.Column("securable", sa.String(1024), primary_key=True),
        sa.Column("principal", sa.String(1024), primary_key=True),
        sa.Column("privilege", sa.String(64), primary_key=True),
        sa.Column("operation_id", sa.String(32), nullable=False),
    )  # fmt: skip
    _table(
        "schema_requests",
        sa.Column("request_id", sa.String(32), primary_key=True), sa.Column("requester", sa.Text, nullable=False),
        sa.Column("game_key", sa.String(64), nullable=False), sa.Column("game", sa.Text, nullable=False),
        sa.Column("format", sa.String(16), nullable=False), sa.Column("message", sa.Text, nullable=False),
        sa.Column("definition", sa.LargeBinary, nullable=False), sa.Column("policies", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False), sa.Column("plan_hash", sa.String(16), nullable=False),
        sa.Column("continues", sa.Text),
        sa.Column("reason", sa.Text, nullable=False), sa.Column("state", sa.String(16), nullable=False),
        sa.Column("requested_at", sa.Float, nullable=False), sa.Column("decided_by", sa.Text),
        sa.Column("decision_reason", sa.Text), sa.Column("decided_at", sa.Float), sa.Column("version", sa.Integer),
        allowed={"state": ("asked", "approved", "rejected", "withdrawn")},
        json={"policies": "object", "plan": "array"},
    )  # fmt: skip
    _table(
        "access_requests",
        sa.Column("request_id", sa.String(32), primary_key=True), sa.Column("requester", sa.Text, nullable=False),
        sa.Column("intents", sa.Text, nullable=False), sa.Column("reason", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False), sa.Column("decided_by", sa.Text),
        sa.Column("decision_reason", sa.Text), sa.Column("operation_id", sa.String(32)),
        sa.Column("requested_at", sa.Float, nullable=False), sa.Column("decided_at", sa.Float),
        sa.Column("version", sa.Integer, nullable=False),
        allowed={"state": ("asked", "approved", "rejected", "withdrawn"), "version": "> 0"}, json={"intents": "array"},
    )  # fmt: skip
    _table(
        "ignored_drift",
        sa.Column("finding", sa.String(64), primary_key=True), sa.Column("mark", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False), sa.Column("actor", sa.Text, nullable=False),
        sa.Column("ignored_at", sa.Float, nullable=False), sa.Column("expires_at", sa.Float, nullable=False),
    )  # fmt: skip
    _table(
        "catalog_snapshots",
        sa.Column("snapshot_id", sa.Integer, primary_key=True, autoincrement=False), sa.Column("snapshot", sa.Text),
        sa.Column("read_at", sa.Float), sa.Column("drift", sa.Text), sa.Column("problem", sa.Text),
        sa.Column("tried_at", sa.Float, nullable=False),
    )  # fmt: skip
    _table(
        "role_members",
        sa.Column("group_name", sa.String(255), primary_key=True),
        sa.Column("principal", sa.String(255), primary_key=True), sa.Column("seen_at", sa.Float, nullable=False),
    )  # fmt: skip
    _table(
        "audit",
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float, nullable=False), sa.Column("actor", sa.Text, nullable=False),
        sa.Column("executor", sa.Text, nullable=False), sa.Column("action", sa.String(40), nullable=False),
        sa.Column("targets", sa.Text, nullable=False), sa.Column("operation_id", sa.String(32)),
        sa.Column("phase", sa.String(8), nullable=False), sa.Column("outcome", sa.String(16)),
        sa.Column("detail", sa.Text, nullable=False), sa.Column("hash", sa.String(64), nullable=False),
        allowed={"phase": ("begun", "ended")},
    )  # fmt: skip
    _table(
        "audit_head",
        sa.Column("head_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("day", sa.String(10), nullable=False), sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False), sa.Column("hash", sa.String(64), nullable=False),
    )  # fmt: skip
    _table(
        "maintenance_rounds",
        sa.Column("round_id", sa.Integer, primary_key=True), sa.Column("began_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float, nullable=False), sa.Column("ok", sa.Integer, nullable=False),
        sa.Column("tables", sa.Integer, nullable=False), sa.Column("failed_tables", sa.Integer, nullable=False),
        sa.Column("files_before", sa.BigInteger, nullable=False),
        sa.Column("files_after", sa.BigInteger, nullable=False), sa.Column("error", sa.Text),
        allowed={"ok": "IN (0, 1)"},
    )  # fmt: skip
    _table(
        "source_backlog",
        sa.Column("backlog_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("measured_at", sa.Float, nullable=False), sa.Column("age_seconds", sa.Float),
        sa.Column("peak_seconds", sa.Float), sa.Column("rows", sa.BigInteger),
        sa.Column("limit_seconds", sa.Float, nullable=False), sa.Column("reason", sa.Text),
        sa.Column("sources", sa.Text),
    )  # fmt: skip
    _incidents()


def _identities() -> None:
    """What the sources of ingest were when they were last looked at."""
    _table(
        "ingest_identities",
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("source_id", sa.String(64)), sa.Column("partitions", sa.Integer),
        sa.Column("bronze_id", sa.String(64), nullable=False), sa.Column("since_seq", sa.BigInteger, nullable=False),
        sa.Column("start", sa.Text), sa.Column("actor", sa.String(255)),
        sa.Column("recorded_at", sa.Float, nullable=False), sa.Column("source_clock", sa.String(16)),
    )  # fmt: skip
    _table(
        "ingest_parts",
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("source", sa.Text, primary_key=True), sa.Column("source_id", sa.String(64)),
        sa.Column("partitions", sa.Integer), sa.Column("source_clock", sa.String(16)),
    )  # fmt: skip


def _incidents() -> None:
    """Games with one cause at one time, and who judged them last."""
    _table(
        "incidents",
        sa.Column("incident_id", sa.String(32), primary_key=True), sa.Column("cause", sa.String(24), nullable=False),
        sa.Column("scope", sa.String(80), nullable=False), sa.Column("finding", sa.Text, nullable=False),
        sa.Column("games", sa.Text, nullable=False), sa.Column("group_name", sa.String(40)),
        sa.Column("since", sa.Float, nullable=False), sa.Column("joined_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float, index=True), sa.Column("outlook", sa.Text),
        sa.Column("tone", sa.String(16), nullable=False),
        allowed={
            "cause": (
                "control store", "source silent", "ingest behind", "driver gone", "driver slow", "storage", "schema",
                "waits for a registry", "poison data", "capacity", "operator", "access", "undetermined",
            ),
            "tone": ("bad", "late", "recovering"),
        },
        json={"finding": "object", "games": "array"},
    )  # fmt: skip
    _table(
        "incident_looks",
        sa.Column("look_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kept_by", sa.String(16), nullable=False), sa.Column("looked_at", sa.Float, nullable=False),
    )  # fmt: skip


def _table(
    name: str,
    *parts: Any,
    allowed: Mapping[str, str | tuple[str, ...]] | None = None,
    json: Mapping[str, str] | None = None,
) -> None:
    """Create a table with its checks: here and not shared, for this migration never changes."""
    checks, on_sqlite = [], op.get_bind().dialect.name == "sqlite"
    for column in (each for each in parts if isinstance(each, sa.Column)):
        if isinstance(column.type, sa.Float):
            finite = f"{column.name} BETWEEN -1000000000000000000 AND 1000000000000000000"
            checks.append(sa.CheckConstraint(finite, f"ck_{name}_{column.name}_finite"))
        if on_sqlite and type(column.type) in _ON_SQLITE:
            column.type = _ON_SQLITE[type(column.type)]
    for named, values in (allowed or {}).items():
        condition = values if isinstance(values, str) else "IN ({})".format(", ".join(f"'{each}'" for each in values))
        checks.append(sa.CheckConstraint(f"{named} {condition}", f"ck_{name}_{named}"))
    for named, kind in (json or {}).items():
        is_kind = (
            f"CASE WHEN json_valid({named}) THEN json_type({named}) = '{kind}' ELSE 0 END"
            if on_sqlite
            else f"json_typeof(CAST({named} AS json)) = '{kind}'"
        )
        checks.append(sa.CheckConstraint(is_kind, f"ck_{name}_{named}"))
    op.create_table(name, *parts, *checks, sqlite_strict=True)
