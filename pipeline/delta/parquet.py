"""The one place where Parquet files are opened, read and written: by their paths, wherever their table lies."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import fspath

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.dataset import Dataset, Scanner
from pyarrow.fs import FileSystem, LocalFileSystem
from pyarrow.parquet import ParquetFile

from pipeline.storage.location import Location

__all__ = [
    "Dataset",
    "ParquetFile",
    "Scanner",
    "dataset",
    "decode",
    "encode",
    "metadata",
    "open_file",
    "open_uri",
    "pieces",
    "read",
    "schema",
    "write",
    "writer",
]


def open_file(path: str | Location) -> ParquetFile:
    """Open a file to read it in batches."""
    return pq.ParquetFile(fspath(path))


@contextmanager
def open_uri(uri: str) -> Iterator[ParquetFile]:
    """Open a file that another writer names by a URI."""
    system, name = FileSystem.from_uri(uri)
    with system.open_input_file(name) as stream, pq.ParquetFile(stream) as file:
        yield file


def metadata(path: str | Location) -> pq.FileMetaData:
    """Read a file's row groups, their rows and sizes; raises where it is damaged."""
    return pq.read_metadata(fspath(path))


def schema(path: str | Location) -> pa.Schema:
    """Read a file's columns."""
    return pq.read_schema(fspath(path))


def read(path: str | Location, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a file as it is; a folder `a=b` on its path adds no column."""
    return pq.read_table(fspath(path), columns=columns, partitioning=None)


def decode(content: bytes) -> pa.Table:
    """Return the rows of a file's bytes."""
    return pq.read_table(pa.BufferReader(content))


def dataset(files: Sequence[str], columns: pa.Schema | None = None) -> Dataset:
    """Return the rows of files, to be scanned; of columns that a file lacks the values are null."""
    return ds.dataset(list(files), schema=columns, format="parquet")


def pieces(files: Sequence[tuple[str, Sequence[int] | None]], columns: pa.Schema) -> Dataset:
    """Return the rows of some row groups of files, or of all where None is given, in their order."""
    form, system = ds.ParquetFileFormat(), LocalFileSystem()
    fragments = [form.make_fragment(path, system, row_groups=groups) for path, groups in files]
    return ds.FileSystemDataset(fragments, columns, form, system)


def write(rows: pa.Table, target: Location, compression: str) -> None:
    """Write rows as one file, without statistics: those that readers use stand in the log."""
    pq.write_table(rows, fspath(target), compression=compression, write_statistics=False, store_schema=False)


def encode(rows: pa.Table) -> bytes:
    """Return rows as the bytes of a file, as `write` makes them."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", write_statistics=False, store_schema=False)
    return bytes(sink.getvalue())


def writer(sink: pa.NativeFile, columns: pa.Schema, statistics: Sequence[str]) -> pq.ParquetWriter:
    """Begin a file that is written row group by row group."""
    return pq.ParquetWriter(sink, columns, compression="zstd", write_statistics=list(statistics), store_schema=False)
