"""What `turnout demo --once --books` makes beside the games' tables: silver and closed days of the first game."""

import time
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from pipeline.base.actor import current_user
from pipeline.control.derived import definition_file, proposals
from pipeline.data.books import ledger
from pipeline.data.books.closing import Books
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.derived.definitions import SilverDefinition
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.rewrite import table_files
from pipeline.settings.tree import Paths, Settings
from pipeline.store.games import Game, find, known_names

SILVER: Final = "demo_events"
"""The name of the silver table."""

_WITHIN: Final = 3600  # seconds
_DAY_SECONDS: Final = 300
_BACK_SECONDS: Final = 3 * _DAY_SECONDS


def start_time() -> float:
    """Return the time of the first event, so far back that its day has ended when ingest reads it."""
    return time.time() - _BACK_SECONDS


def declare(settings: Settings, paths: Paths, engine: Engine, game: str) -> None:
    """Apply a file with one silver table, as a person would.

    Raises:
        Refused: another person has applied derived streams at the same moment, or this user may not apply them.
    """
    text = definition_file.render((SilverDefinition(SILVER, game, within=_WITHIN),))
    schemas = LocalRegistry(engine, paths.bronze).snapshot()
    planned = proposals.plan(engine, schemas, known_names(engine).values(), text)
    if planned.changes:
        proposals.apply(settings, engine, planned, current_user(), "turnout demo")


def silver_rows(paths: Paths) -> int:
    """Return how many rows the silver table has."""
    return sum(each.rows or 0 for each in table_files(open_table(paths.silver / SILVER)))


def days_closed(settings: Settings, paths: Paths, engine: Engine, game: str) -> int:
    """Close the days of the game that have ended, of five minutes each; return how many days are closed."""
    own: Game = find(game, known_names(engine))
    short = replace(settings.books, day_seconds=_DAY_SECONDS, lateness_seconds=0)
    Books(replace(settings, books=short), paths, engine).close_due(own, current_user())
    return len(ledger.read(paths.books, own.key))
