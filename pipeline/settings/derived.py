"""How game tables become silver and gold tables."""

from dataclasses import dataclass
from typing import Annotated

from pipeline.settings.parsing import Range


@dataclass(frozen=True, slots=True)
class Derived:
    """How game tables become silver and gold tables."""

    commit_seconds: Annotated[float, Range(0.1, 3600)] = 10.0
    """Time between two commits to a silver table that is level with its game's. Gold tables are looked at as often."""

    step_rows: Annotated[int, Range(1, 10_000_000)] = 100_000
    """Most rows of a game's table that a driver holds in memory for a silver table, with their ids. A step ends with
    the first version of the game's table that reaches them; a larger version is read in parts."""

    tables_per_game: Annotated[int, Range(0, 10_000)] = 20
    """Most silver tables that rules make of one game. A table that was made counts for ever; a lower number removes
    none."""

    tables: Annotated[int, Range(0, 100_000)] = 500
    """Most silver tables that rules make of all games, likewise."""
