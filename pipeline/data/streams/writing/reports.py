"""What a task reports of the games whose rows it splits: counts of event types and shapes, and faults."""

import traceback
from collections.abc import Collection, Iterable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.schemas import Schema
from pipeline.data.streams.lanes import classify
from pipeline.lake.delta.bronze import whole

REPORT: Final = "report string, rejects binary"
DETAIL_LIMIT: Final = 500

Games: TypeAlias = dict[str, dict[str, Any]]
"""The report of each game, by its key."""


def count_landed(found: Games, keys: pa.Array, games: np.ndarray, types: pa.ChunkedArray) -> None:
    """Count the rows of each event type that landed."""
    named = whole(types).dictionary_encode()
    many = len(named.dictionary)
    counts = np.bincount(games * many + named.indices.to_numpy())
    for place in np.flatnonzero(counts).tolist():
        count_type(found, keys[place // many].as_py(), named.dictionary[place % many].as_py(), 0, int(counts[place]))


def undeclared(schemas: Iterable[Schema]) -> list[int]:
    """Return the ids of the schemas that nobody declared."""
    return [each.schema_id for each in schemas if each.format == UNDECLARED]


def count_shapes(found: Games, keys: pa.Array, games: np.ndarray, ids: np.ndarray, known: Collection[int]) -> None:
    """Count the rows of each schema that nobody declared, for the statistics of variations."""
    if not known or not (chosen := np.isin(ids, list(known))).any():
        return
    pairs, counts = np.unique(np.stack([games[chosen], ids[chosen]]), axis=1, return_counts=True)
    for game, schema_id, rows in zip(*pairs.tolist(), counts.tolist(), strict=True):
        counted = found[keys[game].as_py()].setdefault("shapes", {})
        counted[str(schema_id)] = counted.get(str(schema_id), 0) + rows  # a slice may write several times


def count_type(found: Games, key: str, name: str, place: int, rows: int) -> None:
    """Add rows of an event type to those that landed (place 0) or were refused (1)."""
    found[key]["types"].setdefault(name, [0, 0])[place] += rows


def fault(error: Exception) -> dict[str, str]:
    """Return the lane's kind of an error, and its text."""
    evidence = "".join(traceback.format_exception_only(error)).strip()[:DETAIL_LIMIT]
    return {"kind": classify(error), "evidence": evidence}
