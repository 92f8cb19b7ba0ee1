"""Reads a game's rows from bronze without Spark, in bounded chunks, as a pass would read them (laws L1 and L2)."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base import names
from pipeline.base.errors import Refused
from pipeline.data.streams.writing.job import READ
from pipeline.lake.delta import parquet
from pipeline.lake.delta.bronze import BRONZE, text
from pipeline.lake.delta.environment import require_own
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.files import Seqs, files_with
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import UNKNOWN_GAME
from pipeline.lake.storage.location import Location
from pipeline.store.games import Game

_BATCH_ROWS: Final = 2_048  # payloads may be a megabyte each
_READ: Final = pa.schema([BRONZE.field(name) for name in READ])


class BronzeRows:
    """Bronze as of one version, for one game.

    Rows that ingest refused because the game was unknown still belong to the game: they carry its exact name, perhaps
    under the malformed key. They are returned as if the game had been known; `bronze_key` holds the key in bronze, and
    `was_unknown` marks them.
    """

    def __init__(self, bronze: Location, environment: str, game: Game) -> None:
        """Open the newest version.

        Raises:
            Refused: there is no bronze table, or it is another environment's.
        """
        try:
            self._table = open_table(bronze)
        except TableNotFoundError as error:
            raise Refused(f"There is no bronze table at {bronze}. Start ingest first.") from error
        # Another environment's cursors are not found, so all rows would look lost or still to come.
        require_own(bronze, environment)
        self._folder, self._game = bronze, game
        self.head_seq = int(self._table.transaction_version(names.bronze_app_id(environment)) or 0)

    def between(self, low: int, high: int) -> Iterator[pa.Table]:
        """Yield the game's rows of seqs above `low` up to `high`, in chunks."""
        return self._read(range(low + 1, high + 1), (pc.field("seq") > low) & (pc.field("seq") <= high))

    def of_seqs(self, seqs: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
        """Yield the game's rows of these seqs, in chunks; a seq above the head belongs to an unfinished commit."""
        return self._read(seqs, pc.field("seq").isin(pa.array(seqs)) & (pc.field("seq") <= self.head_seq))

    def _read(self, seqs: Seqs, span: pc.Expression) -> Iterator[pa.Table]:
        files = files_with(self._table, self._folder, "seq", seqs, self._game.bronze_keys)
        if not files:
            return
        was_unknown = (text("refused") == UNKNOWN_GAME) & (text("game") == self._game.name)
        rows = parquet.dataset(files, _READ).scanner(
            filter=span & ((text("game_key") == self._game.key) | was_unknown),
            batch_size=_BATCH_ROWS,
            batch_readahead=1,
            fragment_readahead=1,
        )
        for batches in parquet.bounded(rows.to_batches()):
            yield self._as_known(pa.Table.from_batches(batches))

    def _as_known(self, rows: pa.Table) -> pa.Table:
        """Give rows the game's key, and lift the refusal as unknown."""
        was_unknown = pc.fill_null(pc.equal(rows.column("refused"), UNKNOWN_GAME), fill_value=False)
        lifted = pc.if_else(was_unknown, pa.scalar(None, pa.string()), rows.column("refused"))
        bronze_key = rows.column("game_key")
        keys = pa.chunked_array([pa.repeat(pa.scalar(str(self._game.key)), rows.num_rows)])
        rows = rows.set_column(rows.column_names.index("refused"), "refused", lifted)
        rows = rows.set_column(rows.column_names.index("game_key"), "game_key", keys)
        return rows.append_column("bronze_key", bronze_key).append_column("was_unknown", was_unknown)
