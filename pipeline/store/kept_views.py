"""Which games have flat views of their event types kept in the catalog, and which views turnout has made there."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, update

from pipeline.store.database.engine import writing
from pipeline.store.database.tables import games, kept_views


@dataclass(frozen=True, slots=True)
class KeptViews:
    """The views of one game."""

    game_key: str
    wanted: bool  # whether they are kept; else those that are left are dropped
    made: Mapping[str, str] = field(default_factory=dict)  # a hash of each view's statement, by its name
    problem: str | None = None  # why the last attempt failed


def read_kept(engine: Engine, keys: Collection[str] | None = None) -> list[KeptViews]:
    """Return the games with views that are kept or left, of these keys or all; those of a retired game are not kept."""
    columns = (kept_views.c.game_key, kept_views.c.wanted, kept_views.c.made, kept_views.c.problem, games.c.retired_at)
    known = kept_views.outerjoin(games, games.c.game_key == kept_views.c.game_key)  # a game may have sent nothing yet
    query = select(*columns).select_from(known).order_by(kept_views.c.game_key)
    if keys is not None:
        query = query.where(kept_views.c.game_key.in_(list(keys)))
    with engine.connect() as connection:
        return [
            KeptViews(row.game_key, bool(row.wanted) and row.retired_at is None, json.loads(row.made), row.problem)
            for row in connection.execute(query)
        ]


def want(connection: Connection, key: str, *, wanted: bool) -> None:
    """Record in the caller's transaction whether a game's views are kept."""
    own = kept_views.c.game_key == key
    if not connection.execute(update(kept_views).where(own).values(wanted=int(wanted), problem=None)).rowcount:
        connection.execute(insert(kept_views).values(game_key=key, wanted=int(wanted), made="{}"))


def note(engine: Engine, key: str, made: Mapping[str, str], problem: str | None) -> None:
    """Record which views there are now; a game without views that keeps none is forgotten."""
    own = kept_views.c.game_key == key
    values: dict[str, Any] = {"made": json.dumps(dict(made), sort_keys=True), "problem": problem}
    with writing(engine) as connection:
        connection.execute(update(kept_views).where(own).values(values))
        connection.execute(delete(kept_views).where(own & (kept_views.c.wanted == 0) & (kept_views.c.made == "{}")))
