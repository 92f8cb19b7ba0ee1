"""How the rounds of maintenance went: written by its process, read by what judges the fleet."""

from collections.abc import Sequence

from sqlalchemy import BigInteger, Column, Connection, Engine, Float, Integer, Text, delete, func, insert, select

from pipeline.health.upkeep import RoundFacts
from pipeline.store.checked_table import store_table
from pipeline.store.leases import store_now
from pipeline.store.tables import ingest_generations
from pipeline.store.writing import writing

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

_KEPT_SECONDS = 90 * 86_400.0
_MAX_ERROR = 500  # characters


def record_round(
    engine: Engine, seconds: float, failed: Sequence[str], *, tables: int, files_before: int, files_after: int
) -> None:
    """Write down a round that has ended just now and took so many seconds; `failed` says of each table why."""
    row = {
        "began_at": store_now() - seconds, "ended_at": store_now(), "ok": int(not failed), "tables": tables,
        "failed_tables": len(failed), "files_before": files_before, "files_after": files_after,
        "error": "; ".join(failed)[:_MAX_ERROR] or None,
    }  # fmt: skip
    with writing(engine) as connection:
        is_old = maintenance_rounds.c.ended_at < store_now() - _KEPT_SECONDS
        connection.execute(delete(maintenance_rounds).where(is_old))
        connection.execute(insert(maintenance_rounds).values(row))


def newest_rounds(connection: Connection) -> tuple[RoundFacts | None, RoundFacts | None]:
    """Return the newest round, and the newest that ended well; None where there is none."""
    query = select(*(maintenance_rounds.c[name] for name in RoundFacts.__slots__))
    newest = query.order_by(maintenance_rounds.c.round_id.desc()).limit(1)
    found = [connection.execute(each).one_or_none() for each in (newest, newest.where(maintenance_rounds.c.ok == 1))]
    last, good = (None if row is None else RoundFacts(*row) for row in found)
    return last, good


def ingested_since(connection: Connection) -> float | None:
    """Return since when there may be something to maintain: when ingest first began; None where it never did."""
    since: float | None = connection.scalar(select(func.min(ingest_generations.c.created_at)))
    return since
