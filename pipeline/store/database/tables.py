"""The control store's tables. Times are Unix seconds (UTC); what is reported here is never trusted for correctness."""

from typing import Final, get_args

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Integer, LargeBinary, String, Text, UniqueConstraint

from listeners.sample import Lane, StreamState
from listeners.status import STATUSES
from pipeline.store.backends import BACKENDS
from pipeline.store.database.checked_table import applied_sets, columns_of, store_table
from pipeline.store.database.states import (
    PRIORITIES,
    AccessItemState,
    AuditPhase,
    Desired,
    FailureClass,
    OnboardedBy,
    OperationState,
    ProcessState,
    RegistryState,
    RequestState,
    StepState,
    StreamDesired,
)
from pipeline.store.rows import RuleTable

_FLAG: Final = "IN (0, 1)"
_PID: Final = f"BETWEEN 1 AND {(1 << 31) - 1}"

games = store_table(  # every game found in bronze, with the group that carries it
    "games",
    Column("game_key", String(64), primary_key=True),
    Column("game", Text, nullable=False),  # the exact name; data, never part of a path or a statement
    Column("group_name", String(40)),  # null until a group exists
    Column("epoch", Integer, nullable=False, default=1),  # grows with every assignment
    Column("held_by", String(40)),  # the group whose driver carries it, until that lets it go; null: none does
    Column("held_epoch", Integer),  # of that driver's lease
    Column("generation", Integer, nullable=False, default=1),
    Column("last_seq", BigInteger, nullable=False),  # the last bronze seq in which the game had rows
    Column("discovered_at", Float, nullable=False),
    Column("priority", String(8), nullable=False, server_default="normal"),  # high | normal | low
    Column("retired_at", Float),  # null: it is not; a retired game's rows stay in bronze, and no group carries it
    allowed={"epoch": "> 0", "generation": "> 0", "last_seq": ">= 0", "priority": PRIORITIES},
)

stream_control = store_table(  # what people and failures have decided about a stream; no row: it runs in the pass
    "stream_control",
    Column("game_key", String(64), primary_key=True),
    Column("desired", String(16), nullable=False),  # running | paused
    Column("own_query", Integer, nullable=False),  # 1: the game has a query of its own
    Column("parked_at", Float),  # null: not parked
    Column("failures", Integer, nullable=False),  # in a row
    Column("failure_class", String(16)),  # of the last failure
    Column("evidence", Text),  # what failed, with the rows it was about
    Column("failed_at", Float),
    Column("retry_at", Float, nullable=False),
    Column("stopped_by", String(32)),  # the rules of an output contract that parked it; null: none did
    Column("requested_by", Text),  # who last requested a pause, a retry or an own query
    Column("requested_at", Float),
    allowed={
        "desired": get_args(StreamDesired),
        "own_query": _FLAG,
        "failures": ">= 0",
        "failure_class": get_args(FailureClass),
    },
)

groups = store_table(  # cluster groups that may carry games
    "groups",
    Column("name", String(40), primary_key=True),
    Column("created_at", Float, nullable=False),
    Column("backend", String(16), nullable=False, server_default="none"),  # none: turnout does not start it | local
    Column("desired", String(16), nullable=False, server_default="running"),  # running | drained | stopped
    Column("capacity_cores", Float),  # null: not limited
    Column("priority", String(8), nullable=False, server_default="normal"),  # the games it is for: high | normal | low
    Column("spark_master", Text),  # null: the setting's
    Column("version", Integer, nullable=False, server_default="1"),  # grows with every change of its settings
    allowed={
        "backend": tuple(BACKENDS),
        "desired": get_args(Desired),
        "capacity_cores": "> 0",
        "priority": PRIORITIES,
        "version": "> 0",
    },
)

group_runs = store_table(  # processes that the controller has started: drivers of groups, and maintenance
    "group_runs",
    Column("run_id", Integer, primary_key=True),
    Column("group_name", String(40), nullable=False, index=True),
    Column("reference", Text),  # by which its backend finds it again; null: it is being started
    Column("started_at", Float, nullable=False),  # by the store's clock, as all times here
    Column("stop_requested_at", Float),
    Column("ended_at", Float),
    Column("died", Integer, nullable=False, server_default="0"),  # 1: it ended without having been asked to
    Column("exit_message", Text),  # how it ended
    Column("active_games", Text),  # JSON: the games it was at work on when it died; null: nobody knows
    Column("kind", String(16), nullable=False, server_default="group"),  # group | maintenance, whose name is main
    Column("start_seconds", Float, nullable=False, server_default="120"),  # its driver's limit to report
    Column("backend", String(16), nullable=False, server_default="local"),  # what starts it
    Column("token", String(32), nullable=False, server_default=""),  # its own, in whatever store: ids may come again
    allowed={"died": _FLAG, "backend": tuple(BACKENDS)},
)

waiting_evacuations = store_table(  # dead groups with games that cannot go
    "waiting_evacuations",
    Column("group_name", String(40), primary_key=True),
    Column("games", Integer, nullable=False),
    Column("since", Float, nullable=False),  # by the store's clock
    allowed={"games": ">= 0"},
)

drivers = store_table(  # running processes and their heartbeats
    "drivers",
    Column("kind", String(16), primary_key=True),  # ingest, group … or one of another plane
    Column("name", String(40), primary_key=True),
    Column("pid", Integer, nullable=False),
    Column("host", String(255), nullable=False),
    Column("started_at", Float, nullable=False),
    Column("heartbeat_at", Float, nullable=False),
    Column("state", String(16), nullable=False),  # starting | running | failed | stopped
    Column("error", Text),  # why it failed; null when it did not
    Column("metrics_address", String(255)),
    Column("frontier_seq", BigInteger),  # the last bronze seq this driver has passed
    Column("reads_from", BigInteger),  # the version of bronze that its queries read next; null: it has not said
    Column("run_id", Integer),  # the run of `group_runs` that it is; null: no controller started or adopted it
    Column("news_at", Float),  # when its streams were reported before their time, as rows are refused; null: never
    allowed={"pid": _PID, "state": get_args(ProcessState)},
)

leases = store_table(  # which process should be each driver; its times are of the store's clock
    "leases",
    Column("kind", String(16), primary_key=True),  # ingest, group … or one of another plane
    Column("name", String(40), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("pid_namespace", String(128)),  # where its pid means this process; null: nobody knows
    Column("pid", Integer, nullable=False),
    Column("started", BigInteger),  # in ticks since the machine's boot; null: nobody knows
    Column("token", String(32), nullable=False),  # the holder's own
    Column("epoch", Integer, nullable=False),  # grows with every new holder
    Column("since", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("run_id", Integer),  # as in `drivers`
    allowed={"pid": _PID, "epoch": "> 0"},
)

streams = store_table(  # the `StreamState` of each stream, written by the driver that carries it
    "streams",
    Column("game_key", String(64), primary_key=True),
    Column("group_name", String(40), nullable=False),
    Column("lane", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    *columns_of(StreamState, besides={"game_key", "group", "lane", "status"}),
    allowed={
        "lane": tuple(Lane),
        "status": STATUSES,
        "cursor_seq": ">= 0",
        "rows_total": ">= 0",
        "rejects_total": ">= 0",
    },
)

bronze_commits = store_table(  # the newest bronze commits: how old is a backlog, how long took ingest
    "bronze_commits",
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("rows", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Column("oldest_source_at", Float),  # null when the source does not tell
    Column("committed_at", Float, nullable=False),
    Column("read_since", Float),  # source rows from before waited for ingest's start; null when unknown
)

ingest_generations = store_table(  # one per source that was ever ingested: each has a checkpoint of its own
    "ingest_generations",
    Column("generation", Integer, primary_key=True),
    Column("source", Text, nullable=False, unique=True),  # what it reads, as one line
    Column("created_at", Float, nullable=False),
)

ingest_identities = (
    store_table(  # what each generation's source was when it was last looked at, before anything was read
        "ingest_identities",
        Column("generation", Integer, primary_key=True, autoincrement=False),
        Column("source_id", String(64)),  # of the topic or the landing table; null: it could not be looked at
        Column("partitions", Integer),  # of the topic; null for a landing table
        Column("bronze_id", String(64), nullable=False),
        Column("since_seq", BigInteger, nullable=False),  # the generation's rows have a larger seq
        Column("start", Text),  # where it begins, JSON; null: where Spark takes source.starting_offsets to be
        Column("actor", String(255)),  # who adopted the source; null for a first start
        Column("recorded_at", Float, nullable=False),
        Column("source_clock", String(16)),  # whose time records have: broker | producer | landing; null: not known
    )
)

ingest_parts = store_table(  # of a generation that reads several sources: what each was when it was last looked at
    "ingest_parts",
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("source", Text, primary_key=True),  # as one line
    Column("source_id", String(64)),
    Column("partitions", Integer),
    Column("source_clock", String(16)),
)

ingest_gaps = store_table(  # what a source had lost unread when an operator let ingest go on without it; append-only
    "ingest_gaps",
    Column("gap_id", Integer, primary_key=True),
    Column("generation", Integer, nullable=False),  # the one that goes on behind the gap
    Column("source", Text, nullable=False),
    Column("partition", Integer),  # null for a landing table
    Column("first", BigInteger, nullable=False),  # offset, or commit of the landing table
    Column("last", BigInteger),  # null: nobody can know how far it went
    Column("reason", String(16), nullable=False),  # recreated | retention | partitions | truncated | rewritten
    Column("actor", String(255), nullable=False),
    Column("accepted_at", Float, nullable=False),
)

onboardings = (
    store_table(  # names that became games, in order; append-only, its ids number the sets of games ingest knows
        "onboardings",
        Column("onboarding_id", Integer, primary_key=True),
        Column("game_key", String(64), nullable=False, unique=True),  # so no key ever belongs to two names
        Column("game", Text, nullable=False),
        Column("how", String(16), nullable=False),  # schema | name | prefix | approval
        Column("prefix", Text),  # the allowed prefix; null unless `how` is prefix
        Column("actor", String(255)),  # who approved it; null unless `how` is approval
        Column("reason", Text),  # why it was approved
        Column("rule", Text),  # the onboarding rule that its name matched then; null: none did
        Column("onboarded_at", Float, nullable=False),
        allowed={"how": get_args(OnboardedBy)},
    )
)

onboarding_rules = applied_sets("onboarding_rules", "rules")  # see `pipeline/store/onboarding_rules.py`

game_proposals = store_table(  # names that people propose as games before their first record; one that is decided goes
    "game_proposals",
    Column("game_key", String(64), primary_key=True),
    Column("game", Text, nullable=False),
    Column("events_per_second", Float),  # expected; null: nobody said
    Column("group_name", String(40)),  # null: placement chooses
    Column("priority", String(8)),  # null: its rule's
    Column("readers", Text, nullable=False),  # JSON: principals of the catalog
    Column("format", String(16)),  # of its schema; null with the next two: none is given
    Column("message", Text),
    Column("definition", LargeBinary),
    Column("proposed_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("proposed_at", Float, nullable=False),
    allowed={"events_per_second": ">= 0", "priority": PRIORITIES},
    json={"readers": "array"},
)

wanted_readers = store_table(  # who is to read a game's table from its onboarding on; granted by an operation of access
    "wanted_readers",
    Column("game_key", String(64), primary_key=True),
    Column("principal", String(255), primary_key=True),
    Column("reason", Text, nullable=False),
    Column("authorised_by", Text, nullable=False),  # the access admin who applied the rule, or approved the game
    Column("operation_id", String(32), nullable=False),  # which onboarded the game
    Column("wanted_at", Float, nullable=False),
    Column("access_operation_id", String(32)),  # which grants it; empty: the catalog had it already; null: none yet
    Column("problem", Text),  # why it could not be submitted at the last try; null: it was not tried, or could be
)

kept_views = store_table(  # games whose event types have flat views in the catalog, made and dropped by the controller
    "kept_views",
    Column("game_key", String(64), primary_key=True),
    Column("wanted", Integer, nullable=False),  # 0: those that are left are to be dropped
    Column("made", Text, nullable=False),  # JSON: a hash of each view's statement, by its name
    Column("problem", Text),  # why the last attempt failed; null: it did not
    allowed={"wanted": "IN (0, 1)"},
    json={"made": "object"},
)

refused_names = store_table(  # names that must not become games until an operator approves them
    "refused_names",
    Column("game", String(256), primary_key=True),
    Column("actor", String(255), nullable=False),
    Column("reason", Text),
    Column("refused_at", Float, nullable=False),
)

name_sketches = store_table(  # one row: the bounded sketch of the names that came and are no games
    "name_sketches",
    Column("sketch_id", Integer, primary_key=True, autoincrement=False),
    Column("sketch", Text, nullable=False),  # JSON, see `pipeline/data/ingest/name_sketch.py`
    Column("written_at", Float, nullable=False),
)

definition_parts = store_table(  # what definitions consist of, such as one message: each once, whichever has it
    "definition_parts",
    Column("digest", LargeBinary, primary_key=True),  # SHA-256 of the content
    Column("content", LargeBinary, nullable=False),
)

schemas = store_table(  # payload schemas; equal definitions share one id
    "schemas",
    Column("schema_id", Integer, primary_key=True),
    Column("fingerprint", String(64), nullable=False, unique=True),
    Column("format", String(16), nullable=False),  # protobuf
    Column("message", Text, nullable=False),  # full name of the message
    Column("parts", LargeBinary, nullable=False),  # the digests of its canonical definition's parts, in order
    Column("created_at", Float, nullable=False),
)

registrations = store_table(  # which schemas a game may use, in order; append-only, numbered with writers and profiles
    "registrations",
    Column("registration_id", Integer, primary_key=True),
    Column("game_key", String(64), nullable=False, index=True),
    Column("game", Text, nullable=False),
    Column("version", Integer, nullable=False),  # 1, 2, … per game
    Column("schema_id", Integer, ForeignKey("schemas.schema_id"), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("actor", Text),  # who registered it; null: nobody, as the schema came from a registry or a simulation
    Column("registry", String(600)),  # the generation of the registry that it came from; null: from no registry
    UniqueConstraint("game_key", "version"),
    allowed={"registry": "IS NULL OR actor IS NULL"},
)

placements = store_table(  # what a registration chose; no row means that each field lies in the column of its name
    "placements",
    Column("registration_id", Integer, ForeignKey("registrations.registration_id"), primary_key=True),
    Column("names", Text, nullable=False),  # JSON: the path of each field that lies elsewhere, and its column
    Column("quarantined", Text),  # why rows of the schema go to quarantine; null: they land
    Column("other_type", Integer, nullable=False),  # 1: as their event type is not the game's
    Column("continues", Text),  # the event type that was renamed to the schema's, as a person or an alias says
    Column("struct", Text),  # the column of its event type's fields; null: they are columns of the table
    Column("policies", Text, nullable=False),  # JSON: the policies that were requested
    Column("plan_hash", String(16), nullable=False),  # of the plan that was shown and applied
    allowed={"other_type": "= 0 OR other_type = 1 AND quarantined IS NOT NULL"},
)

variations = store_table(  # what documents that nobody declared had beyond those before them: paths and kinds, no value
    "variations",
    Column("game_key", String(64), primary_key=True),
    Column("type", String(256), primary_key=True),  # the event type; empty: its profile has no path for one
    Column("fingerprint", String(16), primary_key=True),  # of all its facts, also of those that `form` leaves out
    Column("form", Text, nullable=False),  # a line for each fact, at most 4 KiB, see `pipeline/store/variations.py`
    Column("facts", Integer, nullable=False),  # how many it has
    Column("first_seq", BigInteger, nullable=False),  # with first_pos, the place in bronze of its first document
    Column("first_pos", Integer, nullable=False),
    Column("first_seen", Float, nullable=False),  # when bronze had that document
    Column("last_seen", Float, nullable=False),  # this and the next are statistics
    Column("count", BigInteger, nullable=False),
    Column("schema_id", Integer, ForeignKey("schemas.schema_id"), nullable=False),  # that of the columns it opened
    Column("producer", String(255)),  # of its first document; null: not known
    allowed={"facts": "> 0", "first_seq": ">= 0", "first_pos": ">= 0", "count": "> 0"},
)

writers = store_table(  # what registries answered; append-only, the newest row of a writer counts
    "writers",
    Column("number", Integer, primary_key=True, autoincrement=False),  # of one sequence with registrations and profiles
    Column("registry", String(600), nullable=False),  # a key of its answers, such as main, main.2 or main:acme.Event
    Column("writer", LargeBinary, nullable=False),  # its id as on the wire, then the index path where it has one
    Column("schema_id", Integer, ForeignKey("schemas.schema_id")),  # null: refused or indexed
    Column("refused", Text),  # why its rows go to quarantine; null: they do not
    Column("indexed", Integer, nullable=False),  # 1: an index path follows the id, and both together are a writer
    Column("fingerprint", String(64)),  # of what the registry answered; null: it gave no usable schema
    Column("subject", Text),  # in which the registry counts this schema's versions; null: it does not tell
    Column("version", Integer),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("registry", "writer", "number"),
    allowed={
        "indexed": "IN (0, 1) AND indexed = CASE WHEN schema_id IS NULL AND refused IS NULL THEN 1 "
        "WHEN schema_id IS NULL OR refused IS NULL THEN 0 ELSE 2 END"
    },
)

profiles = store_table(  # how sources route and pack their records; append-only
    "profiles",
    Column("number", Integer, primary_key=True, autoincrement=False),  # of one sequence with registrations and writers
    Column("fingerprint", String(64), nullable=False, unique=True),  # of the definition, too long for an index
    Column("definition", Text, nullable=False),  # JSON, see `pipeline/data/contracts/profile.py`
    Column("created_at", Float, nullable=False),
    json={"definition": "object"},
)

# See `pipeline/data/output_contracts/rules.py`; its number is of one sequence with the three tables before.
output_contracts = applied_sets("output_contracts", "contracts")

edge_producers = applied_sets("edge_producers", "producers")  # see `pipeline/store/edge_producers.py`

derived_streams = applied_sets("derived_streams", "definitions")  # see `pipeline/data/derived/definitions.py`

rule_tables = store_table(  # see `pipeline/data/derived/rule_tables.py`; no row is removed whose table was made
    "rule_tables", Column("name", String(100), primary_key=True), *columns_of(RuleTable, ("name",))
)

registry_states = store_table(  # how registries of others answered last; no row: nobody asked yet
    "registry_states",
    Column("registry", String(600), primary_key=True),  # a generation of it
    Column("state", String(16), nullable=False),  # ok | away | mistrusted
    Column("since", Float, nullable=False),
    Column("detail", Text),  # one sentence; null where it is ok
    Column("checked_at", Float, nullable=False),
    Column("retry_at", Float),  # when it is asked again; null: when a row needs it
    allowed={"state": get_args(RegistryState)},
)

schema_needs = store_table(  # what games wait for; a row goes when it is answered
    "schema_needs",
    Column("registry", String(600), primary_key=True),
    Column("writer", LargeBinary, primary_key=True),
    Column("game_key", String(64), primary_key=True),
    Column("game", Text, nullable=False),
    Column("wanted_at", Float, nullable=False),  # when it was first reported
    Column("seq", BigInteger, nullable=False),  # with pos, the place of the first row that needs it
    Column("pos", Integer, nullable=False),
    Column("asked_at", Float),  # when its registry answered last; null: it has not yet
    Column("absences", Integer, nullable=False),  # answers that the registry has no such schema
    Column("absent_since", Float),  # the first of them
    Column("answer", Text),  # the last answer, one sentence
    Column("again", Integer, nullable=False),  # 1: the registry is asked even where the writer is refused
    Column("reads_again_at", Float),  # when it was answered, and the game's rows must say which message they are
    allowed={"absences": ">= 0", "again": _FLAG},
)

operations = store_table(  # what people requested, and how far it is
    "operations",
    Column("operation_id", String(32), primary_key=True),
    Column("kind", String(24), nullable=False),
    Column("state", String(16), nullable=False),  # see `pipeline/store/operations.py`
    Column("targets", Text, nullable=False),  # JSON: what it is about, each an id such as game:KEY or group:NAME
    Column("parameters", Text, nullable=False),  # JSON
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),  # empty where none was required
    Column("idempotency_key", String(64), nullable=False, unique=True),  # asked twice under it, it is one operation
    Column("preview", Text, nullable=False),  # JSON: what the actor was shown
    Column("preview_hash", String(16), nullable=False),
    Column("undoes", String(32)),  # the operation this is the inverse of
    Column("outcome", Text),  # one sentence; null before there is one
    Column("requested_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("stuck_since", Float),  # when it began to need a person; null: it needs none
    Column("version", Integer, nullable=False),  # grows with every change: each is a compare-and-set on it
    allowed={"state": tuple(OperationState), "version": "> 0"},
    json={"targets": "array", "parameters": "object", "preview": "object"},
)

operation_steps = store_table(  # the journal of each operation
    "operation_steps",
    Column("operation_id", String(32), ForeignKey("operations.operation_id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # from 1
    Column("name", String(40), nullable=False),
    Column("state", String(16), nullable=False),  # running | done | failed
    Column("detail", Text, nullable=False),  # one sentence
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    allowed={"number": "> 0", "state": get_args(StepState)},
)

operation_targets = store_table(  # what open operations are about: one operation at a time for each
    "operation_targets",
    Column("target", String(80), primary_key=True),
    Column("operation_id", String(32), ForeignKey("operations.operation_id"), nullable=False),
)

entitlements = store_table(  # who was given a game's table to read through us; ended ones stay
    "entitlements",
    Column("entitlement_id", Integer, primary_key=True),
    Column("principal", Text, nullable=False, index=True),  # as the catalog spells it
    Column("game_key", String(64), nullable=False, index=True),
    Column("expires_at", Float),  # null: it does not expire
    Column("reason", Text, nullable=False),
    Column("ticket", Text, nullable=False),  # empty where there is none
    Column("table_id", Text, nullable=False),  # of the catalog; a table with another one was created again
    Column("principal_id", Text, nullable=False),  # of the directory; another id under that name is another person
    Column("operation_id", String(32), nullable=False),  # which gave it
    Column("given_at", Float, nullable=False),
    Column("revoked_at", Float),  # the catalog took a revoke then, which no read has shown yet; null: it did not
    Column("ended_at", Float),  # null: it holds
    Column("ended_by", String(32)),  # the operation that took it
)

access_items = store_table(  # each request to the catalog that an operation makes, in their order
    "access_items",
    Column("operation_id", String(32), ForeignKey("operations.operation_id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # from 1
    Column("securable", Text, nullable=False),  # full name
    Column("principal", Text, nullable=False),
    Column("adds", Text, nullable=False),  # JSON: privileges
    Column("removes", Text, nullable=False),  # JSON: privileges
    Column("state", String(16), nullable=False),  # see `grants/applying/ledger.py`
    Column("message", Text, nullable=False),  # one sentence; empty before there is one
    Column("changed_at", Float, nullable=False),
    allowed={"number": "> 0", "state": get_args(AccessItemState)},
)

access_change_sets = store_table(  # what an operation does about access, so that it can be undone
    "access_change_sets",
    Column("operation_id", String(32), ForeignKey("operations.operation_id"), primary_key=True),
    Column("change_set", Text, nullable=False),  # JSON, see `grants/applying/ledger.py`
)

managed_grants = store_table(  # what the catalog holds because of us; what is not here, turnout does not take
    "managed_grants",
    Column("securable", String(1024), primary_key=True),  # full name
    Column("principal", String(1024), primary_key=True),  # folded, which can be longer than as it is spelled
    Column("privilege", String(64), primary_key=True),
    Column("operation_id", String(32), nullable=False),
)

schema_requests = store_table(  # registrations that wait for a second person, and what was decided
    "schema_requests",
    Column("request_id", String(32), primary_key=True),
    Column("requester", Text, nullable=False),
    Column("game_key", String(64), nullable=False),
    Column("game", Text, nullable=False),
    Column("format", String(16), nullable=False),
    Column("message", Text, nullable=False),  # full name
    Column("definition", LargeBinary, nullable=False),  # as it was given; empty once it is decided
    Column("policies", Text, nullable=False),  # JSON
    Column("plan", Text, nullable=False),  # JSON: the lines that the requester was shown
    Column("plan_hash", String(16), nullable=False),  # approved is this plan and no other one
    Column("continues", Text),  # the event type that was renamed to this one, as the requester says
    Column("new_type", Integer, nullable=False),  # 1: the requester accepts its event type as a further one
    Column("reason", Text, nullable=False),
    Column("state", String(16), nullable=False),  # asked | approved | rejected | withdrawn
    Column("requested_at", Float, nullable=False),
    Column("decided_by", Text),
    Column("decision_reason", Text),
    Column("decided_at", Float),
    Column("version", Integer),  # of the game, which came of it; null unless it was approved
    allowed={"state": get_args(RequestState), "new_type": "IN (0, 1)"},
    json={"policies": "object", "plan": "array"},
)

access_requests = store_table(  # what people request from an access admin
    "access_requests",
    Column("request_id", String(32), primary_key=True),
    Column("requester", Text, nullable=False),
    Column("intents", Text, nullable=False),  # JSON
    Column("reason", Text, nullable=False),
    Column("state", String(16), nullable=False),  # asked | approved | rejected | withdrawn
    Column("decided_by", Text),
    Column("decision_reason", Text),
    Column("operation_id", String(32)),  # what came of it
    Column("requested_at", Float, nullable=False),
    Column("decided_at", Float),
    Column("version", Integer, nullable=False),
    allowed={"state": get_args(RequestState), "version": "> 0"},
    json={"intents": "array"},
)

ignored_drift = store_table(  # findings that an access admin has decided to leave
    "ignored_drift",
    Column("finding", String(64), primary_key=True),  # SHA-256 of its mark
    Column("mark", Text, nullable=False),  # see `grants/planning/drift.py`
    Column("reason", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("ignored_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),  # from then on the finding is open again
)

catalog_snapshots = store_table(  # one row: the catalog as the controller last read it
    "catalog_snapshots",
    Column("snapshot_id", Integer, primary_key=True, autoincrement=False),
    Column("snapshot", Text),  # JSON, see `grants/observing/snapshot.py`; null: it was never read
    Column("read_at", Float),
    Column("drift", Text),  # JSON: the findings in it that nobody ignores, by class; null: not known
    Column("problem", Text),  # why the newest attempt failed; null: it did not
    Column("tried_at", Float, nullable=False),
)

role_members = store_table(  # who is in the groups that the settings give roles to, as the catalog last reported
    "role_members",
    Column("group_name", String(255), primary_key=True),
    Column("principal", String(255), primary_key=True),  # empty: a row that only tells when the group was looked at
    Column("seen_at", Float, nullable=False),
)

audit = store_table(  # who did what; append-only, each entry bound to the one before by its hash
    "audit",
    Column("day", String(10), primary_key=True),  # of the store's clock, UTC
    Column("number", Integer, primary_key=True, autoincrement=False),  # 1, 2, ... within the day
    Column("at", Float, nullable=False),  # by the store's clock
    Column("actor", Text, nullable=False),  # the person
    Column("executor", Text, nullable=False),  # the process that did it for them
    Column("action", String(40), nullable=False),
    Column("targets", Text, nullable=False),  # JSON
    Column("operation_id", String(32)),  # null: it was none
    Column("phase", String(8), nullable=False),  # begun | ended
    Column("outcome", String(16)),  # null where it has only begun
    Column("detail", Text, nullable=False),  # JSON
    Column("hash", String(64), nullable=False),
    allowed={"phase": get_args(AuditPhase)},
)

audit_head = store_table(  # one row: the newest entry; the writer of the next one holds it
    "audit_head",
    Column("head_id", Integer, primary_key=True, autoincrement=False),
    Column("day", String(10), nullable=False),
    Column("number", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("hash", String(64), nullable=False),
)
