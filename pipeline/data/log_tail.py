"""A Delta log as a streaming source of Spark: it reads the log commit by commit, each by its name.

Spark's reader lists the log, and a listing of a log with several producers may show a commit but not the one before it,
which ends the query. Reading by name has no such race: the writer of commit N+1 has seen commit N. It returns names of
files, and tasks read them.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from typing import Any, Final

from pyspark.sql.datasource import SimpleDataSourceStreamReader

from pipeline.base.errors import Transient
from pipeline.data.pacing import Pace
from pipeline.lake.delta.log import Action, commit_file, commits_after, log_folder
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.pipelined import pipelined

Offset = dict[str, Any]

_BOUNDED: Final = "pyspark.sql.streaming.datasource"
_LOOKS: Final = 10  # for the next commit, in the time between two batches
_POLL_SECONDS: Final = 0.1  # between two looks at least; one is a few calls to the file system
_FAR_POLL_SECONDS: Final = 1.0  # the same in a bucket, where a look is a request
_WHOLE_SECONDS: Final = 10.0  # between two looks at the whole log while no commit comes


def offset(table_id: str, version: int, index: int = -1, *, is_starting: bool = False) -> Offset:
    """Return a position in the log in the form of Delta's own source: before the file after `index` of a commit.

    With `is_starting`, of the table's snapshot at that commit.
    """
    return {
        "sourceVersion": 1,
        "reservoirId": table_id,
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": is_starting,
    }


def is_supported() -> bool:
    """Return whether this Spark can read such a source to its end: 4.2 can, 4.1 cannot."""
    return find_spec(_BOUNDED) is not None


def poll_seconds(table: Location, trigger_seconds: float) -> float:
    """Return the seconds between two looks for the next commit where batches are `trigger_seconds` apart."""
    least = _FAR_POLL_SECONDS if table.is_far else _POLL_SECONDS
    return min(trigger_seconds, max(least, round(trigger_seconds / _LOOKS, 3)))  # Spark parses few digits


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file of the table with new rows."""

    path: str  # as in the log
    size: int  # bytes
    stats: str | None = None  # as in the log


class TailReader(SimpleDataSourceStreamReader):
    """Reads commits in order up to the first missing one, a bounded number of bytes at a time."""

    def __init__(self, table: Location, what: str, begin: Offset, max_bytes: int, trigger_seconds: float) -> None:
        """Begin a query without a checkpoint at an offset; `what` names the table in sentences.

        A batch begins when a commit is there and `trigger_seconds` are over, as `Pace` says.
        """
        self._table, self._what, self._begin, self._max_bytes = table, what, begin, max_bytes
        self._pace, self._whole_at = Pace(trigger_seconds, poll_seconds(table, trigger_seconds)), -math.inf
        self._found: list[float] = []  # when the commits of this batch were made, Unix seconds
        self._is_bounded = False
        self._last: int | None = None  # the last commit to read, of a bounded run
        self._snapshot: Sequence[AddedFile] | None = None
        self._read_last: tuple[int, str] | None = None  # the last commit read, and its file

    @abstractmethod
    def added(self, version: int, actions: Sequence[Action]) -> Sequence[AddedFile]:
        """Return the files of a commit whose rows are read.

        Raises:
            Transient: the reader cannot go on over this commit.
        """

    def snapshot(self, version: int) -> Sequence[AddedFile]:
        """Return the files of the table as of a commit, for a query that begins with them."""
        raise NotImplementedError(version)

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins."""
        return self._begin

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop at the commits that exist when reading begins."""
        self._is_bounded = True

    def read(self, start: Offset) -> tuple[Iterator[tuple[str]], Offset]:
        """Return the paths of the next files, and the offset after them; the same offset where no batch begins.

        Raises:
            Transient: a commit is missing though later ones exist, or the table has changed in another way.
        """
        now = time.monotonic()
        if not self._is_bounded and (not self._pace.is_due(now) or self._is_quiet(start, now)):
            return iter(()), start
        self._whole_at = now
        self._found.clear()
        files, end = self._read(start)
        if end != start:
            self._pace.begun(now, len(self._found), time.time() - max(self._found, default=0.0))
        return files, end

    def _is_quiet(self, start: Offset, now: float) -> bool:
        """Return whether there is no next commit, by one look; from time to time the whole log is looked at."""
        if now - self._whole_at >= _WHOLE_SECONDS or start["isStartingVersion"]:
            return False
        return not commit_file(self._table, start["reservoirVersion"]).exists()

    def _read(self, start: Offset) -> tuple[Iterator[tuple[str]], Offset]:
        if self._is_bounded and self._last is None:
            self._last = self._last_commit(start["reservoirVersion"] + start["isStartingVersion"])
        self._require_same_table(start)
        files, end = self._next(start, self._last, self._max_bytes)
        if end == start:
            self._require_next(start["reservoirVersion"])
        file = self._file(end["reservoirVersion"] - 1)
        self._require_same_table(start)  # commits read in between belong to the same log
        self._read_last = None if file is None else (end["reservoirVersion"] - 1, file)
        return iter([(file.path,) for file in files]), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[str]]:  # noqa: N802 - Spark's name
        """Return the paths of the files between two offsets again; raises what `between` raises."""
        return ((file.path,) for file in self.between(start, end))

    def between(self, start: Offset, end: Offset) -> Iterator[AddedFile]:
        """Return the files between two offsets.

        Raises:
            Transient: one of their commits is gone.
        """
        last, index = end["reservoirVersion"], end["index"]
        version, begun = start["reservoirVersion"], start["index"] + 1
        is_starting = start["isStartingVersion"]
        commits = self._files_from(version, last, is_starting=is_starting)
        while version < last or (version == last and (index >= 0 or is_starting != end["isStartingVersion"])):
            files = next(commits, None)
            if files is None:
                raise Transient(f"{self._what} lacks commit {version}, which was read before.")
            ends_here = version == last and is_starting == end["isStartingVersion"]
            yield from files[begun : index + 1 if ends_here else None]
            if ends_here:
                return
            version, begun, is_starting = version + 1, 0, False

    def _next(self, start: Offset, last: int | None, max_bytes: int) -> tuple[list[AddedFile], Offset]:
        taken: list[AddedFile] = []
        room = max_bytes
        table_id, version, done = start["reservoirId"], start["reservoirVersion"], start["index"] + 1
        is_starting = start["isStartingVersion"]
        for files in self._files_from(version, last, is_starting=is_starting):
            for number, file in enumerate(files[done:], done):
                room -= file.size
                if taken and room < 0:
                    return taken, offset(table_id, version, number - 1, is_starting=is_starting)
                taken.append(file)
            version, done, is_starting = version + 1, 0, False
        return taken, offset(table_id, version, done - 1, is_starting=is_starting)

    def _files_from(self, version: int, last: int | None, *, is_starting: bool) -> Iterator[Sequence[AddedFile]]:
        """Yield the files with new rows of each commit from a version up to `last`, or to the first missing one.

        With `is_starting`, of the first version's snapshot instead of its commit.
        """
        if is_starting:
            if last is not None and version > last:
                return
            if self._snapshot is None:
                self._snapshot = self.snapshot(version)
            yield self._snapshot
            version += 1
        for number, actions in commits_after(self._table, version - 1):
            if last is not None and number > last:
                return
            yield self.added(number, actions)

    def _require_same_table(self, start: Offset) -> None:
        """Continue only in the same log: a replacement table has commits of the same numbers."""
        if self._read_last is None or self._read_last == (self._read_last[0], self._file(self._read_last[0])):
            return
        found = str(open_table(self._table).metadata().id)  # log cleanup or a restored copy is not another table
        if found != start["reservoirId"]:
            raise Transient(f"{self._what} was replaced by another one, {found}, while it was read.")

    def _file(self, version: int) -> str | None:
        """Return what distinguishes a commit's file from a replacement, None when it is missing."""
        found = commit_file(self._table, version).entry()
        return None if found is None else found.tag

    def _last_commit(self, version: int) -> int:
        """Return the last existing commit from a version on; the one before it without any."""
        names = pipelined(
            lambda each: commit_file(self._table, each).exists(), count(version), is_far=self._table.is_far
        )
        return next(number for number, there in names if not there) - 1

    def _require_next(self, version: int) -> None:
        """Find out whether a missing commit is still to come or will never come."""
        if commit_file(self._table, version + 1).exists():
            newest = version + 1
        else:
            names = (file.name for file in log_folder(self._table).files())
            newest = max((int(name[:20]) for name in names if name[:20].isdigit()), default=-1)
        if newest > version and not commit_file(self._table, version).exists():
            raise Transient(f"{self._what} lacks commit {version}: it has commit {newest}.")
        if newest < version - 1:
            raise Transient(f"{self._what} ends at {newest}, but was read up to {version - 1}.")


with suppress(ImportError):  # of Spark before 4.2, where other sources work without it
    import_module(_BOUNDED).SupportsTriggerAvailableNow.register(TailReader)
