"""A process that the controller started for a group or for maintenance, as recorded; never writes."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, select

from pipeline.store.tables import group_runs


@dataclass(frozen=True, slots=True)
class Run:
    """One process of a group, or of maintenance; times are Unix seconds by the store's clock."""

    run_id: int
    group_name: str
    reference: str | None  # by which its backend finds it again; None: it is being started
    started_at: float
    stop_requested_at: float | None
    ended_at: float | None
    died: bool  # it ended without having been asked to
    exit_message: str | None
    active_games: str | None = None  # JSON: the games it was at work on when it died; None: nobody knows
    kind: str = "group"


RUN_COLUMNS: Final = tuple(
    (group_runs.c.died == 1).label("died") if name == "died" else group_runs.c[name] for name in Run.__slots__
)
"""The columns of table `group_runs` that make a run, in its order."""


def runs_in(connection: Connection, which: ColumnElement[bool]) -> list[Run]:
    """Return the runs that a condition selects."""
    return [Run(*row) for row in connection.execute(select(*RUN_COLUMNS).where(which))]
