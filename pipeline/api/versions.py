"""Each game's schema versions; a list of them loads no library of formats.

Every query raises `Refused` where the control store cannot be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.api.environment import OpenEnvironment
from pipeline.base.names import GameKey
from pipeline.data.contracts.catalogue.versions import GameVersions, Version, read_versions
from pipeline.store.database.engine import reading
from pipeline.store.games import find, known_names

__all__ = ["GameVersions", "Version", "VersionReport", "find_game", "of_game", "read", "report"]


@dataclass(frozen=True, slots=True)
class VersionReport:
    """One schema version as commands print it."""

    game: str
    game_key: str
    version: int
    schema_id: int
    format: str
    message: str
    registered_at: float  # Unix seconds
    registered_by: str | None
    policies: Mapping[str, str]
    quarantined: str | None  # why its rows go to quarantine; None: they land


@reading()
def read(environment: OpenEnvironment) -> tuple[GameVersions, ...]:
    """Read the versions of all games, in the order of their names."""
    return tuple(read_versions(environment.engine).values())


@reading()
def of_game(environment: OpenEnvironment, key: str) -> GameVersions:
    """Read the versions of one game by its key; none where it has no schema."""
    return read_versions(environment.engine, key).get(GameKey(key), GameVersions(GameKey(key), key, ()))


@reading()
def find_game(environment: OpenEnvironment, game: str) -> GameVersions:
    """Read the versions of a game by its name or key; none where it has no schema.

    Raises:
        Refused: there is no such game.
    """
    known = find(game, known_names(environment.engine))
    return read_versions(environment.engine, known.key).get(known.key) or GameVersions(known.key, known.name, ())


def report(game: GameVersions, version: Version) -> VersionReport:
    """Return a version as commands print it."""
    return VersionReport(
        game=game.game,
        game_key=game.key,
        version=version.version,
        schema_id=version.schema_id,
        format=version.format,
        message=version.message,
        registered_at=version.created_at,
        registered_by=version.registered_by,
        policies=dict(version.policies.chosen),
        quarantined=version.quarantined,
    )
