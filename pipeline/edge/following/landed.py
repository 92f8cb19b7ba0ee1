"""How far games are landed, by offsets of the topic: read from the logs of bronze and of game tables. Writes nothing.

A game is landed through the planned ends of bronze's last batch before its first row that its table lacks. Bronze's
commits have those ends; the table `through` has older ones. One thread calls it.
"""

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from pipeline.base.names import MALFORMED, GameKey, bronze_app_id, stream_app_id
from pipeline.data.ingest.bronze_progress import PLAN
from pipeline.data.ingest.last_seqs import read_last_seqs
from pipeline.data.ingest.restored import snapshot_file
from pipeline.data.ingest.through.through_time import lost_of
from pipeline.lake.delta import generation
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.files import read_file
from pipeline.lake.delta.log import Action, appended, changes, commits_after, exists, read_commits
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.delta.through import read_pairs
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths

Offsets = Mapping[int, int]
"""The number after the last offset of each partition; after the last commit of a landing table under 0."""

_EARLIER_COMMITS: Final = 100  # of bronze, read at the start for the ends of their batches
_MOST_ENDS: Final = 4_096
_MOST_SPANS: Final = 32  # of one game: beyond, neighbours are one
_LOOK_AGAIN_SECONDS: Final = 60.0  # maintenance may have cut a log that says nothing for this time
_AT_ONCE: Final = 16  # requests to a bucket


@dataclass(frozen=True, slots=True)
class LandedView:
    """How far bronze and games are at one moment; a game that is not in `landed` is unknown."""

    head: int = 0  # bronze's last seq
    cursors: Mapping[str, int] = field(default_factory=dict)  # of games' tables, by key
    landed: Mapping[str, int] = field(default_factory=dict)  # by key the seq through which a table has all rows
    ends: tuple[tuple[int, Offsets], ...] = ()  # by seq, growing: bronze up to it has all offsets below these

    def end(self, seq: int) -> tuple[int, Offsets]:
        """Return the offsets below which all records lie in bronze up to a seq, and the seq of the batch they end.

        No offsets where that is not known.
        """
        at = bisect_right(self.ends, seq, key=_seq_of)
        return self.ends[at - 1] if at else (0, {})


class LandedTail:
    """Follows bronze and the tables of some games."""

    def __init__(self, paths: Paths, environment: str) -> None:
        """Read nothing yet."""
        self._paths, self._environment = paths, environment
        self._app = bronze_app_id(environment)
        self._bronze: Location = paths.bronze
        self.forget()

    def forget(self) -> None:
        """Begin again at the next look."""
        self._version: int | None = None
        self._head = 0
        self._ends: list[tuple[int, Offsets]] = []
        self._last: dict[str, int] = {}  # the last seq of each game when the tail began
        self._waiting: dict[str, list[tuple[int, int]]] = {}  # spans of seqs with rows above a game's cursor
        self._tables: dict[str, _Table] = {}
        self._looked_at = time.monotonic()

    def look(self, keys: Collection[str]) -> LandedView:
        """Read what is new, of the tables of these games.

        Raises:
            DeltaError, OSError: a log or a file cannot be read.
        """
        if self._version is None and not self._begin():
            return LandedView()
        for version, actions in commits_after(self._bronze, self._version or 0):
            if any(changes(each.get("remove")) or "metaData" in each for each in actions):  # a restore, or a new table
                self.forget()
                return self.look(keys)
            self._take(version, actions)
        if time.monotonic() - self._looked_at > _LOOK_AGAIN_SECONDS:
            if open_table(self._bronze).version() != self._version:
                self.forget()
                return self.look(keys)
            self._looked_at = time.monotonic()
        head, ends = self._head, tuple(self._ends)  # before the tables: what is above is not theirs
        self._read_cursors(keys)
        cursors = {key: table.cursor for key in keys if (table := self._tables.get(key)) is not None}
        return LandedView(head, cursors, {key: self._landed(key, at) for key, at in cursors.items()}, ends)

    def _begin(self) -> bool:
        """Read where everything is now; return False where there is no bronze yet."""
        pairs = read_pairs(self._paths.through)  # first: bronze has no less than at that moment
        bronze = CursorTable.open(self._bronze, self._app)
        if bronze is None:
            return False
        losses = lost_of(open_table(self._bronze), self._environment)
        head = bronze.cursor or 0
        sound = (each for each in pairs if each.seq <= head and not any(each.seq in lost for lost in losses))
        self._ends = sorted(((each.seq, _only(json.loads(each.ends))) for each in sound), key=_seq_of)
        first = max(0, bronze.version - _EARLIER_COMMITS)
        for actions in read_commits(self._bronze, range(first, bronze.version + 1)):
            self._take_ends(actions or (), head)
        self._last = read_last_seqs(bronze, snapshot_file(self._paths), losses)
        self._head, self._version = head, bronze.version
        self._looked_at = time.monotonic()
        return True

    def _take(self, version: int, actions: Sequence[Action]) -> None:
        """Take a commit as a whole: where a file of it cannot be read, the next look begins with it again."""
        files = [str(self._bronze / unquote(each["path"])) for each in appended(actions)]
        for rows in [read_file(file, ["game_key", "seq"]) for file in files]:
            pairs = rows.group_by(["game_key", "seq"]).aggregate([]).sort_by("seq").to_pydict()
            for key, seq in zip(pairs["game_key"], pairs["seq"], strict=True):
                if key != MALFORMED:  # refused by ingest: in no table
                    _add(self._waiting.setdefault(key, []), seq, seq)
        for each in actions:
            if each.get("txn", {}).get("appId") == self._app:
                self._head = max(self._head, int(each["txn"]["version"]))
        self._take_ends(actions, self._head)
        self._version, self._looked_at = version, time.monotonic()

    def _take_ends(self, actions: Iterable[Action], head: int) -> None:
        """Note the planned ends of a commit's batch."""
        seq = max((int(each["txn"]["version"]) for each in actions if _is_of(each, self._app)), default=head)
        for each in actions:
            plan = each.get("commitInfo", {}).get(PLAN)
            ends = _planned(plan) if isinstance(plan, str) else {}
            if not ends or seq > head:
                continue
            while self._ends and self._ends[-1][0] >= seq:
                self._ends.pop()
            self._ends.append((seq, ends))
        if len(self._ends) > _MOST_ENDS:
            half = _MOST_ENDS // 2
            self._ends = self._ends[:half:2] + self._ends[half:]

    def _read_cursors(self, keys: Collection[str]) -> None:
        """Read the tables of games that are new here, or that lacked rows at the last look."""
        for key in keys:
            if key not in self._tables:
                self._tables[key] = _Table(self._paths.table(key), self._environment, GameKey(key))
        due = [self._tables[key] for key in keys if self._tables[key].is_new or self._waiting.get(key)]
        if self._bronze.is_far and len(due) > 1:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(_Table.look, due))
        else:
            for each in due:
                each.look()

    def _landed(self, key: str, cursor: int) -> int:
        """Return the last seq before the first one with rows that a game's table lacks."""
        if (last := self._last.pop(key, 0)) > cursor:
            self._waiting.setdefault(key, []).insert(0, (cursor + 1, last))
        spans = self._waiting.get(key, [])
        while spans and spans[0][1] <= cursor:
            del spans[0]
        if not spans:
            self._waiting.pop(key, None)
            return self._head
        return max(cursor, spans[0][0] - 1)


class _Table:
    """The cursor of one game's table."""

    def __init__(self, folder: Location, environment: str, key: GameKey) -> None:
        self._folder, self._environment, self._key = folder, environment, key
        self._prefix = stream_app_id(environment, key, 1).removesuffix("1")
        self._version: int | None = None  # None: there is no table
        self._generation = 1
        self._opened_at = 0.0
        self.cursor = 0
        self.is_new = True

    def look(self) -> None:
        """Read what is new in its log."""
        if self._version is None or time.monotonic() - self._opened_at > _LOOK_AGAIN_SECONDS:
            self._open()
            self.is_new = False
            return
        for version, actions in commits_after(self._folder, self._version):
            self._version, self._opened_at = version, time.monotonic()
            if any("metaData" in each and each["metaData"].get("id") for each in actions):
                self._open()  # new columns, or a table that was made again
                return
            for each in actions:
                app = each.get("txn", {}).get("appId", "")
                number = app.removeprefix(self._prefix)
                if app != number and number.isdecimal() and int(number) >= self._generation:
                    self._generation, self.cursor = int(number), int(each["txn"]["version"])

    def _open(self) -> None:
        self._opened_at, self._version = time.monotonic(), None  # so that it is opened again where this fails
        if not exists(self._folder):
            self.cursor = 0
            return
        try:
            table = open_table(self._folder)
        except TableNotFoundError:
            self.cursor = 0
            return
        version_of: Callable[[str], int | None] = table.transaction_version
        self._generation = generation.newest(version_of, self._environment, self._key, self._generation)
        self.cursor = version_of(stream_app_id(self._environment, self._key, self._generation)) or 0
        self._version = table.version()


def _add(spans: list[tuple[int, int]], low: int, high: int) -> None:
    if spans and low <= spans[-1][1]:
        return
    spans.append((low, high))
    if len(spans) > _MOST_SPANS:  # coarser, never too far: within a span a game is landed through its cursor
        (first, _), (_, last) = spans[-2:]
        spans[-2:] = [(first, last)]


def _planned(text: str) -> Offsets:
    """Return the ends in Spark's file of a batch's planned offsets; of a landing table the commits under 0.

    None where several sources are read, or a snapshot of a landing table.
    """
    try:
        ends = json.loads(text.split("\n")[2])
    except (ValueError, IndexError):
        return {}
    if isinstance(ends, dict) and isinstance(commit := ends.get("reservoirVersion"), int):
        return {} if ends.get("isStartingVersion") else {0: commit}
    return _only(ends)


def _only(ends: Any) -> Offsets:
    """Return the ends of the one topic that a tree of ends has."""
    if not isinstance(ends, dict) or len(ends) != 1:
        return {}
    (of,) = ends.values()
    if not isinstance(of, dict) or not all(str(each).isdecimal() for each in of):
        return {}
    return {int(partition): int(end) for partition, end in of.items()}


def _is_of(action: Action, app_id: str) -> bool:
    return bool(action.get("txn", {}).get("appId") == app_id)


def _seq_of(pair: tuple[int, Offsets]) -> int:
    return pair[0]
