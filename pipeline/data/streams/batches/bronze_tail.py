"""Bronze's log as a streaming source of Spark: where the next micro-batch ends, found in Spark's planner.

The planner is a Python process that lives as long as the query, so this imports little.
"""

from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pipeline.base.errors import Transient
from pipeline.data.log_tail import AddedFile, Offset, TailReader, offset
from pipeline.lake.delta.log import Action, appended, changes, has_version
from pipeline.lake.delta.marks import info_of
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located


class BronzeSource(DataSource):
    """The files of bronze with new rows, in the order of their commits."""

    @classmethod
    def name(cls) -> str:
        """Return the name of this format."""
        return "turnout_bronze"

    def schema(self) -> str:
        """Return the columns: a file's path in the log."""
        return "path string"

    def simpleStreamReader(self, schema: StructType) -> "BronzeTail":  # noqa: ARG002, N802 - Spark's signature
        """Return the reader for these options."""
        of = self.options
        begin = offset(of["id"], int(of["version"]))
        return BronzeTail(located(of["bronze"]), begin, int(of["max_bytes"]), float(of["trigger_seconds"]))


class BronzeTail(TailReader):
    """Reads commits that add rows to plain bronze; those that take or change rows are passed over."""

    def __init__(self, bronze: Location, begin: Offset, max_bytes: int, trigger_seconds: float) -> None:
        """Begin at an offset, of a commit that the driver has just read."""
        super().__init__(bronze, f"Bronze at {bronze}", begin, max_bytes, trigger_seconds)

    def read(self, start: Offset) -> tuple[Iterator[tuple[str]], Offset]:
        """Return what `TailReader.read` does.

        Raises:
            Transient: see there; or the log was cut up to this offset, and a writer that had stood still may have put
                a commit into the gap, which it is about to take back.
        """
        files, end = super().read(start)
        version = start["reservoirVersion"]
        is_begin = version in {0, self._begin["reservoirVersion"]}
        if end != start and not is_begin and not has_version(self._table, version - 1):
            raise Transient(f"{self._what} no longer has commit {version - 1}, after which it is read.")
        return files, end

    def added(self, version: int, actions: Sequence[Action]) -> Sequence[AddedFile]:
        """Return the files with new rows of a commit, none if it takes rows: the games that lack them find out.

        Raises:
            Transient: the commit brings features, which another reader may know: the query has to choose again.
        """
        if version > self._begin["reservoirVersion"] and any("protocol" in action for action in actions):
            raise Transient(f"Commit {version} of {self._what} changed its features.")
        if any(changes(action.get("remove")) for action in actions):
            return ()
        made = info_of(actions).get("timestamp")
        if isinstance(made, int):
            self._found.append(made / 1000)
        return [AddedFile(add["path"], int(add["size"]), add.get("stats")) for add in appended(actions)]
