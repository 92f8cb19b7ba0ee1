"""Whether a game's table in the embedded catalog is shown where an environment's folder was, before it was moved."""

from dataclasses import replace
from pathlib import Path

from grants.model import GameTable, is_far
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths


def beside(table: GameTable, own: str, is_local: bool) -> GameTable:
    """Return a table beside the URI of the game's own; only what a catalog of this machine shows is looked at."""
    return replace(table, own=own, is_left=is_local and _is_left(table, own))


def is_empty(place: Location, own: Location) -> bool:
    """Return whether nothing lies at a place, or only a link through which one gets to the game's own table."""
    return not place.is_folder() or (not own.is_far and own.is_folder() and Path(place).samefile(own))


def _is_left(table: GameTable, own: str) -> bool:
    if not own or table.lies_at(own) is not False or is_far(table.location):
        return False
    place = located(table.location)
    former = Paths(Path(place).parent.parent)
    return table.lies_at(former.named(table.key).uri) is True and is_empty(place, located(own))
