"""A game, found by its exact name or its key."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.errors import Refused
from pipeline.names import MALFORMED, GameKey, game_key, shown
from pipeline.store.games import known_games, registered
from pipeline.store.onboarding import onboarded_names


@dataclass(frozen=True, slots=True)
class Game:
    """A game by both of its identifiers."""

    key: GameKey
    name: str  # exact; data, never part of a path or a statement

    @property
    def bronze_keys(self) -> tuple[GameKey, GameKey]:
        """The keys under which bronze and quarantine may have its rows: from before it was known, no game's."""
        return self.key, MALFORMED


def known_names(engine: Engine) -> dict[str, str]:
    """Return key → exact name of every game, also of those that have a schema and of which no row has come."""
    known: dict[str, str] = {game_key(name): name for name, *_ in registered(engine)}
    known |= {str(key): name for key, name in onboarded_names(engine).items()}
    return known | known_games(engine)


def find(text: str, known: Mapping[str, str]) -> Game:
    """Return the game that has this key or, when no key is meant, this exact name; `known` is key to name.

    Raises:
        Refused: no such game is known.
    """
    if text in known:
        return Game(GameKey(text), known[text])
    for key, name in known.items():
        if name == text:
            return Game(GameKey(key), name)
    raise Refused(f"No such game: {shown(text)}. `turnout games list` lists names and keys.")
