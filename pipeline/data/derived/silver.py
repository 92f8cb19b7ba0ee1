"""Carries one silver table on: what its game's table got since, flat, masked, each event once, in one commit.

The position, a version of the game's table, is the cursor in the silver table's own log (laws L3 and L4). Beside it are
numbers of what it counts in: the game's table by its id, with the definition, and that version's commit. Where one of
them is another one, or versions are gone or remove rows, the table begins a new generation from the game's table as it
is now, in one commit (law L12). Everything that decides about a row is in files that the expected cursor names.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, compress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused, Transient
from pipeline.base.names import generation_id, silver_key, stream_app_id
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.definitions import SilverDefinition
from pipeline.data.derived.flat import FlatType, flat_type, laid_out, require_layout
from pipeline.data.derived.held_ids import HeldIds, Position, Rows, SilverMemory
from pipeline.data.derived.kept import TIME, Id, KeptRows, kept_rows
from pipeline.data.derived.source_log import AddedRows, ReadOn, StartOver, commit_number, number_of, read_on
from pipeline.lake.delta import generation, parquet
from pipeline.lake.delta.commits import overwrite
from pipeline.lake.delta.data_files import DataFile, discard, write_file
from pipeline.lake.delta.errors import CommitFailedError, TableNotFoundError
from pipeline.lake.delta.files import require_no_deletion_vectors
from pipeline.lake.delta.log import commit_file
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.rewrite import TableFile, table_files
from pipeline.lake.delta.scratch import DatabaseError, scratch
from pipeline.lake.delta.stats import stats_of
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.location import Location

_MEMORY: Final = "256MB"  # of the sort of a step's rows; the rest is spilled
_FEW_BYTES: Final = 32 * 1024 * 1024  # of rows that are sorted without it
_READ_ROWS: Final = 16_384
_MICROS: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VERSION: Final = "_version"  # the version that added a row; own columns alone begin with "_"
_BOUNDED: Final = ("_seq", TIME, "_event_time")  # the columns by whose bounds silver itself and gold choose files
_ORDER: Final = [(_VERSION, "ascending"), ("_seq", "ascending"), ("_pos", "ascending")]
_ROWS_IN_ORDER: Final = "SELECT * FROM rows ORDER BY _version, _seq, _pos"


@dataclass(frozen=True, slots=True)
class SilverPosition:
    """Where a silver table is."""

    generation: int
    version: int  # of its game's table
    head: int  # the newest version there
    rows: int  # in the silver table
    table_id: str  # its Delta table's
    duplicates: int | None = None  # second rows that its generation left out; None: unknown

    @property
    def is_level(self) -> bool:
        """Whether it has read all of its game's table."""
        return self.version >= self.head


@dataclass(slots=True)
class _Held:
    """A silver table as a step finds it."""

    table: DeltaTable
    generation: int
    cursor: int | None
    files: Sequence[TableFile]

    @property
    def rows(self) -> int:
        return sum(each.rows or 0 for each in self.files)

    @property
    def table_id(self) -> str:
        return str(self.table.metadata().id)


@dataclass(slots=True)
class _Written:
    """Files that a step has written, not yet part of the table."""

    files: list[DataFile] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)  # event types that the schema set lacks
    duplicates: int = 0  # rows that were left out as second ones

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


class Silver:
    """One silver table in this process."""

    def __init__(
        self,
        source: Location,
        target: Location,
        environment: str,
        definition: SilverDefinition,
        schemas: Callable[[], SchemaSet],
        *,
        memory: SilverMemory,
        checkpoint_interval: int = 10,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """Carry a silver table on from its game's table.

        Args:
            source: the game's table.
            target: the silver table.
            environment: the first part of the application ids.
            definition: what the silver table is.
            schemas: returns the newest schema set.
            memory: how much is held in memory.
            checkpoint_interval: commits between two checkpoints.
            holds: whether the definition is still in force; asked before a new generation becomes visible (law L15).
        """
        self._source, self._target, self._environment = source, target, environment
        self.definition, self._schemas, self._step_rows = definition, schemas, memory.step_rows
        self._interval, self._holds = checkpoint_interval, holds
        self._key = silver_key(definition.name)
        self._ids = HeldIds(memory.ids, (definition.within or 0) * _MICROS)

    def step(self, replaces: str | None = None) -> SilverPosition | None:
        """Carry the table on by one commit at most; return where it is then, None where the game has no table yet.

        If its generation has the id `replaces`, that commit begins a new generation.

        Raises:
            TableConflict: another owner carried it on meanwhile; nothing was added.
            Refused: a person has to change the definition or the game's table.
            Transient: a row's event type is not known here yet, the game's table waits for a rebuild, or it loses files
            while it is read.
        """
        try:
            source, of = self._open_source()
        except TableNotFoundError:
            return None
        held = self._open(of)
        if (held.cursor or 0) > source.version():  # another owner has read on since: else its rows would leave
            source, of = self._open_source()
        counts_in = number_of(str(source.metadata().id), self.definition.digest)
        try:
            if generation_id(held.table_id, held.generation) == replaces:
                raise StartOver("a person repairs it")
            read = self._read_on(source, held, counts_in)
        except StartOver:
            return self._start_over(source, held, of, counts_in)
        if read is None:
            left_out = self._duplicates(held)
            return SilverPosition(
                held.generation, held.cursor or 0, source.version(), held.rows, held.table_id, left_out
            )
        app, left_out, attempt = self._app(held.generation), self._duplicates(held), secrets.randbits(62)
        self._ids.expect(self._position(held))
        with self._writing(read.added, held.files, of) as written:
            table = CursorTable.open(self._target, app, self._interval)
            if table is None:
                raise TableConflict(f"{self._target.name} is gone")
            table.add_missing_columns(of.schema)
            also = {f"{app}/source": counts_in, f"{app}/commit": read.commit, f"{app}/attempt": attempt}
            if left_out is not None:
                left_out = also[f"{app}/duplicates"] = left_out + written.duplicates
            table.commit(written.files, held.cursor, read.version, self._note(source, read.version), also)
        self._ids.reached((held.table_id, held.generation, read.version, attempt))
        rows = held.rows + written.rows
        return SilverPosition(held.generation, read.version, source.version(), rows, held.table_id, left_out)

    def has_next(self, version: int) -> bool:
        """Return whether its game's table has a version behind this one: that costs one look at a name (law L8)."""
        return commit_file(self._source, version + 1).exists()

    def _open_source(self) -> tuple[DeltaTable, FlatType]:
        source = open_table(self._source)
        if source.protocol().min_reader_version > 1:
            require_no_deletion_vectors(source, f"the table of {self.definition.game}")
            raise Refused(
                f"The table of {self.definition.game} has features that only some readers know: silver "
                f"{self.definition.name} cannot read its files. A rebuild of the game makes a table without them."
            )
        # After the table was opened: so the set has the event type of each of its rows.
        columns, schemas = pa.schema(source.schema().to_arrow()), self._schemas()
        require_layout(columns, schemas, self.definition)
        return source, flat_type(columns, schemas, self.definition)

    def _open(self, of: FlatType) -> _Held:
        try:
            table = open_table(self._target)
        except TableNotFoundError:
            CursorTable.create(self._target, of.schema, self._app(1), description=f"silver {self.definition.name}")
            table = open_table(self._target)
        number = generation.newest(table.transaction_version, self._environment, self._key)
        return _Held(table, number, table.transaction_version(self._app(number)), table_files(table))

    def _duplicates(self, held: _Held) -> int | None:
        """Return the second rows that a generation left out; None where an older turnout began it."""
        return held.table.transaction_version(f"{self._app(held.generation)}/duplicates")

    def _app(self, number: int) -> str:
        return stream_app_id(self._environment, self._key, number)

    def _position(self, held: _Held) -> Position | None:
        """Return what held ids are those of; None: of nothing that this process may have seen."""
        attempt = held.table.transaction_version(f"{self._app(held.generation)}/attempt")
        if held.cursor is None or attempt is None:
            return None
        return held.table_id, held.generation, held.cursor, attempt

    def _note(self, source: DeltaTable, version: int) -> dict[str, str]:
        return {"turnout.source": f"{source.metadata().id}@{version}"}

    def _read_on(self, source: DeltaTable, held: _Held, counts_in: int) -> ReadOn | None:
        app = self._app(held.generation)
        if held.cursor is None:
            raise StartOver("it has no generation yet")
        if held.table.transaction_version(f"{app}/source") != counts_in:
            raise StartOver("it was made from another table, or by another definition")
        commit = held.table.transaction_version(f"{app}/commit") or 0
        read = read_on(self._source, held.cursor, commit, source.version(), self._step_rows)
        if read is not None and not self._all_there(read.added):
            raise StartOver("files of the versions were deleted")
        return read

    def _all_there(self, added: Sequence[AddedRows]) -> bool:
        return all((self._source / path).exists() for each in added for path in each.paths)

    def _start_over(self, source: DeltaTable, held: _Held, of: FlatType, counts_in: int) -> SilverPosition:
        """Begin a new generation with the rows that the game's table has now, in one commit."""
        head = source.version()
        # In one version, as which of them added a row is no longer known.
        paths = tuple(each.path for each in table_files(source))
        number = held.generation if held.cursor is None else held.generation + 1
        app, attempt = self._app(number), secrets.randbits(62)
        commit = commit_number(self._source, head)
        moved = {app: head, f"{app}/source": counts_in, f"{app}/commit": commit, f"{app}/attempt": attempt}
        if held.cursor is not None:
            moved[self._app(held.generation)] = generation.RETIRED
        self._ids.expect(None)
        with self._writing([AddedRows(head, paths, 0)], (), of) as written:
            if not self._holds():
                raise TableConflict(f"{self._target.name}: its definition has changed meanwhile")
            moved[f"{app}/duplicates"] = written.duplicates
            note = f"silver: generation {number} from {source.metadata().id}@{head}"
            try:
                overwrite(self._target, held.table, written.files, of.schema, moved, note)
            except CommitFailedError as error:
                if open_table(self._target).version() == held.table.version():
                    raise  # no other writer was first: storage is the cause
                raise TableConflict(f"{self._target.name}: another writer was first") from error
        self._ids.reached((held.table_id, number, head, attempt))
        return SilverPosition(number, head, head, written.rows, held.table_id, written.duplicates)

    @contextmanager
    def _writing(self, added: Sequence[AddedRows], kept: Sequence[TableFile], of: FlatType) -> Iterator[_Written]:
        """Write what silver gets of some versions; where the block does not commit it, the files are deleted."""
        written = _Written()
        try:
            try:
                for rows in self._in_order(added, of, written.unknown):
                    self._write(rows, kept, of, written)
            except (OSError, DatabaseError, pa.ArrowException) as error:
                if self._all_there(added):
                    raise
                raise Transient(f"files of {self._source.name} were deleted while silver read them") from error
            if written.unknown:
                raise Transient(f"rows of {', '.join(sorted(written.unknown))} came, which is no known event type yet")
            yield written
        except (TableConflict, Refused, Transient, CommitFailedError):
            discard(self._target, written.files)
            raise

    def _in_order(self, added: Sequence[AddedRows], of: FlatType, unknown: set[str]) -> Iterator[pa.Table]:
        """Yield flat rows by version, seq and pos, as many at once as a step holds."""
        if not added:
            return
        columns = pa.schema([(_VERSION, pa.int64()), *of.schema])
        batches = self._flat_batches(added, of, columns, unknown)
        first, rows, size = list[pa.RecordBatch](), 0, 0
        for batch in batches:
            first.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > self._step_rows or size > _FEW_BYTES:
                break
        else:  # as nearly always: a database costs more than the rest of a small step
            yield pa.Table.from_batches(first, columns).sort_by(_ORDER).select(of.schema.names)
            return
        with scratch("silver", _MEMORY, threads=1) as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("rows", pa.RecordBatchReader.from_batches(columns, chain(first, batches)))
            answer = database.sql(_ROWS_IN_ORDER).to_arrow_reader(self._step_rows)
            for batch in answer:
                found = pa.Table.from_batches([batch]).select(of.schema.names).cast(of.schema)
                for start in range(0, found.num_rows, self._step_rows):
                    yield found.slice(start, self._step_rows)

    def _flat_batches(
        self, added: Sequence[AddedRows], of: FlatType, columns: pa.Schema, unknown: set[str]
    ) -> Iterator[pa.RecordBatch]:
        known = {*of.names, *of.others}
        for each in added:
            if not each.paths:
                continue
            files = parquet.dataset([str(self._source / path) for path in each.paths], of.read)
            scanner = files.scanner(batch_size=_READ_ROWS, batch_readahead=1, fragment_readahead=1)
            for batch in scanner.to_batches():
                types = batch.column("_type")
                unknown |= {name for name in types.unique().to_pylist() if name is not None} - known
                rows = batch.filter(pc.is_in(types, pa.array(of.names, types.type)))
                if rows.num_rows:
                    versions = pa.array([each.version] * rows.num_rows, pa.int64())
                    yield pa.RecordBatch.from_arrays([versions, *laid_out(rows, of.columns)], schema=columns)

    def _write(self, rows: pa.Table, kept: Sequence[TableFile], of: FlatType, written: _Written) -> None:
        """Write the rows of a chunk that are no second ones, as one file."""
        if of.id is not None and self.definition.within is not None:
            within = self.definition.within * _MICROS
            ids: list[Id | None] = rows.column(of.id).to_pylist()
            times: list[int | None] = rows.column(TIME).cast(pa.int64()).to_pylist()
            memory, column, fresh = KeptRows(within), of.schema.field(of.id), [each.path for each in written.files]
            self._ids.fill(times, lambda low: self._rows_from(low, kept, fresh, column))
            others, other_times = self._ids.find(ids, times, memory)
            files = [*_near(kept, other_times, within), *fresh]
            memory.read([str(self._target / each) for each in files], column, others, other_times)
            is_kept = memory.keep(zip(ids, times, strict=True))
            self._ids.add(list(compress(ids, is_kept)), list(compress(times, is_kept)))
            rows = rows.filter(pa.array(is_kept, pa.bool_()))
            written.duplicates += len(ids) - rows.num_rows
        if rows.num_rows:
            file = write_file(rows, self._target, compression="zstd")
            bounded = [each for each in _BOUNDED if each in of.schema.names]
            written.files.append(replace(file, stats=stats_of(rows, bounded)))

    def _rows_from(
        self, low: float, kept: Sequence[TableFile], fresh: Sequence[str], column: pa.Field
    ) -> Iterator[Rows]:
        """Yield ids and source times of all kept rows from a time on."""
        files = [each.path for each in kept if TIME not in each.high or _micros(each.high[TIME]) >= low]
        return kept_rows([str(self._target / each) for each in (*files, *fresh)], column, low)


def _near(files: Sequence[TableFile], times: Sequence[int | None], within: int) -> Iterator[str]:
    """Yield the files that may hold rows whose source times lie near some others, by their statistics."""
    known = [each for each in times if each is not None]
    if not known:
        return
    first, last = min(known) - within, max(known) + within
    for each in files:
        low, high = each.low.get(TIME), each.high.get(TIME)
        if low is None or high is None or (_micros(low) <= last and _micros(high) >= first):
            yield each.path


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
