"""What processes report beside heartbeats: rounds of maintenance, the source's backlog, evacuations that wait."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace

from sqlalchemy import Connection, Engine, delete, func, insert, select, update

from pipeline.store.database.engine import writing
from pipeline.store.database.report_tables import maintenance_rounds, source_backlog
from pipeline.store.database.tables import bronze_commits, ingest_generations, waiting_evacuations
from pipeline.store.processes.leases import store_now
from pipeline.store.rows import NamedBacklog, RoundFacts, SourceReading
from pipeline.store.source_gaps import keep_gap

_KEPT_SECONDS = 90 * 86_400.0
_MAX_ERROR = 500  # characters


def record_round(
    engine: Engine, seconds: float, failed: Sequence[str], *, tables: int, files_before: int, files_after: int
) -> None:
    """Record a round that has just ended after `seconds`; `failed` names each failed table and why."""
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
    sources: Sequence[NamedBacklog] = (),
) -> None:
    """Replace the source's state by the values measured just now, and keep the gap that a bronze commit has ended."""
    with engine.begin() as connection:
        now = float(connection.scalar(select(store_now())) or 0.0)
        since, quiet = _quiet(connection, rows, now)
        values = {
            "measured_at": now, "age_seconds": age_seconds, "peak_seconds": peak_seconds, "rows": rows,
            "limit_seconds": limit_seconds, "reason": reason, "quiet_since": since, "quiet_seconds": quiet,
            "sources": json.dumps([asdict(each) for each in sources]) if sources else None,
        }  # fmt: skip
        if not connection.execute(update(source_backlog).values(values)).rowcount:
            connection.execute(source_backlog.insert().values(backlog_id=_ROW, **values))


def _quiet(connection: Connection, rows: int | None, now: float) -> tuple[float | None, float]:
    """Return the newest bronze commit, and after how many seconds nothing waited yet; `rows` wait now."""
    before = connection.execute(select(source_backlog.c.quiet_since, source_backlog.c.quiet_seconds)).first()
    since, seconds = (None, 0.0) if before is None else before
    if rows is None:
        return since, seconds
    newest = connection.scalar(select(bronze_commits.c.committed_at).order_by(bronze_commits.c.seq.desc()).limit(1))
    if newest != since:
        if since is not None:
            keep_gap(connection, since, seconds, now)
        since, seconds = newest, 0.0
    if rows == 0 and since is not None:
        seconds = max(seconds, now - since)
    return since, seconds


def backlog_in(connection: Connection) -> SourceReading | None:
    """Return what was measured last; None where nothing ever was."""
    row = connection.execute(select(*_COLUMNS)).first()
    if row is None:
        return None
    *values, sources = row
    return replace(SourceReading(*values), sources=tuple(NamedBacklog(**each) for each in json.loads(sources or "[]")))


def keep_waiting(engine: Engine, games: Mapping[str, int], now: float, unknown: Collection[str] = ()) -> None:
    """Keep how many games wait in each dead group; a group keeps its first time, and one not named is removed."""
    with engine.begin() as connection:
        known = {row.group_name: row.games for row in connection.execute(select(waiting_evacuations))}
        for name in known.keys() - games.keys() - set(unknown):
            connection.execute(delete(waiting_evacuations).where(waiting_evacuations.c.group_name == name))
        for name, count in games.items():
            mine = waiting_evacuations.c.group_name == name
            if name not in known:
                connection.execute(insert(waiting_evacuations).values(group_name=name, games=count, since=now))
            elif known[name] != count:
                connection.execute(update(waiting_evacuations).where(mine).values(games=count))


def waiting_in(connection: Connection) -> dict[str, tuple[int, float]]:
    """Return by dead group how many games wait, and since when (Unix seconds)."""
    rows = connection.execute(select(waiting_evacuations))
    return {row.group_name: (row.games, row.since) for row in rows}
