"""The backlog of a landing table: the commits after the last one in bronze, each read once, by name."""

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pipeline.base.errors import Transient
from pipeline.data.ingest.identity import Commits, Position
from pipeline.data.ingest.sources.kind import Ends
from pipeline.data.ingest.sources.landing_log import file_name
from pipeline.data.ingest.sources.waiting import Waiting
from pipeline.lake.delta.log import Action, appended, commit_file, commits_after, has_version
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.pipelined import pipelined

_MAX_COMMITS: Final = 2_000  # most commits of one measurement; the next one continues


@dataclass(frozen=True, slots=True)
class _File:
    version: int
    index: int  # among the new files of its commit
    name: str
    rows: int | None
    came_at: float  # Unix seconds


class LandingBacklog:
    """Remembers the waiting files, so that each measurement reads only new commits."""

    def __init__(self, landing: Location, described: str = "landing") -> None:
        """Prepare; reads nothing yet. `described` is the source's description."""
        self._landing, self._described = landing, described
        self._last: tuple[int, str] | None = None  # the newest commit as last seen, and its file
        self._files: deque[_File] = deque()  # that wait, of the commits from `_first` to before `_next`, in order
        self._first = self._next = -1
        self._ended_at: float | None = None  # when commit `_next` was last missing

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def look(self, offset: Mapping[str, Any] | None, begin: Position | None) -> Waiting:
        """Return the backlog behind Spark's offset, or from the beginning without one."""
        start = begin if isinstance(begin, Commits) else Commits(None)
        if offset is None and start.version is None:
            return Waiting(None, None, "the first read of the landing table, a snapshot, still runs")
        if offset is not None and offset["isStartingVersion"]:
            return Waiting(
                None,
                None,
                f"the snapshot of the landing table at commit {offset['reservoirVersion']} is still being read",
            )
        is_whole = self._pass(offset, start)
        if self._next > 0 and not has_version(self._landing, self._next - 1):
            return Waiting(None, None, f"the landing table's log no longer has commit {self._next - 1}")
        if self._is_missing(self._next):
            return Waiting(None, None, f"the landing table's log has commit {self._next + 1}, and none before it")
        waiting = self._waiting(start)
        oldest = min((each.came_at for each in waiting if each.version == waiting[0].version), default=None)
        if not is_whole:
            return Waiting(None, oldest, "not all waiting commits are counted yet")
        rows = [each.rows for each in waiting]
        known = [each for each in rows if each is not None]
        if len(known) < len(rows):
            return Waiting(None, oldest, "the landing table's log lacks the row counts of some files")
        return Waiting(sum(known), oldest)

    def ends(self) -> Ends:
        """Return the number after the newest commit."""
        if self._last is not None and self._tag(self._last[0]) != self._last[1]:
            raise Transient(f"The landing table {self._landing} was replaced by another one.")
        version = open_table(self._landing).version() if self._last is None else self._last[0]
        while commit_file(self._landing, version + 1).exists():
            version += 1
        tag = self._tag(version)
        self._last = None if tag is None else (version, tag)
        return {self._described: {0: version + 1}}

    def reached(self, offset: Mapping[str, Any] | None, begin: Position | None) -> Ends | None:
        """Return the first commit with a waiting file, or the number after the newest commit where none waits."""
        start = begin if isinstance(begin, Commits) else Commits(None)
        if (offset is None and start.version is None) or (offset is not None and offset["isStartingVersion"]):
            return None
        self._pass(offset, start)
        waiting = self._waiting(start)
        return {self._described: {0: waiting[0].version if waiting else self._next}}

    def _tag(self, version: int) -> str | None:
        found = commit_file(self._landing, version).entry()
        return None if found is None else found.tag

    def _pass(self, offset: Mapping[str, Any] | None, start: Commits) -> bool:
        """Read on, and forget the files before an offset; return whether all commits are read."""
        at = (start.version or 0, -1) if offset is None else (int(offset["reservoirVersion"]), int(offset["index"]))
        is_whole = self._read_on(at[0])
        self._first = at[0]
        while self._files and (self._files[0].version, self._files[0].index) <= at:
            self._files.popleft()
        return is_whole

    def _waiting(self, start: Commits) -> list[_File]:
        return [each for each in self._files if each.name not in start.skip]

    def _read_on(self, version: int) -> bool:
        """Read the new commits, or all from this one on where it was not read; return whether these were all."""
        if not self._first <= version <= self._next:
            self._files.clear()
            self._next, self._ended_at = version, None
        read, now = 0, time.time()
        commits = islice(commits_after(self._landing, self._next - 1), _MAX_COMMITS)
        dated = pipelined(lambda each: self._came_at(each[0], now), commits, is_far=self._landing.is_far)
        for (number, actions), came_at in dated:
            self._files.extend(_added(self._landing, number, actions, came_at))
            self._next = number + 1
            read += 1
        is_whole = read < _MAX_COMMITS
        self._ended_at = now if is_whole else None
        return is_whole

    def _came_at(self, version: int, now: float) -> float:
        """Return when an existing commit arrived: its file's time, bounded by the measurements around it.

        The writer's own time is not used: its clock may be wrong, and files may be written long before their commit.
        """
        found = commit_file(self._landing, version).entry()
        written = now if found is None else found.modified  # none: cut from the log meanwhile
        return min(now, max(written, self._ended_at or written))

    def _is_missing(self, version: int) -> bool:
        """Return whether a commit is missing although the next one exists, whose writer must have seen it."""
        after, own = commit_file(self._landing, version + 1), commit_file(self._landing, version)
        return after.exists() and not own.exists()


def _added(landing: Location, version: int, actions: list[Action], came_at: float) -> list[_File]:
    return [
        _File(version, index, file_name(add["path"], landing), _rows(add), came_at)
        for index, add in enumerate(appended(actions))
    ]


def _rows(add: Action) -> int | None:
    stats = json.loads(add.get("stats") or "{}")
    rows = stats.get("numRecords")
    return rows if isinstance(rows, int) else None
