"""Which table is a game's own: where it lies, which the catalog must show, and its Delta id, which no catalog shows.

The id is read in the game's own folder each time, so a table that turnout makes again has its new one at once.
"""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sqlalchemy import Engine

from grants import derived_tables
from grants.catalog import Catalog
from grants.model import OwnTable, Securable
from grants.observing.left_places import beside
from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import parted_table_key
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.opening import open_table
from pipeline.settings.tree import Paths
from pipeline.store.games import known_games

_AT_ONCE: Final = 16  # each is a few requests where tables lie in a bucket


class Unreadable(Transient):
    """The own table of a game cannot be read now, so it is not known which table it is."""


def places(engine: Engine, paths: Paths) -> Mapping[str, OwnTable]:
    """Return the own table of each known game, and each silver and gold table, by key; none need be there yet."""
    games = {key: OwnTable(paths.table(key).uri) for key in known_games(engine)}
    derived = derived_tables.in_force(engine).values()
    return games | {each.key: OwnTable(paths.named(each.key).uri, each.game_key, each.follows) for each in derived}


def delta_ids(paths: Paths, keys: Collection[str]) -> Mapping[str, str]:
    """Return the Delta ids of own tables, by key; empty of a silver or gold table that is not there.

    Raises:
        Refused: a game has no table yet.
        Unreadable: a table cannot be read.
    """
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="own-tables") as pool:
        return dict(zip(keys, pool.map(lambda key: _delta_id(paths, key), keys), strict=True))


def wrong(
    catalog: Catalog, schema: Securable, engine: Engine, paths: Paths, expected: Mapping[str, str]
) -> Mapping[str, str]:
    """Return of which games the catalog's table, or the one in their folder, is not the expected one, and why.

    Args:
        catalog: read now.
        schema: of the games' tables.
        engine: the control store.
        paths: of the environment.
        expected: Delta ids by game key, as they were when the change was checked.

    Raises:
        Unreadable: a game's table cannot be read.
        CatalogUnavailable: the catalog cannot be reached.
    """
    if not expected:
        return {}
    own, tables = places(engine, paths), catalog.tables(schema)
    found: dict[str, str] = {}
    for key, delta_id in expected.items():
        table = tables.get(key)
        if table is None:
            found[key] = f"The catalog has no table of {key} any more."
        elif key in own and (other := beside(table, own[key].uri, catalog.is_local).other) is not None:
            found[key] = other
        else:
            try:
                now = _delta_id(paths, key)
            except Refused as gone:
                found[key] = str(gone)
                continue
            if now != delta_id:
                ids = f"its Delta id is {now}, not {delta_id}"
                found[key] = f"The table of {key} at {table.location} was replaced: {ids}."
    return found


def _delta_id(paths: Paths, key: str) -> str:
    place = paths.named(key)
    try:
        return str(open_table(place).metadata().id)
    except TableNotFoundError as gone:
        if parted_table_key(key) is not None:
            return ""  # it is made again at its game's next look, and keeps no reader of the game waiting
        raise Refused(f"{key} has no table at {place.uri} yet. Grant it when its first rows have landed.") from gone
    except (DeltaError, OSError) as error:
        raise Unreadable(f"The table of {key} at {place.uri} cannot be read: {first_line(error)}") from error
