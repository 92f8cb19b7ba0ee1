"""How many rows of a game's table each schema wrote, and when the first and last came. For the dashboard.

The table's log knows it of every file that one schema wrote. Of the others some are read, the newest, and stand for the
rest.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from pipeline.base.errors import Refused, first_line
from pipeline.lake.delta.files import readable, require_no_deletion_vectors
from pipeline.lake.delta.scratch import DatabaseError, scratch
from pipeline.lake.storage.location import Location

MOST_FILES: Final = 24
"""Most files of one reading from a bucket; each has its rows' schemas and times read, nothing else of them."""

MOST_FILES_NEAR: Final = 240
"""Most files of one reading from a folder."""

_MOST_ROWS: Final = 20_000_000
_MEMORY_LIMIT: Final = "256MB"
_READ: Final = """
SELECT _schema_id, count(*), epoch_us(min(_source_time)), epoch_us(max(_source_time)) FROM written GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class SchemaRows:
    """The rows of one schema that landed; times are the source's, in Unix seconds, None where no row has one."""

    rows: int
    first_at: float | None
    last_at: float | None


@dataclass(frozen=True, slots=True)
class Usage:
    """The rows of a table by the id of their schema."""

    schemas: Mapping[int, SchemaRows]
    files_left: int  # that hold several schemas and were not read: all numbers are lower bounds
    rows_left: int = 0  # in those files
    sampled: Mapping[int, int] = field(default_factory=dict)  # rows by schema in the files of several that were read

    @property
    def is_complete(self) -> bool:
        """Whether every row of the table was counted."""
        return self.files_left == 0

    def rows_of(self, schemas: Collection[int]) -> int:
        """Return the rows of some schemas: exact where all were counted, else with their share of those left."""
        counted = sum(self.schemas[each].rows for each in schemas if each in self.schemas)
        if not (of_all := sum(self.sampled.values())):
            return counted
        return counted + round(self.rows_left * sum(self.sampled.get(each, 0) for each in schemas) / of_all)


def usage(table: DeltaTable, folder: Location, label: str) -> Usage:
    """Count a game's rows by schema.

    Args:
        table: the game's table.
        folder: its folder.
        label: what people call the table.

    Raises:
        Refused: it has deletion vectors, or a file cannot be read.
    """
    require_no_deletion_vectors(table, label)
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    known = [each for each in files if _schema_of(each) is not None]
    mixed = [each for each in files if _schema_of(each) is None]
    mixed.sort(key=lambda each: -_or(each.get("max._seq"), 2**63 - 1))
    chosen: list[dict[str, Any]] = []
    rows = 0
    for each in mixed[: MOST_FILES if folder.is_far else MOST_FILES_NEAR]:
        rows += _or(each.get("num_records"), 0)
        if rows > _MOST_ROWS:
            break
        chosen.append(each)
    counted = [(_schema_of(each), _of_stats(each)) for each in known]
    read = _read([str(folder / unquote(each["path"])) for each in chosen], label)
    rows_left = sum(_or(each.get("num_records"), 0) for each in mixed[len(chosen) :])
    sampled = {schema: each.rows for schema, each in read if schema is not None}
    return Usage(_summed([*counted, *read]), len(mixed) - len(chosen), rows_left, sampled)


def _schema_of(file: Mapping[str, Any]) -> int | None:
    """Return the schema of all rows of a file, where its statistics say that there is one."""
    low, high = file.get("min._schema_id"), file.get("max._schema_id")
    without = _or(file.get("null_count._schema_id"), 1)
    return None if low is None or low != high or without or file.get("num_records") is None else int(low)


def _of_stats(file: Mapping[str, Any]) -> SchemaRows:
    first, last = file.get("min._source_time"), file.get("max._source_time")
    return SchemaRows(
        int(file["num_records"]),
        None if first is None else first.timestamp(),
        None if last is None else last.timestamp(),
    )


def _read(paths: Sequence[str], label: str) -> list[tuple[int | None, SchemaRows]]:
    if not paths:
        return []
    with scratch("usage", _MEMORY_LIMIT, threads=1) as database:
        try:
            files = readable(database, paths, ("_schema_id", "_source_time"))
            columns = database.read_parquet(files, hive_partitioning=False, union_by_name=True)
            columns.create_view("written", replace=True)
            found = database.execute(_READ).fetchall()
        except DatabaseError as error:  # DuckDB raises several classes for a damaged file
            raise Refused(f"{label} cannot be read: {first_line(error)}. Restore its damaged file.") from error
    return [(schema, SchemaRows(rows, _seconds(first), _seconds(last))) for schema, rows, first, last in found]


def _summed(counted: Iterable[tuple[int | None, SchemaRows]]) -> dict[int, SchemaRows]:
    found: dict[int, SchemaRows] = {}
    for schema, more in counted:
        if schema is None:
            continue  # rows without a schema's id are of no version
        held = found.get(schema, SchemaRows(0, None, None))
        firsts = [each for each in (held.first_at, more.first_at) if each is not None]
        lasts = [each for each in (held.last_at, more.last_at) if each is not None]
        found[schema] = SchemaRows(held.rows + more.rows, min(firsts, default=None), max(lasts, default=None))
    return found


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def _or(value: int | None, unknown: int) -> int:
    return unknown if value is None else int(value)
