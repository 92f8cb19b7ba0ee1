"""Grants that are over and that no read of the catalog has shown as revoked: for the incident and the alert."""

from typing import Any

from sqlalchemy import Connection, func, select

from pipeline.health.incidents.access import OVERDUE_SECONDS, OverdueAccess
from pipeline.store.database.tables import entitlements, games
from pipeline.store.processes.leases import store_now


def read_overdue(connection: Connection) -> list[OverdueAccess]:
    """Return the grants that have been over for long enough to be an incident."""
    over_at = _over_at()
    name = func.coalesce(games.c.game, entitlements.c.game_key)
    query = (
        select(entitlements.c.principal, name, over_at)
        .outerjoin(games, games.c.game_key == entitlements.c.game_key)
        .where(_is_overdue(over_at))
    )
    return [OverdueAccess(*row) for row in connection.execute(query)]


def count_overdue(connection: Connection) -> int:
    """Return how many there are."""
    query = select(func.count()).select_from(entitlements).where(_is_overdue(_over_at()))
    return int(connection.execute(query).scalar_one())


def _over_at() -> Any:
    return func.coalesce(entitlements.c.revoked_at, entitlements.c.expires_at)


def _is_overdue(over_at: Any) -> Any:
    return entitlements.c.ended_at.is_(None) & (over_at < store_now() - OVERDUE_SECONDS)
