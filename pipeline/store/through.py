"""How far bronze and each game are complete, as ingest reports it for pages, commands and metrics.

Ingest alone writes it, from the table `through`, on which `turnout wait` relies: a restored control store lies nowhere
else.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import Connection, Engine, select, update

from pipeline.store.database.report_tables import source_through, through_posts
from pipeline.store.database.tables import games, streams
from pipeline.store.processes.leases import store_now
from pipeline.store.rows import ThroughReading, Withdrawal

_ROW: Final = 1


def write_through(engine: Engine, pairs: Sequence[tuple[int, float]], withdrawals: Sequence[Withdrawal]) -> None:
    """Replace the pairs of a seq and a time (Unix seconds), the oldest first, and the withdrawals of such pairs."""
    values = {
        "noted_at": store_now(), "pairs": json.dumps([[seq, math.floor(at * 1e6) / 1e6] for seq, at in pairs]),
        "withdrawals": json.dumps([asdict(each) for each in withdrawals]),
    }  # fmt: skip
    with engine.begin() as connection:
        if not connection.execute(update(source_through).values(values)).rowcount:
            connection.execute(source_through.insert().values(through_id=_ROW, **values))


def through_in(connection: Connection) -> ThroughReading | None:
    """Return what ingest reported last; None where it never did. Read it before the games that it is compared with."""
    row = connection.execute(
        select(source_through.c.noted_at, source_through.c.pairs, source_through.c.withdrawals)
    ).first()
    if row is None:
        return None
    pairs = tuple((int(seq), float(at)) for seq, at in json.loads(row.pairs))
    return ThroughReading(row.noted_at, pairs, tuple(Withdrawal(**each) for each in json.loads(row.withdrawals)))


def cursors_behind(engine: Engine) -> list[int]:
    """Return the reported cursor of each game that lacks rows of bronze."""
    query = (
        select(streams.c.cursor_seq)
        .join(games, games.c.game_key == streams.c.game_key)
        .where(streams.c.cursor_seq < games.c.last_seq)
    )
    with engine.connect() as connection:
        return [int(seq) for seq in connection.scalars(query)]


@dataclass(frozen=True, slots=True)
class GamePosted:
    """A game, how far its driver says that it is, and the last end of an interval that was posted."""

    game_key: str
    game: str
    generation: int
    last_seq: int
    cursor: int | None  # None: no driver has reported it
    posted: float | None  # Unix seconds; None: nothing was posted yet


def posted_in(connection: Connection) -> list[GamePosted]:
    """Return every game with what was posted of it. Read it after `through_in`."""
    joined = games.outerjoin(streams, streams.c.game_key == games.c.game_key).outerjoin(
        through_posts, through_posts.c.game_key == games.c.game_key
    )
    columns = (
        games.c.game_key, games.c.game, games.c.generation, games.c.last_seq, streams.c.cursor_seq,
        through_posts.c.posted,
    )  # fmt: skip
    found = connection.execute(select(*columns).select_from(joined).order_by(games.c.game_key))
    return [GamePosted(*row) for row in found]


def note_posted(engine: Engine, game_key: str, end: float) -> None:
    """Note that the receiver took the post of a game about an interval."""
    own = through_posts.c.game_key == game_key
    with engine.begin() as connection:
        if not connection.execute(update(through_posts).where(own).values(posted=end)).rowcount:
            connection.execute(through_posts.insert().values(game_key=game_key, posted=end))
