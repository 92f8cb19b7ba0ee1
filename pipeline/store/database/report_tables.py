"""The control store's tables of reports beside heartbeats, of closed days, and of incidents; as in `tables.py`.

What people decided about derived streams stands beside the reports about them. So does what the controller saw of each
target of an operation.
"""

from typing import get_args

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Integer, String, Text

from pipeline.store.database.checked_table import columns_of, store_table
from pipeline.store.database.states import Cause, IncidentTone, RequestState
from pipeline.store.rows import DerivedControl, DerivedState

maintenance_rounds = store_table(  # how the rounds of the last weeks went
    "maintenance_rounds",
    Column("round_id", Integer, primary_key=True),
    Column("began_at", Float, nullable=False),  # by the store's clock
    Column("ended_at", Float, nullable=False),
    Column("ok", Integer, nullable=False),  # 1: no table failed
    Column("tables", Integer, nullable=False),
    Column("failed_tables", Integer, nullable=False),
    Column("files_before", BigInteger, nullable=False),  # of all tables
    Column("files_after", BigInteger, nullable=False),
    Column("error", Text),  # of the tables that failed; null: none did
    allowed={"ok": "IN (0, 1)"},
)

operation_events = store_table(  # how far each target of an operation came: of several, each by itself
    "operation_events",
    Column("operation_id", String(32), ForeignKey("operations.operation_id"), primary_key=True),
    Column("target", String(80), primary_key=True),
    Column("name", String(40), primary_key=True),  # as the step's that is over for this target
    Column("detail", Text, nullable=False),  # one sentence
    Column("at", Float, nullable=False),  # when it was seen, by the store's clock
)

derived_states = store_table(  # how drivers carry derived streams; no row: none has yet
    "derived_states", Column("name", String(100), primary_key=True), *columns_of(DerivedState, ("name",))
)

derived_control = store_table(  # also of streams that are not in force: a pause outlives the leave of a rule's table
    "derived_control", Column("name", String(100), primary_key=True), *columns_of(DerivedControl, ("name",))
)

source_backlog = store_table(  # one row: what waits in the source
    "source_backlog",
    Column("backlog_id", Integer, primary_key=True, autoincrement=False),
    Column("measured_at", Float, nullable=False),  # by the store's clock
    Column("age_seconds", Float),  # of the oldest record that is not in bronze; 0: none waits; null: unknown
    Column("peak_seconds", Float),  # the highest age of the last minute; null: unknown, or ingest starts
    Column("rows", BigInteger),  # that wait; null: unknown
    Column("limit_seconds", Float, nullable=False),  # above it the source is late
    Column("reason", Text),  # why a number is unknown
    Column("quiet_since", Float),  # the newest bronze commit then; null: there was none
    Column("quiet_seconds", Float, nullable=False),  # after it, at which nothing waited
    Column("sources", Text),  # the same of each of several sources, a list in JSON; null: there is one
)

source_gaps = store_table(  # how long nothing came after bronze commits: the longest gap of each ten minutes
    "source_gaps",
    Column("slot", BigInteger, primary_key=True, autoincrement=False),  # ten minutes since 1970, of the gap's begin
    Column("began_at", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("number", Integer, nullable=False),  # of gaps that began in the slot
    allowed={"seconds": ">= 0", "number": "> 0"},
)

source_through = store_table(  # one row: how far bronze is complete, as `pipeline/store/through.py` has it
    "source_through",
    Column("through_id", Integer, primary_key=True, autoincrement=False),
    Column("noted_at", Float, nullable=False),  # by the store's clock
    Column("pairs", Text, nullable=False),  # JSON: [seq, time], the oldest first
    Column("withdrawals", Text, nullable=False),  # JSON: incidents that took pairs back, the newest last
    json={"pairs": "array", "withdrawals": "array"},
)

through_posts = store_table(  # the last end of an interval that a receiver took, by game
    "through_posts",
    Column("game_key", String(64), primary_key=True),
    Column("posted", Float, nullable=False),  # Unix seconds
)

book_reports = store_table(  # the open days of a game as the last closer found them
    "book_reports",
    Column("game_key", String(64), primary_key=True),
    Column("reported_at", Float, nullable=False),  # by the store's clock
    Column("through", Float),  # the newest time of the source that was known; null: none was
    Column("obstacle", Text),  # why its rows could not be classified; null: they were
    Column("days", Text, nullable=False),  # JSON, see `pipeline/data/books/closing.py`
    json={"days": "array"},
)

book_reopenings = store_table(  # requests to open a closed day again, and what was decided
    "book_reopenings",
    Column("request_id", String(32), primary_key=True),
    Column("requester", Text, nullable=False),
    Column("game_key", String(64), nullable=False),
    Column("day", BigInteger, nullable=False),  # its begin, microseconds since 1970
    Column("day_seconds", BigInteger, nullable=False),
    Column("revision", Integer, nullable=False),  # that is opened; with the next one in the ledger it says nothing
    Column("reason", Text, nullable=False),
    Column("state", String(16), nullable=False),  # asked | approved | rejected | withdrawn
    Column("requested_at", Float, nullable=False),  # by the store's clock
    Column("decided_by", Text),
    Column("decision_reason", Text),
    Column("decided_at", Float),
    allowed={"state": get_args(RequestState), "revision": "> 0"},
)

incidents = store_table(  # games with one cause at one time
    "incidents",
    Column("incident_id", String(32), primary_key=True),
    Column("cause", String(24), nullable=False),
    Column("scope", String(80), nullable=False),  # what its games share, such as "group b"; empty: only the cause
    Column("finding", Text, nullable=False),  # JSON: title, evidence, next action of the worst game
    Column("games", Text, nullable=False),  # JSON: keys, the worst first
    Column("group_name", String(40)),  # null: they are in several, or in none
    Column("since", Float, nullable=False),  # by the store's clock, as all times here
    Column("joined_at", Float, nullable=False),  # when a game joined last
    Column("ended_at", Float, index=True),  # null: it is open
    Column("outlook", Text),  # one clause; null: nobody can know
    Column("tone", String(16), nullable=False),
    allowed={"cause": tuple(Cause), "tone": get_args(IncidentTone)},
    json={"finding": "object", "games": "array"},
)

incident_looks = store_table(  # one row: who judged causes last; the writer of the next look holds it
    "incident_looks",
    Column("look_id", Integer, primary_key=True, autoincrement=False),
    Column("kept_by", String(16), nullable=False),  # the kind of the process that judged
    Column("looked_at", Float, nullable=False),
)
