"""The tables that needed nothing in a round: later rounds only check their version.

Kept in memory: a new process visits every table.
"""

import math
from typing import Final

from pipeline.data.maintenance.report import TableReport
from pipeline.lake.delta.log import commit_file
from pipeline.lake.storage.location import Location

_MAX_SECONDS: Final = 6 * 3600.0  # after which a table is visited anyway: files and log entries grow old
_NEVER: Final = (-1, -math.inf, 0, 0)


class Unchanged:
    """Remembers tables from round to round."""

    def __init__(self) -> None:
        """Begin without tables."""
        self._tables: dict[Location, tuple[int, float, int, int]] = {}  # version, when it was looked at, files, bytes

    def report(self, path: Location, name: str, now: float) -> TableReport | None:
        """Return what is known of a table that can be skipped, None where it must be visited."""
        version, looked_at, files, size = self._tables.get(path, _NEVER)
        is_newest = commit_file(path, version).exists() and not commit_file(path, version + 1).exists()
        if not (0 <= now - looked_at < _MAX_SECONDS and is_newest):
            return None
        return TableReport(name, files_before=files, files_after=files, bytes=size)

    def keep(self, path: Location, now: float, report: TableReport) -> None:
        """Remember a visited table if it needed nothing; a table that was skipped keeps its time."""
        if report.version is None:
            return
        self._tables.pop(path, None)
        if not report.touched and report.files_after is not None and report.bytes is not None:
            self._tables[path] = (report.version, now, report.files_after, report.bytes)
