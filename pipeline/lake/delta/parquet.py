"""The one place where Parquet files are opened, read and written: by their paths, wherever their table lies."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.dataset import Dataset, Scanner
from pyarrow.fs import FileSystem
from pyarrow.parquet import ParquetFile

from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located

__all__ = [
    "Dataset",
    "ParquetFile",
    "Scanner",
    "begin",
    "bounded",
    "copy",
    "dataset",
    "decode",
    "encode",
    "finish",
    "metadata",
    "name_below",
    "open_file",
    "open_uri",
    "pieces",
    "read",
    "schema",
    "write",
    "writer",
]

_CHUNK_ROWS: Final = 50_000
_CHUNK_BYTES: Final = 32 * 1024 * 1024
_HELD_BYTES: Final = 64 * 1024  # of a file: Arrow writes each column in two calls of the system
_FEW_ROWS: Final = 1_000  # a column's dictionary costs more than it saves, in time and in bytes


def _at(place: str | Location) -> tuple[Any, str]:
    """Return Arrow's file system of a place, and the path in it."""
    found = located(place)
    return found.storage.arrow(found.path)


def name_below(folder: Location, name: str) -> str:
    """Return the path below a folder of a file that a dataset names, in its column `__filename`."""
    _, whole = _at(folder)
    return name.removeprefix(f"{whole}/")


def open_file(path: str | Location) -> ParquetFile:
    """Open a file to read it in batches."""
    system, name = _at(path)
    return pq.ParquetFile(name, filesystem=system)


@contextmanager
def open_uri(uri: str) -> Iterator[ParquetFile]:
    """Open a file that another writer names by a URI."""
    system, name = FileSystem.from_uri(uri)
    with system.open_input_file(name) as stream, pq.ParquetFile(stream) as file:
        yield file


def metadata(path: str | Location) -> pq.FileMetaData:
    """Read a file's row groups, their rows and sizes; raises where it is damaged."""
    system, name = _at(path)
    return pq.read_metadata(name, filesystem=system)


def schema(path: str | Location) -> pa.Schema:
    """Read a file's columns."""
    system, name = _at(path)
    return pq.read_schema(name, filesystem=system)


def read(path: str | Location, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a file as it is; a folder `a=b` on its path adds no column."""
    system, name = _at(path)
    return pq.read_table(name, columns=columns, partitioning=None, filesystem=system)


def decode(content: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a file's bytes."""
    return pq.read_table(pa.BufferReader(content), columns=columns)


def dataset(files: Sequence[str], columns: pa.Schema | None = None) -> Dataset:
    """Return the rows of files of one storage, to be scanned; of columns that a file lacks the values are null."""
    system = _at(files[0])[0] if files else None
    return ds.dataset([_at(each)[1] for each in files], schema=columns, format="parquet", filesystem=system)


def bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Gather batches until they are enough for one file."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(each.num_rows for each in held) >= _CHUNK_ROWS or sum(each.nbytes for each in held) >= _CHUNK_BYTES:
            yield held
            held = []
    if held:
        yield held


def pieces(files: Sequence[tuple[str, Sequence[int] | None]], columns: pa.Schema) -> Dataset:
    """Return the rows of some row groups of files, or of all where None is given, in their order."""
    form, system = ds.ParquetFileFormat(), _at(files[0][0])[0]
    fragments = [form.make_fragment(_at(path)[1], system, row_groups=groups) for path, groups in files]
    return ds.FileSystemDataset(fragments, columns, form, system)


def write(rows: pa.Table, target: Location, compression: str, *, settled: bool = True) -> int:
    """Write rows as one file, without statistics: those that readers use stand in the log; return its bytes.

    With `settled` False the caller puts it on disk, before an entry of a log names it (`Location.settle`).
    """
    if target.is_far:
        content = encode(rows, compression)  # one request, where Arrow's own writer needs three and one for the size
        target.put(content)
        return len(content)
    try:
        with pa.output_stream(target.path, compression=None, buffer_size=_HELD_BYTES) as sink:
            _write(rows, sink, compression)
            size: int = sink.tell()
    except BaseException:  # an interrupt, too, would leave a part of a file
        target.delete()
        raise
    if settled:
        target.parent.settle([target.name])
    return size


def copy(source: str, target: Path, columns: Sequence[str] | None) -> None:
    """Copy a file's rows to this machine, batch by batch; of the columns those that it has."""
    draft = target.with_suffix(".draft")
    with open_file(source) as file:
        there = None if columns is None else [name for name in columns if name in file.schema_arrow.names]
        kept = file.schema_arrow if there is None else pa.schema([file.schema_arrow.field(name) for name in there])
        with pq.ParquetWriter(draft, kept, compression="zstd") as out:
            for batch in file.iter_batches(columns=there):
                out.write_batch(batch)
    draft.replace(target)


def begin(target: Location) -> pa.NativeFile:
    """Begin a file that is written part by part; `finish` ends it. In a bucket nothing of it is there before."""
    return pa.BufferOutputStream() if target.is_far else pa.OSFile(target.path, "wb")


def finish(sink: pa.NativeFile, target: Location) -> None:
    """End a file of `begin`, and put it on disk."""
    if isinstance(sink, pa.BufferOutputStream):
        target.put(sink.getvalue().to_pybytes())
    else:
        sink.close()
        target.parent.settle([target.name])


def encode(rows: pa.Table, compression: str = "zstd") -> bytes:
    """Return rows as the bytes of a file, as `write` makes them."""
    sink = pa.BufferOutputStream()
    _write(rows, sink, compression)
    return bytes(sink.getvalue())


def _write(rows: pa.Table, sink: Any, compression: str) -> None:
    has_dictionaries = rows.num_rows >= _FEW_ROWS
    pq.write_table(
        rows, sink, compression=compression, use_dictionary=has_dictionaries, write_statistics=False, store_schema=False
    )


def writer(sink: pa.NativeFile, columns: pa.Schema, statistics: Sequence[str]) -> pq.ParquetWriter:
    """Begin a file that is written row group by row group."""
    return pq.ParquetWriter(sink, columns, compression="zstd", write_statistics=list(statistics), store_schema=False)
