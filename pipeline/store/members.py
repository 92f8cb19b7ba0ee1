"""Who is in the groups that have roles, as the catalog last reported: a copy, so that no check of a role reads it."""

from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import Engine, delete, insert, select

from pipeline.store.database.tables import role_members
from pipeline.store.processes.leases import store_now


def keep(engine: Engine, members: Mapping[str, Iterable[str]]) -> None:
    """Keep who is in these groups, and forget the other groups; a group without anybody is kept as that."""
    rows = [
        {"group_name": group, "principal": principal}
        for group, principals in members.items()
        for principal in {"", *principals}
    ]
    with engine.begin() as connection:
        connection.execute(delete(role_members))
        for row in rows:
            connection.execute(insert(role_members).values(**row, seen_at=store_now()))


def members(engine: Engine, groups: Collection[str], seconds: float) -> dict[str, frozenset[str]]:
    """Return the members of each of these groups, as far as a look within `seconds` knows them."""
    fresh = role_members.c.seen_at >= store_now() - seconds
    query = select(role_members).where(role_members.c.group_name.in_(list(groups)), fresh)
    by_group: dict[str, set[str]] = {}
    with engine.connect() as connection:
        for row in connection.execute(query):
            by_group.setdefault(row.group_name, set()).add(row.principal)
    return {group: frozenset(principals - {""}) for group, principals in by_group.items()}
