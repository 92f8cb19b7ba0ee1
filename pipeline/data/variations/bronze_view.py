"""Bronze as of one version, for what registers the shapes of documents: one game's rows in order, in bounded memory."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import bronze_app_id
from pipeline.lake.delta import parquet
from pipeline.lake.delta.bronze import BRONZE, text, whole
from pipeline.lake.delta.files import files_with
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import UNKNOWN_GAME
from pipeline.lake.storage.location import Location
from pipeline.store.games import Game

PLACES: Final = ("seq", "pos", "ingest_time", "profile", "writer")
"""Columns that say which rows are of an event type."""

DOCUMENTS: Final = (*PLACES, "producer_id", "raw")
"""Columns that a registration reads."""

_WINDOW_BYTES: Final = 64 * 1024 * 1024  # of rows that are held at once; a single seq may have more
_FIRST_SEQS: Final = 64  # of the first window; each next one has twice as many,
_MOST_SEQS: Final = 4096  # up to this
_BATCH_ROWS: Final = 2048
_SMALL_FILE: Final = 4 * 1024 * 1024  # bytes of a file that is read whole, for all games
_KEPT_BYTES: Final = 64 * 1024 * 1024  # of their rows
_KEYS: Final = ("game_key", "game", "refused")  # columns that say whose a row is
_UNKNOWN: Final = "\0"  # before the name of a game that was unknown: no key begins with it


class _File(NamedTuple):
    first: int  # seqs that it may hold
    last: int
    path: str
    is_small: bool


class KeptFiles:
    """The rows of small files that were read last, by game: many games wait for rows of the same ones.

    A file of bronze never changes.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._held: dict[str, _ByGame] = {}

    def rows(self, path: str, game: Game) -> list[pa.Table]:
        """Return a game's rows of a file, with those that ingest refused because the game was unknown."""
        if path not in self._held:
            self._held[path] = _by_game(path)
            while len(self._held) > 1 and sum(each.size for each in self._held.values()) > _KEPT_BYTES:
                del self._held[next(iter(self._held))]
        found = self._held[path].rows
        return [found[name] for name in (str(game.key), _UNKNOWN + game.name) if name in found]

    def clear(self) -> None:
        """Keep nothing."""
        self._held.clear()


class _ByGame(NamedTuple):
    size: int  # bytes of all rows
    rows: dict[str, pa.Table]


def _by_game(path: str) -> _ByGame:
    """Read a file, and cut it into the rows of each game, in their order."""
    fields = [BRONZE.field(name) for name in (*DOCUMENTS, *_KEYS)]
    table = parquet.dataset([path], pa.schema(fields)).to_table()
    key, game, refused = (whole(table.column(name).cast(pa.string())) for name in _KEYS)
    unknown = pc.fill_null(pc.equal(refused, UNKNOWN_GAME), False)
    names = pc.if_else(unknown, pc.binary_join_element_wise(_UNKNOWN, game, ""), key).dictionary_encode()
    codes = pc.fill_null(names.indices, len(names.dictionary)).to_numpy()
    order = np.argsort(codes, kind="stable")
    rows = table.select(DOCUMENTS).take(pa.array(order)).combine_chunks()
    ends = np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))
    own = {
        name: rows.slice(int(first), int(end - first))
        for name, first, end in zip(names.dictionary.to_pylist(), ends, ends[1:], strict=False)
    }
    return _ByGame(rows.nbytes, own)


class BronzeView:
    """Bronze's newest version at the time of opening."""

    def __init__(self, bronze: Location, environment: str, kept: KeptFiles | None = None) -> None:
        """Open it, with files that were read before; raises what `open_table` raises."""
        self._kept = kept or KeptFiles()
        self._table, self._folder = open_table(bronze), bronze
        self.head = int(self._table.transaction_version(bronze_app_id(environment)) or 0)
        """The last seq in it."""
        stats = pa.table(self._table.get_add_actions(flatten=True))
        self._low, self._high = _column(stats, "min.seq", -1), _column(stats, "max.seq", 2**63 - 1)
        self._landed = _column(stats, "modification_time", 0) / 1000
        self._sizes = _column(stats, "size_bytes", _SMALL_FILE + 1)

    @property
    def landed_at(self) -> float:
        """When its newest commit was made, Unix seconds; 0 without any."""
        return float(self._landed.max(initial=0.0))

    def first_landed(self, after: int, at: float) -> int | None:
        """Return the first seq behind another, committed at a time or later; None without any."""
        late = self._low[(self._low > after) & (self._low <= self.head) & (self._landed >= at)]
        return int(late.min()) if len(late) else None

    def rows(self, game: Game, low: int, high: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield a game's rows of seqs above `low` up to `high` in the order of their places.

        With those that ingest refused because the game was unknown.
        """
        high = min(high, self.head)
        wanted = set(files_with(self._table, self._folder, "seq", range(low + 1, high + 1), game.bronze_keys))
        files = [each for each in self._files if each.path in wanted]
        at, width = low, _FIRST_SEQS
        while at < high and (left := [each for each in files if each.last > at]):
            at = max(at, min(each.first for each in left) - 1)
            end = min(high, at + width)
            within = [each for each in left if each.first <= end]
            found = self._window(game, within, at, end, columns) if at < end else None
            if found is None and at < end:
                width = max(1, width // 8)
                continue
            if found is not None and found.num_rows:
                yield found
            at, width = end, min(2 * width, _MOST_SEQS)

    @cached_property
    def _files(self) -> list[_File]:
        paths = files_with(self._table, self._folder, "seq", range(2**62))
        order = np.argsort(self._low, kind="stable")
        return [
            _File(int(self._low[row]), int(self._high[row]), path, is_small=bool(self._sizes[row] <= _SMALL_FILE))
            for row, path in zip(order, paths, strict=True)
        ]

    def _window(
        self, game: Game, files: Sequence[_File], low: int, high: int, columns: Sequence[str]
    ) -> pa.Table | None:
        """Return the rows of a few seqs, in order; None where several seqs have too many bytes together."""
        fields = pa.schema([BRONZE.field(name) for name in columns])
        held, size = list[pa.Table](), 0
        for rows in self._read(game, files, low, high, columns):
            held.append(rows)
            size += rows.nbytes
            if size > _WINDOW_BYTES and high - low > 1:
                return None
        found = pa.concat_tables(held) if held else fields.empty_table()
        return found.sort_by([("seq", "ascending"), ("pos", "ascending")])

    def _read(
        self, game: Game, files: Sequence[_File], low: int, high: int, columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        """Yield a game's rows of a few seqs in any order: of small files as they are kept, of large ones by a scan."""
        within = (pc.field("seq") > low) & (pc.field("seq") <= high)
        for file in files:
            for rows in self._kept.rows(file.path, game) if file.is_small else ():
                own = rows.select(columns)
                yield own if low < file.first and file.last <= high else own.filter(within)
        large = [each.path for each in files if not each.is_small]
        if not large:
            return
        was_unknown = (text("refused") == UNKNOWN_GAME) & (text("game") == game.name)
        mine = (text("game_key") == str(game.key)) | was_unknown
        scanner = parquet.dataset(large, pa.schema([BRONZE.field(name) for name in (*columns, *_KEYS)])).scanner(
            columns=list(columns), filter=within & mine,
            batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1,
        )  # fmt: skip
        yield from (pa.Table.from_batches([each]) for each in scanner.to_batches())


def _column(stats: pa.Table, name: str, default: int) -> np.ndarray:
    if name not in stats.column_names:
        return np.full(stats.num_rows, default, np.int64)
    column = stats.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz))
    numbers: np.ndarray = pc.fill_null(column.cast(pa.int64()), default).to_numpy()
    return numbers
