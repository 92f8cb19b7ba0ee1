"""When each landing file was added: the source's commit time, which Spark's stream lacks."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from pipeline.data.ingest.sources.landing_log import file_name
from pipeline.lake.delta.log import commits_after
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location

_CLOCK_SLACK_SECONDS: Final = 3600.0  # by which the clocks of landing's writers may differ


class LandingTimes:
    """Keeps the times of files that may still be unread."""

    def __init__(self, landing: Location) -> None:
        """Prepare; reads nothing yet."""
        self._landing = landing
        self._version: int | None = None
        self._times: dict[str, int] = {}

    def read(self) -> Mapping[str, int]:
        """Return file name → time in microseconds of every file that may still be unread.

        The first call reads the whole table, later ones only its new commits.
        """
        if self._version is None:
            table = open_table(self._landing)
            actions = pa.table(table.get_add_actions(flatten=True))
            files = zip(
                actions.column("path").to_pylist(), actions.column("modification_time").to_pylist(), strict=True
            )
            self._times = {file_name(path, self._landing): ms * 1000 for path, ms in files}
            self._version = table.version()
        for version, commit in commits_after(self._landing, self._version):
            added = [action["add"] for action in commit if "add" in action]
            self._times.update({file_name(add["path"], self._landing): add["modificationTime"] * 1000 for add in added})
            self._version = version
        return self._times

    def consumed(self, oldest_source_at: float | None) -> None:
        """Forget files much older than a finished batch (Unix seconds): commits are read in order."""
        if oldest_source_at is not None:
            floor = (oldest_source_at - _CLOCK_SLACK_SECONDS) * 1e6
            self._times = {name: time for name, time in self._times.items() if time >= floor}
