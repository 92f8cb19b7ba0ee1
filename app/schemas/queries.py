"""Data of the Schemas page: caches over `pipeline.api`, shared by all viewers.

Each raises `Refused` where the control store cannot be read. Definitions never change, so what is made of them is kept
longer.
"""

from typing import Final

from app.state import services
from app.state.services import Environment, Hashes, cached, kept
from pipeline.api import schemas
from pipeline.api import variations as stored_variations
from pipeline.api.schemas import UNREADABLE, Comparison, OneVersion, Overview
from pipeline.api.versions import GameVersions, Version

__all__ = [
    "UNREADABLE",
    "Comparison",
    "OneVersion",
    "Overview",
    "change_text",
    "comparison",
    "one_version",
    "overview",
    "used",
    "variations",
    "writers",
]

_BY: Final[Hashes] = {
    Version: lambda version: (version.game_key, version.version, version.schema_id),
    GameVersions: lambda game: (game.key, len(game.versions), game.newest and game.newest.schema_id),
}
"""Versions are added, never changed: their numbers tell them apart."""


@kept(seconds=3, by_acts=True)
def overview(environment: Environment) -> Overview:
    """Read all games with their versions, registries, needs, rates and requests."""
    return schemas.overview(services.opened(environment), services.fleet(environment))


writers: Final = cached(schemas.writers, seconds=3, most=50, by=_BY, by_acts=True)
variations: Final = cached(stored_variations.of_game, seconds=10, most=50, by=_BY, by_acts=True)
used: Final = cached(schemas.used, seconds=60, most=100)
comparison: Final = cached(schemas.compare, seconds=600, most=100, by=_BY)
one_version: Final = cached(schemas.one_version, seconds=600, most=100, by=_BY)
change_text: Final = cached(schemas.change_text, seconds=600, most=4_000, by=_BY)
