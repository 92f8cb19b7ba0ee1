"""Removes second copies of rows from a game's table in one commit; one copy of each (seq, pos) stays.

Equal copies are interchangeable. Of different copies, the one stays that the reference decoder makes of bronze with
today's schemas; without one, dedupe refuses and a rebuild is needed. The commit moves the table's repair counter, so it
conflicts with other repairs and starts over; passes only append, and go on.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.base import names
from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.failpoints import hit
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.repair import removal
from pipeline.data.repair.bronze_rows import BronzeRows
from pipeline.data.repair.places import PLACES, within
from pipeline.data.repair.refusals import unreadable
from pipeline.data.streams.writing.job import Place
from pipeline.data.verify.cells import differences
from pipeline.data.verify.opening import Sources
from pipeline.data.verify.value_tasks import expected_rows
from pipeline.data.verify.values import known_schemas
from pipeline.lake.delta import parquet
from pipeline.lake.delta.columns import merges_of
from pipeline.lake.delta.data_files import DataFile, discard, write_file
from pipeline.lake.delta.environment import require_own
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.files import without_views
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.scratch import scratch
from pipeline.lake.delta.table import TableConflict
from pipeline.settings.tree import Paths
from pipeline.store.games import Game

ATTEMPTS: Final = 20
_MEMORY_LIMIT: Final = "1GB"  # of the search; the rest is spilled
_PLACES_AT_ONCE: Final = 10_000  # whose copies are compared together
_FILE_ROWS: Final = 200_000  # of a replacement file

# Filled from the files' places alone: DuckDB's own names for a file and its rows may also be a payload's fields.
_ROWS: Final = "CREATE TABLE every (file INTEGER, row BIGINT, seq BIGINT, pos BIGINT)"

# Every copy of a doubled row: its file and its row number.
_COPIES: Final = """
WITH doubled AS (
    SELECT seq, pos FROM every GROUP BY seq, pos HAVING count(*) > 1
)
SELECT file, row, seq, pos FROM every SEMI JOIN doubled USING (seq, pos) ORDER BY seq, pos, file, row
"""

Copy: TypeAlias = tuple[str, int]
"""A row of a data file: the file's path, and the row's number in it."""


@dataclass(frozen=True, slots=True)
class Deduped:
    """The rows removed from one table, or to be removed."""

    game_key: str
    places: int  # rows that were there more than once
    removed: int  # second copies
    differing: int  # places whose copies differed; the copy that bronze gives was kept
    files: int  # that were replaced or left out
    seconds: float


def dedupe(
    paths: Paths,
    environment: str,
    schemas: Callable[[], SchemaSet],
    game: Game,
    *,
    dry_run: bool = False,
    shown: int | None = None,
) -> Deduped:
    """Remove second copies of rows from a game's table.

    Args:
        paths: where the environment keeps its tables.
        environment: its name.
        schemas: returns the newest schema set, which decides between copies that differ; called after the table was
            opened, so that it has the schema of each copy.
        game: whose table it is.
        dry_run: work everything out and change nothing.
        shown: the number of second copies that an operator has confirmed; None: all.

    Raises:
        Refused: there is no table, its rows cannot be read from its files, no copy of a row matches bronze, or the
            number of second copies is neither `shown` nor 0.
        Transient: others repaired or compacted the table during all attempts.
    """
    for _ in range(ATTEMPTS):
        try:
            return _Dedupe(paths, environment, schemas, game).run(dry_run=dry_run, shown=shown)
        except TableConflict:
            continue
    raise Transient(f"other writers changed the table of {game.key} during all {ATTEMPTS} attempts; run dedupe again")


@dataclass(slots=True)
class _Chosen:
    """The rows to remove from the table."""

    places: int = 0
    differing: int = 0
    leaving: dict[str, list[int]] = field(default_factory=dict)  # file → numbers of its rows

    @property
    def removed(self) -> int:
        return sum(len(rows) for rows in self.leaving.values())

    def remove(self, copies: list[Copy], kept: Copy) -> None:
        for path, row in copies:
            if (path, row) != kept:
                self.leaving.setdefault(path, []).append(row)


class _Dedupe:
    """One attempt; it starts by reading the table's version and repair counter."""

    def __init__(self, paths: Paths, environment: str, schemas: Callable[[], SchemaSet], game: Game) -> None:
        self._paths, self._environment, self._newest_schemas, self._game = paths, environment, schemas, game
        self._folder, self._app = paths.table(game.key), names.repair_app_id(environment, game.key)
        # An environment's counters carry its name: under another name no other repair would be seen.
        require_own(paths.bronze, environment)
        try:
            table = open_table(self._folder)
        except TableNotFoundError as error:
            raise Refused(f"{game.key} has no table yet, so it has no doubled rows.") from error
        except DeltaError as error:
            raise unreadable(game.key, error) from error
        features = set(table.protocol().reader_features or [])
        if hidden := sorted(features & {"deletionVectors", "columnMapping"}):
            raise Refused(
                f"The table of {game.key} uses {', '.join(hidden)}: its rows cannot be read from its files alone. Run "
                f"`turnout repair rebuild` instead."
            )
        self._version = table.version()
        self._merges = merges_of(pa.schema(table.schema().to_arrow()))
        self._repairs = table.transaction_version(self._app)
        self._files = {str(self._folder / unquote(path)): path for path in removal.file_sizes(table)}
        self._rows: dict[str, int] = {}

    def run(self, *, dry_run: bool, shown: int | None) -> Deduped:
        started = time.perf_counter()
        chosen = _Chosen()
        try:
            for copies in self._doubled():
                self._choose(copies, chosen)
            if chosen.leaving and shown is not None and chosen.removed != shown:
                raise Refused(
                    f"{self._game.key}: you confirmed {shown:,} second copies, the table now has {chosen.removed:,}. "
                    f"Nothing was removed; review and try again."
                )
            if chosen.leaving and not dry_run:
                self._commit(chosen)
        except (OSError, pa.ArrowException) as error:
            if open_table(self._folder).version() != self._version:
                raise TableConflict(f"{self._game.key}: a file has left the table") from error
            raise Refused(
                f"A file of the table of {self._game.key} cannot be read or rewritten: {first_line(error)}. "
                "If it is damaged, run `turnout repair rebuild` instead."
            ) from error
        return Deduped(
            game_key=self._game.key,
            places=chosen.places,
            removed=chosen.removed,
            differing=chosen.differing,
            files=len(chosen.leaving),
            seconds=time.perf_counter() - started,
        )

    def _doubled(self) -> Iterator[dict[Place, list[Copy]]]:
        """Yield the copies of doubled rows by their places, a bounded number of places at once."""
        if not self._files:
            return
        with scratch("dedupe", _MEMORY_LIMIT, on_disk=True) as database:
            database.execute(_ROWS)
            paths = sorted(self._files)
            for number, path in enumerate(paths):
                for rows in _places_of(number, path):
                    database.register("rows", rows)
                    database.execute("INSERT INTO every SELECT * FROM rows")
            answer = database.execute(_COPIES)
            copies: dict[Place, list[Copy]] = {}
            while batch := answer.fetchmany(_PLACES_AT_ONCE):
                for number, row, seq, pos in batch:
                    if len(copies) >= _PLACES_AT_ONCE and (seq, pos) not in copies:
                        yield copies
                        copies = {}
                    copies.setdefault((seq, pos), []).append((paths[number], row))
            if copies:
                yield copies

    def _choose(self, doubled: Mapping[Place, list[Copy]], chosen: _Chosen) -> None:
        """Choose which copy of each place stays: if all are equal, the copy in the file that loses the fewest rows."""
        counts: dict[str, int] = {}
        for copies in doubled.values():
            for path, _ in copies:
                counts[path] = counts.get(path, 0) + 1
        order = {path: (count / self._count(path), path) for path, count in counts.items()}
        ranked = {
            place: sorted(copies, key=lambda copy: (order[copy[0]], copy[1])) for place, copies in doubled.items()
        }
        values = _Values(ranked)
        unlike = {place: ranked[place] for place in sorted(values.unlike(ranked))}
        kept = self._as_bronze_says(unlike, values) if unlike else {}
        for place, copies in ranked.items():
            chosen.remove(copies, kept.get(place, copies[0]))
        chosen.places += len(ranked)
        chosen.differing += len(unlike)

    def _count(self, path: str) -> int:
        if path not in self._rows:
            self._rows[path] = parquet.metadata(path).num_rows
        return self._rows[path]

    def _as_bronze_says(self, unlike: Mapping[Place, list[Copy]], values: "_Values") -> dict[Place, Copy]:
        """Return for each place the copy that an independent decoder makes of bronze.

        Raises:
            Refused: no copy of a place matches.
        """
        wanted = pa.table([[seq for seq, _ in unlike], [pos for _, pos in unlike]], schema=PLACES)
        bronze = BronzeRows(self._paths.bronze, self._environment, self._game)
        newest = self._newest_schemas()
        schemas, sources = known_schemas(newest, self._game.key, self._merges), Sources.of(newest)
        kept: dict[Place, Copy] = {}
        for chunk in bronze.of_seqs(np.unique(wanted.column("seq").to_numpy())):
            for seq, pos, expected in expected_rows(self._game.key, within(chunk, wanted), schemas, sources):
                if expected is not None:
                    right = (each for each in unlike[seq, pos] if values.is_(each, expected))
                    if (row := next(right, None)) is not None:
                        kept[seq, pos] = row
        if wrong := sorted(unlike.keys() - kept.keys()):
            seq, pos = wrong[0]
            raise Refused(
                f"{self._game.key}: the copies of {len(wrong)} row(s) differ, and none matches bronze, the first at "
                f"seq {seq}, pos {pos}. Run `turnout repair rebuild` instead."
            )
        return kept

    def _commit(self, chosen: _Chosen) -> None:
        added: list[DataFile] = []
        try:
            for path, rows in sorted(chosen.leaving.items()):
                added += self._without(path, np.array(rows))
        except OSError:
            discard(self._folder, added)
            raise
        hit("in_dedupe")
        leaving = [self._files[path] for path in chosen.leaving]
        note = f"dedupe: {chosen.removed:,} second copies of {chosen.places:,} row(s)"
        removal.publish(self._folder, removal.Removal({self._app: self._repairs}, leaving, added, note))
        hit("in_dedupe")

    def _without(self, path: str, rows: npt.NDArray[np.int64]) -> Iterator[DataFile]:
        """Write a file's rows without these into new files beside it."""
        if len(rows) == self._count(path):
            return
        first = 0
        for batch in parquet.open_file(path).iter_batches(_FILE_ROWS):
            numbers = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            kept = without_views(pa.Table.from_batches([batch])).filter(pa.array(~np.isin(numbers, rows)))
            if kept.num_rows:
                yield write_file(kept, self._folder, ["_seq"])


class _Values:
    """The values of copies, read file by file."""

    def __init__(self, ranked: Mapping[Place, list[Copy]]) -> None:
        wanted: dict[str, list[int]] = {}
        for copies in ranked.values():
            for path, row in copies:
                wanted.setdefault(path, []).append(row)
        self._tables = {path: _rows_of(path, np.unique(rows)) for path, rows in wanted.items()}
        self._at = {
            (path, int(row)): at for path, rows in wanted.items() for at, row in enumerate(np.unique(rows).tolist())
        }

    def unlike(self, ranked: Mapping[Place, list[Copy]]) -> set[Place]:
        """Return the places with differing copies."""
        pairs: dict[tuple[str, str], list[tuple[Place, int, int]]] = {}
        for place, (first, *others) in ranked.items():
            for each in others:
                pairs.setdefault((first[0], each[0]), []).append((place, self._at[first], self._at[each]))
        different = set()
        for (one, other), copies in pairs.items():
            left = self._tables[one].take(pa.array([at for _, at, _ in copies]))
            right = self._tables[other].take(pa.array([at for _, _, at in copies]))
            _, named = differences(left, right, sys.maxsize)
            different |= {copies[each.row][0] for each in named}
        return different

    def is_(self, copy: Copy, expected: pa.Table) -> bool:
        """Return whether a copy has the expected values."""
        return differences(expected, self._row(copy).drop_columns(["_seq", "_pos"]), 0)[0] == 0

    def _row(self, copy: Copy) -> pa.Table:
        return self._tables[copy[0]].slice(self._at[copy], 1)


def _places_of(number: int, path: str) -> Iterator[pa.Table]:
    """Yield file number, row number, seq and pos of a file's rows; a row without a place is no copy."""
    first = 0
    for batch in parquet.open_file(path).iter_batches(_FILE_ROWS, columns=["_seq", "_pos"]):
        rows = pa.array(np.arange(first, first + batch.num_rows))
        first += batch.num_rows
        if batch.num_columns == len(PLACES):
            files = pa.array(np.full(batch.num_rows, number))
            seq, pos = (batch.column(name).cast(pa.int64()) for name in ("_seq", "_pos"))
            yield pa.table({"file": files, "row": rows, "seq": seq, "pos": pos}).drop_null()


def _rows_of(path: str, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return rows of a file by their numbers, which are in order."""
    places, first = [], 0
    file = parquet.open_file(path)
    for batch in file.iter_batches(_PLACES_AT_ONCE):
        inside = rows[(rows >= first) & (rows < first + batch.num_rows)] - first
        first += batch.num_rows
        if len(inside):
            places.append(without_views(pa.Table.from_batches([batch])).take(pa.array(inside)))
    return pa.concat_tables([without_views(file.schema_arrow.empty_table()), *places])
