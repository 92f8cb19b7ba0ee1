"""Decisions about event types in a schedule: types come one by one; each is accepted, withdrawn and accepted again."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Engine

from pipeline.base.names import GameKey
from pipeline.data.contracts.further_types import accepting, withdrawing
from pipeline.data.contracts.given_ids import NewIds
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import unattended
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.store.database.engine import writing
from pipeline.store.games import Game
from tests.model.schedule_world import FURTHER, Row, World

NEVER: Final = 1_000_000


@dataclass
class Decisions:
    """From which version of its table on a game's rows of a type may land, and may leave it again."""

    accepted: dict[tuple[GameKey, str], int] = field(default_factory=dict)
    withdrawn: dict[tuple[GameKey, str], int] = field(default_factory=dict)
    now: set[tuple[GameKey, str]] = field(default_factory=set)  # accepted types
    come: set[tuple[GameKey, int]] = field(default_factory=set)  # schemas

    def may_land(self, row: Row, version: int) -> bool:
        return row.type is None or version >= self.accepted.get((row.game.key, row.type), NEVER)

    def may_leave(self, row: Row, version: int) -> bool:
        return row.type is not None and version >= self.withdrawn.get((row.game.key, row.type), NEVER)

    def must_land(self, row: Row) -> bool:
        """Return whether the last replay had to put the row into its table."""
        is_known = (row.game.key, row.schema_id) in self.come
        return row.type is None or (is_known and (row.game.key, row.type) in self.now)


class Types:
    """The types of the games of one schedule."""

    def __init__(self, world: World, engine: Engine, seed: int, versions: Callable[[Game], int]) -> None:
        """`versions` returns how many versions a game's table has."""
        self._engine, self._versions = engine, versions
        self._draw = random.Random(f"types {seed}")
        self._schemas = {
            game: sorted({row.schema_id for row in world.rows(game) if row.type is not None}) for game in world.games
        }
        self.games = [game for game in world.games if self._schemas[game]]
        self.decisions = Decisions()

    def live(self, game: Game, wait: Callable[[], None], repairs: Sequence[Callable[[], object]]) -> None:
        """A game's types come one by one; each is accepted, perhaps withdrawn, and perhaps accepted again."""
        schemas = self._draw.sample(self._schemas[game], len(self._schemas[game]))
        for schema_id in schemas:
            self.come(game, schema_id)
            wait()
            name = FURTHER[schema_id].message
            if (game.key, name) not in self.decisions.now:
                self.decide(game, name)
            for accepts in self._draw.choice(((), (), (), (False,), (False, True), (False, True))):
                self._repair(repairs)
                wait()
                self.decide(game, name, accepts=accepts)
            self._repair(repairs)

    def come(self, game: Game, schema_id: int) -> None:
        """A schema comes as a registry gives it: nobody is there to decide about its type."""
        with writing(self._engine) as connection:
            each = unattended(game.name, game.key, FURTHER[schema_id], DEFAULTS, registry="main")
            RegistrationBatch(connection, [each], NewIds(connection, None)).write()
        self.decisions.come.add((game.key, schema_id))

    def decide(self, game: Game, name: str, *, accepts: bool = True) -> None:
        """A person accepts a type, or withdraws it."""
        registry, decided = LocalRegistry(self._engine), self.decisions
        first = decided.accepted if accepts else decided.withdrawn
        first.setdefault((game.key, name), self._versions(game))
        decide = accepting if accepts else withdrawing
        registry.register_many(decide(registry.snapshot(), game.key, game.name, [name], "somebody"))
        (decided.now.add if accepts else decided.now.discard)((game.key, name))

    def _repair(self, repairs: Sequence[Callable[[], object]]) -> None:
        if self._draw.random() < 0.6:
            self._draw.choice(repairs)()
