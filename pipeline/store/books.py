"""The open days of games as the last closer found them, for pages: a row here saves readers the scan."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, Select, select, update

from pipeline.store.database.engine import reading, writing
from pipeline.store.database.report_tables import book_reports
from pipeline.store.processes.leases import store_now


@dataclass(frozen=True, slots=True)
class BookReport:
    """The open days of one game."""

    game_key: str
    reported_at: float  # Unix seconds by the store's clock
    through: float | None  # the newest time of the source that was known, Unix seconds
    obstacle: str | None  # why rows could not be classified
    days: tuple[Mapping[str, Any], ...]  # as the closer has them


_REPORTS: Final = select(*(book_reports.c[name] for name in BookReport.__slots__))


def write_report(
    engine: Engine, key: str, through: float | None, obstacle: str | None, days: Sequence[Mapping[str, Any]]
) -> None:
    """Replace what is known of the open days of a game; with an obstacle those that were known stay."""
    values: dict[str, Any] = {"reported_at": store_now(), "through": through, "obstacle": obstacle}
    found = {"days": json.dumps(list(days))}
    with writing(engine) as connection:
        own = book_reports.c.game_key == key
        changed = values | found if obstacle is None else values
        if not connection.execute(update(book_reports).where(own).values(changed)).rowcount:
            connection.execute(book_reports.insert().values(game_key=key, **values, **found))


def due_in(connection: Connection) -> dict[str, float]:
    """Return when the oldest open day of each game is due to close, Unix seconds; games without one are left out."""
    rows = connection.execute(select(book_reports.c.game_key, book_reports.c.days))
    found = {row.game_key: [float(day["due"]) for day in json.loads(row.days)] for row in rows}
    return {key: min(due) for key, due in found.items() if due}


def read_reports(engine: Engine) -> dict[str, BookReport]:
    """Return what is known of the open days of games, by key; games that no closer looked at are left out."""
    return {each.game_key: each for each in _found(engine, _REPORTS)}


def read_report(engine: Engine, key: str) -> BookReport | None:
    """Return what is known of the open days of a game; None where no closer looked at it."""
    return next(_found(engine, _REPORTS.where(book_reports.c.game_key == key)), None)


def _found(engine: Engine, question: Select[Any]) -> Iterator[BookReport]:
    with reading(), engine.connect() as connection:
        rows = connection.execute(question).all()
    for row in rows:
        yield BookReport(row.game_key, row.reported_at, row.through, row.obstacle, tuple(json.loads(row.days)))
