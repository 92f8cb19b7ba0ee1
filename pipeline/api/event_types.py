"""The event types of one game: how each stands, how fast its rows come, and how many are in its table.

States and rates come from the control store. Counts are read from the game's table and from quarantine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from listeners.sample import OTHER, StreamState
from pipeline.api import versions
from pipeline.api.environment import OpenEnvironment
from pipeline.data.contracts.further_types import GameType, TypeState, types_of
from pipeline.data.contracts.schemas import Schema
from pipeline.data.repair.type_counts import TypeUse, count_types
from pipeline.health.facts.fleet import read_fleet
from pipeline.store.database.engine import reading
from pipeline.store.games import Game, find, known_names

__all__ = ["OTHER", "GameType", "TypeReport", "TypeState", "TypeUse", "counts", "of_game", "recent", "report"]

RECENT_SECONDS: Final = 300.0
"""Seconds over which drivers report rows by event type."""


@dataclass(frozen=True, slots=True)
class Recent:
    """The rows of one event type in the last five minutes."""

    rows_per_second: float  # that landed
    refused: int  # rows


@dataclass(frozen=True, slots=True)
class TypeReport:
    """One event type of a game, as `turnout schemas types` prints it; times are Unix seconds of the source's clock."""

    type: str
    state: TypeState
    column: str | None
    schemas: int
    rows: int  # in the table
    first_at: float | None
    last_at: float | None
    refused: int  # in quarantine
    estimated: bool  # rows by a sample, `first_at` is not later than said
    rows_per_second: float | None  # of the last five minutes, as the next; None: nothing current is known
    refused_lately: int | None


@reading()
def of_game(environment: OpenEnvironment, key: str) -> tuple[GameType, ...]:
    """Read the event types of a game by its key; none where it has no schema."""
    placed = {
        each.schema_id: (Schema(each.schema_id, each.format, each.message, b""), each.placement)
        for each in versions.of_game(environment, key).versions
    }
    return tuple(types_of(placed.values()))


def counts(environment: OpenEnvironment, key: str) -> tuple[TypeUse, ...]:
    """Count the rows of each of a game's event types, in the order of `of_game`.

    Raises:
        Refused: its table or quarantine cannot be read.
    """
    game = _game(environment, key)
    return tuple(count_types(environment.paths, game, of_game(environment, game.key)))


def recent(of: GameType, live: StreamState | None) -> Recent | None:
    """Return the rows of an event type in the last five minutes; None where nobody knows them.

    Args:
        of: the event type.
        live: what the game's driver reports, if it describes the present.
    """
    if live is None:
        return None
    held = [live.types[each] for each in of.names if each in live.types]
    if not held and OTHER in live.types:
        return None  # the driver tells the largest types apart, and has this one among the others
    return Recent(sum(each.landed for each in held) / RECENT_SECONDS, sum(each.refused for each in held))


@reading()
def report(environment: OpenEnvironment, game: str) -> tuple[TypeReport, ...]:
    """Read all about the event types of a game (name or key).

    Raises:
        Refused: there is no such game, or its table or quarantine cannot be read.
    """
    key = _game(environment, game).key
    row = read_fleet(environment.engine, settings=environment.settings).row(key)
    live = None if row is None else row.live
    return _reports(of_game(environment, key), counts(environment, key), live)


def _reports(types: Sequence[GameType], counted: Sequence[TypeUse], live: StreamState | None) -> tuple[TypeReport, ...]:
    found = []
    for each, count in zip(types, counted, strict=True):
        now = recent(each, live)
        found.append(
            TypeReport(
                each.name, each.state, each.struct, len(each.schemas), count.rows, count.first_at, count.last_at,
                count.refused, not count.complete, None if now is None else now.rows_per_second,
                None if now is None else now.refused,
            )
        )  # fmt: skip
    return tuple(found)


@reading()
def _game(environment: OpenEnvironment, game: str) -> Game:
    return find(game, known_names(environment.engine))
