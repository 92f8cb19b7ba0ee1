"""The silver and gold tables in force, as access knows them: by keys that the catalog has them under.

Who may read a table's game may read it, too, where it `follows`; every one can be granted by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.base.names import GameKey, derived_table_key
from pipeline.data.derived.definitions import loads
from pipeline.store.derived import read_in_force
from pipeline.store.games import known_games


@dataclass(frozen=True, slots=True)
class DerivedTable:
    """One silver or gold table."""

    kind: str
    name: str  # of its stream
    game: str  # the exact name
    game_key: GameKey
    follows: bool  # whether who may read its game may read it, too

    @property
    def key(self) -> str:
        """Its key, which no game has."""
        return derived_table_key(self.kind, self.name)

    @property
    def label(self) -> str:
        """It for people, beside its game in a sorted list."""
        return f"{self.game}: {self.kind} {self.name}"


def in_force(engine: Engine) -> Mapping[str, DerivedTable]:
    """Return the tables in force by key, those that rules make too; none need be there yet.

    Raises:
        Refused: the control store cannot be read.
    """
    tables = (
        DerivedTable(each.kind, each.name, each.game, each.game_key, not each.own_grants)
        for each in loads(read_in_force(engine))
    )
    return {each.key: each for each in tables}


def inventory(engine: Engine) -> dict[str, str]:
    """Return all that can be granted: key → name of every game, and key → label of every silver and gold table."""
    return known_games(engine) | {key: each.label for key, each in in_force(engine).items()}
