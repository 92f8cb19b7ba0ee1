"""The Delta table `through` beside bronze: pairs of a seq and a time up to which bronze has all of its source.

One file holds all pairs, and each commit replaces it, so any Delta reader sees one list. Ingest alone writes it.
"""

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pipeline.base.errors import Refused
from pipeline.base.failpoints import effect
from pipeline.lake.delta.checkpoint import write_when_due
from pipeline.lake.delta.data_files import discard, write_file
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.log import commit_file, commit_id, is_plain, publish_commit, read_commit
from pipeline.lake.delta.marks import ENGINE
from pipeline.lake.delta.opening import create, open_table, rows_of
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.storage.location import Location

THROUGH: Final = pa.schema([("seq", pa.int64()), ("time", pa.timestamp("us", "UTC")), ("ends", pa.string())])

MOST: Final = 1_200
"""Pairs from which on they are thinned."""

_CHECKPOINT_COMMITS: Final = 10
_READ_VERSIONS: Final = 60  # versions whose files stay for readers that have begun: five minutes of heartbeats
_PER_DOUBLING: Final = 32  # pairs that are kept of each doubling of their age


@dataclass(frozen=True, slots=True)
class ThroughPair:
    """Bronze up to a seq has every record that its source had taken by a time."""

    seq: int
    at: float  # Unix seconds by the control store's clock
    ends: str  # the source's ends that ingest had passed, as JSON


def read_pairs(folder: Location) -> tuple[ThroughPair, ...]:
    """Return the pairs, the oldest first; none where ingest has written none yet."""
    try:
        rows = rows_of(folder).to_table(columns=THROUGH.names)
    except TableNotFoundError:
        return ()
    times = rows.column("time").cast(pa.int64()).to_pylist()
    seqs, ends = rows.column("seq").to_pylist(), rows.column("ends").to_pylist()
    pairs = (ThroughPair(seq, at / 1e6, end) for seq, at, end in zip(seqs, times, ends, strict=True))
    return tuple(sorted(pairs, key=lambda pair: (pair.at, pair.seq)))


class PairsView:
    """The pairs for a reader that looks again and again: read again when the table has another version."""

    def __init__(self, folder: Location) -> None:
        """Keep the folder; reads nothing yet."""
        self._folder = folder
        self._version: int | None = None
        self._pairs: tuple[ThroughPair, ...] = ()

    def read(self) -> tuple[ThroughPair, ...]:
        """Return the newest pairs, as `read_pairs`."""
        at = self._version
        if at is None or commit_file(self._folder, at + 1).exists() or not commit_file(self._folder, at).exists():
            try:
                version = open_table(self._folder).version()
            except TableNotFoundError:
                return ()
            self._version, self._pairs = version, read_pairs(self._folder)  # those of this version or a later one
        return self._pairs


def closing_seq(pairs: Iterable[ThroughPair], moment: float) -> int | None:
    """Return the closing seq of what ends at a moment: a row with a higher one is late. None: not known yet.

    The first pair that has the moment gives it: up to its seq bronze has all that the source had taken by then.
    """
    reached = [pair for pair in pairs if pair.at >= moment]
    return min(reached, key=lambda pair: pair.at).seq if reached else None


def joined(pairs: Sequence[ThroughPair], new: ThroughPair) -> tuple[ThroughPair, ...]:
    """Return the pairs with a new one, without those that it makes needless: of a seq the newest time says it all."""
    kept = tuple(pair for pair in pairs if pair.seq < new.seq)
    needless = any(pair.at >= new.at for pair in kept) or any(pair.at > new.at for pair in pairs)
    return tuple(pairs) if needless else (*kept, new)


def thinned(
    pairs: Sequence[ThroughPair], now: float, unread: Iterable[int], moments: Iterable[float] = ()
) -> tuple[ThroughPair, ...]:
    """Return the pairs with fewer old ones: the distance of two grows with their age, to about 3 % of it.

    Args:
        pairs: the oldest first.
        now: Unix seconds.
        unread: of each game that is behind, the first seq with a row above its cursor. The pair before it stays, so
            that no game's time goes back.
        moments: Unix seconds. The first pair that has each of them stays, so that its closing seq stays.
    """
    newest_of: dict[tuple[int, int], ThroughPair] = {}
    for pair in pairs:
        scale = max(0, math.floor(math.log2(max(now - pair.at, 1.0) / _PER_DOUBLING)))
        newest_of[scale, int(pair.at // 2**scale)] = pair
    kept = set(newest_of.values())
    kept.update(pairs[-1:])
    for seq in unread:
        before = [pair for pair in pairs if pair.seq < seq]
        kept.update(before[-1:])
    times = [pair.at for pair in pairs]
    for moment in moments:
        first = bisect_left(times, moment)
        kept.update(pairs[first : first + 1])
    return tuple(pair for pair in pairs if pair in kept)


class ThroughTable:
    """The table, open for ingest, which replaces its rows again and again."""

    def __init__(self, folder: Location) -> None:
        """Keep the folder; reads nothing yet."""
        self._folder = folder
        self._version = -1
        self._last: str | None = None  # the id of that version's commit
        self._files: dict[str, int] = {}  # with their sizes in bytes
        self._replaced: deque[str] = deque()  # files of the versions before; maintenance deletes what a kill leaves

    def read(self) -> tuple[ThroughPair, ...]:
        """Return the pairs as they are now, of a table that is made where there is none.

        Raises:
            Refused: another writer changed its protocol.
        """
        try:
            table = open_table(self._folder)
        except TableNotFoundError:
            with effect("make_folder"):
                self._folder.make()
            table = create(self._folder, THROUGH, "Bronze up to seq has every record that its source had taken by time")
        if not is_plain(table):
            raise Refused(f"Another writer changed the protocol of {self._folder}. Delete the table: ingest makes it.")
        self._version = table.version()
        actions = read_commit(self._folder, self._version)
        self._last = None if actions is None else commit_id(actions)
        self._files = {file.path: file.size for file in table_files(table)}
        return read_pairs(self._folder)

    def write(self, pairs: Sequence[ThroughPair], withdrawn: str = "") -> bool:
        """Replace all pairs in one commit; False where another writer was first: nothing is written, so read again.

        `withdrawn` names the incidents for which pairs are gone, and is kept in the commit.
        """
        rows = pa.table(
            {
                "seq": pa.array([pair.seq for pair in pairs], pa.int64()),
                "time": pa.array([math.floor(pair.at * 1e6) for pair in pairs], pa.int64()).cast(THROUGH.types[1]),
                "ends": pa.array([pair.ends for pair in pairs], pa.string()),
            }
        )
        file, now_ms = write_file(rows, self._folder, ["seq"]), int(time.time() * 1000)
        info: dict[str, Any] = {"timestamp": now_ms, "operation": "WRITE", "engineInfo": ENGINE}
        if withdrawn:
            info["withdrawn"] = withdrawn
        removed = [
            {"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": True, "size": size,
                        "extendedFileMetadata": True, "partitionValues": {}}}
            for path, size in self._files.items()
        ]  # fmt: skip
        actions = [{"commitInfo": info}, *removed, file.to_action(now_ms)]
        if not publish_commit(self._folder, self._version + 1, actions, before=self._last):
            discard(self._folder, [file])
            return False
        self._forget(self._files)
        self._version, self._files = self._version + 1, {file.path: file.size}
        written = read_commit(self._folder, self._version)
        self._last = None if written is None else commit_id(written)
        if self._version % _CHECKPOINT_COMMITS == 0:
            write_when_due(self._folder, self._version)
        return True

    def _forget(self, replaced: Iterable[str]) -> None:
        """Delete files that no reader reads any more: of a day's 17,000 versions nobody needs an old one."""
        self._replaced.extend(replaced)
        while len(self._replaced) > _READ_VERSIONS:
            with effect("delete_data_file"):
                (self._folder / self._replaced.popleft()).delete()
