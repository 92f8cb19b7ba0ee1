"""Ingest's own Spark source for the landing table: the files that its commits added, read by the task that lands them.

`log_tail` reads the log; the rows of the files are `landing_files`'.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pipeline.base.errors import Transient
from pipeline.data.log_tail import AddedFile, Offset, TailReader, offset
from pipeline.lake.delta.log import Action, appended, changes
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located


class LandingSource(DataSource):
    """The files of a landing table with new rows, in the order of their commits."""

    @classmethod
    def name(cls) -> str:
        """Return the name of this format."""
        return "turnout_landing"

    def schema(self) -> str:
        """Return the columns: a file's path in the log."""
        return "topic string"

    def simpleStreamReader(self, schema: StructType) -> "LandingReader":  # noqa: ARG002, N802 - Spark's signature
        """Return the reader for these options."""
        of = self.options
        begin = offset(of["id"], int(of["version"]), is_starting=of["is_starting"] == "true")
        limits = int(of["max_bytes"]), float(of["trigger_seconds"])
        return LandingReader(located(of["landing"]), begin, int(of["known_to"]), *limits)


class LandingReader(TailReader):
    """Reads commits that add rows; any other change ends the query, and its restart reports how to handle it."""

    def __init__(self, landing: Location, begin: Offset, known_to: int, max_bytes: int, trigger_seconds: float) -> None:
        """Begin at an offset; the table's columns and features are known as of commit `known_to`."""
        super().__init__(landing, f"The landing table {landing}", begin, max_bytes, trigger_seconds)
        self._known_to = known_to

    def added(self, version: int, actions: Sequence[Action]) -> Sequence[AddedFile]:
        """Return the files with new rows of a commit.

        Raises:
            Transient: the commit changes rows, columns or features, or adds files with deletion vectors.
        """
        if any(changes(action.get("remove")) for action in actions):
            raise Transient(f"Commit {version} of the landing table {self._table} removed or changed rows.")
        if version > self._known_to and any("metaData" in action or "protocol" in action for action in actions):
            raise Transient(f"Commit {version} of the landing table {self._table} changed its columns or features.")
        added = list(appended(actions))
        if any(add.get("deletionVector") for add in added):
            raise Transient(
                f"Commit {version} of the landing table {self._table} adds files with deletion vectors, which ingest "
                f"cannot read. Use a copy without them (CREATE TABLE ... AS SELECT)."
            )
        return [AddedFile(add["path"], int(add["size"])) for add in added]

    def snapshot(self, version: int) -> Sequence[AddedFile]:
        """Return the files of the table as of a commit, oldest first."""
        actions = pa.table(open_table(self._table, version).get_add_actions(flatten=True)).to_pylist()
        actions.sort(key=lambda action: (action["modification_time"], action["path"]))
        return [AddedFile(action["path"], int(action["size_bytes"])) for action in actions]
