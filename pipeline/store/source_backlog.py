"""What waits in the source, as ingest last measured it: one row, with the store's time."""

from sqlalchemy import BigInteger, Column, Connection, Engine, Float, Integer, Text, select, update

from pipeline.health.source import SourceReading
from pipeline.store.checked_table import store_table
from pipeline.store.leases import store_now

source_backlog = store_table(  # one row; here and not in `tables`, which is full
    "source_backlog",
    Column("backlog_id", Integer, primary_key=True, autoincrement=False),
    Column("measured_at", Float, nullable=False),  # by the store's clock
    Column("age_seconds", Float),  # of the oldest record that is not in bronze; 0: none waits; null: unknown
    Column("peak_seconds", Float),  # the highest age of the last minute; null: unknown
    Column("rows", BigInteger),  # that wait; null: unknown
    Column("limit_seconds", Float, nullable=False),  # above it the source is late
    Column("reason", Text),  # why a number is unknown
)

_ROW = 1
_COLUMNS = tuple(source_backlog.c[name] for name in SourceReading.__slots__)


def write_backlog(
    engine: Engine,
    *,
    age_seconds: float | None,
    peak_seconds: float | None,
    rows: int | None,
    limit_seconds: float,
    reason: str | None,
) -> None:
    """Replace what is known of the source by what was measured just now."""
    values = {
        "measured_at": store_now(), "age_seconds": age_seconds, "peak_seconds": peak_seconds, "rows": rows,
        "limit_seconds": limit_seconds, "reason": reason,
    }  # fmt: skip
    with engine.begin() as connection:
        if not connection.execute(update(source_backlog).values(values)).rowcount:
            connection.execute(source_backlog.insert().values(backlog_id=_ROW, **values))


def backlog_in(connection: Connection) -> SourceReading | None:
    """Return what was measured last; None where nothing ever was."""
    row = connection.execute(select(*_COLUMNS)).first()
    return None if row is None else SourceReading(*row)
