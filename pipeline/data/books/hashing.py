"""The hash of a day's rows: SHA-256 over the hashes of the rows in the order of `_seq` and `_pos`.

A row's hash is the SHA-256 of its values as JSON, as DuckDB writes it, of the columns known at the closing. So it does
not depend on files, their order, or columns that came later, and nobody can make other rows of the same hash.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused, first_line
from pipeline.data.books.days import Closing
from pipeline.lake.delta import parquet
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.files import files_with, require_no_deletion_vectors
from pipeline.lake.delta.opening import columns_of, open_table
from pipeline.lake.delta.scratch import Database, DatabaseError, scratch
from pipeline.lake.storage.location import Location

MEMORY: Final = "512MB"  # of a day's rows; more is spilled

_FILE_ROWS: Final = 100_000  # of a file of closed rows
_READ_ROWS: Final = 16_384
_OWN: Final = (("_day", pa.timestamp("us", "UTC")), ("_revision", pa.int32()))
_HASHED: Final = """
SELECT _row.*, sha256(to_json(_row)::VARCHAR) AS _digest FROM (SELECT {columns} FROM rows WHERE {which}) AS _row
ORDER BY _seq, _pos
"""
"""Columns of payloads do not begin with `_`, so none can take the place of these names."""


def hashed(
    database: Database, rows: pa.RecordBatchReader, columns: pa.Schema, which: str
) -> Iterator[tuple[pa.Table, Sequence[str]]]:
    """Yield rows in the order of seq and pos with the hash of each, as many at once as a file has.

    `which` is a condition over `rows`.
    """
    database.register("rows", rows)
    named = ", ".join('"{}"'.format(name.replace('"', '""')) for name in columns.names)
    answer = database.sql(_HASHED.format(columns=named, which=which)).to_arrow_reader(_FILE_ROWS)
    for batch in answer:
        found = pa.Table.from_batches([batch])
        yield found.select(columns.names).cast(columns), found.column("_digest").to_pylist()


def digest_of(digests: Iterable[Sequence[str]]) -> str:
    """Return the hash of a day from those of its rows, in order."""
    whole = hashlib.sha256()
    for each in digests:
        whole.update("".join(each).encode())
    return whole.hexdigest()


def reader(files: Sequence[str], columns: pa.Schema, wanted: pc.Expression | None = None) -> pa.RecordBatchReader:
    """Return the rows of files as DuckDB takes them: batch by batch."""
    if not files:
        return pa.RecordBatchReader.from_batches(columns, [])
    scanner = parquet.dataset(files, columns).scanner(
        filter=wanted, batch_size=_READ_ROWS, batch_readahead=1, fragment_readahead=1
    )
    return scanner.to_reader()


def rehashed(closed: Location, closing: Closing) -> str:
    """Return the hash of the rows that a game's table of closed days has of a day now.

    Raises:
        Refused: the table cannot be read.
    """
    columns = columns_of(closing.schema)
    try:
        table = open_table(closed)
        require_no_deletion_vectors(table, str(closed))
        files = files_with(table, closed, "_day", range(closing.day, closing.day + 1))
        with scratch("books", MEMORY, threads=1, ordered=False) as database:
            database.execute("SET TimeZone = 'UTC'")
            rows = reader(files, pa.schema([*columns, *_OWN]))
            which = f"epoch_us(_day) = {closing.day} AND _revision = {closing.revision}"
            return digest_of(digests for _, digests in hashed(database, rows, columns, which))
    except (DeltaError, DatabaseError, OSError, pa.ArrowException) as error:
        raise Refused(f"{closed} cannot be read: {first_line(error)}. Restore its files.") from error


def marked_rows(rows: pa.Table, day: int, revision: int) -> pa.Table:
    """Return rows with the columns of closed days: the day's begin (microseconds), and its revision."""
    (day_name, day_type), (revision_name, revision_type) = _OWN
    days = pa.array([day] * rows.num_rows, pa.int64()).cast(day_type)
    revisions = pa.array([revision] * rows.num_rows, revision_type)
    return rows.append_column(day_name, days).append_column(revision_name, revisions)


def closed_schema(columns: pa.Schema) -> pa.Schema:
    """Return the columns of closed days of a game, for those of its table."""
    return pa.schema([*columns, *_OWN])
