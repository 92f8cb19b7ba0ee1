"""The fleet with its judgement, and what the Fleet page shows beside it: loads of groups, registered schemas.

Every query raises `Refused` where the control store cannot be read.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from pipeline.api.environment import OpenEnvironment
from pipeline.health.facts.fleet import Fleet, GameRow, read_fleet
from pipeline.health.facts.loads import read_loads
from pipeline.health.verdicts.placement.capacity import GroupLoad
from pipeline.store.database.engine import reading
from pipeline.store.database.tables import registrations
from pipeline.store.rows import Driver

__all__ = ["Driver", "Fleet", "GameRow", "RegisteredSchema", "loads", "read", "registered"]

_MOST_SCHEMAS: Final = 5_000  # the newest of a range


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema that was registered: of which game, which version, when (Unix seconds)."""

    game_key: str
    version: int
    at: float


@reading()
def read(environment: OpenEnvironment) -> Fleet:
    """Read all games, drivers and groups, and judge them."""
    return read_fleet(environment.engine, settings=environment.settings)


@reading()
def loads(environment: OpenEnvironment) -> Mapping[str, GroupLoad]:
    """Read the load of each group, by name; a group of which no game's load is known is left out."""
    settings = environment.settings
    max_games = settings.placement.max_games_per_group
    found = read_loads(environment.engine, max_games=max_games, metrics=settings.metrics)
    known = {game.group for game in found.games if game.is_known}
    return {name: group for name, group in found.groups.items() if name in known}


@reading()
def registered(environment: OpenEnvironment, seconds: float) -> tuple[RegisteredSchema, ...]:
    """Read which schemas were registered in the last `seconds`, newest first."""
    columns = registrations.c
    query = (
        select(columns.game_key, columns.version, columns.created_at)
        .where(columns.created_at >= time.time() - seconds)
        .order_by(columns.created_at.desc())
        .limit(_MOST_SCHEMAS)
    )
    with environment.engine.connect() as connection:
        return tuple(RegisteredSchema(key, version, at) for key, version, at in connection.execute(query))
