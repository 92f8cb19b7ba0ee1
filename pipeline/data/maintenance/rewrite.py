"""Writes the rows of a table's files into new, larger files beside them; commits nothing.

Small runs are packed in memory, up to a bound. Larger runs of bronze and quarantine are sorted by DuckDB, which spills
to a temporary folder, and cut into files by key.
"""

import json
import posixpath
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.failpoints import effect
from pipeline.lake.delta import parquet
from pipeline.lake.delta.data_files import DataFile, discard, write_file
from pipeline.lake.delta.opening import DeltaTable
from pipeline.lake.delta.parquet import Dataset
from pipeline.lake.delta.rewrite import TableFile
from pipeline.lake.delta.scratch import OutOfMemory, scratch
from pipeline.lake.delta.stats import stats_of
from pipeline.lake.storage.location import Location

ROW_GROUP_ROWS: Final = 16_384  # a reader of one game reads whole row groups
_PACKED_BYTES: Final = 256 * 1024 * 1024  # decoded; sorting and writing take about as much again each
_MEMORY_LIMIT: Final = "512MB"  # of the sort; the rest is spilled
IN_ORDER: Final = "SELECT * FROM rows ORDER BY game_key, seq, pos"


class TooLarge(Exception):
    """The rows to merge exceed the memory limit; nothing was written."""


def columns_of(table: DeltaTable) -> pa.Schema:
    """Return the columns a table's data files have: all but those the table is partitioned by."""
    partitions = set(table.metadata().partition_columns)
    return pa.schema([field for field in pa.schema(table.schema().to_arrow()) if field.name not in partitions])


def opened(path: Location, columns: pa.Schema, files: Sequence[TableFile]) -> Dataset:
    """Return files of a table as a dataset; a column that a file lacks is null."""
    return parquet.dataset([str(path / file.path) for file in files], columns)


def packed(
    path: Location,
    columns: pa.Schema,
    files: Sequence[TableFile],
    order: Sequence[str],
    with_statistics: Collection[str],
) -> list[DataFile]:
    """Write the rows of files of one partition as one file, sorted where an order is given, with column statistics.

    Raises:
        TooLarge: decoded, the rows are more than is held in memory; few bytes of a file may be many of texts.
    """
    columns = _held_columns(path, columns, files)
    rows = _decoded(path, columns, files)
    if order:
        rows = rows.sort_by([(name, "ascending") for name in order])
    folder = posixpath.dirname(files[0].path)
    file = write_file(rows, path / folder, compression="zstd")
    stats = stats_of(rows, [name for name in columns.names if name in with_statistics])
    return [replace(file, path=posixpath.join(folder, file.path), stats=stats)]


def _held_columns(path: Location, columns: pa.Schema, files: Sequence[TableFile]) -> pa.Schema:
    """Return the columns without struct columns that no file has: those of event types without rows here."""
    if not any(pa.types.is_struct(each.type) for each in columns):
        return columns
    held = {name for file in files for name in parquet.schema(path / file.path).names}
    return pa.schema([each for each in columns if each.name in held or not pa.types.is_struct(each.type)])


def _decoded(path: Location, columns: pa.Schema, files: Sequence[TableFile]) -> pa.Table:
    scanner = opened(path, columns, files).scanner(batch_size=ROW_GROUP_ROWS, batch_readahead=1, fragment_readahead=1)
    batches, size = [], 0
    for batch in scanner.to_batches():
        batches.append(batch)
        size += batch.nbytes
        if size > _PACKED_BYTES:
            raise TooLarge(f"{len(files)} files")
    return pa.Table.from_batches(batches, columns)


def sorted_by_game(
    path: Location, columns: pa.Schema, files: Sequence[TableFile], file_bytes: int, query: str = IN_ORDER
) -> list[DataFile]:
    """Write the rows of files in order of (game_key, seq, pos) as files of about `file_bytes`, each a range of games.

    A game larger than a file continues in the next one, but rows of one (game, seq) stay together (law L2). The query
    selects from `rows`, the files' rows, in that order.

    Raises:
        TooLarge: DuckDB spills rows that it sorts, but large values only up to a limit.
    """
    cutter = _Cutter(path, columns, file_bytes)
    try:
        with queried(opened(path, columns, files), columns.names, query) as answer:
            for batch in answer:
                if batch.num_rows:
                    cutter.add(pa.Table.from_batches([batch]).select(columns.names).cast(columns))
    except (OutOfMemory, OSError) as error:
        if "Out of Memory" not in str(error):  # while the result streams, it comes as an OSError
            raise
        discard(path, cutter.finish())
        raise TooLarge(f"{len(files)} files") from error
    return cutter.finish()


@contextmanager
def queried(dataset: Dataset, names: Sequence[str], query: str) -> Iterator[pa.RecordBatchReader]:
    """Yield the result of a query over columns of a dataset, named `rows`, with bounded memory."""
    # One batch after the other: a dataset read ahead by all threads would hold far more than the sort does.
    scanner = dataset.scanner(
        columns=list(names), batch_size=ROW_GROUP_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
    )
    with scratch("maintain", _MEMORY_LIMIT, threads=2) as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("rows", scanner.to_reader())
        answer = database.sql(query).to_arrow_reader(ROW_GROUP_ROWS)
        assert answer is not None
        yield answer


class _Cutter:
    """Cuts rows that come in order of (game_key, seq) into files."""

    def __init__(self, folder: Location, columns: pa.Schema, file_bytes: int) -> None:
        self._folder, self._columns, self._file_bytes = folder, columns, file_bytes
        self._open: _OpenFile | None = None
        self._last: tuple[Any, Any] = (None, None)  # game and seq of the row before
        self._done: list[DataFile] = []

    def add(self, rows: pa.Table) -> None:
        """Append rows to the open file; once it is large enough, start another at the next game."""
        at = self._cut(rows) if self._open is not None and self._open.size >= self._file_bytes else None
        if at is not None:
            self._append(rows.slice(0, at))
            self._close()
        self._append(rows if at is None else rows.slice(at))
        self._last = rows.column("game_key")[-1].as_py(), rows.column("seq")[-1].as_py()

    def finish(self) -> list[DataFile]:
        """Close the open file and return all files."""
        self._close()
        return self._done

    def _cut(self, rows: pa.Table) -> int | None:
        """Return the first row that may start a file: of another game, or of another seq in a file twice too large."""
        assert self._open is not None
        games = rows.column("game_key").combine_chunks().dictionary_encode().indices.to_numpy()
        changes = np.append(rows.column("game_key")[0].as_py() != self._last[0], games[1:] != games[:-1])
        if self._open.size >= 2 * self._file_bytes:
            seqs = rows.column("seq").to_numpy()
            changes |= np.append(seqs[0] != self._last[1], seqs[1:] != seqs[:-1])
        cuts = np.flatnonzero(changes)
        return int(cuts[0]) if cuts.size else None

    def _append(self, rows: pa.Table) -> None:
        if rows.num_rows:
            if self._open is None:
                self._open = _OpenFile(self._folder, self._columns)
            self._open.append(rows)

    def _close(self) -> None:
        if self._open is not None:
            self._done.append(self._open.close())
            self._open = None


class _OpenFile:
    """A Parquet file that is being written; each call appends a row group."""

    def __init__(self, folder: Location, columns: pa.Schema) -> None:
        self._path = folder / f"part-{uuid.uuid4()}.parquet"
        with effect("write_data_file"):
            self._sink = parquet.begin(self._path)
        with effect("write_data_file"):
            self._writer = parquet.writer(self._sink, columns, ["game_key", "seq"])
        self._rows = 0
        self._games: list[str] = []
        self._seqs: list[int] = []

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def append(self, rows: pa.Table) -> None:
        """Append rows that sort at or after the existing ones."""
        with effect("write_data_file"):
            self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        self._rows += rows.num_rows
        games, seqs = pc.min_max(rows.column("game_key")).as_py(), pc.min_max(rows.column("seq")).as_py()
        self._games += [games["min"], games["max"]]
        self._seqs += [seqs["min"], seqs["max"]]

    def close(self) -> DataFile:
        """Close the file and describe it."""
        with effect("write_data_file"):
            self._writer.close()
            parquet.finish(self._sink, self._path)
        stats = {
            "numRecords": self._rows,
            "minValues": {"game_key": min(self._games), "seq": min(self._seqs)},
            "maxValues": {"game_key": max(self._games), "seq": max(self._seqs)},
            "nullCount": {},
        }
        return DataFile(self._path.name, self._path.size(), self._rows, json.dumps(stats))
