"""Decoded rows in the columns of their games' tables, gathered until they are written: one file for each game. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.lake.delta.bronze import whole


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows in their games' columns. The game is not a column of theirs: a payload field may have any name."""

    keys: pa.ChunkedArray  # the game's key of each row
    rows: pa.Table

    def without(self, keys: pa.StringArray) -> "PlacedRows":
        """Return the rows of other games."""
        return self._filter(pc.invert(pc.is_in(self.keys, keys)))

    def only(self, keys: pa.StringArray) -> "PlacedRows":
        """Return the rows of these games."""
        return self._filter(pc.is_in(self.keys, keys))

    def _filter(self, kept: pa.Array) -> "PlacedRows":
        return PlacedRows(self.keys.filter(kept), self.rows.filter(kept))


RowsByTarget: TypeAlias = dict[pa.Schema, list[PlacedRows]]
"""Decoded rows by the columns of their event type in their games' tables."""


def by_file(decoded: RowsByTarget) -> Iterator[PlacedRows]:
    """Take all rows and yield them so that those of a game are together, with the columns of the types that it has."""
    joined = [_joined(decoded.pop(target)) for target in sorted(decoded, key=_place)]
    targets: dict[str, list[int]] = defaultdict(list)
    for number, part in enumerate(joined):
        for key in pc.unique(whole(part.keys)).to_pylist():
            targets[key].append(number)
    together: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for key, numbers in targets.items():
        together[tuple(numbers)].append(key)
    shared = Counter(place for places in together for place in places)
    for places, games in together.items():
        if len(places) == 1 and shared[places[0]] == 1:
            yield joined[places[0]]
            continue
        keys = pa.array(games, pa.string())
        parts = [joined[number].only(keys) for number in places]
        rows = pa.concat_tables([part.rows for part in parts], promote_options="default")
        yield PlacedRows(pa.chunked_array([chunk for part in parts for chunk in part.keys.chunks], pa.string()), rows)


def _place(target: pa.Schema) -> tuple[bool, str]:
    """Return the place of a type's columns in a file: the first type's, then structs by name."""
    last = target.field(len(target) - 1)
    return pa.types.is_struct(last.type), last.name


def _joined(parts: list[PlacedRows]) -> PlacedRows:
    keys = pa.chunked_array([chunk for part in parts for chunk in part.keys.chunks], pa.string())
    return PlacedRows(keys, pa.concat_tables([part.rows for part in parts]))
