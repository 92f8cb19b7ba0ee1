"""Reads the few newest rows of a table, by seq and pos, from the fewest files that can hold them. For the dashboard.

DuckDB sorts places first and reads the other columns of the chosen ones only, so a row costs little however wide it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from pipeline.base.errors import Refused, first_line
from pipeline.lake.delta.files import readable
from pipeline.lake.delta.scratch import Database, DatabaseError, scratch

MOST_FILES: Final = 24
"""Most files of one reading: those of a game with a row in each pass, or the neighbours' of a rare one."""

_MEMORY_LIMIT: Final = "256MB"  # the rest is spilled to a temporary folder

_READ: Final = """
WITH chosen AS (
    SELECT DISTINCT {seq} AS seq, {pos} AS pos FROM rows WHERE {condition} ORDER BY 1 DESC, 2 DESC LIMIT $limit
)
SELECT chosen.seq, chosen.pos, {columns} FROM rows JOIN chosen ON rows.{seq} = chosen.seq AND rows.{pos} = chosen.pos
WHERE {condition}
"""


@dataclass(frozen=True, slots=True)
class Query:
    """Which rows, and what of them; the texts are SQL of ours, foreign values are bound."""

    seq: str  # the column with the seq
    pos: str
    columns: Sequence[tuple[str, str]]  # name in the result, expression; `seq` and `pos` are there already
    condition: str = "true"
    values: Mapping[str, Any] = field(default_factory=dict)  # of the condition
    empty: pa.Table | None = None  # the table's columns, which a file may lack


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest rows as they stand in the files: a place may be there more than once."""

    rows: tuple[dict[str, Any], ...]  # newest first
    files: int  # that were read
    complete: bool  # False: there are fewer places than wanted, and older files that were not read


def newest_rows(files: Sequence[tuple[str, int]], query: Query, limit: int, label: str) -> Newest:
    """Read the rows of the newest places.

    Args:
        files: what `newest_files` returned.
        query: which rows, and what of them.
        limit: most places.
        label: what people call the table.

    Raises:
        Refused: a file cannot be read.
    """
    held: list[dict[str, Any]] = []
    read = 0
    with _database(label) as database:
        for path, high in files:
            if read == MOST_FILES or _is_enough(held, limit, high):
                break
            held = _newest(held + _rows_of(database, path, query, limit), limit)
            read += 1
    return Newest(tuple(held), read, complete=read == len(files) or len(_places(held)) == limit)


def _is_enough(held: list[dict[str, Any]], limit: int, high: int) -> bool:
    """Return whether no row up to a seq is among the newest: at the same seq another pos may be."""
    places = _places(held)
    return len(places) == limit and places[-1][0] > high


def _newest(rows: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    kept = set(_places(rows)[:limit])
    chosen = [row for row in rows if (row["seq"], row["pos"]) in kept]
    return sorted(chosen, key=lambda row: (row["seq"], row["pos"]), reverse=True)


def _places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted({(row["seq"], row["pos"]) for row in rows}, reverse=True)


def _rows_of(database: Database, path: str, query: Query, limit: int) -> list[dict[str, Any]]:
    database.read_parquet(readable(database, [path]), hive_partitioning=False).create_view("written", replace=True)
    if query.empty is None:
        database.execute("CREATE OR REPLACE VIEW rows AS FROM written")
    else:
        database.register("columns", query.empty)
        database.execute("CREATE OR REPLACE VIEW rows AS FROM written UNION ALL BY NAME FROM columns")
    columns = ", ".join(expression for _, expression in query.columns)
    sql = _READ.format(seq=query.seq, pos=query.pos, condition=query.condition, columns=columns)
    names = ["seq", "pos", *(name for name, _ in query.columns)]
    rows = database.execute(sql, {"limit": limit, **query.values}).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]


@contextmanager
def _database(label: str) -> Iterator[Database]:
    with scratch("newest", _MEMORY_LIMIT, threads=1) as database:
        try:
            yield database
        except DatabaseError as error:  # DuckDB raises several classes for a damaged file
            raise Refused(f"{label} cannot be read: {first_line(error)}. Restore its damaged file.") from error
