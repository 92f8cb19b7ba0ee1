"""Priorities of games: by them groups and scarce capacity are shared. No row depends on them."""

from collections.abc import Iterable

from sqlalchemy import Engine, select, update

from pipeline.store import audit
from pipeline.store.tables import games


def set_priority(engine: Engine, keys: Iterable[str], priority: str, actor: str, reason: str) -> dict[str, str]:
    """Give games a priority; return those that had another one, with it. Nobody moves because of it."""
    with engine.begin() as connection:
        audit.lock_log(connection)
        wanted = (games.c.game_key.in_(list(keys))) & (games.c.priority != priority)
        before = {
            row.game_key: row.priority
            for row in connection.execute(select(games.c.game_key, games.c.priority).where(wanted))
        }
        if before:
            targets = tuple(f"game:{key}" for key in sorted(before))
            detail = {"priority": priority, "before": before, "reason": reason}
            act = audit.Act(actor, "set a priority", targets, None, detail)
            audit.begin(connection, act)
            connection.execute(update(games).where(wanted).values(priority=priority))
            audit.end(connection, act, "succeeded")
    return before
