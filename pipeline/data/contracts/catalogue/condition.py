"""The whole catalogue at one moment: games with their versions, how registries stand, and what games wait for.

For pages and commands; nothing here writes or asks a registry.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from pipeline.base.names import GameKey, plain
from pipeline.base.texts import in_utc, join_limited
from pipeline.data.contracts.catalogue.versions import GameVersions, read_versions
from pipeline.data.contracts.shape_needs import SHAPES
from pipeline.data.contracts.writer_ids import shown_writer
from pipeline.settings.registries import RegistrySettings, generation_of, split_key
from pipeline.store.games import known_names
from pipeline.store.schema_needs import (
    NeedCount,
    OpenNeed,
    RegistryHealth,
    count_needs,
    needs_of_game,
    read_states,
)
from pipeline.store.writers import count_writers, writers_of

_FEW: Final = 3  # games or registries that the headline names
_MOST: Final = 200  # writers or needs of one game that are read


@dataclass(frozen=True, slots=True)
class RegistryView:
    """One generation of a registry: as set, as it answered last, and what depends on it."""

    registry: str
    kind: str | None  # None: the settings do not have it
    health: RegistryHealth | None  # None: nobody has asked it yet
    answers: int  # about writers, kept for good
    waiting_games: int

    @property
    def trouble(self) -> bool:
        """Whether a person should look."""
        return self.health is not None and self.health.state != "ok"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All that is known of schemas, read at one moment (Unix seconds)."""

    games: tuple[GameVersions, ...]  # by name
    registries: tuple[RegistryView, ...]
    waiting: Mapping[GameKey, tuple[NeedCount, ...]]
    read_at: float

    def game(self, key: str) -> GameVersions | None:
        """Return a game by its key, None where there is none."""
        return next((each for each in self.games if each.key == key), None)

    @property
    def refusing(self) -> tuple[GameVersions, ...]:
        """The games that have a version whose rows go to quarantine."""
        return tuple(each for each in self.games if each.quarantined)

    @property
    def troubles(self) -> tuple[str, ...]:
        """What a person should look at, a phrase each, the worst first."""
        return tuple(filter(None, (_refusing(self.refusing), *_registries(self.registries), _waiting(self))))


@dataclass(frozen=True, slots=True)
class GameWriters:
    """What registries say of one game: the ids that mean its schemas, and those it waits for."""

    known: tuple[tuple[str, str, int], ...]  # registry, id as people know it, our schema id; newest first
    needs: tuple[OpenNeed, ...]  # oldest first


def read_catalogue(engine: Engine, registries: Mapping[str, RegistrySettings]) -> Catalogue:
    """Read everything but definitions; `registries` are the settings'."""
    now = time.time()
    found = read_versions(engine)
    with engine.connect() as connection:
        states, counted, answers = read_states(connection), count_needs(connection), count_writers(connection)
    names = known_names(engine)
    names |= {str(each.game_key): each.game for each in counted}
    without = [GameVersions(GameKey(key), name, ()) for key, name in names.items() if key not in found]
    waiting: dict[GameKey, tuple[NeedCount, ...]] = {}
    for each in counted:
        waiting[each.game_key] = (*waiting.get(each.game_key, ()), each)
    kinds: dict[str, str] = {generation_of(registries, name): each.kind for name, each in registries.items()}
    met = {*states, *answers, *(each.registry for each in counted)} - {SHAPES}  # which no registry gives
    views = (
        RegistryView(
            name,
            kinds.get(split_key(name)[0]),
            states.get(name),
            answers.get(name, 0),
            sum(each.registry == name for each in counted),
        )
        for name in sorted(met | (kinds.keys() - {split_key(each)[0] for each in met}))
    )
    games = sorted((*found.values(), *without), key=lambda each: (each.game, each.key))
    return Catalogue(tuple(games), tuple(views), waiting, now)


def read_writers(engine: Engine, game: GameVersions) -> GameWriters:
    """Read what registries say of one game; of many ids only the newest, of many needs the oldest."""
    with engine.connect() as connection:
        rows = writers_of(connection, {each.schema_id for each in game.versions}, _MOST)
        needs = needs_of_game(connection, game.key, _MOST)
    known = ((row.registry, shown_writer(row.writer), row.schema_id) for row in rows if row.schema_id is not None)
    return GameWriters(tuple(known), tuple(needs))


def _refusing(games: tuple[GameVersions, ...]) -> str:
    if not games:
        return ""
    since = min(each.created_at for game in games for each in game.quarantined)
    versions = {each.version for game in games for each in game.quarantined}
    many = "" if len(games) == 1 else f"{len(games)} games: "
    which = join_limited(games, _FEW, lambda each: plain(each.game))
    whose = f"version {versions.pop()} of {many}{which}" if len(versions) == 1 else f"versions of {many}{which}"
    return f"rows of {whose} go to quarantine since {_moment(since)}"


def _registries(views: tuple[RegistryView, ...]) -> list[str]:
    return [
        f"registry {plain(each.registry)} is {each.health.state} since {_moment(each.health.since)}"
        for each in views
        if each.health is not None and each.trouble
    ]


def _waiting(catalogue: Catalogue) -> str:
    waiting = [needs[0] for needs in catalogue.waiting.values()]
    if not waiting:
        return ""
    which = join_limited(waiting, _FEW, lambda each: plain(each.game))
    one = len(waiting) == 1
    return f"{len(waiting)} game{'' if one else 's'} {'waits' if one else 'wait'} for a schema: {which}"


def _moment(at: float) -> str:
    return in_utc(at, "%d %b %H:%M UTC")
