"""Dead groups with games that cannot go: written by the controller, for those who export and show it."""

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, Engine, delete, insert, select, update

from pipeline.store.tables import waiting_evacuations


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
