"""Ingest's own reader of the landing table, as a source of Spark: it reads the log commit by commit, each by its name.

Spark's reader lists the log, and a listing of a log that several producers append to may show a commit but not the one
before it, which ends the query. A file's name has no such moment: who has written commit N+1 has seen commit N.
The source gives one row for each file; the task that lands them reads it (`landing_files`).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipeline.delta.log import Action, appended, changes, commit_file, read_commit
from pipeline.delta.opening import open_table
from pipeline.errors import Transient

Offset = dict[str, Any]

_LOOK_SECONDS: Final = 10.0  # between two listings of a log that seems to have nothing new


def offset(table_id: str, version: int, index: int = -1, *, is_starting: bool = False) -> Offset:
    """Return a place in the log as Delta's own source writes it: before the file after `index` of a commit.

    With `is_starting`, of the table as it was at that commit.
    """
    return {
        "sourceVersion": 1,
        "reservoirId": table_id,
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": is_starting,
    }


class LandingSource(DataSource):
    """The files of a landing table that have new rows, in the order of their commits."""

    @classmethod
    def name(cls) -> str:
        """Return the name of this format."""
        return "turnout_landing"

    def schema(self) -> str:
        """Return the columns: a file's path as the log has it."""
        return "topic string"

    def simpleStreamReader(self, schema: StructType) -> "LandingReader":  # noqa: ARG002, N802 - Spark's signature
        """Return the reader that the options describe."""
        of = self.options
        begin = offset(of["id"], int(of["version"]), is_starting=of["is_starting"] == "true")
        return LandingReader(Path(of["landing"]), begin, int(of["known_to"]), int(of["max_bytes"]))


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int


class LandingReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads commits in their order up to the first that is not there, a bounded number of bytes at a time."""

    def __init__(self, landing: Path, begin: Offset, known_to: int, max_bytes: int) -> None:
        """Begin at an offset; the table's columns and features are known as of commit `known_to`."""
        self._landing, self._begin, self._known_to, self._max_bytes = landing, begin, known_to, max_bytes
        self._is_bounded = False
        self._last: int | None = None  # the last commit to read, of a bounded run
        self._snapshot: Sequence[_File] | None = None
        self._looked_at = time.monotonic()
        self._read_last: tuple[int, tuple[int, int]] | None = None  # the last commit that was read, and its file

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins."""
        return self._begin

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read no further than what is there when reading begins."""
        self._is_bounded = True

    def read(self, start: Offset) -> tuple[Iterator[tuple[str]], Offset]:
        """Return the next files, and the offset after them; the same offset if there is nothing new.

        Raises:
            Transient: a commit is not there though later ones are, or the table has changed in another way.
        """
        if self._is_bounded and self._last is None:
            self._last = self._last_commit(start["reservoirVersion"] + start["isStartingVersion"])
        self._require_same_table(start)
        files, end = self._next(start, self._last, self._max_bytes)
        if end == start:
            self._require_next(start["reservoirVersion"])
        file = self._file(end["reservoirVersion"] - 1)
        self._require_same_table(start)  # what was read meanwhile is of the same log
        self._read_last = file and (end["reservoirVersion"] - 1, file)
        return iter([(file.path,) for file in files]), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[str]]:  # noqa: N802 - Spark's name
        """Return the files between two offsets again.

        Raises:
            Transient: one of their commits is no longer there.
        """
        last, index = end["reservoirVersion"], end["index"]
        version, begun = start["reservoirVersion"], start["index"] + 1
        is_starting = start["isStartingVersion"]
        while version < last or (version == last and (index >= 0 or is_starting != end["isStartingVersion"])):
            files = self._files(version, is_starting=is_starting)
            if files is None:
                raise Transient(f"The landing table {self._landing} lacks commit {version}, which was read before.")
            ends_here = version == last and is_starting == end["isStartingVersion"]
            yield from ((file.path,) for file in files[begun : index + 1 if ends_here else None])
            if ends_here:
                return
            version, begun, is_starting = version + 1, 0, False

    def _next(self, start: Offset, last: int | None, most_bytes: int) -> tuple[list[_File], Offset]:
        taken: list[_File] = []
        room = most_bytes
        table_id, version, done = start["reservoirId"], start["reservoirVersion"], start["index"] + 1
        is_starting = start["isStartingVersion"]
        while last is None or version <= last:
            files = self._files(version, is_starting=is_starting)
            if files is None:
                break
            for number, file in enumerate(files[done:], done):
                room -= file.size
                if taken and room < 0:
                    return taken, offset(table_id, version, number - 1, is_starting=is_starting)
                taken.append(file)
            version, done, is_starting = version + 1, 0, False
        return taken, offset(table_id, version, done - 1, is_starting=is_starting)

    def _files(self, version: int, *, is_starting: bool) -> Sequence[_File] | None:
        """Return the files with new rows of a commit, None when it is not there; or those of the table as it was."""
        if is_starting:
            if self._snapshot is None:
                self._snapshot = _files_at(self._landing, version)
            return self._snapshot
        actions = read_commit(self._landing, version)
        if actions is None:
            return None
        self._require_appended(version, actions)
        added = list(appended(actions))
        if any(add.get("deletionVector") for add in added):
            raise Transient(
                f"Commit {version} of the landing table {self._landing} adds files with deletion vectors, which ingest "
                "does not read. Let it read a copy without them (CREATE TABLE ... AS SELECT)."
            )
        return [_File(add["path"], int(add["size"])) for add in added]

    def _require_same_table(self, start: Offset) -> None:
        """Go on only in the log that was read: another table in its place has commits of the same numbers."""
        if self._read_last is None or self._read_last == (self._read_last[0], self._file(self._read_last[0])):
            return
        found = str(
            open_table(self._landing).metadata().id
        )  # log cleanup, or a copy that was put back, is no other one
        if found != start["reservoirId"]:
            raise Transient(
                f"The landing table {self._landing} was replaced by another one, {found}, while it was read."
            )

    def _file(self, version: int) -> tuple[int, int] | None:
        """Return what tells a commit's file from one that is put in its place, None when it is not there."""
        try:
            found = commit_file(self._landing, version).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _require_appended(self, version: int, actions: Sequence[Action]) -> None:
        """Go on only over commits that add rows: of any other a start of the query says what is to be done."""
        if any(changes(action.get("remove")) for action in actions):
            raise Transient(f"Commit {version} of the landing table {self._landing} took rows away or changed them.")
        if version > self._known_to and any("metaData" in action or "protocol" in action for action in actions):
            raise Transient(f"Commit {version} of the landing table {self._landing} changed its columns or features.")

    def _last_commit(self, version: int) -> int:
        """Return the last commit that is there from a version on; the one before it if none is."""
        while commit_file(self._landing, version).exists():
            version += 1
        return version - 1

    def _require_next(self, version: int) -> None:
        """Find out, where a commit is not there, whether it is still to come or will never come."""
        if commit_file(self._landing, version + 1).exists():
            newest = version + 1
        elif time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return
        else:
            self._looked_at = time.monotonic()
            log = self._landing / "_delta_log"
            newest = max((int(file.name[:20]) for file in log.iterdir() if file.name[:20].isdigit()), default=-1)
        if newest > version and not commit_file(self._landing, version).exists():
            raise Transient(f"The landing table {self._landing} lacks commit {version}: it has commit {newest}.")
        if newest < version - 1:
            raise Transient(f"The landing table {self._landing} ends at {newest}, but was read up to {version - 1}.")


def _files_at(landing: Path, version: int) -> Sequence[_File]:
    """Return the files of the table as it was at a commit, those that came first before the others."""
    actions = pa.table(open_table(landing, version).get_add_actions(flatten=True)).to_pylist()
    actions.sort(key=lambda action: (action["modification_time"], action["path"]))
    return [_File(action["path"], int(action["size_bytes"])) for action in actions]
