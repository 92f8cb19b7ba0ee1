"""What `turnout demo --once --books` makes of the first game: a contract, silver, gold and closed days."""

import json
import time
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from pipeline.base.actor import current_user
from pipeline.control.derived import definition_file, proposals
from pipeline.control.output_contracts import proposals as contract_proposals
from pipeline.data.books import ledger
from pipeline.data.books.closing import Books
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.derived.definitions import Aggregate, GoldDefinition, SilverDefinition
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths, Settings
from pipeline.store.games import Game, find, known_names

SILVER: Final = "demo_events"
"""The name of the silver table."""

GOLD: Final = "demo_by_10s"
"""The name of the gold table."""

_CONTRACT: Final = """\
version: 1
contracts:
- name: demo
  games: [{game}]
  rules:
  - {{name: no_test_players, column: player_id, pattern: "[^0].*", action: quarantine}}
"""
_WITHIN: Final = 3600  # seconds
_WINDOW: Final = 10  # seconds
_AGGREGATES: Final = (
    Aggregate("events", "count"),
    Aggregate("ids", "distinct", "_event_id"),
    Aggregate("first_at", "min", "_event_time"),
    Aggregate("last_at", "max", "_event_time"),
)
_DAY_SECONDS: Final = 300
_BACK_SECONDS: Final = 3 * _DAY_SECONDS


def start_time() -> float:
    """Return the time of the first event, so far back that its day has ended when ingest reads it."""
    return time.time() - _BACK_SECONDS


def declare(settings: Settings, paths: Paths, engine: Engine, game: str) -> None:
    """Apply a file with a contract and one with both tables, as a person would.

    Raises:
        Refused: another person has applied some at the same moment, or this user may not apply them.
    """
    silver = SilverDefinition(SILVER, game, within=_WITHIN)
    gold = GoldDefinition(GOLD, silver, _WINDOW, _AGGREGATES, lateness=0)
    text = definition_file.render((silver, gold))
    schemas, names = LocalRegistry(engine, paths.bronze).snapshot(), known_names(engine)
    promised = contract_proposals.plan(engine, paths, schemas, names, _CONTRACT.format(game=json.dumps(game)))
    if promised.changes:
        contract_proposals.apply(settings, engine, promised, current_user(), "turnout demo")
    planned = proposals.plan(engine, schemas, names.values(), text)
    if planned.changes:
        proposals.apply(settings, engine, planned, current_user(), "turnout demo")


def rows(paths: Paths) -> dict[str, int]:
    """Return how many rows each of the two tables has."""
    tables = {"silver_rows": paths.silver / SILVER, "gold_rows": paths.gold / GOLD}
    return {name: _rows_of(folder) for name, folder in tables.items()}


def _rows_of(folder: Location) -> int:
    return sum(each.rows or 0 for each in table_files(open_table(folder)))


def days_closed(settings: Settings, paths: Paths, engine: Engine, game: str) -> int:
    """Close the days of the game that have ended, of five minutes each; return how many days are closed."""
    own: Game = find(game, known_names(engine))
    short = replace(settings.books, day_seconds=_DAY_SECONDS, lateness_seconds=0)
    Books(replace(settings, books=short), paths, engine).close_due(own, current_user())
    return len(ledger.read(paths.books, own.key))
