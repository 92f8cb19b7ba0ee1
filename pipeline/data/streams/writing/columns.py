"""The columns of game tables: our own and those of the registered schemas, for a table and for an event type."""

from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipeline.base.names import GameKey
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.contracts.shape import merges_in, table_schema
from pipeline.lake.delta.columns import with_merges
from pipeline.lake.delta.meanings import with_meanings

OWN_COLUMNS: Final = pa.schema(
    [
        ("_seq", pa.int64()),
        ("_pos", pa.int32()),
        ("_schema_id", pa.int64()),
        ("_event_time", pa.timestamp("us", "UTC")),
        ("_event_id", pa.string()),
        ("_source_time", pa.timestamp("us", "UTC")),
        ("_type", pa.string()),
    ]
)
"""The columns of every game table before the payload's fields."""


def target_schema(schema_set: SchemaSet, key: str) -> pa.Schema:
    """Return the columns of a game's table: our own, then the union of its registered schemas."""
    return _target(schema_set.placed(GameKey(key)))


def landing_schema(schema_set: SchemaSet, key: str) -> pa.Schema:
    """Return the same columns for a commit of rows: they carry what the game's schema ids mean."""
    ids = schema_set.games.get(GameKey(key), ())
    marks = {each: schema_set.fingerprints[each] for each in ids if each in schema_set.fingerprints}
    return with_meanings(target_schema(schema_set, key), marks)


def type_schema(schema_set: SchemaSet, key: str, struct: str | None) -> pa.Schema:
    """Return the columns of a game's rows of one event type, as a file has them."""
    return _target(_of_struct(schema_set.placed(GameKey(key)), struct))


@lru_cache(maxsize=4096)
def _of_struct(
    schemas: tuple[tuple[Schema, FieldPlacement], ...], struct: str | None
) -> tuple[tuple[Schema, FieldPlacement], ...]:
    """Return the schemas of one event type; where the game has no other, the very same tuple."""
    own = tuple(each for each in schemas if each[1].struct == struct)
    return schemas if len(own) == len(schemas) else own


@lru_cache(maxsize=4096)
def _target(schemas: tuple[tuple[Schema, FieldPlacement], ...]) -> pa.Schema:
    return with_merges(pa.schema([*OWN_COLUMNS, *(table_schema(schemas) if schemas else ())]), merges_in(schemas))


def by_layout(
    schema_set: SchemaSet, good: np.ndarray, games: np.ndarray, names: list[str], schema_id: int
) -> list[tuple[pa.Schema, FieldPlacement, np.ndarray]]:
    """Group rows by the columns of their game's table and their layout: most games share a few layouts."""
    layouts: dict[tuple[int, FieldPlacement], tuple[pa.Schema, list[int]]] = {}
    targets: dict[Any, pa.Schema] = {}  # a task looks at each game again for each schema
    for game in np.unique(games[good]).tolist():
        key = GameKey(names[game])
        placement = schema_set.placement(key, schema_id)
        like = schema_set.games[key], tuple(schema_set.placements.get(key, {}).items()), placement.struct
        if (target := targets.get(like)) is None:
            target = targets[like] = type_schema(schema_set, key, placement.struct)
        layouts.setdefault((id(target), placement), (target, []))[1].append(game)
    if len(layouts) == 1:
        (((_, placement), (target, _)),) = layouts.items()
        return [(target, placement, np.arange(good.size))]
    marks = np.zeros(len(names), dtype=np.int64)
    for mark, (_, members) in enumerate(layouts.values()):
        marks[members] = mark
    of_row = marks[games[good]]
    return [
        (target, placement, np.flatnonzero(of_row == mark))
        for mark, ((_, placement), (target, _)) in enumerate(layouts.items())
    ]
