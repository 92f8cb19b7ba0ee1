"""What waits in a landing table: the commits after the last one in bronze, read by name, each of them once."""

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pipeline.delta.log import Action, appended, commit_file, commits_after, has_version
from pipeline.ingest.identity import Commits, Position
from pipeline.ingest.landing_log import file_name
from pipeline.ingest.waiting import Waiting

_MOST_COMMITS: Final = 2_000  # that one look reads; the next one goes on


@dataclass(frozen=True, slots=True)
class _File:
    version: int
    index: int  # among the new files of its commit
    name: str
    rows: int | None
    came_at: float  # Unix seconds


class LandingBacklog:
    """Remembers the files that wait, so that a backlog is not read again at each look."""

    def __init__(self, landing: Path) -> None:
        """Read nothing yet."""
        self._landing = landing
        self._files: deque[_File] = deque()  # that wait, of the commits from `_first` to before `_next`, in order
        self._first = self._next = -1
        self._ended_at: float | None = None  # when commit `_next` was looked for and not there

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def look(self, offset: Mapping[str, Any] | None, begin: Position | None) -> Waiting:
        """Return what waits behind an offset of Spark's, or from the beginning where there is none."""
        start = begin if isinstance(begin, Commits) else Commits(None)
        if offset is None and start.version is None:
            return Waiting(None, None, "the landing table is read for the first time, as it is")
        if offset is not None and offset["isStartingVersion"]:
            return Waiting(None, None, f"the landing table as of commit {offset['reservoirVersion']} is still read")
        at = (start.version or 0, -1) if offset is None else (int(offset["reservoirVersion"]), int(offset["index"]))
        is_whole = self._read_on(at[0])
        self._first = at[0]
        while self._files and (self._files[0].version, self._files[0].index) <= at:
            self._files.popleft()
        if self._next > 0 and not has_version(self._landing, self._next - 1):
            return Waiting(None, None, f"the landing table's log has no commit {self._next - 1} any more")
        if self._is_missing(self._next):
            return Waiting(None, None, f"the landing table's log has commit {self._next + 1}, and none before it")
        waiting = [each for each in self._files if each.name not in start.skip]
        oldest = min((each.came_at for each in waiting if each.version == waiting[0].version), default=None)
        if not is_whole:
            return Waiting(None, oldest, "more commits wait than are counted yet")
        rows = [each.rows for each in waiting]
        known = [each for each in rows if each is not None]
        if len(known) < len(rows):
            return Waiting(None, oldest, "the landing table's log does not tell the rows of each file")
        return Waiting(sum(known), oldest)

    def _read_on(self, version: int) -> bool:
        """Read the commits that came, or all from this one on where it was not read; tell whether these were all."""
        if not self._first <= version <= self._next:
            self._files.clear()
            self._next, self._ended_at = version, None
        read, now = 0, time.time()
        for number, actions in islice(commits_after(self._landing, self._next - 1), _MOST_COMMITS):
            self._files.extend(_added(self._landing, number, actions, self._came_at(number, now)))
            self._next = number + 1
            read += 1
        is_whole = read < _MOST_COMMITS
        self._ended_at = now if is_whole else None
        return is_whole

    def _came_at(self, version: int, now: float) -> float:
        """Return when a commit came that is there now: as its file says, within what was seen.

        Its writer is not asked: its clock may be wrong, and files may have been written long before their commit.
        """
        try:
            written = commit_file(self._landing, version).stat().st_mtime
        except FileNotFoundError:  # cut from the log meanwhile
            written = now
        return min(now, max(written, self._ended_at or written))

    def _is_missing(self, version: int) -> bool:
        """Tell whether a commit is not there though the next one is; who wrote that has seen it."""
        after, own = commit_file(self._landing, version + 1), commit_file(self._landing, version)
        return after.exists() and not own.exists()


def _added(landing: Path, version: int, actions: list[Action], came_at: float) -> list[_File]:
    return [
        _File(version, index, file_name(add["path"], landing), _rows(add), came_at)
        for index, add in enumerate(appended(actions))
    ]


def _rows(add: Action) -> int | None:
    stats = json.loads(add.get("stats") or "{}")
    rows = stats.get("numRecords")
    return rows if isinstance(rows, int) else None
