"""A fleet of which some games are complete, in the control store."""

from pathlib import Path

from sqlalchemy import Engine

from pipeline.health.facts.fleet import Fleet, read_fleet
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.through import cursors_behind, write_through
from tests.browser.seed import Seeded, seed


def fleet_at(folder: Path, now: float) -> tuple[Engine, Fleet]:
    """Return a fleet of a level game, a game behind, and a game without a report."""
    games = (
        Seeded("level", "a", {"cursor_seq": 9_999}), Seeded("behind", "a", {"cursor_seq": 2}), Seeded("new", "a", None),
    )  # fmt: skip
    seed(folder, games, now=now, heartbeat_ages={"ingest": 1, "a": 1}, history=False)
    engine = open_store(Settings(), Paths(folder))
    assert cursors_behind(engine) == [2]
    write_through(engine, [(2, now - 300), (4, now - 60), (9, now - 7)], [])
    return engine, read_fleet(engine, now)
