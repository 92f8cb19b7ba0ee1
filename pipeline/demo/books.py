"""What `turnout demo --once --books` declares beside the games' tables: a silver table of the first game."""

from typing import Final

from sqlalchemy import Engine

from pipeline.base.actor import current_user
from pipeline.control.derived import definition_file, proposals
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.derived.definitions import SilverDefinition
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.rewrite import table_files
from pipeline.settings.tree import Paths, Settings
from pipeline.store.games import known_names

SILVER: Final = "demo_events"
"""The name of the silver table."""

_WITHIN: Final = 3600  # seconds


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
