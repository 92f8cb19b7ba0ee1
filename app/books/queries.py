"""Data of the Books page: a cache over `pipeline.api`, shared by all viewers."""

import time
from dataclasses import dataclass
from typing import Final

from app.state.services import cached
from pipeline.api import books
from pipeline.api.books import GameOverview
from pipeline.api.environment import OpenEnvironment


@dataclass(frozen=True, slots=True)
class Shelf:
    """The books of all games, read at one moment (Unix seconds)."""

    games: tuple[GameOverview, ...]
    read_at: float


def read(environment: OpenEnvironment) -> Shelf:
    """Read the books of all games, without a row of theirs.

    Raises:
        Refused: the ledger or the control store cannot be read.
    """
    return Shelf(books.overview(environment), time.time())


shelf: Final = cached(read, seconds=10)
