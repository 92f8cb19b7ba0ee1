"""Finds the tables that the embedded catalog shows in a folder out of which the environment was moved.

A person names that folder, never the catalog: who may register a table could have it shown anywhere, with grants of
theirs. A table at its place in the environment's former folder was the game's own before the move; no other one counts.
"""

from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine

from grants.applying import own_tables
from grants.catalogs.embedded import Embedded
from grants.model import GameTable, Securable
from grants.observing.left_places import beside, is_empty
from pipeline.base.errors import Refused
from pipeline.lake.delta.log import exists
from pipeline.settings.tree import Paths


class OtherTables(NamedTuple):
    """Tables that the catalog shows in other places than the games' own, each with both places."""

    moved: list[GameTable]  # in the former folder
    elsewhere: list[GameTable]


def find(catalog: Embedded, schema: Securable, engine: Engine, paths: Paths, former: Path) -> OtherTables:
    """Return which tables were moved here from a former folder of the environment, and which others are elsewhere.

    Raises:
        Refused: something still lies at a table's former place, a game has no table at its own, or no table was there
            that is elsewhere.
        CatalogUnavailable: the catalog cannot be reached.
    """
    own, was = own_tables.places(engine, paths), Paths(former)
    tables = (
        beside(table, own[key].uri, catalog.is_local)
        for key, table in sorted(catalog.tables(schema).items())
        if key in own
    )
    found = OtherTables([], [])
    for table in tables:
        if table.other is None:
            continue
        place, former_place = paths.named(table.key), was.named(table.key)
        if not table.lies_at(former_place.uri):
            found.elsewhere.append(table)
            continue
        if not is_empty(former_place, place):
            raise Refused(f"A folder still lies at {former_place.uri}: it was copied, not moved. Rename it first.")
        if not exists(place):
            raise Refused(f"{table.key} has no table at {place.uri}. Move its folder there first.")
        found.moved.append(table)
    if found.elsewhere and not found.moved:
        other = found.elsewhere[0]
        raise Refused(
            f"The catalog shows no table in {was.tables}, but {other.key} at {other.location or 'an unknown place'}. "
            "Name the environment's former folder as the catalog has it."
        )
    return found
