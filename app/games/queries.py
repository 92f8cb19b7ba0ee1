"""Data of the Games page: caches over `pipeline.api`, shared by all viewers."""

from typing import Final

from app.state.services import cached
from pipeline.api import games

overview: Final = cached(games.overview, seconds=3, by_acts=True)
candidates: Final = cached(games.candidates, seconds=5, by_acts=True)
open_names: Final = cached(games.open_names, seconds=5, by_acts=True)
schema_ids: Final = cached(games.schema_ids, seconds=60)
"""It reads quarantine, so only for a name that is on screen."""
