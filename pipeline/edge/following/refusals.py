"""Refused rows by the commits of quarantine, kept in memory for all followers. Writes nothing.

A commit adds refused rows, or takes rows away that a replay has landed. What was read last is kept, up to a number of
bytes; threads of several followers share it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import MALFORMED, game_key
from pipeline.data.repair.places import PLACES, landed, without
from pipeline.edge.following.positions import table_mark
from pipeline.lake.delta import parquet
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.files import files_with, without_views
from pipeline.lake.delta.log import appended, changes, commit_file, exists, read_commit
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.settings.tree import Paths

_COLUMNS: Final = (
    "game_key", "game", "seq", "pos", "topic", "partition", "offset", "event_id", "reason", "detail", "field",
)  # fmt: skip
_WHERE: Final = ("game", "seq", "pos")
_READ: Final = pa.schema([QUARANTINE.field(name) for name in _COLUMNS])
_KEPT_BYTES: Final = 64 * 1024 * 1024
_KEPT_COMMITS: Final = 1_000
_END: Final = 2**62


class TooOld(Exception):
    """Quarantine no longer has what lies behind a position."""


class OfGame(NamedTuple):
    """Whose rows they are."""

    name: str  # exact
    is_ingests: bool  # ingest refused them, before the game was known: they are decided once bronze has them


class RowsByGame:
    """Rows of one file of quarantine, or those that one commit took away, by game."""

    def __init__(self, rows: pa.Table) -> None:
        """Keep rows with the columns of `_READ`, without those that have no game's name."""
        rows = rows.filter(pc.is_valid(rows.column("game")))
        rows = rows.sort_by([("game", "ascending"), ("game_key", "ascending"), ("seq", "ascending")]).combine_chunks()
        self.rows = rows
        self.games: dict[OfGame, tuple[int, int]] = {}  # the first row, and the one after the last
        keys = rows.column("game_key").combine_chunks().dictionary_encode()
        names = rows.column("game").combine_chunks().dictionary_encode()
        if rows.num_rows:
            codes = np.stack([_codes(names), _codes(keys)])
            starts = np.flatnonzero(np.any(np.diff(codes, axis=1, prepend=-1) != 0, axis=0)).tolist()
            for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
                name, key = (each.dictionary[each.indices[start].as_py()].as_py() for each in (names, keys))
                self.games[OfGame(name, key == MALFORMED)] = start, end
        self.decided: dict[tuple[OfGame, int, int], pa.Table] = {}

    def of(self, game: OfGame, above: int = -1, through: int = _END) -> pa.Table:
        """Return the rows of a game of seqs above one, up to another one."""
        start, end = self.games[game]
        rows = self.rows.slice(start, end - start)
        return rows.filter((pc.field("seq") > above) & (pc.field("seq") <= through))

    def last_seq(self, game: OfGame) -> int:
        """Return the last seq of a game's rows."""
        return int(self.rows.column("seq")[self.games[game][1] - 1].as_py())


@dataclass(frozen=True, slots=True)
class QuarantineCommit:
    """What one version of quarantine added and took away; files by their paths."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(slots=True)
class Quarantine:
    """Quarantine's log and its newest files."""

    paths: Paths
    mark: bytes = bytes(8)  # of the table; this, where there is none yet
    version: int = -1
    _commits: "OrderedDict[tuple[bytes, int], QuarantineCommit]" = field(default_factory=OrderedDict)
    _kept: "OrderedDict[tuple[str, ...], RowsByGame]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> int:
        """Read how far the log is; return the newest version, -1 where there is no table yet.

        Raises:
            OSError: it cannot be read.
        """
        folder = self.paths.quarantine
        if self.version < 0 and not exists(folder):
            return -1
        if self.version < 0 or not commit_file(folder, self.version).exists():
            return self.open()
        while commit_file(folder, self.version + 1).exists():
            self.version += 1
        return self.version

    def open(self) -> int:
        """Read the log from its end, also where it was cut from below or is another table's."""
        try:
            table = open_table(self.paths.quarantine)
        except TableNotFoundError:
            return -1
        self.mark, self.version = table_mark(str(table.metadata().id)), table.version()
        return self.version

    def commit(self, version: int) -> QuarantineCommit:
        """Return what a version did.

        Raises:
            TooOld: the log no longer has it.
            OSError: it cannot be read.
        """
        folder, name = self.paths.quarantine, (self.mark, version)
        if (known := self._commits.get(name)) is not None:
            return known
        actions = read_commit(folder, version)
        if actions is None:
            raise TooOld
        added = tuple(str(folder / unquote(each["path"])) for each in appended(actions))
        removes = (each["remove"] for each in actions if changes(each.get("remove")))
        made = QuarantineCommit(added, tuple(str(folder / unquote(each["path"])) for each in removes))
        with self._lock:
            self._commits[name] = made
            if len(self._commits) > _KEPT_COMMITS:
                self._commits.popitem(last=False)
        return made

    def added(self, commit: QuarantineCommit) -> RowsByGame:
        """Return the rows that a commit added: of a rewritten file only those that were in none.

        Raises:
            TooOld: one of its files is gone.
        """
        return self._of(
            ("added", *commit.removed, "", *commit.added), lambda: _difference(commit.added, commit.removed)
        )

    def gone(self, commit: QuarantineCommit) -> RowsByGame:
        """Return the rows that a commit took away.

        Raises:
            TooOld: one of its files is gone.
        """
        return self._of(("gone", *commit.removed, "", *commit.added), lambda: _difference(commit.removed, commit.added))

    def since(self, seq: int, version: int) -> Iterator[QuarantineCommit]:
        """Yield the files of a version that may hold rows above a seq, each by itself.

        Raises:
            OSError: it cannot be read.
        """
        if version < 0:
            return
        table = open_table(self.paths.quarantine, version)
        for file in files_with(table, self.paths.quarantine, "seq", range(seq + 1, _END)):
            yield QuarantineCommit((file,))

    def _of(self, name: tuple[str, ...], read: Callable[[], RowsByGame]) -> RowsByGame:
        with self._lock:
            if (found := self._kept.get(name)) is not None:
                self._kept.move_to_end(name)
                return found
        made = read()
        with self._lock:
            self._kept[name] = made
            while len(self._kept) > 1 and sum(each.rows.nbytes for each in self._kept.values()) > _KEPT_BYTES:
                self._kept.popitem(last=False)
        return made

    def refused(self, rows: RowsByGame, game: OfGame, above: int, through: int) -> pa.Table:
        """Return decided rows of a game that its table does not hold: the table wins (law L5)."""
        name = game, above, through
        if (found := rows.decided.get(name)) is None:
            chosen = rows.of(game, above, through)
            found = without(chosen, self.landed(game.name, chosen)) if chosen.num_rows else chosen
            rows.decided[name] = found
        return found

    def landed(self, game: str, rows: pa.Table) -> pa.Table:
        """Return the places of rows that a game's table holds."""
        folder = self.paths.table(game_key(game))
        if not exists(folder):
            return PLACES.empty_table()
        return landed(open_table(folder), folder, rows.select(PLACES.names))


def _read(files: Sequence[str]) -> pa.Table:
    if not files:
        return _READ.empty_table()
    try:
        return without_views(parquet.dataset(files, _READ).to_table()).cast(_READ)
    except FileNotFoundError as error:
        raise TooOld from error


def _difference(files: Sequence[str], others: Sequence[str]) -> RowsByGame:
    """Return the rows of files whose places are in none of the others."""
    rows = _read(files)
    return RowsByGame(rows.join(_read(others).select(_WHERE), _WHERE, join_type="left anti") if others else rows)


def _codes(column: pa.DictionaryArray) -> np.ndarray:
    codes: np.ndarray = column.indices.to_numpy()
    return codes
