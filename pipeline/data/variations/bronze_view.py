"""Bronze as of one version, for what registers the shapes of documents: one game's rows in order, in bounded memory."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import bronze_app_id
from pipeline.lake.delta import parquet
from pipeline.lake.delta.bronze import BRONZE, text
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


class _File(NamedTuple):
    first: int  # seqs that it may hold
    last: int
    path: str


class BronzeView:
    """Bronze's newest version at the time of opening."""

    def __init__(self, bronze: Location, environment: str) -> None:
        """Open it; raises what `open_table` raises."""
        self._table, self._folder = open_table(bronze), bronze
        self.head = int(self._table.transaction_version(bronze_app_id(environment)) or 0)
        """The last seq in it."""
        stats = pa.table(self._table.get_add_actions(flatten=True))
        self._low, self._high = _column(stats, "min.seq", -1), _column(stats, "max.seq", 2**63 - 1)
        self._landed = _column(stats, "modification_time", 0) / 1000

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
        files = [each for each in self._files() if each.path in wanted]
        at, width = low, _FIRST_SEQS
        while at < high and (left := [each for each in files if each.last > at]):
            at = max(at, min(each.first for each in left) - 1)
            end = min(high, at + width)
            within = [each.path for each in left if each.first <= end]
            found = self._window(game, within, at, end, columns) if at < end else None
            if found is None and at < end:
                width = max(1, width // 8)
                continue
            if found is not None and found.num_rows:
                yield found
            at, width = end, min(2 * width, _MOST_SEQS)

    def _files(self) -> list[_File]:
        paths = files_with(self._table, self._folder, "seq", range(2**62))
        order = np.argsort(self._low, kind="stable")
        return [_File(int(self._low[row]), int(self._high[row]), path) for row, path in zip(order, paths, strict=True)]

    def _window(self, game: Game, files: Sequence[str], low: int, high: int, columns: Sequence[str]) -> pa.Table | None:
        """Return the rows of a few seqs, in order; None where several seqs have too many bytes together."""
        fields = [BRONZE.field(name) for name in columns]
        if not files:
            return pa.schema(fields).empty_table()
        was_unknown = (text("refused") == UNKNOWN_GAME) & (text("game") == game.name)
        mine = (text("game_key") == str(game.key)) | was_unknown
        read = [*fields, *(BRONZE.field(name) for name in ("game_key", "game", "refused"))]
        scanner = parquet.dataset(files, pa.schema(read)).scanner(
            columns=list(columns),
            filter=(pc.field("seq") > low) & (pc.field("seq") <= high) & mine,
            batch_size=_BATCH_ROWS,
            batch_readahead=1,
            fragment_readahead=1,
        )
        held, size = list[pa.RecordBatch](), 0
        for batch in scanner.to_batches():
            held.append(batch)
            size += batch.nbytes
            if size > _WINDOW_BYTES and high - low > 1:
                return None
        found = pa.Table.from_batches(held, pa.schema(fields)) if held else pa.schema(fields).empty_table()
        return found.sort_by([("seq", "ascending"), ("pos", "ascending")])


def _column(stats: pa.Table, name: str, default: int) -> np.ndarray:
    if name not in stats.column_names:
        return np.full(stats.num_rows, default, np.int64)
    column = stats.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz))
    numbers: np.ndarray = pc.fill_null(column.cast(pa.int64()), default).to_numpy()
    return numbers
