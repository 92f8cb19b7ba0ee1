"""Carries one gold table on: the windows of event time that have closed since, each computed once, in one commit.

A window closes when silver is complete through its end and lateness. It is computed of the silver rows up to its
closing seq, which is kept before (`closings`). The position, the end of the last computed window, is the cursor in the
gold table's own log (laws L3 and L4). Beside it is a number of what it counts in: the silver table by its id and
generation, with the definition. Where that is another one, the table begins a new generation, in one commit (law L12).
No window has a state while it is open.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused, first_line
from pipeline.base.names import generation_id, gold_key, silver_key, stream_app_id
from pipeline.data.derived.closings import MICROS, Closings, ClosingTable, last_end
from pipeline.data.derived.definitions import GoldDefinition
from pipeline.data.derived.gold_columns import END, EVENT_TIME, ROWS, START, gold_schema, needed_columns
from pipeline.data.derived.gold_columns import question as question_of
from pipeline.data.derived.silver_through import SilverThrough, silver_through
from pipeline.data.derived.source_log import number_of
from pipeline.lake.delta import generation, parquet
from pipeline.lake.delta.commits import overwrite
from pipeline.lake.delta.data_files import DataFile, discard, write_file
from pipeline.lake.delta.errors import CommitFailedError, TableNotFoundError
from pipeline.lake.delta.log import changes, commits_after
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.delta.scratch import scratch
from pipeline.lake.delta.stats import stats_of
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.delta.through import PairsView
from pipeline.settings.tree import Paths

_MEMORY: Final = "256MB"  # the rest is spilled
_READ_ROWS: Final = 16_384
_SEQ, _POS = "_seq", "_pos"


@dataclass(frozen=True, slots=True)
class GoldPosition:
    """Where a gold table is."""

    generation: int
    version: int  # of its silver table
    head: int  # the newest version there
    rows: int  # in the gold table
    table_id: str  # its Delta table's

    @property
    def is_level(self) -> bool:
        """Whether it has every window that can be computed now: a step computes all of them."""
        return True

    @property
    def duplicates(self) -> None:
        """Nothing: it leaves no row out as a second one."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A gold table as a step finds it."""

    table: DeltaTable
    generation: int
    cursor: int | None
    counts_in: int | None
    counted: int  # silver rows in its windows
    rows: int

    @property
    def table_id(self) -> str:
        return str(self.table.metadata().id)


class Gold:
    """One gold table in this process."""

    def __init__(
        self,
        paths: Paths,
        environment: str,
        definition: GoldDefinition,
        clock: Callable[[], float],
        *,
        file_rows: int,
        checkpoint_interval: int = 10,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """Carry a gold table on from its silver table.

        Args:
            paths: of the environment.
            environment: its name, the first part of the application ids.
            definition: what the gold table is.
            clock: returns the time by the control store's clock.
            file_rows: most rows of a file.
            checkpoint_interval: commits between two checkpoints.
            holds: whether the definition is still in force; asked before a new generation becomes visible (law L15).
        """
        self._paths, self._environment, self.definition = paths, environment, definition
        self._clock, self._file_rows, self._interval, self._holds = clock, file_rows, checkpoint_interval, holds
        self._silver, self._target = paths.silver / definition.silver.name, paths.gold / definition.name
        self._closings = ClosingTable(paths.closings / definition.name, environment, definition, checkpoint_interval)
        self._due_at: float | None = None  # when the next window can close
        self._pairs, self._seen = PairsView(paths.through), -1  # silver's version up to which it goes on as before

    def step(self, replaces: str | None = None) -> GoldPosition | None:
        """Carry the table on by one commit at most; return where it is then, None where silver has no rows' table yet.

        If its generation has the id `replaces`, that commit begins a new generation: the windows close at the same seqs
        again. It waits until silver is complete through the last of them.

        Raises:
            TableConflict: another owner carried it on meanwhile; nothing was added.
            Refused: a person has to change the definition.
        """
        try:
            silver = open_table(self._silver)
        except TableNotFoundError:
            return None
        number = generation.newest(
            silver.transaction_version, self._environment, silver_key(self.definition.silver.name)
        )
        held = self._open(gold_schema(pa.schema(silver.schema().to_arrow()), self.definition))
        counts_in = number_of(str(silver.metadata().id), str(number), self.definition.digest)
        is_same = held.cursor is not None and held.counts_in == counts_in
        is_same = is_same and generation_id(held.table_id, held.generation) != replaces
        self._due_at = self._due_after(held.cursor) if is_same and held.cursor is not None else None
        if self._due_at is None or self._due_at <= self._clock():
            # Its silver version may be a newer one than was opened above.
            through = silver_through(self._paths, self._environment, self.definition.silver, self._clock())
            if through.at is not None and through.generation == number:
                return self._compute(held, through, through.at, counts_in, is_same=is_same)
        return GoldPosition(held.generation, silver.version(), silver.version(), held.rows, held.table_id)

    def has_next(self, version: int) -> bool:
        """Return whether there may be something to compute, for little: another commit of silver closes no window.

        Either silver has other rows or columns since this version, or bronze is complete through the time at which
        the next window closes.
        """
        if self._due_at is None or self._begins_anew(version):
            return True
        return self._due_at <= time.time() and any(pair.at >= self._due_at for pair in self._pairs.read())

    def _begins_anew(self, version: int) -> bool:
        self._seen = max(self._seen, version)
        for at, actions in commits_after(self._silver, self._seen):
            if any(changes(action.get("remove")) or "metaData" in action for action in actions):
                return True
            self._seen = at
        return False

    def _due_after(self, end: int) -> float:
        return end + self.definition.window + self.definition.lateness

    def _open(self, schema: pa.Schema) -> _Held:
        try:
            table = open_table(self._target)
        except TableNotFoundError:
            CursorTable.create(self._target, schema, self._app(1), description=f"gold {self.definition.name}")
            table = open_table(self._target)
        number = generation.newest(table.transaction_version, self._environment, gold_key(self.definition.name))
        app = self._app(number)
        version_of = table.transaction_version
        is_same = pa.schema(table.schema().to_arrow()).equals(schema)
        counts_in = version_of(f"{app}/source") if is_same else None  # other columns need a new generation
        rows = sum(each.rows or 0 for each in table_files(table))
        return _Held(table, number, version_of(app), counts_in, version_of(f"{app}/rows") or 0, rows)

    def _app(self, number: int) -> str:
        return stream_app_id(self._environment, gold_key(self.definition.name), number)

    def _compute(
        self, held: _Held, through: SilverThrough, at: float, counts_in: int, *, is_same: bool
    ) -> GoldPosition:
        """Compute the windows that have closed since, or of a new generation all that ever have."""
        version, until, known = through.version or 0, last_end(self.definition, at), self._closings.read()
        after = held.cursor if is_same else None
        level = GoldPosition(held.generation, version, version, held.rows, held.table_id)
        if after is not None and until <= after:
            return level
        if known.until is not None and until < known.until:
            # Silver was made again and is complete through an earlier time than it was: the windows stay as they are
            # until it has all of them again.
            return level
        closings = self._closings.extend(known, through.pairs, until)
        silver = open_table(self._silver, version)
        columns = pa.schema(silver.schema().to_arrow())
        schema = gold_schema(columns, self.definition)
        with self._computed(silver, columns, schema, after, until, closings) as (files, counted):
            if after is None:
                return self._start_over(held, files, schema, until, counts_in, counted, version)
            app = self._app(held.generation)
            table = CursorTable.open(self._target, app, self._interval)
            if table is None:
                raise TableConflict(f"{self._target.name} is gone")
            also = {f"{app}/source": counts_in, f"{app}/rows": held.counted + counted}
            table.commit(files, after, until, {"turnout.source": f"{silver.metadata().id}@{version}"}, also)
        self._due_at = self._due_after(until)
        return replace(level, rows=held.rows + sum(each.rows for each in files))

    def _start_over(
        self,
        held: _Held,
        files: list[DataFile],
        schema: pa.Schema,
        until: int,
        counts_in: int,
        counted: int,
        version: int,
    ) -> GoldPosition:
        """Begin a new generation with all windows that have closed, in one commit."""
        number = held.generation if held.cursor is None else held.generation + 1
        app = self._app(number)
        moved = {app: until, f"{app}/source": counts_in, f"{app}/rows": counted}
        if held.cursor is not None:
            moved[self._app(held.generation)] = generation.RETIRED
        if not self._holds():
            raise TableConflict(f"{self._target.name}: its definition has changed meanwhile")
        try:
            overwrite(self._target, held.table, files, schema, moved, f"gold: generation {number} from @{version}")
        except CommitFailedError as error:
            if open_table(self._target).version() == held.table.version():
                raise  # no other writer was first: storage is the cause
            raise TableConflict(f"{self._target.name}: another writer was first") from error
        self._due_at = self._due_after(until)
        return GoldPosition(number, version, version, sum(each.rows for each in files), held.table_id)

    @contextmanager
    def _computed(
        self,
        silver: DeltaTable,
        columns: pa.Schema,
        schema: pa.Schema,
        after: int | None,
        until: int,
        closings: Closings,
    ) -> Iterator[tuple[list[DataFile], int]]:
        """Yield files with the windows that end after a time and up to another, and how many rows were counted.

        Where the block does not commit them, the files are deleted.
        """
        files: list[DataFile] = []
        counted = 0
        try:
            with scratch("gold", _MEMORY, threads=1, on_disk=True) as database:
                database.execute("SET TimeZone = 'UTC'")
                found = self._found(silver, columns, after, until, closings)
                database.register("found", found)
                # In order, as a sum of floating-point numbers depends on it.
                database.execute("CREATE TABLE rows AS SELECT * EXCLUDE (seq, pos) FROM found ORDER BY seq, pos")
                answer = database.sql(question_of(columns, self.definition)).to_arrow_reader(self._file_rows)
                for batch in answer:
                    rows = _named(batch, schema, self.definition.window)
                    counted += pc.sum(rows.column(ROWS)).as_py() or 0
                    for start in range(0, rows.num_rows, self._file_rows):
                        part = rows.slice(start, self._file_rows)
                        file = write_file(part, self._target, compression="zstd")
                        files.append(replace(file, stats=stats_of(part, [START, END])))
        except Exception:
            discard(self._target, files)
            raise
        try:
            yield files, counted
        except (TableConflict, CommitFailedError):
            discard(self._target, files)
            raise

    def _found(
        self, silver: DeltaTable, columns: pa.Schema, after: int | None, until: int, closings: Closings
    ) -> pa.RecordBatchReader:
        """Return the rows on time of some windows, as `question` needs them."""
        needed = needed_columns(self.definition)
        read = pa.schema([columns.field(each) for each in dict.fromkeys([_SEQ, _POS, EVENT_TIME, *needed])])
        fields = [(f"c{number}", columns.field(each).type) for number, each in enumerate(needed)]
        laid_out = pa.schema(
            [("ended", pa.int64()), ("closing", pa.int64()), ("seq", pa.int64()), ("pos", pa.int64()), *fields]
        )
        low, high = None if after is None else _moment(after), _moment(until)
        paths = [
            str(self._silver / each.path)
            for each in table_files(silver)
            if not (_is_before(each.high.get(EVENT_TIME), low) or _is_before(high, each.low.get(EVENT_TIME)))
        ]

        def batches() -> Iterator[pa.RecordBatch]:
            scanner = parquet.dataset(paths, read).scanner(
                batch_size=_READ_ROWS, batch_readahead=1, fragment_readahead=1
            )
            for batch in scanner.to_batches() if paths else ():
                rows = batch.filter(batch.column(EVENT_TIME).is_valid())
                ends = window_ends(rows.column(EVENT_TIME), self.definition.window)
                due = ends <= until if after is None else (ends > after) & (ends <= until)
                ends, rows = ends[due], rows.filter(pa.array(due))
                closing = closings.of(ends)
                on_time = rows.column(_SEQ).to_numpy() <= closing
                ends, closing, rows = ends[on_time], closing[on_time], rows.filter(pa.array(on_time))
                own = [pa.array(ends), pa.array(closing), rows.column(_SEQ), rows.column(_POS).cast(pa.int64())]
                yield pa.RecordBatch.from_arrays([*own, *(rows.column(each) for each in needed)], schema=laid_out)

        return pa.RecordBatchReader.from_batches(laid_out, batches())


def window_ends(moments: pa.Array, window: int) -> np.ndarray:
    """Return the ends, in Unix seconds, of the windows that times without nulls belong to."""
    micros = moments.cast(pa.int64()).to_numpy()
    ends: np.ndarray = (np.floor_divide(micros, window * MICROS) + 1) * window
    return ends


def _named(batch: pa.RecordBatch, schema: pa.Schema, window: int) -> pa.Table:
    """Return an answer with the gold table's columns.

    Raises:
        Refused: a sum has more digits than its column.
    """
    ends = batch.column(0)
    starts = pc.subtract(ends, window)
    moments = [pc.multiply(each, MICROS).cast(schema.field(START).type) for each in (starts, ends)]
    others = [values.cast(schema.field(at + 2).type) for at, values in enumerate(batch.columns[1:])]
    rows = pa.Table.from_arrays([*moments, *others], schema=schema)
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Refused(f"A number of gold does not fit its column: {first_line(error)}.") from error
    return rows


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _is_before(one: datetime | None, other: datetime | None) -> bool:
    return one is not None and other is not None and one < other
