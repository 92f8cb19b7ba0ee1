"""What a demo gives one of its games: an output contract, a silver and a gold table, and days that close.

`turnout demo --once --books` does so before its drivers run, a live demo once the game has a schema.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Engine

from pipeline.base.actor import current_user
from pipeline.base.errors import Refused, Transient
from pipeline.base.names import game_key, shown
from pipeline.control.derived import definition_file, proposals
from pipeline.control.output_contracts import proposals as contract_proposals
from pipeline.data.books import ledger
from pipeline.data.books.closing import Books
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.derived.definitions import Aggregate, GoldDefinition, SilverDefinition
from pipeline.data.output_contracts.rules import ContractRule
from pipeline.demo import promise
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths, Settings
from pipeline.store.derived import read_definitions
from pipeline.store.games import Game, find, known_names
from pipeline.store.output_contracts import read_contracts

SILVER: Final = "demo_events"
"""The name of the silver table."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What one kind of demo declares beside the silver table."""

    rules: tuple[ContractRule, ...]
    gold: str  # the name of the gold table
    window: int  # seconds
    lateness: int  # of windows and days, in seconds


ONCE: Final = Declared((promise.NO_TEST_PLAYERS,), "demo_by_10s", 10, 0)
"""What a bounded run declares: its simulated rows break the contract."""

LIVE: Final = Declared((promise.PLAYER, promise.ROUND), "demo_by_minute", 60, 60)
"""What a live demo declares: only a bad producer breaks its contract."""

_WITHIN: Final = 3600  # seconds
_AGGREGATES: Final = (
    Aggregate("events", "count"),
    Aggregate("ids", "distinct", "_event_id"),
    Aggregate("first_at", "min", "_event_time"),
    Aggregate("last_at", "max", "_event_time"),
)
_DAY_SECONDS: Final = 300
_BACK_SECONDS: Final = 3 * _DAY_SECONDS
_LIVE_PLACE: Final = 3  # among the games' names: one with few rows, as a closing reads all of them


def start_time() -> float:
    """Return the time of the first event of a bounded run, so far back that its day has ended when ingest reads it."""
    return time.time() - _BACK_SECONDS


def live_game(names: Sequence[str]) -> str:
    """Return the game of a live demo, of those that it has from its start."""
    return names[min(_LIVE_PLACE, len(names) - 1)]


def variables(settings: Settings, game: str) -> dict[str, str]:
    """Return the variables by which drivers close a game's days; none where the settings name games of their own."""
    if settings.books.games:
        return {}
    return {
        "TURNOUT_BOOKS__GAMES": json.dumps([game], ensure_ascii=False),
        "TURNOUT_BOOKS__DAY_SECONDS": str(_DAY_SECONDS),
        "TURNOUT_BOOKS__LATENESS_SECONDS": str(LIVE.lateness),
    }


def declare(settings: Settings, paths: Paths, engine: Engine, game: str, declared: Declared) -> None:
    """Apply a file with a contract and one with both tables, as a person would.

    Raises:
        Refused: another person has applied some at the same moment, or this user may not apply them.
    """
    silver = SilverDefinition(SILVER, game, within=_WITHIN)
    gold = GoldDefinition(declared.gold, silver, declared.window, _AGGREGATES, lateness=declared.lateness)
    text = promise.contract_text(game, declared.rules)
    schemas, names = LocalRegistry(engine, paths.bronze).snapshot(), known_names(engine)
    promised = contract_proposals.plan(engine, paths, schemas, names, text)
    if promised.changes:
        contract_proposals.apply(settings, engine, promised, current_user(), "turnout demo")
    text = definition_file.render((silver, gold))
    planned = proposals.plan(settings, engine, schemas, names.values(), text)
    if planned.changes:
        proposals.apply(settings, engine, planned, current_user(), "turnout demo")


class Declaring:
    """Declares for a live demo's game, as soon as it has a schema."""

    def __init__(self, settings: Settings, paths: Paths, engine: Engine, game: str) -> None:
        """Prepare; reads nothing."""
        self._settings, self._paths, self._engine, self._game = settings, paths, engine, game
        self._registry = LocalRegistry(engine, paths.bronze)
        self._done = False

    def look(self) -> str | None:
        """Declare if the time has come; return what to say of it, once."""
        try:
            if self._done or not self._registry.snapshot().games.get(game_key(self._game)):
                return None
            self._done = True
            if read_contracts(self._engine).number or read_definitions(self._engine).number:
                return "the output contracts and derived streams that were applied before stay in force"
            declare(self._settings, self._paths, self._engine, self._game, LIVE)
        except Transient:
            self._done = False
            return None
        except Refused as refused:
            return f"{shown(self._game)} has no contract, silver and gold: {refused}"
        return f"{shown(self._game)} has a contract, silver and gold now; its first day closes within seven minutes"


def rows(paths: Paths) -> dict[str, int]:
    """Return how many rows each of the two tables of a bounded run has."""
    tables = {"silver_rows": paths.silver / SILVER, "gold_rows": paths.gold / ONCE.gold}
    return {name: _rows_of(folder) for name, folder in tables.items()}


def _rows_of(folder: Location) -> int:
    return sum(each.rows or 0 for each in table_files(open_table(folder)))


def days_closed(settings: Settings, paths: Paths, engine: Engine, game: str) -> int:
    """Close the days of the game that have ended, of five minutes each; return how many days are closed."""
    own: Game = find(game, known_names(engine))
    short = replace(settings.books, day_seconds=_DAY_SECONDS, lateness_seconds=ONCE.lateness)
    Books(replace(settings, books=short), paths, engine).close_due(own, current_user())
    return len(ledger.read(paths.books, own.key))
